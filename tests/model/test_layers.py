"""Dropout zeroes elements independently, with its probability, and scales up the others; RMSNorm is
the formula, for activations in bfloat16."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.layers import Dropout, RMSNorm


@given(
    shape=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    p=st.floats(0.01, 0.99),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    seed=st.integers(0, 2**32),
)
def test_elements_and_gradients_are_dropped_or_scaled(
    shape: list[int], p: float, dtype: torch.dtype, seed: int
) -> None:
    torch.manual_seed(seed)
    x = torch.rand(shape, dtype=dtype).add_(0.5).requires_grad_()
    dropout = Dropout(p)
    y = dropout(x)
    y.sum().backward()
    assert y.dtype == dtype and y.shape == x.shape and x.grad is not None
    kept = y != 0
    scale = kept / (1 - p)
    # The probability has 16 bits: the scale differs by at most 2^-17 / (1 - p) of itself.
    tolerance = 2**-17 / (1 - p) + torch.finfo(dtype).eps
    torch.testing.assert_close(y.double(), x.double() * scale, rtol=2 * tolerance, atol=0)
    torch.testing.assert_close(x.grad.double(), scale.double(), rtol=2 * tolerance, atol=0)
    torch.manual_seed(seed)
    torch.rand(shape, dtype=dtype)
    assert torch.equal(dropout(x), y), "depends only on torch's seed"
    assert torch.equal(dropout.eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)


@pytest.mark.parametrize("p", [1e-9, 1 - 1e-9, 1.0])
def test_extreme_probabilities_are_those_of_pytorch(p: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(1000)
    assert torch.equal(Dropout(p)(x), x if p < 0.5 else torch.zeros(1000))


@pytest.mark.parametrize("p", [0.001, 0.1, 0.2, 0.5, 0.9])
def test_the_share_is_the_probability_and_neighbours_are_independent(p: float) -> None:
    torch.manual_seed(0)
    dropped = Dropout(p)(torch.ones(1 << 20)) == 0

    def check(events: torch.Tensor, probability: float) -> None:
        error = math.sqrt(probability * (1 - probability) / len(events))
        assert abs(events.double().mean().item() - probability) < 5 * error

    check(dropped, p)
    for first in range(4):  # of the four elements that one random number decides on
        check(dropped[first::4], p)
    for distance in (1, 2, 3, 4):
        both = dropped[:-distance] & dropped[distance:]
        for first in range(4):
            check(both[first::4], p * p)


def test_bfloat16_activations_with_a_float32_gain() -> None:
    """As under autocast; without the warning of PyTorch's own module."""
    torch.manual_seed(0)
    x = torch.randn(3, 50, 24).bfloat16().requires_grad_()
    norm = RMSNorm(24, eps=0.5)
    with torch.no_grad():
        norm.weight.normal_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = norm(x)
    slope = torch.randn(found.shape).bfloat16()
    found.backward(slope)

    exact = x.detach().double().requires_grad_()
    gain = norm.weight.detach().bfloat16().double()
    expected = exact / (exact.square().mean(-1, keepdim=True) + 0.5).sqrt() * gain
    expected.backward(slope.double())
    assert found.dtype == torch.bfloat16 and x.grad is not None and exact.grad is not None
    assert norm.weight.grad is not None and norm.weight.grad.dtype == torch.float32
    # bfloat16 has 8 bits.
    torch.testing.assert_close(found.double(), expected, rtol=2**-7, atol=0)
    torch.testing.assert_close(x.grad.double(), exact.grad, rtol=2**-7, atol=2**-7)
