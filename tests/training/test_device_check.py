"""Faults of the kinds that users report of GPUs and of their libraries are injected into PyTorch's
functions: each is found, and named. Without one, no setting of a CPU raises an alarm."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

import training.device_check as device_check
import training.muon as muon
import training.optimizer as optimizer
from common.device import DTYPES
from common.errors import UserError
from tests.conftest import ROOT, TINY, command
from tests.training.device_results import results
from training.device_check import CPU, RESULTS, check_device, find_fault
from training.precision import Precision

FP32, BF16, FP16 = (Precision(dtype, "", dtype) for dtype in DTYPES.values())


def test_the_stored_results_are_those_of_the_formulas() -> None:
    stored, expected = load_file(RESULTS), results()
    assert stored.keys() == expected.keys()
    for name, values in expected.items():
        torch.testing.assert_close(stored[name], values, rtol=1e-9, atol=1e-12, msg=name)


def wrong_in_half(whole: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """lerp as if its weight were that of the other end, in half precision only."""

    def lerp(self: Tensor, end: Tensor, weight: float) -> Tensor:
        return whole(self, end, weight if self.dtype == torch.float32 else 1 - weight)

    return lerp


def only_contiguous(whole: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function in place that changes only a copy of what is not contiguous."""

    def in_place(self: Tensor, *rest: Any, **options: Any) -> Tensor:
        whole(self if self.is_contiguous() else self.contiguous(), *rest, **options)
        return self

    return in_place


def without_mask(whole: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def attention(*tensors: Tensor, attn_mask: Tensor | None, **options: Any) -> Tensor:
        return whole(*tensors, attn_mask=None, **options)

    return attention


def scaled(whole: Callable[..., Any], factor: float = 1.01) -> Callable[..., Any]:
    """One percent too much."""
    return lambda *tensors, **options: whole(*tensors, **options) * factor


def not_waited_for(whole: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The memory of a copy before it has arrived."""
    return lambda tensor, device: torch.zeros_like(whole(tensor, device))


def wrong_if_strided(whole: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def attention(query: Tensor, *others: Tensor, **options: Any) -> Tensor:
        return whole(query, *others, **options) * query.is_contiguous()

    return attention


def left_out(_whole: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_tensors, **_options: None


FAULTS = [
    (torch.Tensor, "lerp", wrong_in_half, FP16, "lerp in fp16"),
    (torch.Tensor, "addcmul_", only_contiguous, FP32, "addcmul in fp32"),
    (torch.Tensor, "__matmul__", scaled, FP32, "matrix product in fp32"),
    (torch, "_foreach_mul_", left_out, FP32, "foreach in fp32"),
    (F, "scaled_dot_product_attention", without_mask, FP32, "attention with a mask in fp32"),
    (F, "rms_norm", scaled, FP32, "RMSNorm in fp32"),
    (torch.Tensor, "roll", lambda roll: lambda self, *_, dims: self, FP32, "roll in fp32"),
    (device_check, "send", not_waited_for, FP32, "copy in fp32"),
    (optimizer, "adamw", left_out, FP32, "AdamW in fp32"),
    (torch, "baddbmm", scaled, BF16, "baddbmm in fp32"),
    (F, "cross_entropy", scaled, FP32, "cross entropy in fp32"),
    (F, "scaled_dot_product_attention", wrong_if_strided, FP32, "causal attention in fp32"),
    (muon, "orthogonalise", lambda whole: lambda x: -whole(x), BF16, "Muon in bf16"),
]


@pytest.mark.parametrize(("where", "name", "fault", "precision", "found"), FAULTS)
def test_a_fault_is_found_and_named(
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    name: str,
    fault: Callable[..., Any],
    precision: Precision,
    found: str,
) -> None:
    assert find_fault(CPU, precision) is None
    monkeypatch.setattr(where, name, fault(getattr(where, name)))
    assert str(find_fault(CPU, precision)).startswith(f"{found} (off by ")


CHECK = """
import torch
from training.device_check import CPU, find_fault
from common.device import DTYPES
from training.precision import Precision
for dtype in DTYPES.values():
    for fast in DTYPES.values():
        assert find_fault(CPU, Precision(dtype, "", fast)) is None, (dtype, fast)
"""


@pytest.mark.long
@pytest.mark.parametrize("limits", [(), ("avx2", "AVX2"), ("default", "SSE41")])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_no_setting_of_a_cpu_raises_an_alarm(limits: tuple[str, ...], threads: str) -> None:
    variables = dict(zip(("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"), limits, strict=False))
    variables |= {"OMP_NUM_THREADS": threads, "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **variables}
    subprocess.run([sys.executable, "-c", CHECK], check=True, cwd=ROOT, env=environment)


def test_a_device_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each device, version of torch and precision; one that fails is checked again."""
    calls: list[Precision] = []

    def find(_device: torch.device, precision: Precision) -> str | None:
        calls.append(precision)
        return None if len(calls) > 1 else "lerp in fp16 (off by 0.5 of the largest value)"

    monkeypatch.setattr(device_check, "find_fault", find)
    with pytest.raises(UserError, match=r"trainer.device: cpu computes lerp in fp16 \(off by"):
        check_device(CPU, FP16, tmp_path)
    for _ in range(2):
        check_device(CPU, FP16, tmp_path)
    assert len(calls) == 2
    check_device(CPU, FP32, tmp_path)
    assert len(calls) == 3


def test_a_run_does_not_begin_on_a_device_that_computes_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(F, "rms_norm", scaled(F.rms_norm))
    done = command("train", *TINY, "run_dir=run", cwd=tmp_path)
    assert done.returncode == 2 and not (tmp_path / "run").exists()
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: trainer.device: cpu computes RMSNorm in fp32 (off by 0.01")
