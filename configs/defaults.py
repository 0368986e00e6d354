"""The default settings of train.py, as its YAML files have them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from configs.schema import flat

CONFIGS = Path(__file__).parent


def changed(settings: Mapping[str, Any]) -> frozenset[str]:
    """The names of the settings that have other values than without any overrides.

    settings: by their full names, as composed, stored with a run, or resumed.
    """
    defaults = _load("train")
    for each in defaults.pop("defaults"):
        for group, choice in each.items() if isinstance(each, dict) else ():
            if (CONFIGS / group).is_dir() and choice is not None:
                defaults[group] = _load(f"{group}/{choice}")
    known = flat(defaults)
    return frozenset(name for name, value in settings.items() if value != known.get(name))


def _load(name: str) -> Any:
    return OmegaConf.to_container(OmegaConf.load(CONFIGS / f"{name}.yaml"))
