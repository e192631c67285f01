"""Each kernel layer alone, with the language layer switched off, against attacks in plain Python."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from codev_env.errors import SandboxError
from codev_env.sandbox import Limits, Sandbox
from codev_env.sandbox.host import sandbox as sandbox_box
from codev_env.sandbox.wire import frames
from codev_env.sandbox.worker import seccomp

STOPS = {
    "landlock": ["read_file", "write_file", "list_folder", "execute"],
    "seccomp": ["read_file", "write_file", "list_folder", "connect", "fork", "execute", "signal_parent", "many_files"],
    "user": ["read_file", "signal_parent"],
    "network": ["connect", "send_datagram"],
    "rlimits": ["write_file", "fork", "many_files", "much_memory", "much_time"],
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    if sys.platform != "linux":
        pytest.skip("these layers are Linux's")
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    secret = folder / "secret.txt"
    secret.write_text("secret")
    secret.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = str(Path(__file__).with_name("kernel_attacks.py"))
        command = [sys.executable, script, str(folder), str(server.getsockname()[1])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    yield json.loads(done.stdout)


def test_attacks_work_without_layers(outcomes: dict[str, dict[str, str]]) -> None:
    assert set(outcomes["none"].values()) == {"worked"}


@pytest.mark.parametrize(("layer", "attack"), [(layer, name) for layer, names in STOPS.items() for name in names])
def test_layer_stops(layer: str, attack: str, outcomes: dict[str, dict[str, str]]) -> None:
    outcome = outcomes[layer][attack]
    if outcome.startswith("off: "):
        pytest.skip(f"{layer} is {outcome}")
    assert outcome != "worked"


def test_the_page_says_which_layer_stops_what() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text("utf-8")
    said = re.findall(r"^\| `(\w+)`: [^|]+ \|(.+)\|$", page, re.MULTILINE)
    table = {attack: [cell.strip() == "stops" for cell in cells.split("|")] for attack, cells in said}
    attacks = {attack for stopped in STOPS.values() for attack in stopped}
    assert table == {attack: [attack in STOPS[layer] for layer in STOPS] for attack in attacks}


def test_describe_lists_every_layer() -> None:
    with Sandbox() as box:
        described = box.describe()
    assert described.keys() == {"language", "process", "user", "rlimits", "landlock", "seccomp"}
    assert described["language"] == described["process"] == described["rlimits"] == "on"
    assert all(value == "on" or value.startswith("off: ") for value in described.values())


def test_missing_layers_are_refused_or_accepted_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_box, "_warned", set())  # each is reported once in a process
    weak = {"process": "on", "rlimits": "off: for this test", "other": "off: not here"}
    with Sandbox() as box, pytest.raises(SandboxError, match="rlimits off: for this test.*allow_weaker=True"):
        box.check_layers(weak)
    with Sandbox(allow_weaker=True) as box, pytest.warns(RuntimeWarning, match="layer rlimits is off: for this test"):
        box.check_layers(weak)
    with Sandbox() as box:
        box.check_layers({"process": "on", "rlimits": "on", "landlock": "on"})
        with pytest.raises(SandboxError, match="landlock"):
            box.check_layers({"process": "on", "rlimits": "on", "landlock": "off: suddenly"})


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_filters_jump_only_forward_and_inside(machine: str) -> None:
    code = seccomp.program(machine)
    count = len(code) // 8
    assert len(code) % 8 == 0 and count < 4096
    for index in range(count):
        operation, true, false = code[8 * index], code[8 * index + 2], code[8 * index + 3]
        if operation & 0x07 == 0x05:
            assert index + 1 + max(true, false) < count
    assert code[8 * (count - 1)] == 0x06


def test_unknown_machines_have_no_filter() -> None:
    with pytest.raises(OSError, match="riscv64"):
        seccomp.program("riscv64")


def test_a_worker_has_only_its_socket_and_pixels() -> None:
    if not Path("/proc/self/fd").exists() or os.geteuid() != 0:
        pytest.skip("only root may look into a worker")
    with Sandbox(Limits()) as box, box.session({}) as session:
        session.run("pass")
        assert session._worker is not None
        worker = session._worker.pid()
        names = {os.readlink(path) for path in Path(f"/proc/{worker}/fd").iterdir()}
        environment = Path(f"/proc/{worker}/environ").read_bytes()
    assert {name.partition(":")[0] for name in names} <= {"/dev/null", "socket", "/memfd"}
    assert b"PYTEST" not in environment and b"PATH=" not in environment.replace(b"LD_LIBRARY_PATH=", b"")


def test_no_message_is_longer_than_the_cap() -> None:
    with pytest.raises(frames.FrameError, match="longer than"):
        frames.encode({"code": "x" * (frames.MAX_FRAME + 1)})
