"""Building the observers that the settings ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from observe.attention import AUTO, AttentionConfig, AttentionMaps
from observe.context import RunContext
from observe.embeddings import Embeddings
from observe.histograms import Histograms, HistogramsConfig
from observe.live import LiveConfig, LiveWeights
from observe.losses_file import LossesFile
from observe.measured import Measured
from observe.metrics_file import MetricsFile
from observe.profile import Profile, ProfileConfig
from observe.tensorboard import TensorBoard
from observe.terminal import Terminal
from observe.wandb import Wandb
from training.callback import Callback


@dataclass
class ObserversConfig:
    """Which observers there are, and their settings."""

    terminal: bool
    tensorboard: bool
    wandb: bool
    attention: AttentionConfig
    live: LiveConfig
    histograms: HistogramsConfig
    profile: ProfileConfig

    def __post_init__(self) -> None:
        if self.live.every not in (AUTO, "0") and not self.attention.is_on:
            raise ValueError(
                "live.every: the tab shows a run by its attention maps, which are off; set "
                "observe.attention.every too, or leave live.every out"
            )


def build_observers(config: ObserversConfig, context: RunContext) -> Iterator[Callback]:
    """The observers, in the order in which they are called; the main process has them."""
    measured = Measured(context)
    if config.profile.steps:
        yield Profile(config.profile, context)
    yield MetricsFile(context, measured)
    if config.terminal:
        yield Terminal(context, measured)
    if config.tensorboard and config.attention.is_on:
        yield AttentionMaps(config.attention, context, measured)
    if config.tensorboard and context.has_page and config.live.is_on(config.attention):
        yield LiveWeights(config.live, context)
    if config.tensorboard:
        yield LossesFile(context, measured)
        yield Embeddings(context)
    if config.tensorboard and config.histograms.every:
        yield Histograms(config.histograms, context)
    if config.tensorboard:
        yield TensorBoard(context, measured)
    if config.wandb:
        yield Wandb(context, measured)
