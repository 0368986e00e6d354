"""Compare Muon on stacked matrices with torch.optim.Muon; device_results.py has a closed form."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from training.muon import Muon

SHAPES = [(8, 8), (8, 8), (24, 8), (8, 24), (24, 8), (5, 7)]
FINITE = torch.tensor(True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps_match_torch(dtype: torch.dtype) -> None:
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
