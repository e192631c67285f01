"""`codev view`: a page of a run under way, on this machine only."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from eval_samples import episodes, make_run

from codev_env.app import cli
from codev_env.errors import ConfigError
from codev_env.trajectory import write_trajectories
from codev_eval.report.view import HOST, serve


class Running:
    """The server in a thread, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        ready = threading.Event()

        def note(server) -> None:
            self.server = server
            ready.set()

        self.thread = threading.Thread(target=serve, args=(folder, 0, note), daemon=True)
        self.thread.start()
        assert ready.wait(30)
        self.url = f"http://{HOST}:{self.server.server_address[1]}"

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.shutdown()
        self.thread.join(30)

    def get(self, path: str = "/", host: str | None = None) -> str:
        request = urllib.request.Request(self.url + path, headers={"Host": host} if host else {})
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.read().decode()


def test_the_page_follows_the_run(tmp_path):
    with Running(tmp_path) as running:
        first, version = running.get(), json.loads(running.get("/version"))
        assert "Live view" in first and "<article" not in first
        assert json.loads(running.get("/version")) == version
        write_trajectories(tmp_path, episodes(True, 3))
        assert json.loads(running.get("/version")) != version
        page = running.get()
        assert page.count("<article") == 3
        # The newest episodes come first.
        assert page.index('aria-label="Task 2"') < page.index('aria-label="Task 0"')


def test_a_training_run_shows_its_curves_and_both_evaluations(tmp_path):
    make_run(tmp_path, count=3)
    with Running(tmp_path) as running:
        page = running.get()
    assert page.count('<figure class="curve">') >= 4
    assert page.count('data-run="before"') == page.count('data-run="after"') == 3


def test_an_evaluation_shows_the_condition_that_it_is_playing_beside_the_plain_episodes(tmp_path):
    write_trajectories(tmp_path, episodes(True, 5))
    write_trajectories(tmp_path / "perturbed-mask", episodes(False, 2))
    with Running(tmp_path) as running:
        page = running.get()
        assert "Results so far: tool output: mask" in page
        assert page.count('data-run="plain"') == page.count('data-run="mask"') == 2
        assert page.index('aria-label="Task 1"') < page.index('aria-label="Task 0"')
        write_trajectories(tmp_path / "suite-orientation", episodes(True, 3))
        page = running.get()
    assert "Results so far: suite orientation" in page and page.count("<article") == 3


def test_only_this_machine_reads_it_and_nothing_but_the_page(tmp_path):
    (tmp_path / "secret.txt").write_text("x")
    with Running(tmp_path) as running:
        assert running.server.server_address[0] == "127.0.0.1"
        for path, host, code in (
            ("/secret.txt", None, 404),
            ("/../secret.txt", None, 404),
            ("/", "evil.example:80", 403),
        ):
            with pytest.raises(urllib.error.HTTPError) as caught:
                running.get(path, host)
            assert caught.value.code == code


def test_broken_files_are_told_and_the_server_lives_on(tmp_path):
    (tmp_path / "trajectories.jsonl").write_text("{}\n")
    with Running(tmp_path) as running:
        with pytest.raises(urllib.error.HTTPError) as caught:
            running.get()
        assert caught.value.code == 500 and "trajectories.jsonl, line 1" in caught.value.read().decode()
        (tmp_path / "trajectories.jsonl").unlink()
        assert "Live view" in running.get()


def test_what_cannot_be_served_is_told(tmp_path, capsys):
    assert cli.main(["view", str(tmp_path / "nothing")]) == 1
    assert "is no folder" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="--port 99999"):
        serve(tmp_path, 99999)


def test_browsers_leave_out_port_80_and_are_answered(tmp_path):
    with Running(tmp_path) as running:
        assert "Live view" in running.get(host="127.0.0.1") and "Live view" in running.get(host="localhost")


@pytest.mark.parametrize(
    ("error", "printed"), [(BrokenPipeError, False), (ConnectionResetError, False), (KeyError, True)]
)
def test_a_browser_that_leaves_early_is_no_error(tmp_path, capsys, error, printed):
    with Running(tmp_path) as running:
        try:
            raise error
        except error:
            running.server.handle_error(None, ("127.0.0.1", 1))
    assert ("Traceback" in capsys.readouterr().err) == printed


def test_the_newest_episodes_of_the_second_evaluation_are_shown_beside_those_of_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr("codev_eval.report.view.SHOWN", 4)
    monkeypatch.setattr("codev_eval.report.report.RUN_TASKS", 1)  # the live page holds five times as many
    write_trajectories(tmp_path / "before", episodes(False, 9))
    with Running(tmp_path) as running:
        page = running.get()
        assert "4 tasks, the newest first" in page and ">Before training</h2>" in page
        write_trajectories(tmp_path / "after", episodes(True, 2))
        page = running.get()
    assert ">Before and after training</h2>" in page and page.count('data-run="after"') == 2
    assert page.count('data-run="before"') == 2
    assert page.index('aria-label="Task 1"') < page.index('aria-label="Task 0"')
