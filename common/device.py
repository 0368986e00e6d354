"""The device of tensors, and what is known of it."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from common.errors import UserError, as_mistake, check_choice, reason
from common.files import clean, new_file, read_value

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Variables that keep libraries from using a CPU's instructions.
LIMITS = ("ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")


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
    with as_mistake():
        check_choice(setting, name, ("auto", *available))
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


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device. The host does not wait for what a GPU has to do before the copy."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def remember(
    cache_dir: Path, device: torch.device, key: Sequence[str], find: Callable[[], float]
) -> float:
    """The number that `find` returns for a key, which it is asked for once on a device with one
    version of torch: later runs read it from `cache_dir`."""
    names = [*key, *machine(device)]
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    file = cache_dir.expanduser() / "machine" / f"{digest[:16]}.json"
    clean(file.parent)
    if (known := _known(file)) is not None:
        return known
    with suppress(OSError):
        file.unlink()  # it is damaged
    found = find()
    content = json.dumps({"value": found, "of": names}, indent=1)
    # The disk can refuse, and another process can just have written it.
    with suppress(OSError), new_file(file) as temporary:
        temporary.write_text(f"{content}\n", encoding="utf-8")
    return found if (known := _known(file)) is None else known


def _known(file: Path) -> float | None:
    with suppress(ValueError, TypeError):
        return float(read_value(file, "value"))
    return None


def machine(device: torch.device) -> list[str]:
    """What decides how, and how fast, a device computes: its name, its instructions and torch."""
    names = [device.type, f"torch {torch.__version__}"]
    if device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        return [*names, torch.cuda.get_device_name(device), "{}.{}".format(*capability)]
    if device.type != "cpu":
        return [*names, platform.platform()]
    found, level = torch.cpu.get_capabilities(), torch.backends.cpu.get_cpu_capability()
    has = [f"{name} {value}" for name, value in found.items() if value]
    limits = [f"{name}={os.environ.get(name, '')}" for name in LIMITS]
    threads = f"{torch.get_num_threads()} threads"
    return [*names, str(found.get("cpu_name")), level, threads, *limits, *sorted(has)]


def check_compiler(device: torch.device) -> None:
    """Compile a trivial function for the device. Raises UserError if PyTorch's compiler cannot."""
    try:
        torch.compile(torch.sin)(torch.zeros(8, device=device))
    except Exception as error:  # there are many kinds
        raise UserError(
            f"trainer.compile: PyTorch cannot compile ({reason(error)}); install a C++ compiler, "
            "such as g++, if there is none; the paths of PyTorch, Python and temporary files must "
            "have no spaces, which its command does not quote; or leave compile out"
        ) from error
