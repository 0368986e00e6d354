"""The faster GELU is GPT-2's, values and gradients."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from model.gelu import SigmoidGelu, gelu

ANY = st.floats(-1e4, 1e4, width=32)


@given(st.lists(ANY, min_size=1, max_size=40))
def test_values_and_gradients_are_pytorchs(numbers: list[float]) -> None:
    x = torch.tensor(numbers, requires_grad=True)
    reference = x.detach().double().requires_grad_()
    y, expected = gelu(x), F.gelu(reference, approximate="tanh")
    y.sum().backward()
    expected.sum().backward()
    assert x.grad is not None and reference.grad is not None
    torch.testing.assert_close(y, expected.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(x.grad, reference.grad.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("x", [-3.0, -0.5, 0.0, 1.0, 2.5])
def test_is_the_formula(x: float) -> None:
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    found = gelu(torch.tensor([x], requires_grad=True))
    assert found.item() == pytest.approx(0.5 * x * (1 + math.tanh(u)), abs=1e-6)


def test_the_gradient_is_that_of_small_differences() -> None:
    x = torch.linspace(-4, 4, 33, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(SigmoidGelu.apply, (x,))
