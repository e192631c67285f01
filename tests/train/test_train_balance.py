"""Balance: bounds of the partitions, schedules with as many passes everywhere, and samples that arrive as they were."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from process_group import fork_server
from torch.multiprocessing import start_processes

from codev_agents.rollout.tokens import PixelBlock
from codev_train.learn import balance
from codev_train.learn.balance import cost, idle, level, schedule, share_out, together

COSTS = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 3)), min_size=1, max_size=40)


def loads(costs, chosen, processes: int) -> list[float]:
    return [sum(c for c, p in zip(costs, chosen, strict=True) if p == process) for process in range(processes)]


@given(pairs=COSTS, most=st.booleans())
def test_no_load_exceeds_the_mean_by_more_than_one_trajectory(pairs, most):
    costs, homes = zip(*pairs, strict=True)
    limit = -(-len(costs) // 4)
    chosen = share_out(costs, homes, 4, limit if most else 0)
    assert len(chosen) == len(costs) and set(chosen) <= set(range(4))
    if most:
        assert max(chosen.count(p) for p in range(4)) <= limit
    else:
        assert max(loads(costs, chosen, 4)) <= sum(costs) / 4 + 0.75 * max(costs) + 1e-9


def test_the_greatest_load_is_at_most_four_thirds_of_the_best():
    generator = random.Random(0)
    for _ in range(200):
        costs = [generator.randint(1, 20) for _ in range(generator.randint(1, 7))]
        homes = [generator.randrange(3) for _ in costs]
        best = min(max(loads(costs, way, 3)) for way in itertools.product(range(3), repeat=len(costs)))
        assert max(loads(costs, share_out(costs, homes, 3), 3)) <= best * 4 / 3


def test_only_what_has_to_changes_its_process():
    assert share_out([5.0, 5.0, 3.0, 3.0, 2.0, 2.0], [1, 0, 1, 0, 0, 1], 2) == [1, 0, 1, 0, 0, 1]
    assert share_out([4.0, 4.0, 1.0, 1.0], [0, 0, 1, 1], 2) == [0, 1, 1, 0]


def test_attention_makes_one_long_trajectory_slower_than_many_short_ones():
    assert cost(32768) == 1.5 * 32768
    assert sum(cost(1024) for _ in range(32)) < 1.02 * 32768
    # One of 32k tokens weighs as much as 48 of 1k: it gets a process of its own.
    lengths = [32768, *[1024] * 48]
    chosen = share_out([cost(length) for length in lengths], [0] * 49, 2)
    assert chosen.count(chosen[0]) <= 2


@given(lengths=st.lists(st.integers(1, 300), max_size=40), budget=st.integers(1, 500), count=st.integers(1, 12))
def test_level_passes_hold_every_trajectory_within_the_budget(lengths, budget, count):
    passes = level(lengths, budget, count)
    if passes is None:
        assert len(lengths) > count
        return
    assert sorted(row for part in passes for row in part) == list(range(len(lengths))) and len(passes) == count
    assert all(len(part) < 2 or sum(lengths[row] for row in part) <= budget for part in passes)


def test_level_passes_have_similar_costs():
    passes = level([7, 6, 5, 4, 3, 2, 1], 100, 2)
    assert passes is not None and sorted(sum((7, 6, 5, 4, 3, 2, 1)[r] for r in part) for part in passes) == [14, 14]


@given(
    pairs=st.lists(st.tuples(st.integers(1, 300), st.integers(0, 2)), max_size=30),
    budget=st.sampled_from([0, 1, 400]),
    micro_batch=st.integers(1, 5),
)
def test_every_process_makes_as_many_passes(pairs, budget, micro_batch):
    lengths, homes = [length for length, _ in pairs], [home for _, home in pairs]
    table = schedule(range(len(pairs)), lengths, homes, 3, budget, micro_batch)
    assert len({len(made) for made in table}) == 1
    for process, made in enumerate(table):
        assert sorted(row for part in made for row in part) == [r for r, home in enumerate(homes) if home == process]
        costs = [sum(cost(lengths[row]) for row in part) for part in made]
        assert costs == sorted(costs, reverse=True)
        for part in made:
            tokens = sum(lengths[row] for row in part)
            assert len(part) < 2 or (tokens <= budget if budget else len(part) <= micro_batch)


def test_balance_removes_the_empty_passes_of_skewed_lengths():
    lengths = [4000] * 8 + [500] * 8
    homes = [0] * 8 + [1] * 8
    before = idle(lengths, schedule(range(16), lengths, homes, 2, 8000, 1))
    homes = share_out([cost(length) for length in lengths], homes, 2)
    after = idle(lengths, schedule(range(16), lengths, homes, 2, 8000, 1))
    assert before[1] > 0.4
    assert after == (0.0, pytest.approx(0.0, abs=0.01))


@given(pairs=COSTS, budget=st.integers(1, 2000), count=st.integers(1, 12))
def test_passes_of_neighbours_hold_every_trajectory_within_the_budget(pairs, budget, count):
    lengths, scenes = zip(*pairs, strict=True)
    passes = together(lengths, scenes, budget, count)
    if passes is None:
        return
    assert sorted(row for part in passes for row in part) == list(range(len(lengths))) and len(passes) == count
    costs = [sum(cost(lengths[row]) for row in part) for part in passes]
    for part, own in zip(passes, costs, strict=True):
        assert len(part) < 2 or sum(lengths[row] for row in part) <= budget
        assert own <= sum(costs) / count + cost(max(lengths)) + 1e-9
    seen = sum(len({scenes[row] for row in part}) for part in passes)
    assert seen <= len(set(scenes)) + count - 1


def views_of(table, scenes) -> int:
    return sum(len({scenes[row] for row in part}) for made in table for part in made)


def test_several_processes_keep_the_trajectories_of_a_scene_together():
    """Eight processes with two groups of eight each, a pass holds five: each image is seen in as few passes as fit."""
    generator = random.Random(0)
    scenes = [row // 8 for row in range(128)]
    lengths = [2000 + generator.randint(500, 1500) for _ in scenes]
    homes = [row // 16 for row in range(128)]
    given = (range(128), lengths, homes, 8, 16384, 1)
    apart, near = schedule(*given), schedule(*given, scenes, [2000] * 128)
    assert len({len(made) for made in (*apart, *near)}) == 1
    assert sorted(row for made in near for part in made for row in part) == list(range(128))
    assert views_of(near, scenes) <= 0.65 * views_of(apart, scenes)
    assert idle(lengths, near)[1] < 0.1


def test_passes_stay_even_where_that_saves_more_than_images_cost():
    lengths, scenes = [9000, 1000, 1000, 9000, 1000, 1000], [0, 0, 0, 1, 1, 1]
    given = (range(6), lengths, [0, 0, 0, 1, 1, 1], 2, 11000, 1)
    assert schedule(*given, scenes, [10] * 6) == schedule(*given)


@given(
    pairs=st.lists(st.tuples(st.integers(1, 300), st.integers(0, 2), st.integers(0, 3)), max_size=30),
    budget=st.sampled_from([0, 1, 400]),
)
def test_every_process_makes_as_many_passes_with_scenes_too(pairs, budget):
    lengths, homes, scenes = ([pair[i] for pair in pairs] for i in range(3))
    scenes = [3 * scene + home for scene, home in zip(scenes, homes, strict=True)]
    table = schedule(range(len(pairs)), lengths, homes, 3, budget, 2, scenes, [50] * len(pairs))
    assert len({len(made) for made in table}) == 1
    for process, made in enumerate(table):
        assert sorted(row for part in made for row in part) == [r for r, home in enumerate(homes) if home == process]
        assert all(len(part) < 2 or sum(lengths[row] for row in part) <= budget for part in made if budget)


def _exchange(rank: int, file: str, count: int) -> None:
    dist.init_process_group("gloo", f"file://{file}", rank=rank, world_size=count)
    balance.PIECE = 1000  # several pieces per parcel, more in one direction than in the other
    block = PixelBlock(torch.full((40 * (rank + 1), 3), float(rank)), (1, 2, 3), 4)
    accelerator = SimpleNamespace(num_processes=count, process_index=rank, device=torch.device("cpu"))
    parcels = [{"to": to, "blocks": [block, block][: to + 1]} for to in range(count)]
    received = list(balance.exchange(accelerator, parcels))
    assert len(received) == count
    for sender, parcel in enumerate(received):
        first = parcel["blocks"][0]
        assert parcel["to"] == rank and len(parcel["blocks"]) == min(2, rank + 1)
        assert torch.equal(first.values, torch.full((40 * (sender + 1), 3), float(sender)))
        assert parcel["blocks"][-1] is first  # an image that several trajectories share travels once
    dist.destroy_process_group()


@pytest.mark.integration
def test_samples_arrive_as_they_were(tmp_path):
    fork_server()
    start_processes(_exchange, (str(tmp_path / "store"), 3), nprocs=3, start_method="forkserver")


def test_tensors_of_another_device_arrive_on_the_cpu(monkeypatch):
    """Without the map they would be put on the device of the sender, of which this machine may have none."""
    asked, load = [], torch.load
    monkeypatch.setattr(balance.torch, "load", lambda file, *a, **k: asked.append((a, k)) or load(file, *a, **k))
    monkeypatch.setattr(balance, "_swap", echo())
    accelerator = SimpleNamespace(num_processes=2, process_index=0, device=torch.device("cpu"))
    sent = {"a": torch.arange(3)}
    received = balance.exchange(accelerator, [{}, sent])
    assert torch.equal(received[1]["a"], sent["a"])
    assert [a[:1] or (k.get("map_location"),) for a, k in asked] == [("cpu",)]


def echo():
    """Another process that sends back whatever it gets."""

    def swap(sent, receiver, received, sender):
        received.copy_(sent)

    return swap
