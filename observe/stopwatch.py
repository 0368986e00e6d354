"""How much time a run spends looking at its model: its maps, scores, losses, samples,
embeddings and histograms."""

from __future__ import annotations

import time

import torch


class Stopwatch:
    """Counts the wall-clock time inside its `with` blocks, of all time since it was made."""

    def __init__(self) -> None:
        self.began, self.seconds = time.perf_counter(), 0.0

    def __enter__(self) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # what is still queued belongs to training
        self.entered = time.perf_counter()

    def __exit__(self, *exception: object) -> None:
        self.seconds += time.perf_counter() - self.entered

    def __str__(self) -> str:
        total = time.perf_counter() - self.began
        return f"{self.seconds:.1f} s of {total:.1f} s ({self.seconds / total:.1%})"
