"""`codev train --dry-run`: what is looked at, what fails, and that nothing is left behind."""

from __future__ import annotations

import http.server
import json
import shutil
import threading
from collections import namedtuple

import pytest

from codev_env.app.cli import main
from codev_train.run import dryrun, schedule
from codev_train.run.config import presets
from codev_train.run.options import TrainOptions
from codev_train.run.sizes import KNOWN_MODELS

GONE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def look(capsys, *words: str) -> tuple[int, dict[str, str], str]:
    """Return the exit code, the status of each line, and everything that was printed."""
    code = main(["train", "--dry-run", *words])
    out, err = capsys.readouterr()
    lines = (line.split() for line in out.splitlines())
    statuses = {" ".join(parts[1:]): parts[0] for parts in lines if parts and parts[0] in ("ok", "warn", "fail")}
    return code, statuses, out + err


def status(statuses: dict[str, str], name: str) -> str:
    (found,) = (value for line, value in statuses.items() if line.startswith(name))
    return found


@pytest.mark.parametrize("preset", presets())
def test_every_preset_passes_on_a_machine_without_gpu_hub_or_data(preset, elsewhere, capsys):
    code, statuses, said = look(capsys, "--preset", preset)
    assert code == 0, said
    assert "fail" not in statuses.values()
    assert {status(statuses, name) for name in ("values", "train tasks", "episode", "memory")} == {"ok"}
    assert "memory of one process, estimated, in GB" in said and "time of one update, estimated" in said
    assert "Nothing was trained, nothing was written." in said
    too_few = any(name.startswith("GPUs") and value == "warn" for name, value in statuses.items())
    assert ("does not run on this machine" in said) == too_few
    assert not list(elsewhere.iterdir())


def test_everything_that_fails_is_told_at_once(elsewhere, capsys):
    (elsewhere / "file").write_text("")
    words = ["--steps", "0", "--env.data", "no/such", "--model", "no/such", "--out", "file/runs", "--lora.rank", "4"]
    code, statuses, said = look(capsys, "--preset", "smoke", *words, "--engine", "vllm-server", "--vllm.url", GONE)
    assert code == 1
    for name in ("steps", "tasks", "episode", "vllm-server", "model", "run folder"):
        assert status(statuses, name) == "fail", name
    assert "because of 6 of the checks above: steps, tasks, episode, model, run folder, vllm-server." in said
    assert [path.name for path in elsewhere.iterdir()] == ["file"]


def test_a_server_that_does_not_answer_fails_here_and_is_a_remark_where_the_run_is_meant_for_gpus(capsys):
    judge = json.dumps({"name": "vlm", "model": "m", "base_url": f"{GONE}/v1", "retries": 0, "timeout_s": 2})
    words = ["--preset", "smoke", "--env.judge", judge, "--engine", "vllm-server", "--vllm.url", GONE]
    code, statuses, _ = look(capsys, *words)
    assert code == 1 and status(statuses, "vlm") == status(statuses, "vllm-server") == "fail"
    code, statuses, _ = look(capsys, *words, "--estimate.gpus", "2")
    assert code == 0 and status(statuses, "vlm") == status(statuses, "vllm-server") == "warn"


def test_servers_that_answer(capsys):
    class Healthy(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        words = ["--preset", "smoke", "--env.judge", f"{url}/v1#m", "--engine", "vllm-server", "--vllm.url", url]
        code, statuses, said = look(capsys, *words)
        server.shutdown()
    assert code == 0, said
    assert status(statuses, "vlm") == status(statuses, "vllm-server") == "ok"


def test_a_model_that_does_not_fit_fails_with_what_to_do(capsys):
    words = ["--preset", "qwen2.5-vl-7b-tapo", "--estimate.gpu", "h100", "--estimate.shards", "1"]
    code, statuses, said = look(capsys, *words)
    assert code == 1 and status(statuses, "memory") == "fail" and "raise estimate.shards" in said
    # The policy alone, in bf16, is more than vLLM may take.
    code, statuses, said = look(capsys, "--preset", "qwen2.5-vl-7b-tapo", "--vllm.memory", "0.1")
    assert code == 1 and status(statuses, "cache") == "fail" and "raise vllm.memory" in said


def test_rows_that_are_shared_out_take_less_memory(capsys):
    words = ["--preset", "qwen2.5-vl-7b-tapo", "--token-budget", "65536"]
    alone, shared = (look(capsys, *words, "--sequence-parallel", number) for number in ("1", "4"))
    assert activations(shared[2]) < 0.65 * activations(alone[2])
    code, statuses, said = look(capsys, *words, "--sequence-parallel", "7")
    assert code == 1 and status(statuses, "sequence-parallel") == "fail" and "a divisor of the 8 processes" in said


def activations(report: str) -> float:
    (line,) = (line for line in report.splitlines() if line.split()[:1] == ["activations"])
    return float(line.split()[1])


def test_a_full_disk_fails_here_and_is_a_remark_for_another_machine(capsys, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(10, 10, 0))
    assert status(look(capsys, "--preset", "smoke")[1], "disk") == "fail"
    assert status(look(capsys, "--preset", "smoke", "--estimate.gpus", "1")[1], "disk") == "warn"


def test_a_folder_that_takes_nothing_is_not_called_a_full_disk(capsys):
    code, statuses, said = look(capsys, "--preset", "smoke", "--out", "/proc/nobody-writes-here")
    assert code == 1 and status(statuses, "run folder") == "fail"
    assert "/proc cannot be written" in said and "GB free" not in said


def test_data_that_is_not_there_is_told_once(capsys):
    code, statuses, said = look(capsys, "--preset", "smoke", "--env.data", "/nope")
    assert code == 1
    assert {status(statuses, name) for name in ("tasks", "episode", "model")} == {"fail"}
    assert said.count("/nope: no such file or folder") == 1
    assert said.count("fails like tasks") == 2


def test_a_trajectory_beyond_the_longest_is_what_is_blamed(capsys):
    words = ["--preset", "qwen2.5-vl-7b-tapo", "--estimate.trajectory", "999999"]
    code, statuses, said = look(capsys, *words)
    assert code == 1 and status(statuses, "estimate.trajectory") == "fail"
    assert "it must be at most max-length" in said and "leave no room" not in said


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.26, "0.3 seconds"),
        (119.9, "119.9 seconds"),
        (120, "2.0 minutes"),
        (7199, "120.0 minutes"),
        (9000, "2.5 hours"),
    ],
)
def test_times_are_told_in_the_unit_that_fits(capsys, monkeypatch, seconds, text):
    monkeypatch.setattr(dryrun.estimate, "seconds", lambda *_: dryrun.estimate.Seconds(seconds / 2, 0, 0, 0))
    assert f"in all, {text} for 2 updates" in look(capsys, "--preset", "smoke")[2]


def test_a_preset_without_model_or_cold_start_is_told(capsys):
    code, statuses, said = look(capsys)
    assert code == 1 and status(statuses, "model") == "fail" and "model is empty" in said


def test_times_of_an_earlier_run_are_shown(elsewhere, capsys):
    history = elsewhere / "runs" / "smoke" / "history.jsonl"
    history.parent.mkdir(parents=True)
    rows = [{"step": n, "seconds/rollouts": n, "seconds/update": 10.0 * n} for n in (1, 2, 3)]
    history.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = look(capsys, "--preset", "smoke")[2]
    assert "measured in runs/smoke: rollouts 2.00, update 20.00 (medians of 3 updates)" in said


def test_the_cold_start_alone_knows_no_dry_run(capsys):
    assert main(["sft", "--preset", "smoke", "--dry-run"]) == 1
    assert "`codev train`" in capsys.readouterr().err


def test_the_speed_of_this_cpu_is_measured():
    assert 1e8 < dryrun.cpu_flops(size=64, tries=2) < 1e15


def test_the_history_of_a_run_that_was_killed_while_it_wrote_is_read(elsewhere):
    history = elsewhere / "history.jsonl"
    row = json.dumps({"step": 1, "seconds/rollouts": 3.0, "seconds/update": 4.0})
    history.write_text(row + "\n" + row[:20])
    assert "rollouts 3.00, update 4.00 (medians of 1 updates)" in dryrun._measured(history)


@pytest.mark.parametrize(("times", "said"), [(0, "no stragglers\n"), (2, "none of --resample's up to 512 groups\n")])
def test_groups_that_are_played_in_place_of_others_are_not_in_the_estimate(times, said):
    size, options = KNOWN_MODELS["Qwen2.5-VL-3B"], TrainOptions(resample=times)
    assert said in dryrun.report(size, options) + "\n"


def test_too_few_prompts_are_one_problem_and_no_table_is_without_rows(capsys):
    code, statuses, said = look(capsys, "--preset", "smoke", "--estimate.gpus", "8")
    assert code == 1 and status(statuses, "prompts") == "fail"
    assert "because of 1 of the checks above: prompts." in said and "rollouts" not in said
    assert schedule.table(KNOWN_MODELS["Qwen2.5-VL-3B"], TrainOptions(prompts=4, estimate={"gpus": 4})) == ""


def test_pixels_of_all_episodes_are_told_and_compared_with_this_machine(capsys, monkeypatch):
    said = look(capsys, "--preset", "qwen2.5-vl-7b-tapo")[2]
    # 256 trajectories a process, each of 3000 tokens of images of 4704 numbers.
    assert "pixels of 256 trajectories, in CPU memory, at most: 14.451; of 8 processes 115.606" in said
    assert "CPU memory  " not in said, "it is another machine"
    assert status(look(capsys, "--preset", "smoke")[1], "CPU memory") == "ok"
    monkeypatch.setattr(dryrun, "_machine_bytes", lambda: 6e6)
    code, statuses, said = look(capsys, "--preset", "smoke", "--prompts", "64")
    assert status(statuses, "CPU memory") == "warn" and "lower prompts or group" in said
