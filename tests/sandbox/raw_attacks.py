"""Plain Python that attacks the surroundings of its process; a worker without a language layer runs it, or any Python.

Prints JSON: by attack `"worked"` or the error. `FACTS` says whom to attack; as a script it is the first argument.
"""

import array
import ctypes
import errno
import json
import mmap
import os
import platform
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

if "FACTS" not in globals():
    FACTS: dict[str, Any] = json.loads(sys.argv[1])

LIBC = ctypes.CDLL(None, use_errno=True)
VICTIM = FACTS["victim"]
# By machine; for calls without a wrapper in the C library.
NUMBERS = {
    "x86_64": {"io_uring_setup": 425, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "keyctl": 250},
    "aarch64": {"io_uring_setup": 425, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282, "keyctl": 219},
}[platform.machine()]
NEW_USER, NEW_NET, NEW_NS = 0x10000000, 0x40000000, 0x00020000


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def call(name: str, *arguments: Any) -> int:
    return checked(LIBC.syscall(NUMBERS[name], *arguments))


def send_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ("127.0.0.1", 9))


def connect_tcp() -> None:
    socket.create_connection(("127.0.0.1", FACTS["port"]), timeout=5).close()


def listen_tcp() -> None:
    socket.create_server(("127.0.0.1", 0)).close()


def connect_abstract() -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("\0" + FACTS["abstract"])


def open_raw_socket() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


def open_packet_socket() -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()


def open_netlink() -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()


def make_socket_pair() -> None:
    for sock in socket.socketpair():
        sock.close()


def read_secret() -> None:
    with open(os.path.join(FACTS["folder"], "secret.txt")) as file:
        file.read()


def write_file() -> None:
    with open(os.path.join(FACTS["folder"], "new.txt"), "w") as file:
        file.write("x")


def list_root() -> None:
    os.listdir("/")


def remove_file() -> None:
    os.unlink(os.path.join(FACTS["folder"], "victim.txt"))


def make_link() -> None:
    os.symlink("/", os.path.join(FACTS["folder"], "root"))


def change_mode() -> None:
    os.chmod(FACTS["folder"], 0o777)


def read_environment() -> None:
    with open(f"/proc/{VICTIM}/environ", "rb") as file:
        file.read()


def read_memory() -> None:
    with open(f"/proc/{VICTIM}/mem", "rb"):
        pass


def write_own_memory() -> None:
    with open("/proc/self/mem", "r+b"):
        pass


def reopen_descriptor() -> None:
    os.close(os.open("/proc/self/fd/0", os.O_RDONLY))


def copy_memory() -> None:
    class Part(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]

    buffer = ctypes.create_string_buffer(8)
    ours, theirs = Part(ctypes.addressof(buffer), 8), Part(FACTS["address"], 8)
    checked(LIBC.process_vm_readv(VICTIM, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0))


def trace() -> None:
    seize = 0x4206
    checked(LIBC.ptrace(seize, VICTIM, None, None))


def limit_victim() -> None:
    resource.prlimit(VICTIM, resource.RLIMIT_NOFILE, resource.prlimit(VICTIM, resource.RLIMIT_NOFILE))


def raise_own_limit() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 1))


def slow_victim() -> None:
    os.setpriority(os.PRIO_PROCESS, VICTIM, 5)


def pin_victim() -> None:
    os.sched_setaffinity(VICTIM, os.sched_getaffinity(0))


def open_process() -> None:
    os.close(os.pidfd_open(VICTIM))


def signal_thread() -> None:
    checked(LIBC.tgkill(VICTIM, VICTIM, 0))


def start_thread() -> None:
    thread = threading.Thread(target=len, args=("",))
    thread.start()
    thread.join()


def fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def execute() -> None:
    if os.spawnv(os.P_WAIT, "/bin/true", ["true"]) != 0:
        raise OSError(errno.ENOEXEC, "not executed")


def make_memory_file() -> None:
    os.close(os.memfd_create("x"))


def execute_memory_file() -> None:
    fd = os.memfd_create("x")
    with open("/bin/true", "rb") as file:
        os.write(fd, file.read())
    child = os.fork()
    if child == 0:
        try:
            os.execve(fd, ["true"], {})
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise OSError(errno.ENOEXEC, "not executed")


def new_user_namespace() -> None:
    checked(LIBC.unshare(NEW_USER))


def new_network_namespace() -> None:
    checked(LIBC.unshare(NEW_NET))


def new_mount_namespace() -> None:
    checked(LIBC.unshare(NEW_NS))


def mount() -> None:
    recursive, private = 0x4000, 0x40000
    checked(LIBC.unshare(NEW_NS))  # mounts made after this are visible to no other process
    checked(LIBC.mount(b"none", b"/", None, recursive | private, None))


def change_root() -> None:
    os.chroot("/")


def become_root() -> None:
    os.setresuid(0, 0, 0)


def become_root_group() -> None:
    os.setresgid(0, 0, 0)


def outlive_parent() -> None:
    set_death_signal = 1
    checked(LIBC.prctl(set_death_signal, 0, 0, 0, 0))


def set_alarm() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)


def io_uring() -> None:
    os.close(call("io_uring_setup", 8, ctypes.create_string_buffer(120)))


def load_bpf() -> None:
    # BPF_MAP_CREATE of an array of one number
    call("bpf", 0, array.array("I", [2, 4, 4, 1]).tobytes() + bytes(100), 116)


def perf_events() -> None:
    # A software clock of this process
    attributes = array.array("I", [1, 112]).tobytes() + bytes(104)
    call("perf_event_open", attributes, 0, -1, -1, 0)


def fault_handler() -> None:
    user_mode_only = 1
    call("userfaultfd", user_mode_only)


def keyring() -> None:
    get_id, session_keyring = 0, -3
    call("keyctl", get_id, session_keyring, 1)


def many_descriptors() -> None:
    for fd in [os.dup(0) for _ in range(20)]:
        os.close(fd)


def much_memory() -> None:
    mmap.mmap(-1, 2 << 30).close()


def much_memory_in_parts() -> None:
    kept = [mmap.mmap(-1, 16 << 20) for _ in range(128)]
    for part in kept:
        part.close()


def much_heap() -> None:
    bytes(2 << 30)


def kill_victim() -> None:
    os.kill(VICTIM, signal.SIGKILL)  # the last attack: without layers it ends the victim


ATTACKS: list[Callable[[], None]] = [
    send_udp, connect_tcp, listen_tcp, connect_abstract, open_raw_socket, open_packet_socket, open_netlink,
    make_socket_pair, read_secret, write_file, list_root, remove_file, make_link, change_mode, read_environment,
    read_memory, write_own_memory, reopen_descriptor, copy_memory, trace, limit_victim, raise_own_limit, slow_victim,
    pin_victim, open_process, signal_thread, start_thread, fork, execute, make_memory_file, execute_memory_file,
    io_uring, load_bpf, perf_events, fault_handler, keyring, many_descriptors, much_memory, much_memory_in_parts,
    much_heap, set_alarm, outlive_parent, kill_victim, become_root, become_root_group, change_root,
    new_user_namespace, new_network_namespace, new_mount_namespace, mount,
]  # fmt: skip


def attempt(attack: Callable[[], None]) -> str:
    try:
        attack()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "OSError")
    except Exception as error:
        return type(error).__name__
    return "worked"


print(json.dumps({attack.__name__: attempt(attack) for attack in ATTACKS}))
