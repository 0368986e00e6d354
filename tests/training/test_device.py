"""Which precision is chosen for which device, and on CPUs for which width of the model."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest
import torch
from torch import nn

from model import GPT
from tests.conftest import small_config
from training.device import BF16_WIDTH, autocast, choose_device, choose_precision, fast_precision

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
WITH, WITHOUT = {"avx512_bf16": True, "amx_bf16": False}, {"avx512_f": True}
NO_BF16 = "the CPU has no bf16 instructions"


def dtype_in(context: AbstractContextManager) -> torch.dtype:
    with context:
        return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype


@pytest.fixture(autouse=True)
def has_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that has it, whatever this one has."""
    monkeypatch.delenv("GLASSGPT_NO_BF16", raising=False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: WITH)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")


@pytest.mark.parametrize(
    ("capabilities", "isa", "variable", "expected"),
    [
        (WITH, "AVX512", "", (torch.bfloat16, "the CPU has avx512_bf16 instructions")),
        ({"amx_bf16": True}, "AVX512", "0", (torch.bfloat16, "the CPU has amx_bf16 instructions")),
        (WITHOUT, "AVX512", "", (torch.float32, NO_BF16)),
        (WITH, "AVX2", "", (torch.float32, NO_BF16)),
        (WITH, "AVX512", "1", (torch.float32, "GLASSGPT_NO_BF16 is set")),
    ],
)
def test_what_a_cpu_computes_fast(
    monkeypatch: pytest.MonkeyPatch,
    capabilities: dict[str, bool],
    isa: str,
    variable: str,
    expected: tuple[torch.dtype, str],
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: isa)
    monkeypatch.setenv("GLASSGPT_NO_BF16", variable)
    assert fast_precision(CPU) == expected


@pytest.mark.parametrize(
    ("capability", "variable", "expected"),
    [
        ((9, 0), "", (torch.bfloat16, "compute capability 9.0")),
        ((8, 0), "", (torch.bfloat16, "compute capability 8.0")),
        ((7, 5), "", (torch.float16, "compute capability 7.5, and bf16 needs 8.0")),
        ((12, 0), "1", (torch.float16, "GLASSGPT_NO_BF16 is set")),
    ],
)
def test_what_a_gpu_computes_fast(
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    variable: str,
    expected: tuple[torch.dtype, str],
) -> None:
    """Although PyTorch says that a GPU which emulates bfloat16 supports it."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setenv("GLASSGPT_NO_BF16", variable)
    assert fast_precision(CUDA) == expected
    assert choose_precision(CUDA, "auto") == expected
    assert choose_precision(CUDA, "auto", nn.Identity()) == expected


@pytest.mark.parametrize(
    ("width", "expected"), [(BF16_WIDTH, torch.bfloat16), (BF16_WIDTH - 8, torch.float32)]
)
def test_wide_models_train_in_bf16_on_cpus_that_have_it(width: int, expected: torch.dtype) -> None:
    model = GPT(small_config(1, 2, width, 8), 1000)
    assert dtype_in(autocast(CPU, "auto", model)) == expected
    assert dtype_in(autocast(CPU, "auto")) == torch.float32, "evaluations are exact"
    assert dtype_in(autocast(CPU, "auto", nn.Identity())) == torch.float32


@pytest.mark.parametrize(
    ("name", "dtype", "reason"),
    [
        ("fp32", torch.float32, ""),
        ("bf16", torch.bfloat16, ""),
        ("fp16", torch.float16, ", which is emulated here and slow"),
    ],
)
def test_every_precision_on_request(name: str, dtype: torch.dtype, reason: str) -> None:
    assert dtype_in(autocast(CPU, name)) == dtype
    assert choose_precision(CPU, name) == (dtype, f"trainer.precision={name}{reason}")
    assert choose_precision(CPU, name).name == name


@pytest.mark.parametrize(("cuda", "expected"), [(True, "cuda"), (False, "cpu")])
def test_auto_is_never_mps(monkeypatch: pytest.MonkeyPatch, cuda: bool, expected: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto").type == expected
    assert choose_device("mps").type == "mps"
