"""Compare the optimizers with torch.optim, and the schedule with its definition. AdamW is compared
in test_trainer.py; a closed form of Muon is in device_results.py."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from launch.schema import preset
from model import GPT, cross_entropy
from tests.conftest import small_config
from training.muon import Muon
from training.optimizer import (
    MuonConfig,
    Optimizer,
    OptimizerConfig,
    lr_scale,
)

ADAMW = preset("optimizer", "adamw", lr=1e-2, warmup_steps=4, decay_fraction=0.5)
SGD = preset("optimizer", "sgd", lr=0.3, weight_decay=0.1, warmup_steps=4)
MUON = MuonConfig("muon", 1e-2, 0.1, 4, 0.5, 1.0, 0.9, 0.95, momentum=0.95, adamw_lr=3e-3)
FINITE = torch.tensor(True)
SHAPES = [(8, 8), (8, 8), (24, 8), (8, 24), (24, 8), (5, 7)]


def model(position: str = "rotary") -> GPT:
    torch.manual_seed(0)
    config = small_config(2, 2, 16, 8, position=position, norm="layernorm", bias=True)
    return GPT(config, vocab_size=11)


def backward(gpt: GPT, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(11, (3, 9), generator=generator)
    cross_entropy(gpt(tokens[:, :-1]), tokens[:, 1:]).backward()


def test_sgd_matches_torch_with_decoupled_weight_decay_of_matrices() -> None:
    ours, reference = model(), model()
    optimizer = Optimizer(ours, SGD, max_steps=10)
    plain = torch.optim.SGD(reference.parameters(), momentum=0.9)
    for step, scale in enumerate([0.2, 0.4, 0.6], start=1):  # during warm-up
        for gpt in (ours, reference):
            backward(gpt, step)
        plain.param_groups[0]["lr"] = rate = SGD.lr * scale
        with torch.no_grad():
            for parameter in reference.parameters():
                if parameter.ndim == 2:
                    parameter.mul_(1 - rate * 0.1)
        plain.step()
        plain.zero_grad()
        assert optimizer.step(step, FINITE) == pytest.approx(rate)
        optimizer.zero_grad()
    for a, b in zip(ours.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_muon_matches_torch(dtype: torch.dtype) -> None:
    """Also where a parameter has no gradient at a step, and in float32."""
    torch.manual_seed(0)
    start = [torch.randn(shape) for shape in SHAPES]
    ours = [torch.nn.Parameter(each.clone()) for each in start]
    theirs = [torch.nn.Parameter(each.clone()) for each in start]
    settings: dict[str, Any] = {"weight_decay": 0.3, "momentum": 0.9}
    muon = Muon(ours, 0.04, **settings, dtype=dtype)
    reference = torch.optim.Muon(theirs, 0.02, adjust_lr_fn="match_rms_adamw", **settings)
    for step in range(5):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape)
            other.grad = one.grad.clone()
        if step == 3:
            ours[0].grad = theirs[0].grad = None
        muon.step(0.5, FINITE)
        reference.step()
    for one, other, began in zip(ours, theirs, start, strict=True):
        moved = (other - began).norm()
        # bfloat16 has eight bits of precision; five steps change each weight by about 0.02.
        torch.testing.assert_close(one, other, rtol=0, atol=1e-3)
        assert (one - other).norm() < 0.01 * moved
        for name, state in muon.state[one].items():
            torch.testing.assert_close(state, reference.state[other][name])


@pytest.mark.parametrize("position", ["rotary", "learned"])
def test_muon_updates_the_matrices_of_the_blocks_and_adamw_the_rest(position: str) -> None:
    gpt = model(position)
    muon, *adamws = Optimizer(gpt, MUON, max_steps=10).rules
    names = {parameter: name for name, parameter in gpt.named_parameters()}
    by_muon = {names[p] for p in muon.state}
    by_adamw = {names[p] for adamw in adamws for p in adamw.state}
    assert by_muon | by_adamw == set(names.values())
    assert not by_muon & by_adamw
    assert all(name.startswith("blocks.") for name in by_muon)
    assert {"token_embedding.weight"} <= by_adamw
    assert all(gpt.get_parameter(name).ndim == 1 for name in by_adamw if "blocks." in name)


@pytest.mark.parametrize("config", [ADAMW, MUON, SGD], ids=["adamw", "muon", "sgd"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_step_that_is_not_finite_changes_nothing(config: OptimizerConfig, value: float) -> None:
    """Neither the weights nor the state. The gradients stay until they are freed."""
    gpt = model()
    optimizer = Optimizer(gpt, config, max_steps=10)
    backward(gpt, 0)
    optimizer.step(1, FINITE)
    optimizer.zero_grad()
    assert all(each.grad is None for each in gpt.parameters())
    tensors = {**dict(gpt.named_parameters()), **optimizer.state_tensors()}
    before = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    backward(gpt, 1)
    for each in gpt.parameters():
        assert each.grad is not None
        each.grad[..., 0] = value
    optimizer.step(2, torch.tensor(False))
    for name, tensor in tensors.items():
        assert torch.equal(tensor, before[name]), name
    assert all(each.grad is not None for each in gpt.parameters())


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_the_schedule_by_hand(power: float) -> None:
    scales = [lr_scale(step, 10, replace(ADAMW, decay_power=power)) for step in range(1, 11)]
    decay = [part**power for part in (0.8, 0.6, 0.4, 0.2)]
    assert scales == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0, *decay])
