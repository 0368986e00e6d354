"""Compare Muon on stacked matrices with torch.optim.Muon and with the exact polar factor."""

from __future__ import annotations

import torch

from training.muon import Muon, orthogonalise

SHAPES = [(8, 8), (8, 8), (24, 8), (8, 24), (24, 8), (5, 7)]
FINITE = torch.tensor(True)


def test_steps_match_torch() -> None:
    torch.manual_seed(0)
    start = [torch.randn(shape) for shape in SHAPES]
    ours = [torch.nn.Parameter(each.clone()) for each in start]
    theirs = [torch.nn.Parameter(each.clone()) for each in start]
    settings = {"weight_decay": 0.3, "momentum": 0.9}
    muon = Muon(ours, 0.04, **settings)
    reference = torch.optim.Muon(theirs, 0.02, adjust_lr_fn="match_rms_adamw", **settings)  # type: ignore[arg-type]
    for _ in range(5):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape)
            other.grad = one.grad.clone()
        muon.step(0.5, FINITE)
        reference.step()
    for one, other, began in zip(ours, theirs, start, strict=True):
        moved = (other - began).norm()
        # bfloat16 has eight bits of precision; five steps change each weight by about 0.02.
        torch.testing.assert_close(one, other, rtol=0, atol=1e-3)
        assert (one - other).norm() < 0.01 * moved
        for name, state in muon.state[one].items():
            torch.testing.assert_close(state, reference.state[other][name])


def test_orthogonalise_approximates_the_polar_factor() -> None:
    torch.manual_seed(0)
    matrices = torch.randn(4, 6, 20)
    u, _, vh = torch.linalg.svd(matrices, full_matrices=False)
    found = orthogonalise(matrices).float()
    values = torch.linalg.svdvals(found)
    assert 0.6 < values.min() <= values.max() < 1.3  # the iteration only approximates 1
    cosine = torch.nn.functional.cosine_similarity(found.flatten(1), (u @ vh).flatten(1))
    assert cosine.min() > 0.97


def test_a_parameter_without_a_gradient_does_not_change() -> None:
    still, moving = (torch.nn.Parameter(torch.ones(3, 3)) for _ in range(2))
    moving.grad = torch.eye(3)
    Muon([still, moving], lr=0.1, weight_decay=0.1, momentum=0.9).step(1.0, FINITE)
    assert torch.equal(still, torch.ones(3, 3))
    assert not torch.equal(moving, torch.ones(3, 3))
