"""The typed tree of all settings, and the conversion of composed settings into dataclasses.

The dataclasses stand beside the parts that they configure and do not know Hydra. No config names
code to run: a stored config is data.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from common.errors import UserError, check_choice, check_folder, check_range, print
from configs.messages import one_line
from data import CORPORA, TextConfig, TokenizerConfig
from inference import SamplingConfig
from live.pack import BYTES as WEIGHTS
from model import ModelConfig
from observe.build import ObserversConfig
from training.config import TrainerConfig, check_tokens
from training.device import DTYPES, PRECISIONS
from training.optimizer import OPTIMIZERS, OptimizerConfig
from training.run import Run
from training.stored import flat, read_settings

CONFIGS = Path(__file__).parent
# What a resumed run cannot change, apart from where its text is.
FIXED = ("seed", "init_from", "data.", "tokenizer.", "model.", "optimizer.name")
MAY_MOVE = ("data.path", "data.url", "data.cache_dir")

Config = TypeVar("Config")


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
    data: Any  # the settings of one of CORPORA
    tokenizer: TokenizerConfig
    model: ModelConfig
    optimizer: Any  # of one of OPTIMIZERS
    trainer: TrainerConfig
    observe: ObserveConfig

    def __post_init__(self) -> None:
        if self.name in ("", "..") or (self.name and Path(self.name).name != self.name):
            raise ValueError(f"name: {self.name!r} is not the name of a folder; give one")
        check_range("seed", self.seed, 0, 2**63 - 1)
        _check_kind("data", self.data)
        _check_kind("optimizer", self.optimizer)
        check_folder("cache_dir", self.cache_dir)


@dataclass
class SampleConfig(SamplingConfig):
    """The settings of sample.py; configs/sample.yaml explains them."""

    run: str
    checkpoint: str
    prompt_file: str | None
    interactive: bool
    show: str | None
    num_samples: int
    device: str
    precision: str

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("num_samples", self.num_samples, 1, 10**6)
        check_choice("precision", self.precision, DTYPES)
        if self.show is not None and not re.fullmatch(r"L\d{1,4}H\d{1,4}", self.show):
            raise ValueError(f"show: {self.show!r} is no head; give one such as L1H3")
        if self.show is not None and self.num_samples > 1:
            raise ValueError("show: shows one sample; leave num_samples out")
        if self.prompt_file is not None and (self.prompt or self.interactive):
            raise ValueError(
                "prompt_file: cannot be combined with prompt or interactive; give only one of them"
            )


@dataclass
class EvaluateConfig:
    """The settings of evaluate.py; configs/evaluate.yaml explains them."""

    run: str
    checkpoint: str
    split: str | None
    eval_tokens: str
    stride: int | None
    batch_size: int
    cache_dir: str
    device: str
    precision: str
    # Not in the YAML file, where it would override the chosen group.
    data: Any = None

    def __post_init__(self) -> None:
        if self.data is not None:
            _check_kind("data", self.data)
        if self.split is not None:
            check_choice("split", self.split, ("train", "val", "all"))
        check_tokens("eval_tokens", self.eval_tokens)
        if self.stride is not None:
            check_range("stride", self.stride, 1, 10**9)
        check_range("batch_size", self.batch_size, 1, 10**6)
        check_folder("cache_dir", self.cache_dir)
        check_choice("precision", self.precision, PRECISIONS)


@dataclass
class LookConfig:
    """The settings of look.py; configs/look.yaml explains them."""

    run: str
    checkpoint: str
    text: str | None
    steps: str
    name: str | None
    html: str | None
    weights: str | None
    checkpoints: str | None
    images: bool
    cache_dir: str
    device: str

    def __post_init__(self) -> None:
        check_folder("cache_dir", self.cache_dir)
        if self.text == "":
            raise ValueError("text: is empty; give the text to look at")
        if self.text is None and self.html is None:
            raise ValueError(
                "text: is missing; give the text to look at, or html=FILE for a page in which the "
                "model runs"
            )
        check_choice("steps", self.steps, ("last", "all"))
        if self.weights is not None:
            check_choice("weights", self.weights, WEIGHTS)
        if self.checkpoints is not None:
            check_choice("checkpoints", self.checkpoints, ("one", "all"))
        for name in ("weights", "checkpoints"):
            if getattr(self, name) is not None and not self.is_live:
                raise ValueError(
                    f"{name}: is for the page in which the model runs; leave it out, or give "
                    "html=FILE without text and steps"
                )
        if self.checkpoints == "all" and self.checkpoint == "best":
            raise ValueError(
                "checkpoints: all are more than checkpoint=best; leave one of them out"
            )

    @property
    def is_live(self) -> bool:
        """Whether the page is one in which the model runs."""
        return self.html is not None and self.text is None and self.steps == "last"


@dataclass
class CompareConfig:
    """The settings of compare.py; configs/compare.yaml explains them."""

    runs: list[str]
    by: str | None
    loss: float | None
    html: str | None

    def __post_init__(self) -> None:
        if not self.runs or not all(isinstance(path, str) for path in self.runs):
            raise ValueError(
                "runs: is not a list of folders; give some: python compare.py runs/sweep_*"
            )


@dataclass
class ConvertConfig:
    """The settings of convert.py; configs/convert.yaml explains them."""

    source: str
    to: str
    checkpoint: str | None
    dtype: str | None
    # Not in the YAML file, where it would override the chosen group.
    tokenizer: TokenizerConfig | None = None

    def __post_init__(self) -> None:
        if self.checkpoint is not None:
            check_choice("checkpoint", self.checkpoint, ("best", "last"))
        if self.dtype is not None:
            check_choice("dtype", self.dtype, ("float32", "bfloat16", "float16", "q8_0"))


@dataclass
class ShapesConfig:
    """The settings of shapes.py."""

    run: str | None
    model: ModelConfig


@dataclass
class PrepareConfig:
    """The settings of prepare.py; configs/prepare.yaml explains them."""

    to: str
    shards: int
    shard: int | None
    data: TextConfig
    tokenizer: TokenizerConfig

    def __post_init__(self) -> None:
        check_folder("to", self.to)
        check_range("shards", self.shards, 1, 99_999)
        if self.shard is not None:
            check_range("shard", self.shard, 0, self.shards - 1)


def _check_kind(group: str, settings: Any) -> None:
    """Raise ValueError unless these are the settings that belong to their name."""
    kinds = KINDS[group]
    if not is_dataclass(settings):
        choices = " or ".join(f"{group}={name}" for name in kinds)
        raise ValueError(f"{group}: is not a choice; choose {choices}")
    name = settings.name  # type: ignore[union-attr]
    check_choice(f"{group}.name", name, kinds)
    if type(settings) is not kinds[name].config:
        raise ValueError(f"{group}.name: cannot be {name!r} here; choose it with {group}={name}")


SCRIPTS: dict[str, type] = {
    "train": TrainConfig,
    "sample": SampleConfig,
    "evaluate": EvaluateConfig,
    "look": LookConfig,
    "compare": CompareConfig,
    "convert": ConvertConfig,
    "shapes": ShapesConfig,
    "prepare": PrepareConfig,
}
GROUPS: dict[str, type] = {
    "tokenizer": TokenizerConfig,
    "model": ModelConfig,
}
# The groups whose choices have settings of their own.
KINDS: dict[str, Mapping[str, Any]] = {"data": CORPORA, "optimizer": OPTIMIZERS}


def register() -> None:
    """Make the types known to Hydra, as the `*_schema` entries of the YAML files' defaults, and the
    choices of a group as `${choices:<group>}`, for help texts."""
    OmegaConf.register_new_resolver("choices", choices, replace=True)
    store = ConfigStore.instance()
    for name, kind in SCRIPTS.items():
        store.store(name=f"{name}_schema", node=kind)
    for group, kinds in KINDS.items():
        for name, choice in kinds.items():
            store.store(group=group, name=f"{name}_schema", node=choice.config)
    for group, kind in GROUPS.items():
        store.store(group=group, name=f"{group}_schema", node=kind)


def choices(group: str) -> str:
    """The options of a group, which are the files in its folder."""
    return ", ".join(sorted(path.stem for path in (CONFIGS / group).glob("*.yaml")))


def all_settings(kind: type, prefix: str = "") -> dict[str, Any]:
    """The settings of a dataclass and of those in it, with their types, by their full names; of
    `data` and `optimizer`, those of every choice."""
    found = {}
    hints = get_type_hints(kind)
    for setting in fields(kind):
        name, hint = prefix + setting.name, hints[setting.name]
        found[name] = hint
        kinds = [kind.config for kind in KINDS[name].values()] if hint is Any else [hint]
        for below in kinds:
            if is_dataclass(below):
                assert isinstance(below, type)
                found |= all_settings(below, f"{name}.")
    return found


def no_such_setting(name: str, names: Collection[str]) -> str:
    """The message about a setting that does not exist, with the most similar of `names`."""
    if name in names:  # a setting of another choice
        group, _, key = name.partition(".")
        kinds = KINDS[group].items()
        have = [choice for choice, kind in kinds if key in get_type_hints(kind.config)]
        others = " or ".join(f"{group}={choice}" for choice in have)
        what = {"data": "this corpus"}.get(group, f"this {group}")
        return f"{name}: {what} has no such setting; add {others}"

    def similarity(other: str) -> tuple[float, float]:
        own, others_own = (full_name.rpartition(".")[2] for full_name in (name, other))
        is_abbreviation = len(own) > 2 and others_own.startswith(own)
        return (
            1.0 if is_abbreviation else SequenceMatcher(None, own, others_own).ratio(),
            SequenceMatcher(None, name, other).ratio(),
        )

    best = max(names, key=similarity)
    if similarity(best)[0] > 0.7:
        return f"{name}: no such setting; did you mean {best}?"
    return f"{name}: no such setting; --cfg job prints every setting"


def literal(text: str) -> str:
    """`text`, escaped so that OmegaConf reads no interpolation in it."""
    return re.sub(r"(\\*)\$\{", lambda match: match[1] * 2 + r"\${", text)


def _all_literal(settings: Any) -> Any:
    """Nested settings with all texts literal."""
    if isinstance(settings, dict):
        return {key: _all_literal(value) for key, value in settings.items()}
    return literal(settings) if isinstance(settings, str) else settings


def build(config: DictConfig, kind: type[Config], prefix: str = "") -> Config:
    """The checked dataclass of a composed config.

    Raises UserError that names the setting in full, for the first value that is out of range.
    """
    values = {}
    known = [setting.name for setting in fields(kind)]  # type: ignore[arg-type]
    for key in config:
        if key not in known:
            raise UserError(no_such_setting(f"{prefix}{key!s}", all_settings(kind, prefix)))
    for name in known:
        full_name, node = prefix + name, config._get_node(name)
        if OmegaConf.is_missing(config, name):
            raise UserError(f"{full_name}: is missing; give {full_name}=...")
        values[name] = config[name]
        below = OmegaConf.get_type(node) if isinstance(node, DictConfig) else None
        if below is not None and is_dataclass(below):
            values[name] = build(config[name], below, f"{full_name}.")
    try:
        return kind(**values)
    except ValueError as error:
        raise UserError(f"{prefix}{error}") from error


def preset(group: str, name: str, **changes: Any) -> Any:
    """The checked dataclass of configs/<group>/<name>.yaml, with some values changed.

    preset("model", "nano", n_layers=4)
    """
    kind = KINDS[group][name].config if group in KINDS else GROUPS[group]
    files = [_load(f"{group}/{name}")]
    while not (base := files[0].pop("defaults")[0]).endswith("_schema"):
        files.insert(0, _load(f"{group}/{base}"))
    values = OmegaConf.to_container(OmegaConf.merge(OmegaConf.structured(kind), *files))
    return kind(**{**values, **changes})  # type: ignore[dict-item]


def _load(name: str) -> DictConfig:
    loaded = OmegaConf.load(CONFIGS / f"{name}.yaml")
    assert isinstance(loaded, DictConfig)
    return loaded


def run_folder(path: str, setting: str) -> str:
    """The folder of the run at `path`, also if that is `runs/latest`. Raises UserError, naming
    `setting`, if there is none."""
    return str(Run.open(path, setting).path)


def load_run_config(file: Path) -> DictConfig:
    """The stored settings of a run, typed.

    Settings that the run does not have, since they are newer, have their default values. Raises
    UserError if the file is damaged or not that of a run.
    """
    stored = read_settings(file)
    data = stored.get("data")
    if data is None and "converted_from" in stored:
        raise UserError(
            f"{file}: the run was converted, not trained, and has no optimizer state to continue "
            f"from; finetune it with init_from={shlex.quote(str(file.parent))}"
        )
    _leave_out_unknown(stored, file)
    kinds = {}
    for group, known in KINDS.items():
        section = stored.get(group)
        name = section.get("name") if isinstance(section, dict) else None
        if not isinstance(name, str) or name not in known:
            raise UserError(f"{file}: unknown {group}.name; choose another run")
        kinds[group] = OmegaConf.structured(known[name].config)
    try:
        defaults = _load("train")
        typed = OmegaConf.merge(
            OmegaConf.structured(TrainConfig),
            kinds,
            {name: defaults[name] for name in ("name", "init_from", "trainer", "observe")},
            _all_literal(stored),  # they were resolved before they were stored
        )
        assert isinstance(typed, DictConfig)
        build(typed, TrainConfig)
    except OmegaConfBaseException as error:
        raise UserError(f"{file}: {one_line(error)}; choose another run") from error
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    return typed


def _leave_out_unknown(stored: dict[str, Any], file: Path) -> None:
    """Remove settings of `observe` that this clone does not have, with a note. Raises UserError for
    another one, which could change what is learned."""
    for name in _remove_unknown(stored, all_settings(TrainConfig)):
        if not name.startswith("observe."):
            made_by = Run(file.parent).made_by
            raise UserError(f"{file}: this clone has no {name}; choose another run{made_by}")
        print(f"note: {file}: this clone has no {name}, which is left out", file=sys.stderr)


def _remove_unknown(
    settings: dict[str, Any], known: Collection[str], prefix: str = ""
) -> list[str]:
    """Remove the settings and groups that are not `known`; return their names."""
    names = []
    for key, value in [*settings.items()]:
        if (name := f"{prefix}{key}") not in known:
            names.append(name)
            del settings[key]
        elif isinstance(value, dict):
            names += _remove_unknown(value, known, f"{name}.")
    return names


def newer_defaults() -> dict[str, Any]:
    """The values that settings have in runs which are older than these settings, by full name."""
    defaults = _load("train")
    groups = {
        group: {
            field.name: field.default for field in fields(config) if field.default is not MISSING
        }
        for group, config in {"model": ModelConfig, "optimizer": OptimizerConfig}.items()
    }
    return flat({**groups, "init_from": defaults.init_from}) | flat(
        OmegaConf.to_container(defaults.trainer), "trainer"
    )


def resumed_config(run: Run, today: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """The newest settings of a run, with the overridden ones of the composed `today` on top. Raises
    UserError if a resumed run cannot change one of them."""
    stored = load_run_config(run.config_file)
    # Earlier resumes may have changed some of them.
    settings = load_run_config(run.newest_settings_file)
    # Not the run's: it may come from somebody else, and must not decide where files are written.
    settings.cache_dir = today.cache_dir
    for name in overrides:
        if name == "data" and today.data.name == settings.data.name:
            continue  # for the sake of data.path: the defaults of the others may not be the run's
        value = OmegaConf.select(today, name)
        value = literal(value) if isinstance(value, str) else value
        OmegaConf.update(settings, name, value, merge=False)
    was, now = (flat(OmegaConf.to_container(config)) for config in (stored, settings))
    changed = [name for name in was | now if was.get(name) != now.get(name)]
    refused = [name for name in changed if name.startswith(FIXED) and name not in MAY_MOVE]
    if refused:
        raise UserError(
            f"resume: {', '.join(refused)} cannot change in a resumed run; keep the stored value, "
            "or start a new run"
        )
    return settings
