"""Building the observers that the settings ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from observe.attention import AttentionConfig, AttentionMaps
from observe.context import RunContext
from observe.embeddings import Embeddings
from observe.histograms import Histograms, HistogramsConfig
from observe.metrics_file import MetricsFile
from observe.profile import Profile, ProfileConfig
from observe.tensorboard import TensorBoard
from observe.terminal import Terminal
from training.callback import Callback


@dataclass
class ObserversConfig:
    """Which observers there are, and their settings."""

    terminal: bool
    tensorboard: bool
    attention: AttentionConfig
    histograms: HistogramsConfig
    profile: ProfileConfig

    @property
    def intervals(self) -> tuple[int, ...]:
        """The numbers of steps after which observers look at the model (0: never)."""
        return self.attention.every, self.attention.images_every, self.histograms.every


def build_observers(config: ObserversConfig, context: RunContext) -> Iterator[Callback]:
    """The observers, in the order in which they are called; the main process has them."""
    if config.profile.steps:
        yield Profile(config.profile, context)
    yield MetricsFile(context)
    if config.terminal:
        yield Terminal(context)
    if config.tensorboard and config.attention.every:
        yield AttentionMaps(config.attention, context)
    if config.tensorboard:
        yield Embeddings(context)
    if config.tensorboard and config.histograms.every:
        yield Histograms(config.histograms, context)
    if config.tensorboard:
        yield TensorBoard(context)
