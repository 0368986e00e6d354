"""The device of tensors, and the precision of the forward pass."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import nn

from errors import UserError
from model import ModelConfig
from model.loss import PART_BYTES

if TYPE_CHECKING:
    from training.config import TrainerConfig
    from training.distributed import Ranks

PRECISIONS = ("auto", "fp32", "bf16")
BF16_WIDTH = 64


def choose_device(name: str, setting: str = "trainer.device") -> torch.device:
    """The device called `name`; `auto` takes the first available of CUDA, MPS and CPU.

    Raises UserError, naming `setting`, for an unknown name or a device that is not available.
    """
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if name == "auto":
        return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if available[kind]))
    if name not in available:
        known = ", ".join(("auto", *available))
        raise UserError(f"{setting}: {name!r} is unknown; choose one of {known}")
    if not available[name]:
        raise UserError(f"{setting}: {name} is not available on this machine; choose cpu, or auto")
    return torch.device(name)


def keep_freed_memory() -> None:
    """Let the C library reuse the memory of freed tensors instead of returning it to the system.

    Every step allocates and frees the same large tensors; requesting new pages each time costs up
    to a fifth of a step. Does nothing without glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
        for parameter in (trim_threshold, mmap_threshold):
            mallopt(parameter, 1 << 30)


def check_memory(needed: int, device: torch.device, what: str, smaller: str) -> None:
    """Raises UserError if the `needed` bytes of `what` exceed the memory of the device.

    `smaller` names the settings that reduce them.
    """
    if device.type == "cuda":
        has = torch.cuda.mem_get_info(device)[1]
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        return
    if needed > has:
        raise UserError(
            f"model: {what} needs at least {needed / 1e9:,.1f} GB, but {device.type} has "
            f"{has / 1e9:,.1f} GB; choose a smaller model, {smaller}"
        )


def check_training_memory(
    model: ModelConfig, trainer: TrainerConfig, vocab_size: int | None, ranks: Ranks
) -> None:
    """Raise UserError if the model cannot fit into the memory of the devices.

    Counts a lower bound for a rank: its share of weights, gradients and one optimizer state per
    weight; the token ids of a batch; and for its share of one part of a batch, the inputs of blocks
    and the logits that are in memory at once, and the probabilities of a teacher. The text, which
    can take minutes, is not read yet: without a `vocab_size`, 256 tokens are assumed.
    """
    vocab_size = vocab_size or 256
    holders = {"ddp": 1, "fsdp": ranks.world_size, "hsdp": ranks.local_world_size}[trainer.parallel]
    tokens = trainer.batch_size * model.context_length
    part = tokens / trainer.grad_accumulation / ranks.world_size
    logits = min(part * vocab_size, PART_BYTES / 4)
    if trainer.used_teacher:
        logits += part * vocab_size
    activations = part * model.d_model * model.n_layers + logits
    needed = 4 * (3 * model.n_weights(vocab_size) / holders + activations)
    needed += 16 * tokens  # inputs and targets, int64
    if ranks.device.type == "cpu":  # the ranks of a node share its memory
        needed *= ranks.local_world_size
    smaller = "trainer.batch_size or model.context_length, a larger trainer.grad_accumulation"
    if trainer.used_teacher:
        smaller += ", or trainer.teacher=null"
    if ranks.world_size > 1 and trainer.parallel == "ddp":
        smaller += ", or trainer.parallel=fsdp"
    check_memory(int(needed), ranks.device, "training", smaller)


def autocast(
    device: torch.device, precision: str, model: nn.Module | None = None
) -> AbstractContextManager:
    """A context for the forward pass: bfloat16 matrix products, or none for float32.

    `auto` is bf16 on GPUs that support it. For a `model` in training, it is also bf16 on CPUs that
    have instructions for it, if the model is wide; an evaluation there is in float32, as that of
    evaluate.py.
    """
    is_bf16 = uses_bf16(device, precision, model)
    return torch.autocast(device.type, torch.bfloat16) if is_bf16 else nullcontext()


def uses_bf16(device: torch.device, precision: str, model: nn.Module | None = None) -> bool:
    """Whether `autocast` computes matrix products in bfloat16."""
    if precision == "auto":
        has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported()
        on_cpu = device.type == "cpu" and model is not None and trains_faster_in_bf16(model)
        return has_bf16 or on_cpu
    return precision == "bf16"


def trains_faster_in_bf16(model: nn.Module) -> bool:
    """Whether steps of this model on this CPU are faster with bfloat16 products: if the CPU has
    instructions for them, and if the model is at least `BF16_WIDTH` wide: the narrowest that was
    measured (benchmarks/RESULTS.md)."""
    has = torch.cpu.get_capabilities()
    if not any(has.get(name) for name in ("avx512_bf16", "amx_bf16")):
        return False
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    return max((min(matrix.shape) for matrix in matrices), default=0) >= BF16_WIDTH
