"""Run as a script: applies one kernel layer at a time, attacks it with plain Python, and prints the outcome.

Every attack is tried without any layer too, so that one which never works anywhere is noticed.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

from codev_env.sandbox.wire.limits import Limits
from codev_env.sandbox.worker import kernel

FOLDER = sys.argv[1]
LIMITS = Limits(memory_mb=256, cpu_s=1)


def read_file() -> None:
    open(os.path.join(FOLDER, "secret.txt")).close()


def write_file() -> None:
    with open(os.path.join(FOLDER, "open", f"new-{os.getpid()}"), "w") as file:
        file.write("x" * 100)


def list_folder() -> None:
    os.listdir(FOLDER)


def connect() -> None:
    with socket.create_connection(("127.0.0.1", int(sys.argv[2])), timeout=5):
        pass


def fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def execute() -> None:
    if os.spawnv(os.P_WAIT, "/bin/true", ["true"]) != 0:
        raise OSError("not executed")


def signal_parent() -> None:
    os.kill(os.getppid(), 0)


def many_files() -> None:
    for fd in [os.dup(0) for _ in range(40)]:
        os.close(fd)


def send_datagram() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ("127.0.0.1", 9))


def much_memory() -> None:
    mmap.mmap(-1, 1 << 30).close()


def much_time() -> None:
    end = time.process_time() + 2.5
    while time.process_time() < end:
        pass


ATTACKS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        read_file, write_file, list_folder, connect, fork, execute, signal_parent, many_files, send_datagram,
        much_memory, much_time,
    )
}  # fmt: skip


def attempt(names: tuple[str, ...], attack: Callable[[], None]) -> str:
    """What became of an attack in a child with some layers: `"worked"`, the error, the signal or `"off: …"`."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            for name in names:
                try:
                    if name == "network":
                        if not kernel.leave_network():
                            raise kernel.LayerOff("the system allows no network namespace")
                    else:
                        kernel.layers(LIMITS, os.getppid())[name]()
                except (kernel.LayerOff, OSError) as why:
                    os.write(writer, f"off: {why}".encode())
                    os._exit(0)
            attack()
            os.write(writer, b"worked")
        except BaseException as error:
            os.write(writer, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(writer)
    _pid, status = os.waitpid(child, 0)
    with os.fdopen(reader) as file:
        said = file.read()
    return said or signal.Signals(-os.waitstatus_to_exitcode(status)).name


def main() -> None:
    """Try every attack against no layer and against each."""
    cases = {"none": (), "landlock": ("landlock",), "seccomp": ("seccomp",), "user": ("user",), "rlimits": ("rlimits",)}
    cases["network"] = ("network",)
    if os.geteuid() == 0:
        cases["rlimits"] = ("user", "rlimits")  # the kernel does not count processes of root
    # Burning processor time takes as long as it says, so only the layer that ends it is tried.
    found = {
        case: {
            name: attempt(layers, attack)
            for name, attack in ATTACKS.items()
            if case == "rlimits" or name != "much_time"
        }
        for case, layers in cases.items()
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
