"""`codev train --push-to-hub`: what is checked before a run, what is uploaded, and what a failure leaves."""

from __future__ import annotations

import base64
import dataclasses
import http.server
import json
import threading
from types import SimpleNamespace

import pytest
import yaml

from codev_agents import NoTool, Oracle, run_episode
from codev_env.app.cli import main
from codev_env.files import write_json
from codev_env.scoring.metrics import summarize
from codev_train.publish import UploadFailed, hub_checks, publish
from codev_train.run.environments import make_env
from codev_train.run.options import TrainOptions

hub = pytest.importorskip("huggingface_hub")


@pytest.fixture
def online(monkeypatch):
    """A hub that takes everything and keeps what it got; `refuse` makes uploads fail."""
    state = SimpleNamespace(made=[], uploaded={}, refuse=False, user={"name": "me", "orgs": [{"name": "lab"}]})

    def create_repo(self, name, *, private=None, exist_ok=False):
        assert exist_ok
        state.made.append((name, private))
        return SimpleNamespace(repo_id=name if "/" in name else f"me/{name}")

    def upload_folder(self, *, repo_id, folder_path, commit_message):
        if state.refuse:
            raise ConnectionError("no route to the hub.\nmore")
        state.uploaded[repo_id] = {file.name: file.read_text(errors="replace") for file in folder_path.iterdir()}

    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "get_token", lambda: "hf_secret")
    monkeypatch.setattr(hub.HfApi, "whoami", lambda self: state.user)
    monkeypatch.setattr(hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(hub.HfApi, "upload_folder", upload_folder)
    return state


@pytest.fixture(scope="module")
def metrics(env_options):
    env = make_env(env_options, "train")
    agents = (NoTool(), Oracle(margin=0.0, snap=112))
    return [summarize([run_episode(env, agent, options={"index": 3})] * 4, seed=0) for agent in agents]


@pytest.fixture
def finished(tmp_path, metrics):
    """Makes the folder of a finished run."""

    def make(**options):
        (tmp_path / "run" / "model").mkdir(parents=True)
        (tmp_path / "run" / "model" / "config.json").write_text("{}")
        before, after = metrics
        given = dataclasses.asdict(TrainOptions(**options))
        write_json(
            tmp_path / "run" / "summary.json",
            {"source": "generated", "before": before, "after": after, "options": given},
        )
        return tmp_path / "run"

    return make


def test_a_run_that_names_no_repository_uploads_nothing(finished, online):
    run = finished()
    publish(run)
    assert not online.made and not (run / "model" / "README.md").exists()
    assert not list(hub_checks("", "fail"))


def test_the_model_goes_up_with_its_card(finished, online, capsys):
    publish(finished(push_to_hub="lab/glasses", model="Qwen/Qwen2.5-VL-3B-Instruct", reward="outcome", steps=7))
    assert online.made == [("lab/glasses", None)]
    files = online.uploaded["lab/glasses"]
    assert set(files) == {"config.json", "README.md"}
    _, header, text = files["README.md"].split("---\n", 2)
    assert yaml.safe_load(header)["base_model"] == "Qwen/Qwen2.5-VL-3B-Instruct" and "license" not in header
    assert "# glasses\n" in text and "reward `outcome`" in text and "7 updates" in text and "generated" in text
    (row,) = (line for line in text.splitlines() if line.startswith("faithful-tool rate"))
    assert row.index("0.0 % [") < row.index("100.0 % [")
    assert 'from_pretrained("lab/glasses")' in text
    assert "hf upload lab/glasses" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options, method",
    [
        ({}, "TAPO (arXiv 2511.19661)"),
        ({"reward": "outcome"}, "GRPO (arXiv 2402.03300)"),
        (
            {"imitation": {"calls": 4}, "candidates": 2, "lora": {"rank": 8}},
            "TAPO (arXiv 2511.19661), self-imitation of looks, tasks first whose answer the policy does not guess, "
            "LoRA of rank 8",
        ),
    ],
)
def test_the_card_names_the_method_and_its_parts(finished, online, options, method):
    publish(finished(push_to_hub="lab/glasses", **options))
    assert f"**Method**: {method}, reward `" in online.uploaded["lab/glasses"]["README.md"]


def test_the_card_of_a_run_whose_evaluations_differ_says_so(finished, online):
    run = finished(push_to_hub="lab/glasses")
    publish(run)
    assert "the same before and after training, sampled" in online.uploaded["lab/glasses"]["README.md"]
    summary = json.loads((run / "summary.json").read_text())
    write_json(run / "summary.json", summary | {"evaluation_before": "with other --eval options"})
    publish(run)
    text = online.uploaded["lab/glasses"]["README.md"]
    assert "the two do not compare" in text and "the same before" not in text


class Hub(http.server.BaseHTTPRequestHandler):
    """The few answers of a hub that an upload needs; requests are kept in `server.asked`."""

    def answer(self) -> None:
        path = self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((path, self.headers.get("authorization"), body))
        files = [{"path": "README.md", "uploadMode": "regular", "shouldIgnore": False}]
        files += [{"path": "config.json", "uploadMode": "regular", "shouldIgnore": False}]
        answers = {
            "/api/whoami-v2": {"name": "me", "orgs": [], "auth": {"accessToken": {"role": "write"}}},
            "/api/repos/create": {"url": f"{self.server.address}/me/glasses", "id": "me/glasses"},
            "/api/models/me/glasses/preupload/main": {"files": files},
            "/api/models/me/glasses/commit/main": {
                "commitUrl": f"{self.server.address}/me/glasses/commit/1",
                "commitOid": "1" * 40,
            },
        }
        content = json.dumps(answers.get(path, {})).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = answer  # noqa: N815

    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def served(monkeypatch):
    """A hub on 127.0.0.1 that the real client talks to; the list of what it was asked."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked, server.address = [], f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub.constants, "ENDPOINT", server.address)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    yield server.asked
    server.shutdown()
    server.server_close()


def test_the_client_of_the_hub_uploads_model_and_card(finished, served):
    assert [check.status for check in hub_checks("me/glasses", "fail")] == ["ok"]
    assert all("create" not in path for path, *_ in served), "a check makes nothing"
    run = finished(push_to_hub="me/glasses", push_private=True)
    publish(run)
    asked = {path: (token, body) for path, token, body in served}
    assert b'"private"' in asked["/api/repos/create"][1]
    token, body = asked["/api/models/me/glasses/commit/main"]
    rows = [json.loads(line)["value"] for line in body.splitlines()]
    sent = {row["path"]: base64.b64decode(row["content"]).decode() for row in rows if "path" in row}
    assert token == "Bearer hf_secret"
    assert sent == {"config.json": "{}", "README.md": (run / "model" / "README.md").read_text()}


def test_a_card_says_nothing_about_local_paths(finished, online, tmp_path):
    (tmp_path / "secret").mkdir()
    model, data = tmp_path / "secret", tmp_path / "secret" / "vstar"
    run = finished(push_to_hub="glasses", push_private=True, model=str(model), env={"data": str(data)})
    publish(run)
    assert online.made == [("glasses", True)]
    card = online.uploaded["me/glasses"]["README.md"]
    assert "secret" not in card and "base_model" not in card and "vstar" in card


def test_a_failed_upload_names_the_command_that_repeats_it(finished, online):
    run = finished(push_to_hub="lab/glasses", push_private=True)
    online.refuse = True
    with pytest.raises(UploadFailed) as failed:
        publish(run)
    assert str(failed.value) == (
        f"the run is complete in {run}, but the upload to lab/glasses failed: no route to the hub. "
        f"Repeat it with: hf upload lab/glasses {run / 'model'} --private"
    )
    assert (run / "model" / "README.md").exists(), "the command uploads the card as well"


@pytest.mark.parametrize("name", ["glasses", "me/glasses", "lab/glasses"])
def test_names_that_the_token_may_write(name, online):
    assert [check.status for check in hub_checks(name, "fail")] == ["ok"]
    assert not online.made


@pytest.mark.parametrize("name", ["a/b/c", "me/x--y", "me/ü", "me/x.git"])
def test_names_that_are_none(name, online):
    (check,) = hub_checks(name, "warn")
    assert check.status == "fail" and f"--push-to-hub {name}: " in check.detail


def test_what_a_machine_lacks_for_an_upload(online, monkeypatch):
    def said(name="lab/glasses") -> str:
        (check,) = hub_checks(name, "fail")
        assert check.status == "fail" and check.advice
        (there,) = hub_checks(name, "warn")  # A dry run for another machine only warns.
        assert there.status == "warn"
        return check.detail

    assert "stranger is neither the user of the token" in said("stranger/glasses")
    online.user = {"name": "me", "auth": {"accessToken": {"role": "read"}}}
    assert "may only read" in said()

    def fail(self):
        raise OSError("401\nmore")

    monkeypatch.setattr(hub.HfApi, "whoami", fail)
    assert said().endswith("the hub does not accept the token: 401")
    monkeypatch.setattr(hub, "get_token", lambda: None)
    assert "there is no token" in said()
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE forbids uploads" in said()


def test_a_run_that_could_not_upload_does_not_start(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--preset", "smoke", "--push-to-hub", "lab/glasses"]) == 1
    assert "--push-to-hub lab/glasses: HF_HUB_OFFLINE forbids uploads" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_run_whose_upload_fails_is_whole(arguments, runs, online, capsys):
    online.refuse = True
    assert main(["train", *arguments("pushed"), "--steps", "1", "--push-to-hub", "glasses"]) == 1
    out, err = capsys.readouterr()
    assert "Report:" in out and (runs / "pushed" / "report.html").exists()
    assert f"Repeat it with: hf upload glasses {runs / 'pushed' / 'model'}" in err
    online.refuse = False
    publish(runs / "pushed")
    assert {"config.json", "model.safetensors", "README.md"} <= set(online.uploaded["me/glasses"])


def test_the_card_states_reward_and_measure_and_the_report_goes_along_without_its_settings(finished, online, tmp_path):
    run = finished(push_to_hub="lab/glasses", env={"judge": "http://10.0.0.7:8000/v1#seer"})
    page = (
        '<a href="#settings">Settings</a><section id="settings"><pre>/home/me</pre></section><article>a look</article>'
    )
    (run / "report.html").write_text(page)
    publish(run)
    files = online.uploaded["lab/glasses"]
    card = files["README.md"]
    assert "1 × `outcome`" in card and "0.5 × `tool`" in card and "judge: `seer`" in card and "10.0.0.7" not in card
    assert "clearly showed the evidence" in card and "[report.html](report.html)" in card
    assert files["report.html"] == "<article>a look</article>"


def test_the_card_states_the_weights_of_the_run(finished, online):
    publish(finished(push_to_hub="lab/glasses", weights={"tool": 0.125}))
    card = online.uploaded["lab/glasses"]["README.md"]
    assert "1 × `outcome`" in card and "0.125 × `tool`" in card and "0.5 × `tool`" not in card


@pytest.mark.parametrize(("scenes", "said"), [("", "the same data"), ("toy", "generated scenes (`toy`)")])
def test_the_card_states_the_scenes_of_the_evaluation(finished, online, scenes, said):
    publish(finished(push_to_hub="lab/glasses", eval={"scenes": scenes}))
    assert f"held-out episodes of {said} (split `test`" in online.uploaded["lab/glasses"]["README.md"]


def test_a_report_stays_here_where_asked(finished, online):
    run = finished(push_to_hub="lab/glasses", push_report=False)
    (run / "report.html").write_text("<article></article>")
    publish(run)
    assert set(online.uploaded["lab/glasses"]) == {"config.json", "README.md"}
    assert "report.html" not in online.uploaded["lab/glasses"]["README.md"]


@pytest.mark.parametrize("there", [True, False])
def test_a_resumed_run_comes_from_a_cold_start_too(finished, online, tmp_path, monkeypatch, there):
    """Its options name the folder of the start, which may be gone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "start-1").mkdir(parents=True)
    if there:
        (tmp_path / "runs" / "start-1" / "sft.json").write_text("{}")
    else:
        (tmp_path / "runs" / "start-1").rmdir()
    publish(finished(push_to_hub="glasses", model="runs/start-1"))
    card = online.uploaded["me/glasses"]["README.md"]
    assert "start-1" not in card and "base_model" not in card
    assert ("- **Start**: a cold start by SFT" if there else "- **Start**: a local model") in card


@pytest.mark.parametrize("model", ["a/path/of/mine", "/secret/start", "./start", "~/start"])
def test_a_path_whose_folder_is_gone_is_no_name_of_the_hub(finished, online, model):
    publish(finished(push_to_hub="glasses", model=model))
    card = online.uploaded["me/glasses"]["README.md"]
    assert model not in card and "base_model" not in card


def test_a_card_of_a_name_without_owner_names_the_owner(finished, online):
    run = finished(push_to_hub="glasses")
    publish(run)
    card = online.uploaded["me/glasses"]["README.md"]
    assert 'from_pretrained("me/glasses")' in card and "hf download me/glasses" in card and "# glasses\n" in card
    assert (run / "model" / "README.md").read_text("utf-8") == card
