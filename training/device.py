"""The device of tensors, and the precision of the forward pass."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import AbstractContextManager, nullcontext

import torch

from errors import UserError

PRECISIONS = ("auto", "fp32", "bf16")


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
        return torch.device(next(each for each in ("cuda", "mps", "cpu") if available[each]))
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


def autocast(device: torch.device, precision: str) -> AbstractContextManager:
    """A context for the forward pass: bfloat16 matrix products, or none for float32.

    `auto` is bf16 on GPUs that support it and fp32 elsewhere: on a CPU the casts of a small model
    cost more than bfloat16 products save.
    """
    if precision == "auto":
        has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported()
        precision = "bf16" if has_bf16 else "fp32"
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
