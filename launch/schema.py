"""The settings of a run, and the presets of its groups.

The dataclasses of the parts stand beside these. A default, and the text that explains a setting,
are in the YAML files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from omegaconf import OmegaConf

from common.errors import check_folder, check_range
from common.settings import Values, typed
from data.corpora import CORPORA
from data.corpus import CorpusConfig
from data.tokenizer import TokenizerConfig
from inference.generation import SamplingConfig
from launch.quoting import CONFIGS
from model import ModelConfig
from observe.build import ObserversConfig
from training.config import TrainerConfig
from training.optimizer import OPTIMIZERS, OptimizerConfig

KINDS: dict[str, Any] = {"data": CORPORA, "optimizer": OPTIMIZERS}
GROUPS: dict[str, type] = {"tokenizer": TokenizerConfig, "model": ModelConfig}


@dataclass
class LoggedSamplesConfig(SamplingConfig):
    """Samples are logged at the evaluations whose step is a multiple of `every` (0: none), and at
    the last one."""

    every: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("every", self.every, 0, 10**12)


@dataclass
class ObserveConfig(ObserversConfig):
    """What is observed of a run, and how its samples are written."""

    samples: LoggedSamplesConfig


@dataclass
class TrainConfig:
    """The settings of train.py; configs/train.yaml explains them."""

    seed: int
    name: str | None
    run_dir: str | None
    resume: str | None
    init_from: str | None
    cache_dir: str
    data: Annotated[CorpusConfig, CORPORA]
    tokenizer: TokenizerConfig
    model: ModelConfig
    optimizer: Annotated[OptimizerConfig, OPTIMIZERS]
    trainer: TrainerConfig
    observe: ObserveConfig

    def __post_init__(self) -> None:
        name = self.name  # one that begins with a dot would not be found as the latest
        if name is not None and (name[:1] in ("", ".") or Path(name).name != name):
            raise ValueError(f"name: {name!r} is not the name of a folder; give one")
        check_range("seed", self.seed, 0, 2**63 - 1)
        check_folder("cache_dir", self.cache_dir)


def preset(group: str, name: str, **changes: Any) -> Any:
    """The checked dataclass of configs/<group>/<name>.yaml, with some values changed.

    preset("model", "nano", n_layers=4)
    """
    kind = KINDS[group][name].config if group in KINDS else GROUPS[group]
    return kind(**{**typed(kind, _load(group, name)), **changes})


def _load(group: str, name: str) -> Values:
    values: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / group / f"{name}.yaml"))
    base, *_ = values.pop("defaults", [None])
    return {**(_load(group, base) if base else {}), **values}
