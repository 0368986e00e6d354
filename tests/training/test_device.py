"""`auto` precision follows the device, and on CPUs also the width of the model."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest
import torch
from torch import nn

from model import GPT
from tests.conftest import small_config
from training.device import BF16_WIDTH, autocast

CPU = torch.device("cpu")
WITH, WITHOUT = {"avx512_bf16": True, "amx_bf16": False}, {"avx512_f": True}


def dtype_in(context: AbstractContextManager) -> torch.dtype:
    with context:
        return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype


@pytest.mark.parametrize(
    ("capabilities", "width", "expected"),
    [
        (WITH, BF16_WIDTH, torch.bfloat16),
        ({"amx_bf16": True}, BF16_WIDTH, torch.bfloat16),
        (WITH, BF16_WIDTH - 8, torch.float32),
        (WITHOUT, BF16_WIDTH, torch.float32),
    ],
)
def test_wide_models_train_in_bf16_on_cpus_that_have_it(
    monkeypatch: pytest.MonkeyPatch,
    capabilities: dict[str, bool],
    width: int,
    expected: torch.dtype,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    model = GPT(small_config(1, 2, width, 8), 1000)
    assert dtype_in(autocast(CPU, "auto", model)) == expected
    assert dtype_in(autocast(CPU, "auto")) == torch.float32, "evaluations are exact"
    assert dtype_in(autocast(CPU, "fp32", model)) == torch.float32
    assert dtype_in(autocast(CPU, "bf16", model)) == torch.bfloat16
    assert dtype_in(autocast(CPU, "auto", nn.Identity())) == torch.float32
