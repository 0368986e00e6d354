"""Where tensors live and in which precision the forward pass runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from errors import UserError

DEVICES = ("auto", "cpu", "cuda", "mps")
PRECISIONS = ("auto", "fp32", "bf16")


def choose_device(name: str, setting: str = "trainer.device") -> torch.device:
    """The device called `name`; `auto` takes CUDA, then MPS, then the CPU.

    Raises UserError for an unknown name or a device that this machine lacks.
    """
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        return torch.device(next(each for each, found in available.items() if found))
    if name not in available:
        raise UserError(f"{setting}: {name!r} is unknown; choose one of {', '.join(DEVICES)}")
    if not available[name]:
        raise UserError(
            f"{setting}: this machine has no {name}; choose cpu, or auto to take the best"
        )
    return torch.device(name)


def check_precision(name: str) -> None:
    """Raises UserError for an unknown precision."""
    if name not in PRECISIONS:
        raise UserError(f"precision: {name!r} is unknown; choose one of {', '.join(PRECISIONS)}")


def autocast(device: torch.device, precision: str) -> AbstractContextManager:
    """A context for the forward pass: bfloat16 matrix products, or none for float32.

    `auto` is bf16 on GPUs that have it and fp32 elsewhere: on a CPU the casts of a small model cost
    more than its bfloat16 products save.
    """
    if precision == "auto":
        has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported()
        precision = "bf16" if has_bf16 else "fp32"
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
