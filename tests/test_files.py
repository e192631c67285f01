"""Files are written whole or not at all, and what a killed writer left goes with the next write."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from codev_env import files
from codev_env.files import write_json, write_text


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_file_is_replaced(tmp_path):
    write_json(tmp_path / "a.json", {"one": 1})
    write_json(tmp_path / "a.json", {"two": 2})
    assert json.loads((tmp_path / "a.json").read_text()) == {"two": 2}
    assert names(tmp_path) == {"a.json"}


def test_rows_are_read_without_what_a_kill_has_torn(tmp_path):
    assert files.read_rows(tmp_path / "rows.jsonl") == []
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a": 2}\n{"a":')
    assert files.read_rows(tmp_path / "rows.jsonl") == [{"a": 1}, {"a": 2}]


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    write_text(tmp_path / "a.txt", "old")

    def full(self, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "old" and names(tmp_path) == {"a.txt"}


def test_a_failed_write_names_the_file_that_was_asked_for(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError) as caught:
        write_text(tmp_path / "missing" / "a.txt", "x")
    assert caught.value.filename == str(tmp_path / "missing" / "a.txt")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/b.txt'"):
        write_text(tmp_path / "b.txt", "x")


def test_what_a_killed_writer_left_is_removed_and_a_running_one_is_let_be(tmp_path):
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with subprocess.Popen([sys.executable, "-c", code]) as gone:
        gone.wait()
    kept = {f".a.txt.{os.getppid()}", ".a.txt.notes", ".b.txt.1", "a.txt"}
    for name in (f".a.txt.{gone.pid}", *kept):
        (tmp_path / name).write_text("half")
    write_text(tmp_path / "a.txt", "whole")
    assert names(tmp_path) == kept and (tmp_path / "a.txt").read_text() == "whole"


def test_lone_surrogates_of_a_model_can_be_written(tmp_path):
    files.write_text(tmp_path / "a.txt", "a\ud800b")
    assert (tmp_path / "a.txt").read_text() == "a?b"


def test_a_writer_of_another_machine_is_let_be(tmp_path, monkeypatch):
    """On a shared disk its number may be that of a process that has ended here."""
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with subprocess.Popen([sys.executable, "-c", code]) as gone:
        gone.wait()
    monkeypatch.setattr(files.socket, "gethostname", lambda: "here.lan")
    for host in ("here_lan", "there"):
        (tmp_path / f".a.txt.{gone.pid}.{host}").write_text("half")
    asides = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda aside, path: (asides.append(aside.name), replace(aside, path)))
    write_text(tmp_path / "a.txt", "whole")
    assert names(tmp_path) == {f".a.txt.{gone.pid}.there", "a.txt"}
    assert asides == [f".a.txt.{os.getpid()}.here_lan"]


def test_a_pipe_is_written_to_and_a_link_stays(tmp_path):
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "through")
    assert os.read(reader, 100) == b"through" and pipe.is_fifo()
    os.close(reader)
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink() and target.read_text() == "new"
    assert names(tmp_path) == {"pipe", "link", "target"}
    with pytest.raises(IsADirectoryError):
        write_text(tmp_path, "a folder")


def test_a_folder_is_owned_while_its_process_works_on_it(tmp_path):
    """What killed processes left beside it is removed; a folder that another one works on is let be."""
    pytest.importorskip("fcntl", reason="no locks on this system")
    own, other, plain = (tmp_path / f".a.{name}" for name in ("own", "other", "plain"))
    for folder in (own, other, plain):
        folder.mkdir()
    code = f"""
import sys
from pathlib import Path
from codev_env import files
with files.owned(Path({str(other)!r}), ".a."):
    print("ready", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        with files.owned(own, ".a."):
            assert names(tmp_path) == {".a.own", ".a.other", ".a.plain"}
        process.kill()
    assert names(own) == set() and names(other) == {"owner"}
    with files.owned(own, ".a."):
        (own / "content").write_text("whole")
    assert names(tmp_path) == {".a.own", ".a.plain"} and names(own) == {"content"}


def test_a_folder_is_owned_without_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "lock_file", lambda file, *, wait=True: (_ for _ in ()).throw(OSError(37, "No locks")))
    with files.owned(tmp_path, "."):
        pass
    assert names(tmp_path) == set()
