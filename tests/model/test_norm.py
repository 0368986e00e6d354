"""The project's RMSNorm is the formula, in values and gradients."""

from __future__ import annotations

import warnings

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from model.layers import RMSNorm


def by_formula(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + eps) * gain


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    width=st.integers(1, 40),
    eps=st.sampled_from([1e-6, 1e-5, 1.0]),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
    transposed=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_values_and_gradients_are_those_of_the_formula(
    shape: list[int], width: int, eps: float, scale: float, transposed: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(*shape, width, generator=generator)
    if transposed and len(shape) > 1:
        x = x.transpose(0, 1)
    x.requires_grad_()
    norm = RMSNorm(width, eps=eps)
    with torch.no_grad():
        norm.weight.normal_(generator=generator)
    found = norm(x)
    slope = torch.randn(found.shape, generator=generator)
    found.backward(slope)

    exact = x.detach().double().requires_grad_()
    gain = norm.weight.detach().double().requires_grad_()
    expected = by_formula(exact, gain, eps)
    expected.backward(slope.double())
    assert exact.grad is not None and gain.grad is not None
    # The gradient with respect to x is a difference of two terms of this size.
    term = (slope * gain / torch.sqrt((exact * exact).mean(-1, keepdim=True) + eps)).abs().max()
    for ours, theirs, size in (
        (found, expected, expected.abs().max()),
        (x.grad, exact.grad, term),
        (norm.weight.grad, gain.grad, (slope * exact.detach()).abs().sum() / scale),
    ):
        assert ours is not None and ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5 * size.item())


def test_bfloat16_activations_with_a_float32_gain() -> None:
    """As under autocast; without the warning of PyTorch's own module."""
    torch.manual_seed(0)
    x = torch.randn(3, 50, 24).bfloat16().requires_grad_()
    norm = RMSNorm(24, eps=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = norm(x)
    slope = torch.randn(found.shape).bfloat16()
    found.backward(slope)

    exact = x.detach().double().requires_grad_()
    expected = by_formula(exact, norm.weight.detach().double(), 1e-5)
    expected.backward(slope.double())
    assert found.dtype == torch.bfloat16 and x.grad is not None and exact.grad is not None
    assert norm.weight.grad is not None and norm.weight.grad.dtype == torch.float32
    # bfloat16 has 8 bits.
    torch.testing.assert_close(found.double(), expected, rtol=2**-7, atol=0)
    torch.testing.assert_close(x.grad.double(), exact.grad, rtol=2**-7, atol=2**-7)
