"""Sequence parallelism: processes that share packed rows out compute what one does; on CPUs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from process_group import fork_server
from test_train_packing import IMAGE, PAD, qwen25, trajectories
from torch.multiprocessing import start_processes

from codev_agents.engines.batch import collate
from codev_train.learn.scorer import TokenScorer
from codev_train.learn.sequence import SequenceGroup


def score(model, count: int, sequence=None) -> list[torch.Tensor]:
    """Score the first trajectories, all but two tokens of each; returns log-probabilities, entropies and gradients."""
    ids, images = trajectories(0, 3 * 2 * 4 * 4)
    batch = collate(ids[:count], images[:count], PAD, IMAGE)
    chosen = batch["attention_mask"].bool() & (batch["input_ids"] != IMAGE)
    chosen[:, :2] = False
    logprobs, entropies = TokenScorer(model, sequence)(batch, chosen, 0.9, (IMAGE,), packed=True)
    (logprobs * torch.linspace(-1, 1, len(logprobs))).sum().backward()
    return [logprobs.detach(), entropies, *[p.grad for p in model.parameters() if p.grad is not None]]


def _work(rank: int, file: str, wanted: list[list[torch.Tensor]], processes: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{file}", rank=rank, world_size=processes)
    for count, expected in zip((1, 2, 5), wanted, strict=True):
        model = qwen25().train()
        if count == 2:
            model.gradient_checkpointing_enable()
        accelerator = SimpleNamespace(num_processes=processes, process_index=rank)
        found = score(model, count, SequenceGroup(accelerator, processes))
        for number, (a, b) in enumerate(zip(found, expected, strict=True)):
            if number > 1:  # gradients add up over the group
                dist.all_reduce(a)
            scale = float(b.abs().max()) or 1.0
            torch.testing.assert_close(a / scale, b / scale, atol=1e-5, rtol=0)
    dist.destroy_process_group()


@pytest.mark.integration
def test_a_group_computes_the_log_probabilities_and_gradients_of_one(tmp_path):
    """Four processes share four heads out, and two heads of keys, which are repeated; some have nothing to score."""
    wanted = [score(qwen25().train(), count) for count in (1, 2, 5)]
    fork_server()
    arguments = (str(tmp_path / "store"), wanted, 4)
    start_processes(_work, arguments, nprocs=4, start_method="forkserver")
