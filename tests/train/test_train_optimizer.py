"""The learning-rate schedule, which weights each optimizer takes, and its state."""

from __future__ import annotations

import copy
import sys

import pytest
import torch

from codev_env.errors import ConfigError
from codev_train.learn.moments import _packed
from codev_train.learn.muon import Muon, orthogonalised
from codev_train.learn.optimizer import CombinedOptimizer, learning_rate, make_optimizer, set_learning_rate
from codev_train.run.options import OptimizerOptions


def rates(steps: int, **options: float) -> list[float]:
    return [learning_rate(OptimizerOptions(**options), step, steps) for step in range(steps)]  # type: ignore[arg-type]


def test_the_schedule_warms_up_stays_and_decays():
    assert rates(3, lr=2.0) == [2.0] * 3
    assert rates(4, lr=1.0, warmup=2) == pytest.approx([0.5, 1, 1, 1])
    assert rates(8, lr=1.0, decay=0.5) == pytest.approx([1, 1, 1, 1, 1, 0.75, 0.5, 0.25])
    assert rates(4, lr=1.0, decay=1.0, final=0.2) == pytest.approx([1, 0.8, 0.6, 0.4])
    assert rates(4, lr=1.0, warmup=2, decay=0.5) == pytest.approx([0.5, 1, 1, 0.5])


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed_tokens = torch.nn.Embedding(7, 4)
        self.layer = torch.nn.Linear(4, 4)
        self.norm = torch.nn.LayerNorm(4)
        self.lm_head = torch.nn.Linear(4, 7, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.lm_head(self.norm(self.layer(self.embed_tokens(ids))))


def train(net: Net, optimizer, steps: range) -> None:
    for step in steps:
        set_learning_rate(optimizer, 0.01 * (step + 1))
        logits = net(torch.arange(7))
        torch.nn.functional.cross_entropy(logits, (torch.arange(7) + step) % 7).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_muon_takes_the_matrices_of_the_layers_only():
    net = Net()
    optimizer = make_optimizer(net, OptimizerOptions(name="muon", lr=0.1))
    assert isinstance(optimizer, CombinedOptimizer)
    muon, adam = ({id(p) for g in part.param_groups for p in g["params"]} for part in optimizer.parts)
    assert muon == {id(net.layer.weight)}
    assert muon | adam == {id(p) for p in net.parameters()} and not muon & adam


@pytest.mark.parametrize("shape", [(12, 12), (48, 16), (16, 48)])
def test_muon_in_fp32_does_what_pytorchs_does_in_bf16(shape):
    torch.manual_seed(3)
    ours, theirs = (torch.nn.Parameter(torch.zeros(shape)) for _ in range(2))
    options = {"lr": 0.1, "weight_decay": 0.1}
    optimizers = Muon([ours], **options), torch.optim.Muon([theirs], adjust_lr_fn="match_rms_adamw", **options)
    for _ in range(4):
        before = ours.detach().clone()
        ours.grad = torch.randn(shape)
        theirs.grad = ours.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
        # bf16 keeps 8 bits, which the steps of the iteration add up.
        assert float((ours - theirs).detach().norm()) < 0.05 * float((ours - before).detach().norm())
    assert optimizers[0].state_dict().keys() == optimizers[1].state_dict().keys()
    moments = [optimizer.state[p]["momentum_buffer"] for optimizer, p in zip(optimizers, (ours, theirs), strict=True)]
    assert torch.equal(*moments)


def test_orthogonalised_matrices_have_singular_values_about_one():
    torch.manual_seed(4)
    for shape in ((32, 32), (8, 64), (64, 8)):
        values = torch.linalg.svdvals(orthogonalised(torch.randn(shape, dtype=torch.float64)))
        # Those of a square Gaussian matrix begin near 0, and five steps do not bring them all up.
        assert values.max() < 1.3 and values.median() > 0.6
    assert not orthogonalised(torch.zeros(3, 3)).any()


def test_weight_decay_is_on_matrices_only():
    net = Net()
    optimizer = make_optimizer(net, OptimizerOptions(lr=0.1, weight_decay=0.5))
    for group in optimizer.param_groups:
        assert all((p.ndim >= 2) == (group["weight_decay"] > 0) for p in group["params"])
    before = net.layer.bias.detach().clone(), net.layer.weight.detach().clone()
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert torch.equal(net.layer.bias, before[0])
    torch.testing.assert_close(net.layer.weight.detach(), before[1] * (1 - 0.1 * 0.5))


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_restored_state_goes_on_bit_by_bit(name, tmp_path):
    options = OptimizerOptions(name=name, lr=0.1, weight_decay=0.01)
    net = Net()
    optimizer = make_optimizer(net, options)
    train(net, optimizer, range(3))
    half = copy.deepcopy(net)
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    train(net, optimizer, range(3, 6))

    restored = make_optimizer(half, options)
    restored.load_state_dict(torch.load(tmp_path / "optimizer.pt", weights_only=True))
    train(half, restored, range(3, 6))
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), half.parameters(), strict=True))
    fresh = Net()
    assert any(not torch.equal(a, b) for a, b in zip(net.parameters(), fresh.parameters(), strict=True))


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_frozen_weights_are_left_out(name):
    net = Net()
    net.embed_tokens.requires_grad_(False)
    net.layer.requires_grad_(False)
    optimizer = make_optimizer(net, OptimizerOptions(name=name, lr=0.1, weight_decay=0.5))
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in net.parameters() if p.requires_grad}


def test_eight_bits_without_the_package_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchao.optim", None)
    with pytest.raises(ConfigError, match=r"adamw8bit.*pip install 'codev-env\[lowbit\]'"):
        make_optimizer(Net(), OptimizerOptions(name="adamw8bit"))


@pytest.mark.integration
def test_eight_bits_learn_as_adamw_does():
    """The moments of matrices of 4096 weights and more are rounded to 8 bits; the loss must fall all the same."""
    pytest.importorskip("torchao.optim", reason="torchao is not installed: pip install 'codev-env[lowbit]'")
    losses = {}
    for name in ("adamw", "adamw8bit"):
        torch.manual_seed(0)
        net = torch.nn.Linear(128, 64)
        optimizer = make_optimizer(net, OptimizerOptions(name=name, lr=1e-2))
        inputs = torch.randn(256, 128)
        found = []
        for _ in range(20):
            loss = (net(inputs) - inputs[:, :64]).pow(2).mean()
            loss.backward()
            set_learning_rate(optimizer, 1e-2)
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
        losses[name] = found
    assert losses["adamw8bit"][-1] == pytest.approx(losses["adamw"][-1], rel=0.2)
    assert losses["adamw8bit"][-1] < 0.5 * losses["adamw8bit"][0]


def test_a_learning_rate_that_the_optimizer_keeps_as_a_tensor_stays_one():
    """As in torchao's optimizers, which refuse another."""
    rate = torch.tensor(1.0)
    optimizer = torch.optim.SGD(Net().parameters(), lr=rate)
    set_learning_rate(optimizer, 0.25)
    assert optimizer.param_groups[0]["lr"] is rate and rate.item() == 0.25


@pytest.mark.integration
def test_the_learning_rate_of_eight_bits_follows_the_schedule():
    pytest.importorskip("torchao.optim", reason="torchao is not installed: pip install 'codev-env[lowbit]'")
    moved = []
    for rate in (1e-2, 1e-3):
        torch.manual_seed(0)
        net = torch.nn.Linear(128, 64)
        before = net.weight.detach().clone()
        optimizer = make_optimizer(net, OptimizerOptions(name="adamw8bit", lr=1.0))
        set_learning_rate(optimizer, rate)
        net(torch.randn(16, 128)).pow(2).mean().backward()
        optimizer.step()
        moved.append(float((net.weight - before).detach().abs().max()))
    assert moved == pytest.approx([1e-2, 1e-3], rel=0.01)


@pytest.mark.parametrize("fused", [True, None])
def test_a_fused_optimizer_finds_the_number_of_its_steps_where_the_weights_are(fused):
    weight = torch.nn.Parameter(torch.zeros(2, device="meta"))
    optimizer = torch.optim.AdamW([weight])
    optimizer.defaults["fused"] = fused
    steps = _packed(optimizer, weight, "step", torch.tensor(3.0))
    assert steps.device.type == ("meta" if fused else "cpu")
