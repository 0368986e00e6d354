"""Which precision is chosen: on GPUs by compute capability, on CPUs by what is measured. No test
takes a time: measurements are given."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

from common.device import DTYPES
from common.files import HOST
from model import GPT
from store.checkpoint import TrainState, load_state
from tests.conftest import TINY, last_checkpoint, small_config, succeed
from training import precision
from training.distributed import Ranks
from training.precision import (
    Precision,
    autocast,
    choose_precision,
    evaluation_dtype,
    fast_precision,
    product_shapes,
    training_precision,
)

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
FP32, BF16, FP16 = DTYPES.values()
MODEL = nn.Sequential(nn.Linear(96, 2000), nn.Linear(24, 8), nn.Linear(24, 8))


@pytest.fixture(autouse=True)
def may_be_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLASSGPT_NO_BF16", raising=False)


def measuring(patch: pytest.MonkeyPatch, ratio: float) -> list[precision.Shapes]:
    """Let bfloat16 take `ratio` times as long; returns the list of what is measured from now on."""
    measured: list[precision.Shapes] = []

    def measure(shapes: precision.Shapes) -> float:
        measured.append(shapes)
        return ratio

    patch.setattr(precision, "measure_products", measure)
    return measured


@pytest.mark.parametrize(
    ("ratio", "expected", "reason"),
    [
        (0.5, BF16, "fp32 takes 2.0 times as long here"),
        (0.86, BF16, "fp32 takes 1.2 times as long here"),
        (0.88, FP32, "bf16 takes 0.88 times as long here"),
        (33.3, FP32, "bf16 takes 33 times as long here"),
    ],
)
def test_what_a_cpu_computes_fast_is_measured(
    ratio: float, expected: torch.dtype, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bfloat16 must be faster by more than a measurement is wrong by."""
    assert fast_precision(CPU, ratio) == (expected, reason, expected)
    monkeypatch.setenv("GLASSGPT_NO_BF16", "1")
    assert fast_precision(CPU, ratio) == (FP32, "GLASSGPT_NO_BF16 is set", FP32)


@pytest.mark.parametrize(
    ("capability", "variable", "expected"),
    [
        ((9, 0), "", (BF16, "compute capability 9.0", BF16)),
        ((8, 0), "0", (BF16, "compute capability 8.0", BF16)),
        ((7, 5), "", (FP16, "compute capability 7.5, and bf16 needs 8.0", FP16)),
        ((12, 0), "1", (FP16, "GLASSGPT_NO_BF16 is set", FP16)),
    ],
)
def test_what_a_gpu_computes_fast(
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    variable: str,
    expected: tuple[torch.dtype, str, torch.dtype],
) -> None:
    """Although PyTorch says that a GPU which emulates bfloat16 supports it."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setenv("GLASSGPT_NO_BF16", variable)
    assert fast_precision(CUDA) == expected
    assert evaluation_dtype(CUDA, "auto") == expected[0]


def test_what_is_asked_for_is_computed() -> None:
    """The reason says what `auto` would be, if it is something else."""
    fast = Precision(BF16, "fp32 takes 2.0 times as long here", BF16)
    assert choose_precision("auto", fast) == fast
    assert choose_precision("bf16", fast) == (BF16, "trainer.precision=bf16", BF16)
    reason = "trainer.precision=fp32; auto is bf16: fp32 takes 2.0 times as long here"
    assert choose_precision("fp32", fast) == (FP32, reason, BF16)
    assert choose_precision("fp16", fast).name == "fp16"


@pytest.mark.parametrize(("name", "dtype"), DTYPES.items())
def test_products_are_in_the_dtype_that_was_chosen(name: str, dtype: torch.dtype) -> None:
    with autocast(CPU, dtype):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
    assert evaluation_dtype(CPU, name) == dtype
    assert evaluation_dtype(CPU, "auto") == FP32, "evaluations are exact"


def test_the_products_of_the_model_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is kept for each CPU, its limits, torch and the widths of a model."""
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    measured = measuring(monkeypatch, 0.5)

    def choose(model: nn.Module = MODEL) -> str:
        return training_precision("auto", model, TrainState(), tmp_path, Ranks()).name

    assert choose() == choose() == "bf16"
    assert measured == [{(512, 96): 1, (8, 24): 2}] == [product_shapes(MODEL)]
    assert choose(nn.Identity()) == "fp32", "nothing to measure"
    assert choose(GPT(small_config(1, 2, 16, 8), 50)) == "bf16"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert choose() == "bf16"
    monkeypatch.setattr(torch, "__version__", "9.9")
    assert choose() == "bf16"
    assert len(measured) == 4
    for file in (tmp_path / "machine").iterdir():
        file.write_text('{"value": "')
    assert choose() == "bf16" and len(measured) == 5, "a damaged file is measured again"
    left = tmp_path / "machine" / f".glassgpt-{HOST}-{os.getpid()}-{'0' * 16}"
    left.touch()  # by a process that was killed when the file was complete
    assert choose() == "bf16" and len(measured) == 5 and not left.exists()


@pytest.mark.parametrize(
    ("small", "ratio", "rows"), [(1.0, (0.5 + 3 * 2.0) / 4, {64, 512}), (9.0, 9.0, {64})]
)
def test_of_products_on_one_core_the_fastest_count(
    small: float, ratio: float, rows: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each as often as the model has it; where bfloat16 is emulated, the small ones show it."""
    timed: Counter[tuple[int, tuple[int, int], torch.dtype]] = Counter()

    def take(n_tokens: int, shape: tuple[int, int], dtype: torch.dtype) -> float:
        assert torch.get_num_threads() == 1
        timed[n_tokens, shape, dtype] += 1
        is_slow = timed[n_tokens, shape, dtype] != 2  # but the second time
        large = 0.5 if shape == (8, 4) else 2.0
        fastest = {FP32: 1.0, BF16: small if n_tokens == 64 else large}[dtype]
        return fastest * (1 + is_slow * (5 if dtype == BF16 else 2))

    monkeypatch.setattr(precision, "_time_product", take)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert precision.measure_products({(8, 4): 1, (4, 8): 3}) == ratio
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert {n_tokens for n_tokens, *_ in timed} == rows


def test_a_resumed_run_keeps_what_was_found_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is measured then; so do the iterations of Muon. A GPU chooses by what it is."""
    measuring(monkeypatch, 0.5)
    short = (*TINY, "observe.tensorboard=false", "trainer.max_steps=3", "run_dir=run")
    assert "\ncpu, bf16: " in succeed("train", *short, cwd=tmp_path)
    measuring(monkeypatch, 1.7)
    resumed = ("resume=run", "trainer.max_steps=6", "cache_dir=another")
    said = "\ncpu, bf16: as when the run began; trainer.precision=fp32 is faster: "
    assert said in succeed("train", *resumed, cwd=tmp_path)
    state = load_state(last_checkpoint(tmp_path / "run"))
    assert state.fast == "bf16"
    monkeypatch.setenv("GLASSGPT_NO_BF16", "1")
    found = training_precision("auto", MODEL, state, tmp_path / "third", Ranks())
    assert found.name == "fp32" and state.fast == "bf16" and not (tmp_path / "third").exists()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (7, 5))
    found = training_precision("auto", MODEL, state, tmp_path, Ranks(CUDA))
    assert found.name == "fp16" and state.fast == "bf16", "nothing is measured on a GPU"
