"""The peak FLOP/s of GPUs, with which the speed of training is compared."""

from __future__ import annotations

import re

import torch

# Dense TFLOP/s of one GPU by the name that its driver reports: in 16 bits (bfloat16, or float16 if
# it is older) on tensor cores, which accumulate in float32, and in float32 without TF32, as PyTorch
# computes by default. A half of what the maker gives with sparsity is written as one.
# Sources, all by NVIDIA: data sheets of the Blackwell platform (HGX B200), H200, H100, A100, L4, T4
# and V100, and the white paper of the Ada architecture (RTX 4090).
PEAKS = {
    r"NVIDIA B200": (4500 / 2, 75),
    r"NVIDIA H200": (1979 / 2, 67),
    r"NVIDIA H200 NVL": (1671 / 2, 60),
    r"NVIDIA H100 80GB HBM3": (1979 / 2, 67),  # SXM
    r"NVIDIA H100 NVL": (1671 / 2, 60),
    r"NVIDIA H100 PCIe": (1513 / 2, 51),
    r"(NVIDIA )?A100-(SXM4|PCIE)-\d+GB|NVIDIA A100 80GB PCIe": (312, 19.5),
    r"NVIDIA L4": (242 / 2, 30.3),
    r"NVIDIA GeForce RTX 4090": (165.2, 82.6),
    r"Tesla T4": (65, 8.1),
    r"Tesla V100-SXM2-\d+GB(-LS)?": (125, 15.7),
    r"Tesla V100-PCIE-\d+GB": (112, 14),
}


def find_peak(device: torch.device, in_16_bits: bool) -> float | None:
    """The peak FLOP/s of a device in 16-bit or float32 arithmetic; None if it is unknown."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    for pattern, (half, single) in PEAKS.items():
        if re.fullmatch(pattern, name):
            return (half if in_16_bits else single) * 1e12
    return None
