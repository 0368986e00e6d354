"""Building the observers that the settings ask for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from observe.attention import AttentionConfig
from observe.histograms import HistogramsConfig
from observe.observed import ObservedRun
from observe.profile import ProfileConfig
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
    events, is_full = config.tensorboard, not observed.is_sharded
    # A module of this package, its observer, the observer's settings, and whether it is enabled.
    # Only enabled modules are imported, because some imports are slow.
    table = (
        ("profile", "Profile", config.profile, config.profile.steps > 0),
        ("metrics_file", "MetricsFile", config, True),
        ("terminal", "Terminal", config, config.terminal),
        (
            "attention",
            "AttentionMaps",
            config.attention,
            events and is_full and config.attention.every > 0,
        ),
        ("embeddings", "Embeddings", config, events and is_full),
        (
            "histograms",
            "Histograms",
            config.histograms,
            events and is_full and config.histograms.every > 0,
        ),
        ("tensorboard", "TensorBoard", config, events),
    )
    return [
        getattr(import_module(f"observe.{module}"), name)(settings, observed)
        for module, name, settings, is_enabled in table
        if is_enabled
    ]
