"""The one place where Hydra meets the dataclasses of every part: types, and from YAML to objects.

The dataclasses stand beside the parts and know nothing of Hydra. Nothing in a config names code
to run: a stored config is data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from configs.messages import one_line
from data import ShakespeareConfig, TalesConfig, TextConfig, TokenizerConfig
from errors import UserError, check_range
from model import ModelConfig, check_sampling
from observe.attention import AttentionConfig
from observe.histograms import HistogramsConfig
from observe.profile import ProfileConfig
from observe.samples import MAX_NEW_TOKENS, SamplesConfig
from training.config import TrainerConfig
from training.optimizer import OptimizerConfig

CORPORA: dict[str, type] = {
    "tales": TalesConfig,
    "text": TextConfig,
    "shakespeare": ShakespeareConfig,
}

Config = TypeVar("Config")


@dataclass
class ObserveConfig:
    """Who watches a run."""

    terminal: bool
    tensorboard: bool
    attention: AttentionConfig
    samples: SamplesConfig
    # With defaults, for the stored settings of runs from before these were there.
    histograms: HistogramsConfig = field(default_factory=HistogramsConfig)
    profile: ProfileConfig = field(default_factory=ProfileConfig)


@dataclass
class TrainConfig:
    """Every setting of train.py; what each means stands in configs/train.yaml."""

    seed: int = MISSING
    run_dir: str | None = None
    resume: str | None = None
    cache_dir: str = MISSING
    data: Any = MISSING  # one of CORPORA
    tokenizer: TokenizerConfig = MISSING
    model: ModelConfig = MISSING
    optimizer: OptimizerConfig = MISSING
    trainer: TrainerConfig = MISSING
    observe: ObserveConfig = MISSING

    def __post_init__(self) -> None:
        check_range("seed", self.seed, 0, 2**63 - 1)
        if not isinstance(self.data, CORPORA.get(self.data.name, ())):
            raise ValueError(
                f"data.name: {self.data.name!r} has other settings; choose a corpus with data=..."
            )
        if not self.cache_dir:
            raise ValueError("cache_dir: is empty; give a folder")


@dataclass
class SampleConfig:
    """Every setting of sample.py; what each means stands in configs/sample.yaml."""

    run: str
    checkpoint: str
    prompt: str
    prompt_file: str | None
    interactive: bool
    max_new_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    num_samples: int
    seed: int
    device: str

    def __post_init__(self) -> None:
        check_range("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        check_sampling(self.temperature, self.top_k, self.top_p)
        check_range("num_samples", self.num_samples, 1, 10**6)
        check_range("seed", self.seed, 0, 2**63 - 1)
        if self.prompt_file is not None and (self.prompt or self.interactive):
            raise ValueError(
                "prompt_file: cannot go with prompt or interactive; give only one of them"
            )


@dataclass
class EvaluateConfig:
    """Every setting of evaluate.py; what each means stands in configs/evaluate.yaml."""

    run: str
    checkpoint: str
    split: str | None
    batch_size: int
    cache_dir: str
    device: str
    precision: str
    data: Any = None

    def __post_init__(self) -> None:
        if self.split not in (None, "train", "val", "all"):
            raise ValueError(f"split: {self.split!r} is unknown; choose train, val or all")
        check_range("batch_size", self.batch_size, 1, 10**6)


@dataclass
class AttentionScriptConfig:
    """Every setting of attention.py; what each means stands in configs/attention.yaml."""

    run: str
    checkpoint: str
    text: str
    html: str | None
    device: str

    def __post_init__(self) -> None:
        if not self.text:
            raise ValueError("text: is empty; give the text to look at")


@dataclass
class ShapesConfig:
    """Every setting of shapes.py."""

    model: ModelConfig = field(default=MISSING)


def register() -> None:
    """Make the types known to Hydra, as the `*_schema` entries of the YAML files' defaults."""
    store = ConfigStore.instance()
    scripts: dict[str, type] = {
        "train": TrainConfig,
        "sample": SampleConfig,
        "evaluate": EvaluateConfig,
        "attention": AttentionScriptConfig,
        "shapes": ShapesConfig,
    }
    for name, node in scripts.items():
        store.store(name=f"{name}_schema", node=node)
    for name, node in CORPORA.items():
        store.store(group="data", name=f"{name}_schema", node=node)
    for group, node in (
        ("tokenizer", TokenizerConfig),
        ("model", ModelConfig),
        ("optimizer", OptimizerConfig),
    ):
        store.store(group=group, name=f"{group}_schema", node=node)


def build(config: DictConfig, kind: type[Config], prefix: str = "") -> Config:
    """The checked dataclass of a composed config.

    Raises UserError that names the setting in full, for the first value that is out of range.
    """
    values = {}
    known = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    for key in config:
        if key not in known:
            raise UserError(f"{prefix}{key!s}: no such setting; --cfg job prints every setting")
    for each in fields(kind):  # type: ignore[arg-type]
        name = prefix + each.name
        node = config._get_node(each.name)
        if OmegaConf.is_missing(config, each.name):
            raise UserError(f"{name}: is missing; give {name}=...")
        object_type = OmegaConf.get_type(node) if isinstance(node, DictConfig) else None
        if object_type is not None and is_dataclass(object_type):
            values[each.name] = build(config[each.name], object_type, name + ".")
        else:
            values[each.name] = config[each.name]
    try:
        return kind(**values)
    except ValueError as error:
        raise UserError(f"{prefix}{error}") from error


def load_run_config(path: Path) -> DictConfig:
    """A run's stored settings, typed. Raises UserError if the file is damaged or no run's."""
    try:
        stored = OmegaConf.load(path)
        corpus = OmegaConf.select(stored, "data.name")
        if not isinstance(stored, DictConfig) or corpus not in CORPORA:
            raise UserError(
                f"{path}: is no run's config.yaml (no known data.name); choose another run"
            )
        schema = OmegaConf.merge(
            OmegaConf.structured(TrainConfig), {"data": OmegaConf.structured(CORPORA[corpus])}
        )
        merged = OmegaConf.merge(schema, stored)
    except (OmegaConfBaseException, YAMLError, OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: cannot be read as a run's settings ({one_line(error)})"
        ) from error
    assert isinstance(merged, DictConfig)
    try:
        build(merged, TrainConfig)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return merged


def with_overrides(stored: DictConfig, today: DictConfig, overridden: Sequence[str]) -> DictConfig:
    """A run's settings with today's on top: of the composed `today`, only what was overridden."""
    merged = stored.copy()
    for key in overridden:
        OmegaConf.update(merged, key, OmegaConf.select(today, key), merge=False)
    return merged


def flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings by their full names."""
    if not isinstance(settings, dict):
        return {prefix: settings}
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= flat(value, f"{prefix}.{key}" if prefix else key)
    return found
