"""`codev doctor`: what it says of this machine, and of machines on which something is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codev_env import __version__
from codev_env.app import cli, doctor
from codev_env.errors import SandboxError
from codev_env.sandbox import Sandbox
from codev_env.sandbox.host import process

SANDBOX_LAYERS = {"language", "user", "process", "rlimits", "landlock", "seccomp"}


def report(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = cli.main(["doctor", "--json"])
    return code, json.loads(capsys.readouterr().out)


def line(found: dict[str, Any], name: str) -> dict[str, Any]:
    (check,) = (check for check in found["checks"] if check["name"] == name)
    return check


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make distributions look as if they were not installed, and modules as if they could not be found."""

    def hide(*distributions: str, modules: tuple[str, ...] = ()) -> None:
        version, find = importlib.metadata.version, importlib.util.find_spec

        def hidden_version(name: str) -> str:
            if name in distributions:
                raise importlib.metadata.PackageNotFoundError(name)
            return version(name)

        monkeypatch.setattr(importlib.metadata, "version", hidden_version)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in modules else find(name))

    return hide


@pytest.fixture
def layers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let workers say of some layers that they are off; the sandbox judges that as it would on such a machine."""

    def change(**states: str) -> None:
        check = Sandbox.check_layers
        monkeypatch.setattr(Sandbox, "check_layers", lambda box, seen: check(box, {**seen, **states}))

    return change


def test_a_run_says_as_text_and_by_its_code_what_it_says_as_json(capsys):
    done = subprocess.run([sys.executable, "-m", "codev_env.app.cli", "doctor"], capture_output=True, text=True)
    code, found = report(capsys)
    assert found["version"] == __version__ and f"codev {__version__}\n" in done.stdout
    assert code == done.returncode == (0 if found["ok"] else 1)
    assert ("Everything required works." in done.stdout) == found["ok"]
    for check in found["checks"]:
        assert set(check) == {"group", "name", "status", "detail", "advice"}
        assert check["status"] in ("ok", "warn", "fail") and check["detail"]
        assert bool(check["advice"]) == (check["status"] != "ok"), check
        assert re.search(rf"^  {check['status']:<4}  {re.escape(check['name'])} +\S", done.stdout, re.M), check
    assert [check["group"] for check in found["checks"]] == sorted(
        (check["group"] for check in found["checks"]), key=["packages", "machine", "sandbox", "training"].index
    )
    assert SANDBOX_LAYERS <= {check["name"] for check in found["checks"]}
    assert "median step" in line(found, "trial run")["detail"]


def test_details_stand_in_one_column(capsys):
    cli.main(["doctor"])
    rows = re.findall(r"^  (?:ok|warn|fail) .*$", capsys.readouterr().out, re.M)
    (start,) = {re.match(r"  \w+ +\S+(?: \S+)*  +", row).end() for row in rows}  # type: ignore[union-attr]
    assert start > 10


@pytest.mark.parametrize(
    ("missing", "extra"),
    [("torch", "train"), ("openai", "eval"), ("vllm", "vllm"), ("flash-attn", "flash"), ("scikit-image", "photos")],
)
def test_a_missing_optional_package_is_no_failure_and_names_its_extra(capsys, without, missing, extra):
    without(missing)
    code, found = report(capsys)
    check = line(found, f"[{extra}]")
    assert check["status"] == "warn" and check["detail"] == f"not installed: {missing}"
    assert f'pip install "codev-env[{extra}]"' in check["advice"]
    assert code == (0 if found["ok"] else 1)
    assert not [each for each in found["checks"] if each["group"] == "packages" and each["status"] == "fail"]


def test_a_missing_required_package_is_a_failure(capsys, without):
    without("RestrictedPython")
    code, found = report(capsys)
    check = line(found, "RestrictedPython")
    assert code == 1 and not found["ok"] and check["status"] == "fail"
    assert check["advice"] == 'pip install "RestrictedPython>=9.0"'


def test_a_version_out_of_range_is_named_with_the_range(capsys, monkeypatch):
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.25.9" if name == "numpy" else version(name))
    code, found = report(capsys)
    assert code == 1 and line(found, "numpy")["status"] == "fail"
    assert line(found, "numpy")["detail"] == "1.25.9 is installed; >=1.26 is needed"


def test_another_build_of_opencv_will_do(capsys, without):
    without("opencv-python-headless")
    _code, found = report(capsys)
    assert line(found, "[sandbox]")["status"] == "ok"
    without("opencv-python-headless", modules=("cv2",))
    _code, found = report(capsys)
    assert line(found, "[sandbox]")["detail"] == "not installed: opencv-python-headless"


def test_without_metadata_there_is_a_warning_instead_of_versions(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "DISTRIBUTION", "codev-env-that-is-nowhere")
    _code, found = report(capsys)
    assert [check["status"] for check in found["checks"] if check["group"] == "packages"] == ["warn"]


@pytest.mark.parametrize(
    ("version", "wanted", "right"),
    [
        ("3.11.7", ">=3.11", True),
        ("3.9", ">=3.11", False),
        ("2.13.0+cpu", ">=2.9", True),
        ("6.0.0", "<6,>=5.10", False),
        ("5.9.9", "<6,>=5.10", False),
        ("5.10rc1", "<6,>=5.10", True),
        ("1.0", "==1", True),
        ("1.1", "", True),
    ],
)
def test_ranges(version: str, wanted: str, right: bool):
    assert doctor.satisfies(version, wanted) is right


def test_every_range_of_this_package_is_understood():
    required, extras = doctor.requirements(importlib.metadata.requires("codev-env") or [])
    assert set(required) == {"gymnasium", "numpy", "pillow", "RestrictedPython"}
    assert set(doctor.PURPOSE) | {"dev", "docs"} == set(extras)
    for wanted in (*required.values(), *(wanted for extra in extras.values() for wanted in extra.values())):
        doctor.satisfies("1.0", wanted)


def test_requirements_are_read_without_the_extras_of_their_own():
    lines = ["numpy>=1.26", 'openai[aiohttp]>=1.93,<4; extra == "eval"', 'tqdm (>=4.66) ; extra == "eval"']
    assert doctor.requirements(lines) == (
        {"numpy": ">=1.26"},
        {"eval": {"openai": ">=1.93,<4", "tqdm": ">=4.66"}},
    )


def test_a_missing_required_layer_fails_and_tells_what_allow_weaker_costs(capsys, layers):
    layers(rlimits="off: for this test", landlock="off: this kernel has no Landlock")
    code, found = report(capsys)
    assert code == 1
    rlimits, landlock = line(found, "rlimits"), line(found, "landlock")
    assert (rlimits["status"], rlimits["detail"]) == ("fail", "off: for this test")
    assert "all memory" in rlimits["advice"]
    assert landlock["status"] == "warn" and "public files" in landlock["advice"]
    trial = line(found, "trial run")
    assert trial["status"] == "fail" and "allow_weaker=True" in trial["advice"] and "nothing to lose" in trial["advice"]


@pytest.mark.parametrize("name", ["landlock", "seccomp"])
def test_a_missing_kernel_layer_is_a_warning(capsys, layers, name):
    layers(**{name: "off: for this test", "user": "on"})
    code, found = report(capsys)
    assert code == 0 and line(found, name)["status"] == "warn" and line(found, "trial run")["status"] == "ok"


@pytest.mark.parametrize(("landlock", "status"), [("on", "ok"), ("off: for this test", "warn")])
def test_a_user_that_cannot_be_changed_matters_where_a_kernel_layer_is_off(capsys, layers, landlock, status):
    layers(user="off: not root", seccomp="on", landlock=landlock)
    code, found = report(capsys)
    assert code == 0 and line(found, "user")["status"] == status


def test_a_sandbox_that_does_not_start_is_one_failed_line(capsys, monkeypatch):
    def refuse(_kind: str) -> None:
        raise SandboxError("the sandbox process did not start: for this test")

    monkeypatch.setattr(process, "zygote", refuse)
    code, found = report(capsys)
    (check,) = (check for check in found["checks"] if check["group"] == "sandbox")
    assert code == 1 and check["status"] == "fail" and "did not start: for this test" in check["detail"]


def test_shared_memory_that_cannot_be_had_is_a_failure():
    pytest.importorskip("resource")
    code = (
        "import resource, signal\n"
        "from codev_env.app import doctor\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "(check,) = (check for check in doctor.machine() if check.name == 'shared memory')\n"
        "print(check.status, check.detail, check.advice, sep='|')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    status, detail, advice = done.stdout.strip().split("|")
    assert status == "fail" and "File too large" in detail and advice


@pytest.mark.integration
def test_few_descriptors_are_warned_about():
    pytest.importorskip("resource")
    code = (
        "import json, resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "from codev_env.app import cli; cli.main(['doctor', '--json'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    check = line(json.loads(done.stdout), "ulimit -n")
    assert check["status"] == "warn" and check["detail"].startswith("64 descriptors") and "ulimit -n" in check["advice"]


def test_a_check_that_breaks_is_a_failed_line_and_the_others_go_on(capsys, monkeypatch):
    def broken() -> None:
        raise ValueError("for this test")

    broken.__name__ = "machine"
    monkeypatch.setattr(doctor, "machine", broken)
    code, found = report(capsys)
    assert code == 1 and line(found, "machine")["detail"] == "could not be examined: ValueError: for this test"
    assert line(found, "trial run") and line(found, "python")


def test_torch_is_not_imported_where_it_is_not_installed(capsys, without, monkeypatch):
    without("torch", modules=("torch",))
    monkeypatch.setattr(doctor.importlib, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    (check,) = doctor.training()
    assert check.status == "ok" and "not installed" in check.detail


def fake_torch(*, available: bool, cuda: str | None) -> types.ModuleType:
    torch = types.ModuleType("torch")
    gib = 2**30
    torch.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        is_available=lambda: available,
        device_count=lambda: 1,
        get_device_name=lambda index: "NVIDIA H200",
        mem_get_info=lambda index: (130 * gib, 140 * gib),
    )
    torch.version = types.SimpleNamespace(cuda=cuda)  # type: ignore[attr-defined]
    torch.__version__ = "2.13.0"  # type: ignore[attr-defined]
    return torch


@pytest.mark.parametrize(
    ("available", "cuda", "driver", "status", "says"),
    [
        (True, "13.0", True, "ok", "NVIDIA H200, 130.0 of 140.0 GiB free, CUDA 13.0"),
        (False, None, True, "warn", "there is an NVIDIA GPU, but torch 2.13.0 cannot"),
        (False, "13.0", True, "warn", "CUDA does not start"),
        (False, "13.0", False, "ok", "none"),
    ],
)
def test_the_gpu(monkeypatch, available, cuda, driver, status, says):
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: driver if path == "/dev/nvidiactl" else exists(path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "torch", fake_torch(available=available, cuda=cuda))
    (check,) = doctor.training()
    assert check.status == status and says in check.detail


def test_a_broken_torch_is_a_warning(monkeypatch, tmp_path: Path):
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    (check,) = doctor.training()
    assert check.status == "warn" and "libcudart.so" in check.detail and "[train]" in check.advice


@pytest.mark.parametrize(
    ("system", "release", "status"),
    [("Linux", "6.18.4-generic", "ok"), ("Linux", "5.15.0-91", "warn"), ("Darwin", "24.1.0", "warn")],
)
def test_the_kernel(monkeypatch, system, release, status):
    monkeypatch.setattr(doctor.platform, "system", lambda: system)
    monkeypatch.setattr(doctor.platform, "release", lambda: release)
    check = next(check for check in doctor.machine() if check.name == "kernel")
    assert check.status == status and system in check.detail
