"""The speed of training, as a share of what the devices can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from model import GPT
from observe.peaks import find_peak

if TYPE_CHECKING:
    from training.trainer import Trainer


def speeds(trainer: Trainer, model: GPT, tokens_per_second: float) -> dict[str, float]:
    """What a rate of all devices together means, by name, as far as it is known.

    tokens_per_second_per_device: of several devices.
    mfu: the model FLOPs utilization (Chowdhery et al. 2022, PaLM, appendix B), from 0 to 1: the
        operations of the model per second, by `GPT.flops_per_token`, divided by the peak of all
        devices.
    """
    found, n_devices = {}, trainer.ranks.world_size
    if n_devices > 1:
        found["tokens_per_second_per_device"] = tokens_per_second / n_devices
    if trainer.config.peak_tflops is not None:
        peak: float | None = trainer.config.peak_tflops * 1e12
    else:
        peak = find_peak(trainer.ranks.device, isinstance(trainer.autocast, torch.autocast))
    if peak is not None:
        found["mfu"] = model.flops_per_token * tokens_per_second / (peak * n_devices)
    return found


def shown_speed(trainer: Trainer, model: GPT, tokens_per_second: float) -> str:
    """The same in words."""
    found = speeds(trainer, model, tokens_per_second)
    words = f"{tokens_per_second:,.0f} tokens/s"
    if "tokens_per_second_per_device" in found:
        words += f", {found['tokens_per_second_per_device']:,.0f} per device"
    return words + (f", {found['mfu']:.2%} MFU" if "mfu" in found else "")
