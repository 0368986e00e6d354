"""Building the observers that the settings ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from observe.attention import AttentionConfig, AttentionMaps
from observe.context import RunContext
from observe.histograms import Histograms, HistogramsConfig
from observe.metrics_file import MetricsFile
from observe.roles import Outputs
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
    live: bool
    histograms: HistogramsConfig

    def __post_init__(self) -> None:
        if self.wandb and not self.tensorboard:
            raise ValueError(
                "wandb: shows what TensorBoard has; set observe.tensorboard=true, or leave it out"
            )


def build_observers(config: ObserversConfig, context: RunContext) -> Iterator[Callback]:
    """The observers, in the order in which they are called; the main process has them."""
    outputs = Outputs(context)
    # wandb watches for the event files of a writer that is made later; it is called last, when the
    # other observers have written.
    wandb = Wandb(context) if config.wandb else None
    yield MetricsFile(context, outputs)
    if config.terminal:
        yield Terminal(context, outputs)
    if config.tensorboard:
        # Importing TensorBoard takes a tenth of a second.
        from observe.evidence import EvidenceFile
        from observe.live import LiveWeights
        from observe.losses_file import LossesFile
        from observe.tensorboard import TensorBoard, open_events

        # A killed process may have written steps after its last checkpoint, which come again.
        first_step = context.first_step
        writer = open_events(context.folder, purge_step=first_step + 1 if first_step else 0)
        if config.attention.is_on:
            yield (maps := AttentionMaps(config.attention, context, writer))
            yield EvidenceFile(context, maps)
            if context.has_page and config.live and maps.heads:
                yield LiveWeights(context, maps, maps.heads)
        yield LossesFile(context, outputs)
        if config.histograms.every:
            yield Histograms(config.histograms.every, context.model, writer)
        yield TensorBoard(context, outputs, writer)
    if wandb:
        yield wandb
