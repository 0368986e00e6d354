"""The settings of a run: of a new one; of one that starts from another, whose model and tokenizer
it takes; or of one that is continued."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf

from common.errors import UserError, as_argument, check_path
from common.settings import Values, build, flat, typed
from data.files import is_local
from data.tokenizer import IMPORTED, Tokenizer, TokenizerConfig
from launch.quoting import by_name, overridden
from launch.schema import TrainConfig
from model import ModelConfig
from store.run import RUNS, Run, check_new, is_latest
from store.settings import read_settings, read_yaml, settings_yaml

AUTO = "auto"  # resume=auto
# What cannot change in a run that is resumed. Its text may have moved, but not changed: a checksum
# of the tokens is compared.
FIXED = ("seed", "init_from", "data.", "tokenizer.", "model.", "optimizer.name")
MOVABLE = ("data.path", "data.url", "data.cache_dir")
# Groups whose options have names: with the name that the run has, they change nothing.
NAMED = ("data", "tokenizer", "optimizer")
PLACES = ("resume", "run_dir", "name", "cache_dir")  # what does not matter to the result

# What may change: the weights depend on none, apart from learned positions, which can be cut.
DROPOUTS = ("dropout", "attention_dropout")
FREE = (*DROPOUTS, "context_length")


class Settings(NamedTuple):
    """The settings of a run, as plain values and as checked dataclasses."""

    composed: Values  # as the command line and the files give them, with an absolute data.path
    values: Values  # what is stored: as given, with null for sizes that follow from others
    config: TrainConfig
    resumed: Run | None = None  # the run to continue; None: a new one
    pretrained: Run | None = None  # the run whose weights a new one starts from
    is_auto: bool = False  # the same command starts the run and continues it
    trusts_data: bool = True  # the user has named the data; a run of someone else may not

    @property
    def tokenizer(self) -> Tokenizer | TokenizerConfig:
        """The tokenizer of the run to resume or to start from, or the settings of a new one."""
        run = self.resumed or self.pretrained
        return Tokenizer.load(run.tokenizer_folder) if run else self.config.tokenizer

    @property
    def files(self) -> dict[str, str]:
        """The files of a new run that have all settings, and what Hydra composed."""
        hydra, settings = HydraConfig.get(), settings_yaml(self.values)
        return {
            "config.yaml": settings,
            ".hydra/config.yaml": settings,
            ".hydra/overrides.yaml": OmegaConf.to_yaml(hydra.overrides.task),
            ".hydra/hydra.yaml": OmegaConf.to_yaml(OmegaConf.create({"hydra": hydra})),
        }


def open_settings(composed: Values) -> Settings:
    """The settings of the run that the `composed` ones ask for. Raises UserError if they contradict
    each other, or if a run cannot be started or continued with them."""
    composed = typed(TrainConfig, composed)  # a copy, which may be changed
    resume = composed["resume"]
    if is_in_sweep() and resume is not None:
        raise UserError("resume: the same sweep again continues its runs; leave it out")
    if is_in_sweep() or resume == AUTO:
        return _auto(composed)
    if resume is None:
        return _started(composed)
    return _resumed(Run.open(resume, "resume"), composed)


def _started(composed: Values) -> Settings:
    """The settings of a new run, which may start from another."""
    values = composed | {"resume": None, "run_dir": _run_dir(composed)}
    _resolve_data(values)
    check_new(values["run_dir"])
    pretrained = None
    if values["init_from"] is not None:
        if is_in_sweep() and is_latest(values["init_from"]):
            raise UserError("init_from: latest can change while -m runs; give the folder of a run")
        pretrained = Run.open(values["init_from"], "init_from")
        values = finetuned(values, pretrained)
        values["init_from"] = _absolute(str(pretrained.path))
    elif values["tokenizer"]["name"] == IMPORTED:
        raise UserError(
            f"tokenizer.name: {IMPORTED} comes with init_from only; choose another tokenizer"
        )
    config = build(TrainConfig, values)
    return Settings(composed, values, config, pretrained=pretrained)


def _auto(composed: Values) -> Settings:
    """The settings of the run that the same command has started; of a new run if there is none."""
    path = _run_dir(composed)
    if path is None:
        raise UserError(
            f"resume: {AUTO} starts or continues the run in run_dir; add run_dir=runs/NAME"
        )
    check_path("run_dir", path)
    if not Path(path, "config.yaml").is_file():
        return _started(composed)._replace(is_auto=True)
    run = Run.open(path, "run_dir")
    was = by_name(read_yaml(run.path / ".hydra/overrides.yaml"))
    if changed := sorted({*was.values()} ^ {*overridden().values()}):
        names = sorted({setting.partition("=")[0] for setting in changed} - {*PLACES})
        setting = "hydra.sweep.dir" if is_in_sweep() else "run_dir"
        if names:
            raise UserError(
                f"{setting}: {path} was started with other settings ({', '.join(names)}); give "
                f"another folder, or change them with resume={as_argument(path)}"
            )
    values = _stored(run) | {"cache_dir": composed["cache_dir"]}
    _resolve_data(composed)
    is_same = composed["data"] == values["data"]
    return _continued(run, composed, values, trusts_data=is_same)._replace(is_auto=True)


def _resumed(run: Run, composed: Values) -> Settings:
    """The newest settings of a run, with the composed ones that the command line sets on top."""
    given = overridden()
    for name in ("init_from", "run_dir", "experiment"):
        if name in given:
            raise UserError(
                f"{name}: cannot be combined with resume: a run continues in its folder, with its "
                f"settings and weights; leave {name} out"
            )
    values = _stored(run)
    was = flat(values)
    # Not the run's: it may come from somebody else, and must not decide where files are written.
    values["cache_dir"] = composed["cache_dir"]
    for name in given:
        is_same = name in NAMED and composed[name]["name"] == values[name]["name"]
        if name == "resume" or is_same:
            continue  # with data= again, what is below it keeps the values of the run
        if re.search(r"(?<!\\)\$\{", given[name]):
            raise UserError(
                f"{name}: is taken from other settings, which would be those of a new run, and not "
                "of the resumed one; give a value"
            )
        *groups, key = name.split(".")
        source, target = composed, values
        for group in groups:
            source, target = source[group], target[group]
        target[key] = source[key]
    _resolve_data(values)
    now = flat(values)
    changed = [name for name in was | now if was.get(name) != now.get(name)]
    refused = [name for name in changed if name.startswith(FIXED) and name not in MOVABLE]
    if refused:
        raise UserError(
            f"resume: {', '.join(refused)} cannot change in a resumed run; keep the stored value, "
            "or start a new run"
        )
    return _continued(run, composed, values, bool({"data.path", "data.url"} & {*given}))


def _continued(run: Run, composed: Values, values: Values, trusts_data: bool) -> Settings:
    """The settings of a run to continue, checked. One that was killed before its first checkpoint
    starts again from where it started."""
    config = build(TrainConfig, values)
    pretrained = None
    if config.init_from is not None and not run.checkpoints.steps:
        pretrained = Run.open(config.init_from, "init_from")
    return Settings(composed, values, config, run, pretrained, trusts_data=trusts_data)


def _stored(run: Run) -> Values:
    """The newest settings of a run. Raises UserError if they are damaged, or those of a run that
    cannot be trained."""
    file = run.newest_settings_file
    stored = read_settings(file)
    if stored.get("data") is None and "converted_from" in stored:
        raise UserError(
            f"{file}: the run was converted, not trained, and has no optimizer state to continue "
            f"from; finetune it with init_from={as_argument(run.path)}"
        )
    try:
        build(TrainConfig, stored)
        return typed(TrainConfig, stored)
    except UserError as error:
        raise UserError(f"{file}: {error}{run.made_by}") from error


def _run_dir(composed: Values) -> str | None:
    """The folder of a new run; None: under runs/, named after the time."""
    if is_in_sweep():
        if composed["run_dir"] is not None:
            raise UserError("run_dir: with -m every run has its own; give hydra.sweep.dir instead")
        hydra = HydraConfig.get()
        return str(Path(hydra.sweep.dir) / hydra.sweep.subdir)
    if composed["run_dir"] is None and composed["name"]:
        return str(RUNS / composed["name"])
    return composed["run_dir"]


def _resolve_data(values: Values) -> None:
    """Make the path of a local text absolute."""
    data = values["data"]
    path = data.get("path")
    is_elsewhere = path and ("://" in path or (data["name"] == "dataset" and not is_local(path)))
    if path and not is_elsewhere:
        data["path"] = _absolute(path)


def is_in_sweep() -> bool:
    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def _absolute(path: str) -> str:
    """`path` for someone who opens the run later, perhaps in another folder: absolute."""
    absolute = Path(os.path.expanduser(path)).absolute()  # noqa: PTH111 (accepts unknown users)
    try:
        str(absolute).encode()
    except UnicodeEncodeError:  # a folder whose name is not UTF-8 cannot be stored
        return path
    return str(absolute)


@dataclass(frozen=True)
class BaseConfig:
    """The settings that a finetuning takes from the other run."""

    model: ModelConfig
    tokenizer: TokenizerConfig


def finetuned(composed: Values, base: Run) -> Values:
    """The composed settings with the model and the tokenizer of the run `base`, also where an
    experiment names others; what is in FREE can be set by the command line, and the dropouts by an
    experiment, too.

    Raises UserError if the command line sets what cannot change, if the context is longer than that
    of the model, or if settings of `base` are missing or damaged.
    """
    settings = base.config(BaseConfig)
    model, tokenizer = settings.model, settings.tokenizer
    given, free = overridden(), [f"model.{name}" for name in FREE]
    refused = [name for name in given if name.partition(".")[0] in ("model", "tokenizer")]
    if refused := sorted({*refused} - {*free}):
        raise UserError(
            f"{', '.join(refused)}: cannot be set with init_from, which brings the model and the "
            f"tokenizer; only {', '.join(free)} can; leave it out, or train without init_from"
        )
    named = {name for name in FREE if f"model.{name}" in given}
    for experiment in _experiments():
        named |= {*DROPOUTS} & {*(experiment.get("model") or {})}
    changes = {name: composed["model"][name] for name in FREE if name in named}
    length = changes.get("context_length", model.context_length)
    if isinstance(length, int) and length > model.context_length:
        raise UserError(
            f"model.context_length: {length} is longer than that of init_from, which was trained "
            f"on no more positions; give at most {model.context_length}"
        )
    stored = read_settings(base.newest_settings_file)["model"]  # with null for derived sizes
    return composed | {
        "model": typed(ModelConfig, stored) | changes,
        "tokenizer": asdict(tokenizer),
    }


def _experiments() -> Iterator[Values]:
    """The chosen experiment, as it is written, and those that it is built on."""
    runtime = HydraConfig.get().runtime
    folders = [Path(source.path, "experiment") for source in runtime.config_sources if source.path]
    names = [runtime.choices["experiment"]]
    for name in names:
        files = (folder / f"{name}.yaml" for folder in folders)
        if file := next(filter(Path.is_file, files), None):  # there is none of _self_
            yield (experiment := read_yaml(file) or {})
            listed = [each for each in experiment.get("defaults") or () if isinstance(each, str)]
            names += [each.removeprefix("/experiment/") for each in listed]
