"""The project's RMSNorm is the formula, in values and gradients, for activations in bfloat16."""

from __future__ import annotations

import warnings

import torch

from model.layers import RMSNorm


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
