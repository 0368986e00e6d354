"""Building the observers that the settings ask for."""

from __future__ import annotations

from dataclasses import dataclass

from observe.attention import AttentionConfig, AttentionMaps
from observe.embeddings import Embeddings
from observe.histograms import Histograms, HistogramsConfig
from observe.metrics_file import MetricsFile
from observe.observed import ObservedRun
from observe.profile import Profile, ProfileConfig
from observe.tensorboard import TensorBoard
from observe.terminal import Terminal
from training.observer import Observer


@dataclass
class ObserversConfig:
    """Which observers there are, and their settings."""

    terminal: bool
    tensorboard: bool
    attention: AttentionConfig
    histograms: HistogramsConfig
    profile: ProfileConfig


def build_observers(config: ObserversConfig, observed: ObservedRun) -> list[Observer]:
    """The observers, in the order in which they are called.

    A sharded model has no maps, scores, embeddings and histograms: one rank alone cannot compute
    them.
    """
    events = config.tensorboard
    full = events and not observed.is_sharded
    attention, histograms, profile = config.attention, config.histograms, config.profile
    observers = (
        profile.steps and Profile(profile, observed),
        MetricsFile(observed),
        config.terminal
        and Terminal(observed, watch=events, attention=bool(full and attention.every)),
        full and attention.every and AttentionMaps(attention, observed),
        full and Embeddings(observed),
        full and histograms.every and Histograms(histograms, observed),
        events and TensorBoard(observed),
    )
    return [each for each in observers if isinstance(each, Observer)]
