"""In which dtype a device computes fast, and in which a training computes.

On a GPU, the compute capability says what is fast. On a CPU, nothing does but a measurement: of two
CPUs with the same instructions for bfloat16, one is faster with them and the other is not.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from common.device import DTYPES, remember
from store.checkpoint import TrainState
from training.distributed import Ranks

PRECISIONS = ("auto", *DTYPES)
MARGIN = 1.15  # by which bfloat16 must be faster on a CPU: products are not all of a step
# Of the measured products: where bfloat16 is emulated, the first, small ones show it; elsewhere
# they take up to three times as long in it, since casts take most of their time.
ROWS, MAX_WIDTH, ROUNDS, EMULATED = (64, 512), 512, 5, 8.0

Shapes = Mapping[tuple[int, int], int]  # of matrices, and how many there are


class Precision(NamedTuple):
    """In which dtype a training step computes its products, and why; and what the device computes
    `fast`, in which Muon iterates whatever was asked for."""

    dtype: torch.dtype
    reason: str
    fast: torch.dtype

    @property
    def name(self) -> str:
        return name_of(self.dtype)


def name_of(dtype: torch.dtype) -> str:
    """Such as bf16."""
    return next(name for name, other in DTYPES.items() if other == dtype)


def fast_precision(device: torch.device, ratio: float | None = None) -> Precision:
    """What the device computes fast, and does not emulate.

    On CUDA bfloat16 from compute capability 8.0 on, else float16, which needs a loss scale. On a
    CPU bfloat16, if its products are at least `MARGIN` times as fast as in float32: `ratio` is how
    many times as long they take (None: not measured). Else float32. With the environment variable
    GLASSGPT_NO_BF16, no device has bfloat16.
    """
    fp32, bf16, fp16 = DTYPES.values()
    no_bf16 = "GLASSGPT_NO_BF16 is set" if has_no_bf16() else ""
    if device.type == "cuda":
        # `torch.cuda.is_bf16_supported` is also true where bfloat16 is emulated.
        capability = torch.cuda.get_device_capability(device)
        reason = "compute capability {}.{}".format(*capability)
        if capability >= (8, 0) and not no_bf16:
            return Precision(bf16, reason, bf16)
        return Precision(fp16, no_bf16 or f"{reason}, and bf16 needs 8.0", fp16)
    if device.type != "cpu":
        untested = "untested: benchmarks/steps.py compares it with the CPU"
        return Precision(fp32, untested, fp32)
    if no_bf16 or ratio is None:
        return Precision(fp32, no_bf16 or "exact", fp32)
    if ratio * MARGIN <= 1:
        return Precision(bf16, f"fp32 takes {_times(1 / ratio)} as long here", bf16)
    return Precision(fp32, f"bf16 takes {_times(ratio)} as long here", fp32)


def has_no_bf16() -> bool:
    """Whether the environment variable GLASSGPT_NO_BF16 is set."""
    return os.environ.get("GLASSGPT_NO_BF16", "") not in ("", "0")


def _times(ratio: float) -> str:
    return f"{ratio:.{2 if ratio < 1.1 else 1 if ratio < 10 else 0}f} times"


def choose_precision(setting: str, fast: Precision) -> Precision:
    """What `trainer.precision` means where the device has a `fast` precision: `auto` is that."""
    if setting == "auto":
        return fast
    dtype, reason = DTYPES[setting], f"trainer.precision={setting}"
    if dtype != fast.dtype:
        reason += f"; auto is {fast.name}: {fast.reason}"
    return Precision(dtype, reason, fast.fast)


def training_precision(
    setting: str, model: nn.Module, state: TrainState, cache_dir: str | Path, ranks: Ranks
) -> Precision:
    """The precision of a training, the same on all ranks. What was found fast on a CPU when the run
    began stays so, so that a resumed run takes the same steps."""
    is_measured = ranks.device.type == "cpu" and not has_no_bf16()
    ratio = None
    if is_measured and ranks.is_main and (shapes := product_shapes(model)):
        key = ["bf16", *(f"{n} {rows} x {width}" for (rows, width), n in sorted(shapes.items()))]
        ratio = remember(Path(cache_dir), ranks.device, key, lambda: measure_products(shapes))
    fast = fast_precision(ranks.device, ranks.broadcast(ratio))
    if is_measured:
        if state.fast not in (None, name_of(fast.dtype)):
            kept = DTYPES[state.fast]
            reason = f"as when the run began; trainer.precision={fast.name} is faster: "
            fast = Precision(kept, reason + fast.reason, kept)
        state.fast = name_of(fast.dtype)
    return choose_precision(setting, fast)


def evaluation_dtype(device: torch.device, setting: str) -> torch.dtype:
    """In which an evaluation computes its products; `auto` is exact on CPUs."""
    return fast_precision(device).dtype if setting == "auto" else DTYPES[setting]


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager:
    """A context for the forward pass in a dtype."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)


def product_shapes(model: nn.Module) -> Shapes:
    """The shapes of the matrices that a model multiplies with, and how many of each it has; those
    that are wider than `MAX_WIDTH` as if they had this width."""
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    return Counter(
        (min(rows, MAX_WIDTH), min(width, MAX_WIDTH))
        for rows, width in (matrix.shape for matrix in matrices)
    )


def measure_products(shapes: Shapes) -> float:
    """How many times as long products take in bfloat16 as in float32, on one core of this CPU:
    forward and backward, with the casts of autocast. Of each, the fastest of several counts. On
    several cores, each product of a busy machine waits for the slowest of them."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _measure_products(shapes)
    finally:
        torch.set_num_threads(n_threads)


def _measure_products(shapes: Shapes) -> float:
    for rows in ROWS:
        best: dict[tuple[torch.dtype, tuple[int, int]], float] = {}
        for _ in range(ROUNDS):
            for dtype, shape in product((torch.float32, torch.bfloat16), shapes):
                seconds = _time_product(rows, shape, dtype)
                best[dtype, shape] = min(seconds, best.get((dtype, shape), seconds))
        fp32, bf16 = (
            sum(best[dtype, shape] * n for shape, n in shapes.items())
            for dtype in (torch.float32, torch.bfloat16)
        )
        if bf16 > EMULATED * fp32:
            break
    return bf16 / fp32


def _time_product(rows: int, shape: tuple[int, int], dtype: torch.dtype) -> float:
    """The seconds of the product of `rows` tokens with a matrix, and of its two gradients."""
    tokens, matrix = torch.full((rows, shape[1]), 0.1), torch.full(shape, 0.1)
    gradient = torch.full((rows, shape[0]), 0.1, dtype=dtype)
    began = time.perf_counter()
    x, weight = tokens.to(dtype), matrix.to(dtype)
    F.linear(x, weight)
    (gradient @ weight).float()
    (gradient.mT @ x).float()
    return time.perf_counter() - began
