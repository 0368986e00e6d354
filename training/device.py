"""The device of tensors, and the precision of the forward pass."""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
import tempfile
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import nn

from common.errors import UserError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PRECISIONS = ("auto", *DTYPES)
BF16_WIDTH = 64  # the narrowest model that was measured (benchmarks/NOTES.md)


def choose_device(name: str, setting: str = "trainer.device") -> torch.device:
    """The device called `name`; `auto` takes CUDA if it is available, else the CPU: not MPS, which
    is untested.

    Raises UserError, naming `setting`, for an unknown name or a device that is not available.
    """
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if name == "auto":
        return torch.device("cuda" if available["cuda"] else "cpu")
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


class Precision(NamedTuple):
    """In which dtype matrix products are computed, and why."""

    dtype: torch.dtype
    reason: str

    @property
    def name(self) -> str:
        return next(name for name, dtype in DTYPES.items() if dtype == self.dtype)


def fast_precision(device: torch.device) -> Precision:
    """What the device computes fast, and does not emulate.

    bfloat16 on tensor cores from compute capability 8.0 on and with AVX-512 or AMX instructions for
    it; else float16, which needs a loss scale, on CUDA; else float32. With the environment variable
    GLASSGPT_NO_BF16, no device has bfloat16; ATEN_CPU_CAPABILITY=avx2 makes a CPU one without it.
    """
    is_set = os.environ.get("GLASSGPT_NO_BF16", "") not in ("", "0")
    no_bf16 = "GLASSGPT_NO_BF16 is set" if is_set else ""
    if device.type == "cuda":
        # `torch.cuda.is_bf16_supported` is also true where bfloat16 is emulated.
        capability = torch.cuda.get_device_capability(device)
        reason = "compute capability {}.{}".format(*capability)
        if capability >= (8, 0) and not no_bf16:
            return Precision(torch.bfloat16, reason)
        return Precision(torch.float16, no_bf16 or f"{reason}, and bf16 needs 8.0")
    if device.type == "cpu":
        has = torch.cpu.get_capabilities()
        found = [name for name in ("avx512_bf16", "amx_bf16") if has.get(name)]
        is_limited = torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2")
        if found and not is_limited and not no_bf16:
            return Precision(torch.bfloat16, f"the CPU has {found[0]} instructions")
        return Precision(torch.float32, no_bf16 or "the CPU has no bf16 instructions")
    return Precision(torch.float32, "untested: benchmarks/steps.py compares it with the CPU")


def choose_precision(
    device: torch.device, precision: str, model: nn.Module | None = None
) -> Precision:
    """What the setting `precision` means for a `model` in training, or for an evaluation.

    `auto` is what the device computes fast; but on CPUs float32 for evaluations, so that they are
    exact, and for models narrower than `BF16_WIDTH`, which it makes slower.
    """
    fast = fast_precision(device)
    if precision != "auto":
        dtype, reason = DTYPES[precision], f"trainer.precision={precision}"
        emulated = {"cpu": (torch.bfloat16, torch.float16), "cuda": (torch.bfloat16,)}
        if dtype != fast.dtype and dtype in emulated.get(device.type, ()):
            reason += ", which is emulated here and slow"
        return Precision(dtype, reason)
    if device.type != "cpu" or fast.dtype == torch.float32:
        return fast
    if model is None:
        return Precision(torch.float32, "evaluations on a CPU")
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    if max((min(matrix.shape) for matrix in matrices), default=0) < BF16_WIDTH:
        return Precision(torch.float32, f"faster for a model narrower than {BF16_WIDTH}")
    return fast


def autocast(
    device: torch.device, precision: str, model: nn.Module | None = None
) -> AbstractContextManager:
    """A context for the forward pass in the precision of `choose_precision`."""
    dtype = choose_precision(device, precision, model).dtype
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)


def check_compiler(device: torch.device) -> None:
    """Compile a trivial function for the device. Raises UserError if PyTorch's compiler cannot."""
    try:
        torch.compile(torch.sin)(torch.zeros(8, device=device))
    except Exception as error:  # there are many kinds
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
        advice = "install a C++ compiler, such as g++, if there is none"
        cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR", tempfile.gettempdir())
        for path in (torch.__file__, sysconfig.get_path("include"), cache):
            if path and " " in path:  # which the compiler's command does not quote
                advice = f"move {path}, since a space in its path breaks the compiler's command"
        raise UserError(
            f"trainer.compile: PyTorch cannot compile ({reason}); {advice}, or leave compile out"
        ) from error
