"""Measures what a farm costs beside local environments, its throughput per core, and what 10 000 steps/s would take.

Run `python benchmarks/farm.py [--rounds 6] [--envs 16] [--nodes 1 2 4] [--size 2K] [--json FILE]`, with `--nodes` for
throughput and without for overhead; each node takes some GB of memory. It needs
`pip install "codev-env[ray]"`. Nodes are Ray's own, all on this machine (`ray.cluster_utils.Cluster`), with one program
at a time each, so `--nodes 4` on two cores shares them out. Only ratios within one run are meaningful: rounds of all
ways alternate, in an order drawn anew, and every way runs the same programs on the same tasks. A round resets all
environments, and each then takes `--steps` steps: everyday programs of `tests/everyday_programs.py`, each drawn anew.

- `overhead`: seconds per step over a farm of one node with as many programs at a time as there are cores, over those of
  the local vector environment with as many threads: the median over rounds of the ratio within a round. The same of
  processor time.
- `throughput`: steps per second of processor time, of the nodes alone and of everything: this process, the nodes,
  Ray's daemons. Other work on the machine changes it least.
- `10 000 steps/s` follows from these by the formula in `needed`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray then takes the loopback interface for the machine's own
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import numpy as np  # noqa: E402
import ray  # noqa: E402
from everyday import look  # noqa: E402
from everyday_programs import EVERYDAY, fill  # noqa: E402
from geometric_programs import NAME  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

from codev_env.dialects import get_dialect  # noqa: E402
from codev_env.envs.codev_env import CodeVBenchEnv  # noqa: E402
from codev_env.envs.vector import FarmVectorEnv, ImageToolVectorEnv  # noqa: E402
from codev_env.farm.farm import Farm  # noqa: E402
from codev_env.farm.link import NodeSpec  # noqa: E402
from codev_env.farm.options import FarmOptions  # noqa: E402
from codev_env.farm.ray_nodes import RayCluster  # noqa: E402

LOCAL: dict[str, Any] = {"include_dashboard": False, "node_ip_address": "127.0.0.1", "object_store_memory": 200 << 20}
PATIENT = {"health_check_timeout_ms": 30_000, "health_check_failure_threshold": 10}  # for a machine that is busy
_looking_s = 0.0  # processor time of `spent` itself
TICK = os.sysconf("SC_CLK_TCK")
TARGET, P99_S = 10_000, 0.05
PROGRAMS = [EVERYDAY[name] for name in sorted(EVERYDAY)]
SPEAKER = get_dialect("codev")
SCENES = {"2K": "vstar", "4K": "vstar-4k", "toy": "toy"}


class Some(RayCluster):
    """The first nodes of Ray, with another number of programs at a time."""

    def __init__(self, options: FarmOptions, count: int, slots: int) -> None:
        super().__init__(options)
        self.count, self.slots = count, slots

    def alive(self) -> dict[str, NodeSpec]:
        """Return so many nodes."""
        found = sorted(super().alive().items())[: self.count]
        return {key: NodeSpec(spec.name, self.slots) for key, spec in found}


def processor_s() -> dict[int, tuple[int, float]]:
    """Processor time of each process, with its parent: what it used, and what its ended children used."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(process.name)] = int(fields[1]), sum(map(int, fields[11:15])) / TICK
    return found


def spent(actors: set[int]) -> dict[str, float]:
    """Processor seconds so far: of the nodes, of this process with its sandboxes, and of Ray's daemons."""
    global _looking_s
    began = time.process_time()
    table = processor_s()
    total = {"nodes": 0.0, "here": -_looking_s, "ray": 0.0}
    for pid, (_, seconds) in table.items():
        line = list(ancestors(pid, table))
        if os.getpid() not in line:
            continue
        daemons = any(is_ray(one) for one in line)
        total["nodes" if actors & set(line) else "ray" if daemons else "here"] += seconds
    _looking_s += time.process_time() - began
    return total


def ancestors(pid: int, table: dict[int, tuple[int, float]]) -> Iterator[int]:
    while pid in table:
        yield pid
        pid = table[pid][0]


def is_ray(pid: int) -> bool:
    try:
        name = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"/ray/core/" in name or b"ray::" in name or b"ray/_private" in name or b"ray/dashboard" in name


class Way:
    """One way to step environments."""

    def __init__(self, name: str, envs: Any, farm: Farm | None, per_core: int) -> None:
        self.name, self.envs, self.farm, self.per_core = name, envs, farm, per_core
        self.rounds: list[dict[str, float]] = []

    def play(self, seed: int, steps: int) -> None:
        """Play one round and note what it took."""
        rng = np.random.default_rng(seed)
        actors = {report.pid for report in self.farm.describe().values()} if self.farm else set()
        before, started = spent(actors), time.perf_counter()
        self.envs.reset(seed=seed)
        reset, opened = time.perf_counter(), spent(actors)
        tasks = [env.task for env in self.envs.envs]
        for _ in range(steps):
            actions = [action(task, rng) for task in tasks]
            self.envs.step(actions)
        ended = time.perf_counter()
        after, count = spent(actors), steps * len(tasks)
        row = {name: (after[name] - opened[name]) / count for name in after}
        row["opening"] = sum(opened[name] - before[name] for name in ("here", "nodes")) / count
        self.rounds.append({"reset": (reset - started) / count, "step": (ended - reset) / count, **row})

    def median(self, name: str) -> float:
        """The median over rounds."""
        return statistics.median(row[name] for row in self.rounds)


def action(task: Any, rng: np.random.Generator) -> str:
    """An everyday program around the task's target."""
    program = fill(PROGRAMS[int(rng.integers(len(PROGRAMS)))], look(task, rng))
    return f"<code>\n```python\n{program.replace(NAME, SPEAKER.image_name(0))}\n```\n</code>"


def erlang_c(servers: int, load: float) -> float:
    """The probability that a program has to wait, with so many servers and so many busy ones on average."""
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked / (1 - load / servers * (1 - blocked))


def needed(mean_s: float, tail_s: float, driver_s: float, cores: int = 64) -> dict[str, float]:
    """Return the machines that `TARGET` steps/s at a 99th percentile of `P99_S` take.

    A node is a queue of `cores` servers (M/M/c): a program waits longer than t with the probability
    C(c, a) exp(-(c - a) t / s), where a is the number of busy cores and s the mean time of a step. The largest a is
    taken at which the 99th percentile of the wait and that of a step alone, added up, stay below `P99_S`; that is more
    than the percentile of their sum. Nodes = TARGET * s / a, and driver cores = TARGET * (its processor time per step).

    Args:
        mean_s: Processor time of a step on a node.
        tail_s: 99th percentile of the time of a step with nothing else to do.
        driver_s: Processor time of a step in the process that asks.
        cores: Cores of a node.
    """
    left = P99_S - tail_s
    best = 0.0
    for tenth in range(1, 10 * cores):
        load = tenth / 10
        waits = erlang_c(cores, load)
        wait_s = max(0.0, math.log(waits / 0.01) * mean_s / (cores - load)) if waits > 0 else 0.0
        if wait_s <= left:
            best = load
    nodes = math.ceil(TARGET * mean_s / best) if best else math.inf
    return {
        "busy": best / cores,
        "nodes": nodes,
        "cores": nodes * cores,
        "drivers": math.ceil(TARGET * driver_s),
        "steps_per_core": best / cores / mean_s if best else 0.0,
    }


def single(count: int, scenes: str) -> list[float]:
    """Processor seconds of steps of one local environment, one after the other, to 10 ms each."""
    env, found = CodeVBenchEnv(bench="vstar", data="synthetic", scenes=scenes, max_turns=count + 9), []
    rng = np.random.default_rng(1)
    for index in range(-(-count // 8) + 2):
        env.reset(options={"index": index})
        env.step(action(env.task, rng))
        for _ in range(8):
            text, before = action(env.task, rng), spent(set())["here"]
            env.step(text)
            found.append(spent(set())["here"] - before)
    env.close()
    return found[16:]  # the first ones load libraries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--envs", type=int, default=16, help="environments per node")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--nodes", type=int, nargs="*", default=[], help="throughput at these numbers, not overhead")
    parser.add_argument("--size", choices=SCENES, default="2K")
    parser.add_argument("--crops", action="store_true", help="crops alone, instead of everyday programs")
    parser.add_argument("--single", type=int, default=200, help="steps of one environment alone")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.crops:
        PROGRAMS[:] = [EVERYDAY["plain"]]
    warnings.simplefilter("ignore")
    cores = len(os.sched_getaffinity(0))
    args = {"bench": "vstar", "data": "synthetic", "scenes": SCENES[options.size], "max_turns": options.steps + 1}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": PATIENT, **LOCAL})
    for _ in range(max([1, *options.nodes])):
        cluster.add_node(num_cpus=1, **LOCAL)
    os.environ["RAY_ADDRESS"] = cluster.address
    ways: list[Way] = []
    try:
        for name, count, slots in [
            *((("local", 0, 0), ("farm", 1, cores)) if not options.nodes else ()),
            *((f"{n} nodes", n, 1) for n in options.nodes),
        ]:
            number = options.envs * max(1, count)
            farm = None
            if count:
                settings = FarmOptions(patience_s=120.0)
                farm = Farm(Some(settings, count, slots), settings)
            first = CodeVBenchEnv(**args, farm=farm)
            shared = {**args, "data": first.tasks, "scenes": None, "farm": farm}
            kind = FarmVectorEnv if farm else ImageToolVectorEnv
            # As many programs at a time as on the node: on a busy machine, more processes get more of it.
            envs = kind([lambda s=shared: CodeVBenchEnv(**s)] * number, autoreset_mode="Disabled", workers=cores)
            ways.append(Way(name, envs, farm, max(1, slots * max(1, count))))
            ways[-1].play(-1 & 0xFFFF, 1)  # warm
            ways[-1].rounds.clear()
        order = random.Random(0)
        for number in range(options.rounds):
            for way in order.sample(ways, len(ways)):
                way.play(number, options.steps)
                print(f"round {number + 1}: {way.name} {1e3 * way.rounds[-1]['step']:.1f} ms a step", file=sys.stderr)
        alone = single(options.single, SCENES[options.size])
    finally:
        for way in ways:
            way.envs.close()
            if way.farm:
                way.farm.close()
        ray.shutdown()
        cluster.shutdown()
    report(ways, alone, options)


def _processor(row: dict[str, float]) -> float:
    """Processor time of a step here and on the nodes. Ray's daemons use the same whether there are steps or not."""
    return row["here"] + row["nodes"]


def compared(local: Way, farm: Way) -> dict[str, float]:
    """Return the medians of the ratios of farm to local."""
    pairs = list(zip(farm.rounds, local.rounds, strict=True))
    return {
        "wall, steps": statistics.median(a["step"] / b["step"] for a, b in pairs),
        "wall, with resets": statistics.median((a["step"] + a["reset"]) / (b["step"] + b["reset"]) for a, b in pairs),
        "processor, steps": statistics.median(_processor(a) / _processor(b) for a, b in pairs),
        "processor, with resets": statistics.median(
            (_processor(a) + a["opening"]) / (_processor(b) + b["opening"]) for a, b in pairs
        ),
    }


def report(ways: list[Way], alone: list[float], options: argparse.Namespace) -> None:
    """Print the tables."""
    print(f"{options.envs} environments per node, {options.size}, {options.rounds} rounds of {options.steps} steps\n")
    overhead = {} if options.nodes else compared(*ways)
    if overhead:
        print("| farm over local | ratio |\n| --- | --- |")
    for name, ratio in overhead.items():
        print(f"| {name} | {ratio:.3f} |")

    print("\n| way | ms a step | processor ms: nodes | here | Ray's daemons | steps per processor s | of a node's |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for way in ways:
        here, nodes, daemons = (1e3 * way.median(name) for name in ("here", "nodes", "ray"))
        own = 1e3 / nodes if nodes else math.nan
        cells = [f"{1e3 * way.median('step'):.1f}", f"{nodes:.1f}", f"{here:.1f}", f"{daemons:.1f}"]
        print(f"| {way.name} | {' | '.join(cells)} | {1e3 / (here + nodes):.1f} | {own:.1f} |")
    tail = float(np.quantile(alone, 0.99))
    shown = f"{1e3 * statistics.median(alone):.0f} ms median, {1e3 * statistics.mean(alone):.0f} ms mean"
    print(f"\nprocessor time of a step, one environment alone: {shown}, {1e3 * tail:.0f} ms p99")
    last = ways[-1]
    found = needed(last.median("nodes"), tail, last.median("here"))
    print(f"{TARGET} steps/s at p99 {1e3 * P99_S:.0f} ms on nodes of 64 cores: {found}")
    if options.json:
        rounds = {way.name: way.rounds for way in ways}
        options.json.write_text(json.dumps({"overhead": overhead, "rounds": rounds, "alone": alone}))


if __name__ == "__main__":
    main()
