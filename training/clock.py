"""The time that a run spends on training."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from training.progress import Progress


class Clock:
    """Wall-clock time of training, and its rate in tokens per second."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.start()

    def start(self) -> None:
        now = time.perf_counter()
        self._began, self._tick = now - self.progress.seconds, now
        self._tokens = self.progress.tokens

    def stop(self) -> None:
        """Add the time since `start` to the progress."""
        self.progress.seconds = time.perf_counter() - self._began

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Do not count the time inside the block."""
        began = time.perf_counter()
        yield
        paused = time.perf_counter() - began
        self._began += paused
        self._tick += paused

    def rate(self) -> float:
        """Tokens per second since the previous call."""
        now, tokens = time.perf_counter(), self.progress.tokens
        rate = (tokens - self._tokens) / (now - self._tick)
        self._tick, self._tokens = now, tokens
        return rate
