"""The settings of a run: a new one, one that starts from another, or one that is resumed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from common.errors import UserError, check_path
from configs.cli import overridden, setting_name
from configs.finetuning import experiment_settings, finetuned_config
from configs.schema import TrainConfig, build, literal, resumed_config
from data import Tokenizer, TokenizerConfig
from data.sources import is_url
from data.tokenizer import IMPORTED
from inference.pretrained import Pretrained, open_pretrained
from model import GPT
from training.run import RUNS, Run, check_new
from training.stored import flat, read_settings

AUTO = "auto"  # resume=auto
ONLY_AT_START = ("experiment", "init_from")  # what only the start of a run reads


class Settings(NamedTuple):
    """The settings of a run, as Hydra composed them and as checked dataclasses."""

    composed: DictConfig
    config: TrainConfig
    resumed: Run | None = None  # the run to continue; None: a new one
    pretrained: Pretrained | None = None  # the run to start from, as long as nothing is saved
    is_auto: bool = False  # resume=auto has found a run
    trusts_data: bool = True  # `data` comes from the command line, and not with a run

    @property
    def tokenizer(self) -> Tokenizer | TokenizerConfig:
        """The tokenizer of the run to resume or to start from, or the settings of a new one."""
        if self.resumed:
            return Tokenizer.load(self.resumed.tokenizer_folder)
        return self.pretrained.tokenizer if self.pretrained else self.config.tokenizer

    def find_pretrained_weights(self) -> Path | None:
        """The checkpoint that a new run starts from, if any."""
        return self.pretrained.find_weights() if self.pretrained else None

    def load_pretrained(self, checkpoint: Path | None) -> GPT | None:
        """The model that a new run starts with, if it starts from a checkpoint."""
        if self.pretrained is None or checkpoint is None:
            return None
        return self.pretrained.load_model(self.config.model, checkpoint)

    @property
    def yaml(self) -> str:
        """All settings as a file, without interpolations."""
        return OmegaConf.to_yaml(self.composed, resolve=True)

    @property
    def hydra_files(self) -> dict[str, str]:
        """What Hydra composed, by the names of the files in .hydra/."""
        hydra = HydraConfig.get()
        return {
            "config.yaml": OmegaConf.to_yaml(self.composed),
            "overrides.yaml": OmegaConf.to_yaml(hydra.overrides.task),
            "hydra.yaml": OmegaConf.to_yaml(OmegaConf.create({"hydra": hydra})),
        }

    @property
    def run_dir(self) -> str | None:
        """Where a new run is to be created; None: under runs/, named after the time."""
        hydra = HydraConfig.get()
        if hydra.mode != RunMode.MULTIRUN:
            return self.config.run_dir
        return str(Path(hydra.sweep.dir) / hydra.sweep.subdir)


def open_settings(cfg: DictConfig) -> Settings:
    """The settings as given, or those of the run to resume with today's overrides. Raises UserError
    if they contradict each other, or if a run cannot be started or resumed with them."""
    path = cfg.data.get("path")
    if isinstance(path, str) and path not in ("", "-") and not is_url(path):
        cfg.data.path = literal(_lasting_path(cfg.data.path))
    if cfg.data.name == "shakespeare" and cfg.data.path is not None:
        for name in ("data.url", "data.cache_dir"):
            if name in overridden():
                raise UserError(f"{name}: has no effect with data.path; leave one of them out")
    is_auto = cfg.resume == AUTO
    is_single = HydraConfig.get().mode != RunMode.MULTIRUN
    if cfg.name is not None and cfg.run_dir is None and is_single and (is_auto or not cfg.resume):
        cfg.run_dir = literal(str(RUNS / cfg.name))
    if is_auto:
        run = _find_run_to_continue(cfg.run_dir)
        cfg.resume = None  # a new run has the settings of any other
    else:
        run = None if cfg.resume is None else Run.open(cfg.resume, "resume")
    if run is None:
        settings = _new_settings(cfg)
        if cfg.run_dir is not None and not is_single:
            raise UserError("run_dir: with -m every run has its own; give hydra.sweep.dir instead")
        if is_single:
            check_new(cfg.run_dir)
            return settings
        return _continued_sweep(settings, cfg)
    if is_auto:
        _check_first_command(run)
    elif cfg.init_from is not None:
        raise UserError(
            "init_from: cannot be combined with resume, which continues with the run's own "
            "weights; leave one of them out"
        )
    elif cfg.run_dir is not None:
        raise UserError("run_dir: a resumed run stays in its folder; leave run_dir out")
    elif "experiment" in overridden():
        raise UserError("experiment: a resumed run keeps its settings; leave experiment out")
    composed = resumed_config(run, cfg, overrides := _changes())
    return _resumed_settings(run, composed, is_auto, _has_data(overrides))


def _new_settings(cfg: DictConfig) -> Settings:
    """The settings of a new run, checked."""
    pretrained = None if cfg.init_from is None else open_pretrained(cfg.init_from)
    if pretrained:
        cfg.init_from = literal(_lasting_path(str(pretrained.run.path)))
        cfg = finetuned_config(
            cfg, pretrained.model_config, pretrained.tokenizer_config, given_settings()
        )
    elif cfg.tokenizer.name == IMPORTED:
        raise UserError(
            f"tokenizer.name: {IMPORTED} comes with init_from only; choose another tokenizer"
        )
    return Settings(cfg, build(cfg, TrainConfig), pretrained=pretrained)


def _continued_sweep(settings: Settings, cfg: DictConfig) -> Settings:
    """The settings of a run of a sweep: of a new one, or of that which the same sweep has begun in
    the same folder."""
    assert settings.run_dir is not None
    folder, wanted = Path(settings.run_dir), flat(yaml.safe_load(settings.yaml))
    # By another number, if the sweep had fewer values.
    named = folder.name.partition("_")[2]
    begun = [file.parent for file in sorted(folder.parent.glob("*/config.yaml"))]
    begun = [each for each in begun if each.name.partition("_")[2] == named]
    same = [each for each in begun if flat(read_settings(each / "config.yaml")) == wanted]
    if not same:
        if folder in begun:
            raise UserError(
                f"hydra.sweep.dir: {folder} is a run with other settings; choose another folder"
            )
        return settings
    if folder not in begun:
        with suppress(OSError):
            folder.rmdir()  # which Hydra made for this number
    run = Run.open(str(folder if folder in same else same[0]), "hydra.sweep.dir")
    return _resumed_settings(run, resumed_config(run, cfg, []), True, _has_data(_changes()))


def _resumed_settings(run: Run, composed: DictConfig, is_auto: bool, has_data: bool) -> Settings:
    """The settings of a run to resume, checked. One that was killed before its first checkpoint
    starts again from where it started."""
    config = build(composed, TrainConfig)
    pretrained = None
    if config.init_from is not None and not run.checkpoints:
        pretrained = open_pretrained(config.init_from)
    return Settings(composed, config, run, pretrained, is_auto=is_auto, trusts_data=has_data)


def _changes() -> list[str]:
    """The settings, and their groups, that the command line changes in those of a stored run."""
    return [name for name in overridden() if name not in ("resume", "run_dir", *ONLY_AT_START)]


def _has_data(overrides: Iterable[str]) -> bool:
    return any(name.partition(".")[0] == "data" for name in overrides)


def _find_run_to_continue(run_dir: str | None) -> Run | None:
    """The run that resume=auto continues; None if there is none yet."""
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        raise UserError(f"resume: {AUTO} cannot be combined with -m; resume each run by its folder")
    if run_dir is None:
        raise UserError(
            f"resume: {AUTO} starts or continues the run in run_dir; add run_dir=runs/NAME"
        )
    check_path("run_dir", run_dir)
    return Run.open(run_dir, "run_dir") if Path(run_dir, "config.yaml").is_file() else None


def _check_first_command(run: Run) -> None:
    """Raise UserError if the run was started with another experiment, or from another run."""
    for override in HydraConfig.get().overrides.task:
        name = setting_name(override)
        if name in ONLY_AT_START and not run.was_given(
            OmegaConf.to_yaml(OmegaConf.create([override]))
        ):
            raise UserError(
                f"{name}: {run.path} was not started with this value, and cannot change it; "
                "give the value of the first start, or another run_dir"
            )


def given_settings() -> set[str]:
    """The names of the settings, and of their groups, that the command line or the experiment
    sets."""
    runtime = HydraConfig.get().runtime
    folders = [Path(source.path) for source in runtime.config_sources if source.schema == "file"]
    experiment = runtime.choices.get("experiment")
    return {*overridden(), *(experiment_settings(experiment, folders) if experiment else ())}


def _lasting_path(path: str) -> str:
    """`path` for someone who opens the run later, perhaps in another folder: absolute."""
    absolute = Path(os.path.expanduser(path)).absolute()  # noqa: PTH111 (accepts unknown users)
    try:
        str(absolute).encode()
    except UnicodeEncodeError:  # a folder whose name is not UTF-8 cannot be stored
        return path
    return str(absolute)
