"""What a run lacks is found before its cold start: nothing is trained and nothing is written."""

from __future__ import annotations

import dataclasses
import http.server
import importlib.util
import json
import shutil
import threading
from collections import namedtuple
from types import SimpleNamespace

import pytest
import yaml
from PIL import Image
from transformers import Qwen2_5_VLConfig, Qwen3_5Config

from codev_env.app.check import Check
from codev_env.app.cli import main
from codev_env.errors import ConfigError
from codev_train import checks
from codev_train.run import model_files
from codev_train.run.config import read_request
from codev_train.run.options import TrainOptions

GONE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def without(monkeypatch):
    """Hides packages."""
    found = importlib.util.find_spec

    def hide(*names: str) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda n, *more: None if n in names else found(n, *more))

    return hide


def refused(capsys, *words: str, command: str = "train") -> str:
    assert main([command, "--preset", "smoke", *words]) == 1
    out, err = capsys.readouterr()
    assert "Cold start" not in out and err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("package", "words", "said"),
    [
        (
            "vllm",
            ["--engine", "vllm"],
            '--engine vllm needs vLLM, which is not installed (pip install "codev-env[vllm]")',
        ),
        (
            "peft",
            ["--lora.rank", "4"],
            '--lora.rank needs peft, which is not installed (pip install "codev-env[lora]")',
        ),
        ("torchao", ["--optimizer.name", "adamw8bit"], "--optimizer.name adamw8bit needs torchao"),
    ],
)
def test_a_package_that_is_not_installed(package, words, said, without, capsys, elsewhere):
    without(package)
    assert said in refused(capsys, *words)
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("command", ["train", "sft"])
def test_a_package_that_only_the_cold_start_needs(command, without, capsys, elsewhere, tmp_path):
    without("torchao")
    file = tmp_path / "eight.yaml"
    file.write_text(yaml.safe_dump({"sft": {"imitate": {"optimizer": {"name": "adamw8bit"}}}}))
    said = refused(capsys, "--config", str(file), command=command)
    assert "--imitate.optimizer.name adamw8bit needs torchao" in said
    assert not list(elsewhere.iterdir())


def test_processes_that_cannot_share_rows_out(capsys, elsewhere):
    said = refused(capsys, "--sequence-parallel", "2", "--token-budget", "512")
    assert "--sequence-parallel is 2; it must be a divisor of the 1 processes (--processes)." in said
    assert not list(elsewhere.iterdir())


def small_model(kind: str) -> tuple[dict, dict]:
    """Return language and vision parts of a small model; "linear" has layers of linear attention."""
    text = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2}
    text |= {"head_dim": 4, "intermediate_size": 16, "vocab_size": 64}
    vision = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "out_hidden_size": 24}
    if kind == "linear":
        text |= {"layer_types": ["linear_attention", "full_attention"]}
    return text, vision


@pytest.mark.parametrize(
    ("kind", "number", "allowed"),
    [
        ("full", 4, "a divisor of the model's 6 attention heads"),
        ("linear", 2, "1 for a model with linear attention, whose state passes from token to token"),
        ("full", 3, ""),
        ("linear", 1, ""),
    ],
)
def test_a_model_whose_rows_cannot_be_shared_out(kind, number, allowed, tmp_path):
    text, vision = small_model(kind)
    config = (Qwen3_5Config if kind == "linear" else Qwen2_5_VLConfig)(text_config=text, vision_config=vision)
    config.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    words = ["--preset", "smoke", "--model", str(tmp_path), "--sequence-parallel", str(number), "--token-budget", "512"]
    request = read_request(words)
    found = list(checks._model(checks.PlannedRun(request, request.parse("train", TrainOptions, "codev train"))))
    wanted = [f"--sequence-parallel is {number}; it must be {allowed}."] if allowed else []
    assert [check.detail for check in found if check.status == "fail"] == wanted


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--max-length", "2000"], []),
        (["--max-length", "2001"], [("warn", "--max-length is 2001: episodes are cut off at the model's 2000 positions")]),  # noqa: E501
        (
            ["--max-tokens", "2000", "--max-length", "4000"],
            [
                ("fail", "--max-tokens is 2000; it must be less than the 2000 positions of the model, which the first "
                 "prompt shares."),
                ("warn", "--max-length is 4000: episodes are cut off at the model's 2000 positions"),
            ],
        ),
    ],
)  # fmt: skip
def test_a_model_with_fewer_positions_than_the_longest_trajectory(words, found, tmp_path):
    text, vision = small_model("full")
    config = Qwen2_5_VLConfig(text_config=text | {"max_position_embeddings": 2000}, vision_config=vision)
    config.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    request = read_request(["--preset", "smoke", "--model", str(tmp_path), *words])
    plan = checks.PlannedRun(request, request.parse("train", TrainOptions, "codev train"))
    assert [(check.status, check.detail) for check in checks._model(plan) if check.status != "ok"] == found


def test_a_cold_start_whose_heads_cannot_be_shared_out():
    request = read_request(["--preset", "smoke", "--sequence-parallel", "3", "--token-budget", "512"])
    found = list(checks._model(checks.PlannedRun(request, request.parse("train", TrainOptions, "codev train"))))
    assert "--sequence-parallel is 3; it must be a divisor of the model's" in found[-1].detail


def test_a_server_that_does_not_answer(capsys, elsewhere):
    said = refused(capsys, "--engine", "vllm-server", "--vllm.url", GONE, "--vllm.patience", "0")
    assert f"--vllm.url: {GONE} does not answer" in said and "docs/engines.md" in said
    assert "give its address: --vllm.url (docs" in said and "continue" not in said
    assert not list(elsewhere.iterdir())


def test_judge_and_engine_that_do_not_answer_are_named_together(capsys):
    judge = json.dumps({"name": "vlm", "model": "m", "base_url": f"{GONE}/v1", "retries": 0, "timeout_s": 2})
    words = ["--engine", "vllm-server", "--vllm.url", GONE, "--vllm.patience", "0", "--env.judge", judge]
    said = refused(capsys, *words)
    assert f"{GONE}/v1" in said and f"--vllm.url: {GONE}" in said


def test_a_server_may_come_up_late(capsys):
    class Late(http.server.BaseHTTPRequestHandler):
        asked = 0

        def do_GET(self):
            Late.asked += self.path == "/health"
            self.send_response(503 if Late.asked < 3 else 200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Late) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = ["--engine", "vllm-server", "--vllm.url", f"http://127.0.0.1:{server.server_port}"]
        request = read_request(["--preset", "smoke", *words])
        options = request.parse("train", TrainOptions, "codev train")
        (found,) = checks._server(checks.PlannedRun(request, options))
        server.shutdown()
    assert found.status == "ok" and Late.asked == 3
    assert capsys.readouterr().out.count("Waiting up to 300 s for the vLLM server") == 1


@pytest.mark.parametrize(("takes", "status"), [(4095, "fail"), (4096, "ok"), (None, "ok"), ([], "ok")])
def test_a_server_that_takes_shorter_sequences(takes, status):
    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(404 if takes is None and self.path == "/v1/models" else 200)
            self.end_headers()
            if self.path == "/v1/models" and takes is not None:
                self.wfile.write(json.dumps({"data": [{"id": "m", "max_model_len": takes}]}).encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = ["--engine", "vllm-server", "--vllm.url", f"http://127.0.0.1:{server.server_port}"]
        request = read_request(["--preset", "smoke", "--max-length", "4096", *words])
        found = list(checks._server(checks.PlannedRun(request, request.parse("train", TrainOptions, "codev train"))))
        server.shutdown()
    assert found[-1].status == status
    assert status == "ok" or "start it with --max-model-len 4096, or give --max-length 4095" in found[-1].advice


@pytest.mark.parametrize(("resume", "status"), [("runs/earlier", "warn"), ("", "fail")])
def test_a_resumed_run_does_without_a_server_that_is_gone(resume, status, capsys):
    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = ["--engine", "vllm-server", "--vllm.url", GONE, f"http://127.0.0.1:{server.server_port}"]
        request = read_request(["--preset", "smoke", *words, "--vllm.patience", "0.1"])
        options = dataclasses.replace(request.parse("train", TrainOptions, "codev train"), resume=resume)
        gone, there = checks._server(checks.PlannedRun(request, options))
        server.shutdown()
    assert (gone.status, there.status) == (status, "ok") and f"{GONE} does not answer" in gone.detail
    assert bool(resume) == ("left out" in capsys.readouterr().out)


@pytest.mark.parametrize("lacks", ["config.json", "model.safetensors", "model-00002-of-00002.safetensors"])
@pytest.mark.parametrize("command", ["train", "sft"])
def test_a_model_folder_that_lacks_a_file(command, lacks, capsys, elsewhere, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    files = {"config.json": "{}"}
    if lacks in names:
        index = json.dumps({"weight_map": {"a": names[0], "b": names[1]}})
        files |= {"model.safetensors.index.json": index, **dict.fromkeys(names, "")}
    for name in files.keys() - {lacks}:
        (model / name).write_text(files[name])
    said = refused(capsys, "--model", str(model), command=command)
    assert f"--model {model} holds no whole model: {lacks} is missing" in said
    assert not list(elsewhere.iterdir())


def test_a_name_of_the_hub_that_was_not_downloaded_and_cannot_be(capsys, elsewhere):
    assert "--model Qwen/Qwen2.5-VL-7B-Instruct: it is not on this machine, and HF_HUB_OFFLINE forbids" in refused(
        capsys, "--model", "Qwen/Qwen2.5-VL-7B-Instruct"
    )
    assert not list(elsewhere.iterdir())


def test_a_hub_that_does_not_answer(monkeypatch):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)

    def fail(*_, **__):
        raise ConnectionError("no route to the hub\nmore")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)
    assert model_files.hub_problem("org/name").endswith("the hub does not offer it: no route to the hub")
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: None)
    assert model_files.hub_problem("org/name") == ""


def test_a_full_disk(policy, capsys, elsewhere, tmp_path, monkeypatch):
    policy.save(tmp_path / "model")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(10, 10, 0))
    said = refused(capsys, "--model", str(tmp_path / "model"))
    assert "0.0 GB free in" in said and "lower --keep" in said
    assert not list(elsewhere.iterdir())


def test_the_disk_of_the_weights_for_a_server(policy, capsys, elsewhere, tmp_path, monkeypatch):
    """The last push stays until the next one is read."""
    policy.save(tmp_path / "model")
    (tmp_path / "shared").mkdir()
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(10, 10, 0 if "shared" in str(place) else 10**12))
    words = ["--model", str(tmp_path / "model"), "--engine", "vllm-server", "--vllm.patience", "0"]
    said = refused(capsys, *words, "--vllm.folder", str(tmp_path / "shared"))
    assert f"0.0 GB free in {tmp_path / 'shared'}" in said and "--vllm.folder" in said and "--keep" not in said


def test_an_evaluation_on_tasks_that_are_trained_on_is_told(elsewhere):
    Image.new("RGB", (80, 60), "grey").save(elsewhere / "a.png")
    row = {"image": "a.png", "question": "Which?", "answer": "cat"}
    for name, question in (("one", "Which?"), ("other", "Who?")):
        (elsewhere / f"{name}.jsonl").write_text(json.dumps(row | {"question": question}) + "\n")
    words = ["--preset", "smoke", "--env.id", "codev_env:CodeV-Dataset-v0", "--env.data", "one.jsonl"]
    for more, status in ((), "warn"), (("--eval.data", "one.jsonl"), "warn"), (("--eval.data", "other.jsonl"), ""):
        request = read_request([*words, *more])
        options, _ = request.examine("train", TrainOptions, "codev train")
        found = list(checks._tasks(checks.PlannedRun(request, options, dry=True)))
        assert [check.status for check in found if check.name == "held out"] == [status] * bool(status)
    with pytest.warns(UserWarning, match=r"tasks of the evaluation \(test\) are trained on.*give --eval.data"):
        options = read_request(words).examine("train", TrainOptions, "codev train")[0]
        list(checks._tasks(checks.PlannedRun(read_request(words), options)))


def test_other_processes_end_after_the_main_one_has_said_why(monkeypatch):
    """A launcher ends all processes as soon as one has ended."""
    waits: list[float] = []
    monkeypatch.setattr(checks, "gather_object", lambda found: [Check("servers", "url", "fail", "does not answer")])
    monkeypatch.setattr(checks.time, "sleep", waits.append)
    with pytest.raises(ConfigError, match="does not answer"):
        checks._stop_together([], SimpleNamespace(is_main_process=True))
    assert not waits
    with pytest.raises(SystemExit):
        checks._stop_together([], SimpleNamespace(is_main_process=False))
    assert waits == [checks._SAID_S] and waits[0] >= 5
