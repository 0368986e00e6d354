"""The two sides that verdict.py compares: the settings of the base, and those of an idea."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict

from common.errors import UserError, as_mistake
from common.files import sha256
from common.settings import Values, flat
from data.corpus import CorpusConfig
from launch.cli import plain_values
from launch.quoting import by_name, read_arguments
from launch.schema import TrainConfig
from launch.settings import open_settings
from store.checkpoint import STATE
from store.comparison import differing
from store.run import is_latest

# What holds for both sides wherever it is given: what is not trained, or must be equal.
SHARED = (
    "experiment",
    "data",
    "observe",
    "cache_dir",
    "trainer.device",
    "trainer.final_eval_tokens",
)
# What verdict.py gives to each run.
GIVEN = ("seed", "run_dir", "resume", "name")

Overrides = Mapping[str, str]  # settings as on the command line of train.py, by their names


class Side(NamedTuple):
    """What is trained: overrides as on the command line of train.py, all settings by name, those of
    the text, and a checksum of the weights to start from."""

    overrides: Overrides
    settings: Values
    data: CorpusConfig
    weights: str = ""

    def beyond(self, other: Side) -> list[str]:
        """The overrides that the other side does not have."""
        return [text for text in self.overrides.values() if text not in other.overrides.values()]


def divide(idea: Sequence[str], base: str | None) -> tuple[Overrides, Overrides]:
    """The overrides of both sides. The base has those of `idea` that are shared, and those of
    `base`, a text as on the command line; the idea has all, its own in the place of the base's.
    Raises UserError for one that verdict.py gives itself."""
    with as_mistake("base: ", "; give settings as on the command line"):
        common = _by_name(shlex.split(base or ""))
    given = _by_name(idea)
    if refused := [name for name in (*common, *given) if name in GIVEN]:
        raise UserError(
            f"{refused[0]}: verdict.py gives each run its own; leave it out"
            + (", or give seeds_from" if refused[0] == "seed" else "")
        )
    beginnings = tuple(f"{name}." for name in SHARED)
    shared = {
        name: override
        for name, override in given.items()
        if name in SHARED or name.startswith(beginnings)
    }
    return shared | common, common | given


def _by_name(overrides: Sequence[str]) -> dict[str, str]:
    if refused := [each for each in overrides if re.match(r"-|\+*hydra\b", each)]:
        raise UserError(f"{refused[0]}: is no setting of a run; leave it out")
    return by_name(overrides)


def open_side(overrides: Overrides) -> Side:
    """The settings that train.py would have. Raises UserError as it would, before it trains."""
    *quoted, _ = read_arguments([*overrides.values()], "train", TrainConfig)
    hydra_config = HydraConfig.instance()
    before = hydra_config.cfg
    try:
        composed = hydra.compose("train", quoted, return_hydra_config=True)
        hydra_config.set_config(composed)
        with open_dict(composed):
            del composed["hydra"]
        values = plain_values(composed)
        if is_latest(values["init_from"] or ""):
            raise UserError("init_from: latest can change meanwhile; give the folder of a run")
        opened = open_settings(values)
        weights = ""
        if opened.pretrained:  # which can be trained further
            weights = sha256(opened.pretrained.checkpoints.find("last", "init_from") / STATE)
        return Side(overrides, flat(opened.values), opened.config.data, weights)
    finally:
        hydra_config.cfg = before


def check_sides(base: Side, idea: Side) -> None:
    """Raise UserError unless the idea differs from the base, and not in the text that is scored."""
    names = differing([base.settings, idea.settings])
    if not names:
        raise UserError(
            "idea: its settings are those of the base; give one that differs, such as "
            "optimizer.beta2=0.99"
        )
    scored = ["data.", "trainer.final_eval_tokens"]
    if str(idea.settings["trainer.final_eval_tokens"]) not in ("all", "0"):  # a part, in windows
        scored += ["tokenizer.", "model.context_length", "init_from"]
    if refused := [name for name in names if name.startswith(tuple(scored))]:
        raise UserError(
            f"{', '.join(refused)}: the two sides would be scored on different text, and cannot be "
            'compared; give it for both: base="NAME=VALUE"'
        )
