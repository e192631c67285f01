"""The adapter for OpenEnv: a real server in this process, the real client over WebSocket, and the folder of a Space."""

from __future__ import annotations

import json
import os
import re
import runpy
import socket
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("openenv.core", reason="OpenEnv is not installed: pip install openenv")
import huggingface_hub  # noqa: E402
import uvicorn  # noqa: E402
import yaml  # noqa: E402
from chat_server import LOOKED_RIGHT, SCENES, oracle  # noqa: E402
from gradio_client import Client as GradioClient  # noqa: E402
from openenv.cli import _validation  # noqa: E402
from openenv.cli.__main__ import app as command_line  # noqa: E402
from openenv.cli.commands import push  # noqa: E402
from openenv.core import GenericEnvClient  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from codev_env.adapters.episodes import EpisodeRunner  # noqa: E402
from codev_env.adapters.openenv import CodeVClient, TurnAction, make_app  # noqa: E402
from codev_env.messages import from_data_url  # noqa: E402

SPACE = Path(__file__).parents[2] / "examples" / "openenv_space"
TOY = {"CODEV_SPACE_SCENES": "toy", "CODEV_SPACE_MAX_TURNS": "3"}


@pytest.fixture(scope="module")
def url():
    """A served environment."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_app(sessions=4, **SCENES), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()


def play(client, act, **task):
    """Play an episode; returns the results and what was said."""
    results = [client.reset(**task)]
    first = results[0].observation
    messages = [{"role": "system", "content": first.system_prompt}, {"role": "user", "content": first.content()}]
    while not results[-1].done:
        text = act(messages)
        results.append(client.step(TurnAction(text=text)))
        content = results[-1].observation.content()
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": content}]
    return results, messages


def test_a_client_plays_an_episode(url):
    with CodeVClient(base_url=url).sync() as client:
        results, messages = play(client, oracle([3], **SCENES), index=3, episode_id="e")
        state = client.state()
    assert sum(result.reward for result in results[1:]) == pytest.approx(1.8)
    assert [len(result.observation.images) for result in results] == [1, 1, 0]
    assert results[-1].observation.metadata["is_faithful"] is True and messages[0]["content"]
    assert state.reward_terms == pytest.approx(LOOKED_RIGHT)
    assert (state.episode_id, state.step_count, state.reward) == ("e", 2, pytest.approx(1.8))


def test_images_arrive_without_loss(url):
    player = EpisodeRunner(**SCENES)
    image = player.reset(index=5)["images"][0]
    with CodeVClient(base_url=url).sync() as client:
        sent = client.reset(index=5).observation.images[0]
    assert np.array_equal(np.asarray(from_data_url(sent)), image)


def test_two_clients_have_episodes_of_their_own(url):
    with CodeVClient(base_url=url).sync() as one, CodeVClient(base_url=url).sync() as two:
        ids = [client.reset(index=index).observation.metadata["task_id"] for client, index in ((one, 0), (two, 1))]
        one.step(TurnAction(text="<answer>nothing</answer>"))
        assert [client.state().task_id for client in (one, two)] == ids and ids[0] != ids[1]
        assert not two.step(TurnAction(text="well")).done


def test_a_client_without_this_package_plays_with_dictionaries(url):
    with GenericEnvClient(base_url=url).sync() as client:
        first = client.reset(seed=7)
        result = client.step({"text": "<answer>nothing</answer>"})
    assert "<image>" in first.observation["text"] and first.observation["images"][0].startswith("data:image/png")
    assert result.done and result.observation["metadata"]["stop_reason"] == "answer"


def test_the_same_seed_draws_the_same_task(url):
    with CodeVClient(base_url=url).sync() as client:
        drawn = [client.reset(seed=seed).observation.metadata["index"] for seed in (1, 2, 1)]
    assert drawn[0] == drawn[2]


def test_the_example_runs(url, capsys):
    runpy.run_path(str(SPACE / "client.py"))["main"](url)
    assert "reward" in capsys.readouterr().out


# The folder of a Space


def start(**variables):
    """Start the folder as its Dockerfile does, but on a free port of this machine alone."""
    command = json.loads(re.findall(r"^CMD (.+)$", (SPACE / "server" / "Dockerfile").read_text(), re.M)[-1])
    assert command[0] == "uvicorn" and command[-4:] == ["--host", "0.0.0.0", "--port", "8000"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("CODEV_SPACE_")}
    return subprocess.Popen(
        [sys.executable, "-m", *command[:-4], "--host", "127.0.0.1", "--port", "0"],
        cwd=SPACE,
        env={**own, "PYTHONDONTWRITEBYTECODE": "1", "GRADIO_ANALYTICS_ENABLED": "False", **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def space():
    """The URL of the folder's server, with the web interface that a pushed Space has."""
    with start(ENABLE_WEB_INTERFACE="true", **TOY) as server:
        lines = []
        for line in server.stderr:
            lines.append(line)
            if found := re.search(r"running on (http://127\.0\.0\.1:\d+)", line):
                break
        else:
            pytest.fail("".join(lines))
        thread = threading.Thread(target=server.stderr.read, daemon=True)  # so that its log never blocks it
        thread.start()
        yield found[1]
        server.terminate()
        thread.join()


def test_a_client_plays_an_episode_in_a_space(space):
    with CodeVClient(base_url=space).sync() as client:
        results, _ = play(client, oracle([3], **SCENES), index=3)
    assert sum(result.reward for result in results[1:]) == pytest.approx(1.8)
    assert [len(result.observation.images) for result in results] == [1, 1, 0]


def test_a_running_space_passes_openenvs_own_checks(space):
    report = _validation.validate_running_environment(space)
    assert report["passed"], report["summary"]


def test_the_web_interface_shows_the_images(space):
    client = GradioClient(f"{space}/web/", verbose=False)
    first = client.predict(api_name="/reset_env")[0]["value"]
    looked = client.predict("<code>\n```python\nshow(image.rotate(90))\n```\n</code>", api_name="/step_fn")[0]["value"]
    shown = [re.findall(r'<img src="(data:image/png;base64,[^"]+)"', html) for html in (first, looked)]
    before, after = (from_data_url(urls[0]) for urls in shown)
    assert [len(urls) for urls in shown] == [1, 1] and np.asarray(before.rotate(90)).shape == np.asarray(after).shape


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("CODEV_SPACE_MAX_TURNS", "many", "CODEV_SPACE_MAX_TURNS='many': a whole number of at least 1"),
        ("CODEV_SPACE_MAX_TURNS", "²", "a whole number of at least 1"),
        ("CODEV_SPACE_SESSIONS", "0", "CODEV_SPACE_SESSIONS='0': a whole number of at least 1"),
        ("CODEV_SPACE_TURNS", "3", "no variable CODEV_SPACE_TURNS. Known: CODEV_SPACE_ENV, "),
        ("CODEV_SPACE_ENV", "CodeV-Nothing-v0", "CODEV_SPACE_ENV='CodeV-Nothing-v0'"),
        ("CODEV_SPACE_ENV", "nowhere:X-v0", "CODEV_SPACE_ENV='nowhere:X-v0'"),
        ("CODEV_SPACE_SCENES", "tony", "Did you mean 'toy'?"),
        ("CODEV_SPACE_DATA", "no/such/folder", "no/such/folder"),
    ],
)
def test_a_space_with_a_wrong_variable_does_not_start(name, value, words, monkeypatch):
    for variable in [variable for variable in os.environ if variable.startswith("CODEV_SPACE_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=re.escape(words)):
        runpy.run_path(str(SPACE / "server" / "app.py"))


def test_a_wrong_variable_is_one_line_in_the_log():
    server = start(CODEV_SPACE_SESSIONS="-1")
    said = server.communicate(timeout=120)[1]
    assert server.returncode == 1 and said.count("\n") == 1 and "CODEV_SPACE_SESSIONS='-1'" in said


def test_a_space_without_seccomp_does_not_start(monkeypatch):
    monkeypatch.setattr("codev_env.sandbox.Sandbox.describe", lambda self: {"seccomp": "off: not permitted"})
    for name, value in TOY.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=re.escape("lacks seccomp here (off: not permitted)")):
        runpy.run_path(str(SPACE / "server" / "app.py"))


def test_every_variable_is_documented():
    readme = (SPACE / "README.md").read_text()
    rows = dict(re.findall(r"^\| `(CODEV_SPACE_\w+)` \| `?(.*?)`? ?\|", readme, re.M))
    defaults = runpy.run_path(str(SPACE / "server" / "app.py"))["DEFAULTS"]
    assert rows == {f"CODEV_SPACE_{name}": value for name, value in defaults.items()}


def test_openenv_accepts_the_folder():
    result = CliRunner().invoke(command_line, ["validate", str(SPACE), "--level", "static"])
    assert result.exit_code == 0 and "Verdict: PASS" in result.output
    # A lock file names the package index of the machine that wrote it, so it is made by whoever needs one.
    assert _validation.validate_multi_mode_deployment(SPACE)[1] == ["Missing uv.lock - run 'uv lock' to generate it"]


def test_the_parts_of_the_folder_agree():
    project = tomllib.loads((SPACE / "pyproject.toml").read_text())
    manifest = yaml.safe_load((SPACE / "openenv.yaml").read_text())
    front = yaml.safe_load((SPACE / "README.md").read_text().split("---")[1])
    dockerfile = (SPACE / "server" / "Dockerfile").read_text()
    assert front["sdk"] == "docker" and front["app_port"] == manifest["port"] == 8000
    assert f'"{manifest["app"]}"' in dockerfile and f'"{front["app_port"]}"' in dockerfile
    assert project["project"]["scripts"]["server"] == f"codev_space.{manifest['app'].split(':')[0]}:main"


def test_a_push_uploads_the_folder(monkeypatch):
    calls, uploaded = [], {}

    class Hub:
        """The part of the hub's API that a push uses."""

        def create_repo(self, **options):
            calls.append(("create_repo", options["repo_id"], options["repo_type"], options["space_sdk"]))

        def upload_folder(self, *, folder_path, ignore_patterns, **options):
            calls.append(("upload_folder", options["repo_id"], options["repo_type"]))
            paths = [str(path.relative_to(folder_path)) for path in Path(folder_path).rglob("*") if path.is_file()]
            for path in huggingface_hub.utils.filter_repo_objects(paths, ignore_patterns=ignore_patterns):
                uploaded[path] = (Path(folder_path) / path).read_text()

        def add_space_variable(self, **options):
            calls.append(("add_space_variable", options["key"], options["value"]))

    monkeypatch.setattr(push, "HfApi", Hub)
    monkeypatch.setattr(push, "whoami", lambda: {"name": "somebody"})
    result = CliRunner().invoke(command_line, ["push", str(SPACE), "-e", "CODEV_SPACE_MAX_TURNS=4"])
    assert result.exit_code == 0, result.output
    assert calls == [
        ("create_repo", "somebody/codev_env", "space", "docker"),
        ("upload_folder", "somebody/codev_env", "space"),
        ("add_space_variable", "CODEV_SPACE_MAX_TURNS", "4"),
    ]
    root = {"Dockerfile", "README.md", "__init__.py", "client.py", "openenv.yaml", "pyproject.toml"}
    assert {path for path in uploaded if not path.endswith(".whl")} == root | {"server/__init__.py", "server/app.py"}
    assert "ENV ENABLE_WEB_INTERFACE=true\nCMD " in uploaded["Dockerfile"]
    assert yaml.safe_load(uploaded["README.md"].split("---")[1])["base_path"] == "/web"
