"""Building the observers that the settings ask for."""

from __future__ import annotations

from dataclasses import dataclass

from observe.attention import AttentionConfig, AttentionMaps
from observe.embeddings import Embeddings
from observe.histograms import Histograms, HistogramsConfig
from observe.metrics_file import MetricsFile
from observe.observed import ObservedRun
from observe.profile import Profile, ProfileConfig
from observe.samples import Samples
from observe.tensorboard import TensorBoard
from observe.terminal import Terminal
from training.observer import Observer


@dataclass
class ObserversConfig:
    """Which observers there are, and their settings.

    sharded: whether a model that is sharded over several ranks is looked at while it trains.
    """

    terminal: bool
    tensorboard: bool
    sharded: bool
    attention: AttentionConfig
    histograms: HistogramsConfig
    profile: ProfileConfig


def build_observers(config: ObserversConfig, observed: ObservedRun) -> list[Observer]:
    """The observers of this rank, in the order in which they are called.

    Those that call a sharded model or gather its tensors are on every rank, since all ranks must do
    it together, and in the same order. All others are on the main process alone.
    """
    events, is_main, is_sharded = config.tensorboard, observed.is_main, observed.is_sharded
    looks = config.sharded if is_sharded else is_main
    full = events and looks
    attention, histograms, profile = config.attention, config.histograms, config.profile
    observers = (
        is_main and profile.steps and Profile(profile, observed),
        is_main and MetricsFile(observed),
        is_sharded and looks and Samples(observed, events, config.terminal),
        is_main
        and config.terminal
        and Terminal(observed, watch=events, attention=bool(full and attention.every)),
        full and attention.every and AttentionMaps(attention, observed),
        full and Embeddings(observed),
        full and histograms.every and Histograms(histograms, observed),
        is_main and events and TensorBoard(observed),
    )
    return [each for each in observers if isinstance(each, Observer)]
