"""Sweeps (-m): which run is which, and which was the best.

A run is called by its number and the settings that vary, and has this name in its folder and in
what it prints. Knows nothing of how runs are trained.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import TextIOBase
from pathlib import Path
from typing import Any, TextIO

import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, RangeSweep
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from common.errors import print, printable
from inference.comparison import compare, group, summary_lines, target_loss
from inference.results import read_finished
from inference.scaling import scaling

EXCLUDED = "hydra.job.config.override_dirname.exclude_keys"
CALLBACK = "+hydra.callbacks.best._target_=configs.sweep.PrintBest"
# Hydra's functions that give several values; what is in brackets; a whole value that is in quotes.
FUNCTION = r"\s*(choice|glob|interval|range|shuffle|sort|tag)\(.*\)\s*"
BRACKETS = r"\([^()]*\)|\[[^][]*\]|\{[^{}]*\}"
QUOTED = r"""(?P<quote>['"])(?:\\.|(?!(?P=quote)).)*(?P=quote)"""
LONGEST = 100  # characters of the settings in the name of a folder


def folder_name(number: int, overrides: str) -> str:
    """The name of the folder of a run, from its number and the settings that vary.

    3, "model.d_model=64,optimizer.lr=0.01" -> "3_d_model=64,lr=0.01"
    """
    short = re.sub(r"[\w.+]*\.(?=\w+=)", "", overrides)
    legal = re.sub(r"[^\w.,=+-]+", "-", short, flags=re.ASCII)[:LONGEST].strip("-.")
    return f"{number}_{legal}" if legal else str(number)


# At import, since the worker processes of some launchers import this file and call no `register`.
OmegaConf.register_new_resolver("folder_name", folder_name, replace=True)


def split_values(text: str) -> list[str] | None:
    """The values of a setting in a sweep, divided by commas outside brackets; None if the text is
    a single value. What Hydra divides itself, such as choice(a, b), is one value of several."""
    if re.fullmatch(FUNCTION, text, re.DOTALL):
        return [text]
    if "," not in _masked(text):
        return None
    masked = re.sub(rf"(?<![^,])\s*{QUOTED}\s*(?![^,])|\\,", _blank, text, flags=re.DOTALL)
    values, start = [], 0
    for part in _masked(masked).split(","):
        values.append(text[start : start + len(part)].strip())
        start += len(part) + 1
    return values


def _masked(text: str) -> str:
    """A text of the same length, without what is in brackets."""
    while (masked := re.sub(BRACKETS, _blank, text)) != text:
        text = masked
    return text


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])


def is_plain(text: str, is_optional: bool) -> bool:
    """Whether Hydra reads one of several values as it is, in quotes or without, and not as another
    one: 1e3 as 1000.0."""
    if not text or re.fullmatch(f"{FUNCTION}|{QUOTED}", text, re.DOTALL):
        return True
    try:
        value = OverridesParser.create().parse_override(f"x={text}").value()
    except HydraException:
        return False
    is_null = is_optional and value is None
    return is_null or (str(value) == text.replace("\\,", ",") and "${" not in text)


def count_runs(overrides: Sequence[str]) -> int:
    """The number of runs of a grid. A search by another sweeper has one run for each trial."""
    count = 1
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        value = override.value()
        if override.key_or_group == "hydra/sweeper":
            return 1
        if isinstance(value, RangeSweep) and value.step:
            assert value.start is not None and value.stop is not None
            count *= max(math.ceil((value.stop - value.start) / value.step), 1)
        elif isinstance(value, ChoiceSweep):
            count *= len(value.list)
    return count


def is_sweep(overrides: Sequence[str]) -> bool:
    """Whether an experiment is chosen that sweeps by itself."""
    return any(
        f"experiment={file.stem}" in overrides and "mode: MULTIRUN" in file.read_text("utf-8")
        for file in (Path(__file__).parent / "experiment").glob("*.yaml")
    )


def sweep_overrides(overrides: Sequence[str]) -> list[str]:
    """Overrides of Hydra's own settings: the best run is printed at the end, and the settings that
    are the same in all runs are left out of their names."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    varying = {override.key_or_group for override in parsed if override.is_sweep_override()}
    constant = [
        override.key_or_group for override in parsed if override.key_or_group not in varying
    ]
    return [f"{EXCLUDED}=[{','.join(constant)}]", CALLBACK]


@contextmanager
def named_output(hydra: Any) -> Iterator[str]:
    """Print which run of a sweep this is, and yield its name, or "" without a sweep; runs in
    parallel print their names before each line."""
    if hydra.mode != RunMode.MULTIRUN:
        yield ""
        return
    name = f"run {hydra.job.num}"
    if hydra.launcher._target_.endswith(".BasicLauncher"):
        print(f"{name}: {hydra.job.override_dirname}", flush=True)
        yield name
        return
    with _Prefixed(f"{name}: ", sys.stdout) as output, redirect_stdout(output):
        print(hydra.job.override_dirname)
        yield name


def is_in_sweep(hydra: Any) -> bool:
    return bool(hydra.mode == RunMode.MULTIRUN)


def is_first(hydra: Any) -> bool:
    """Whether this is the first run of a sweep, or the only one."""
    return not is_in_sweep(hydra) or hydra.job.num == 0


def varied(overridden: Iterable[str]) -> frozenset[str]:
    """The overridden settings without those that are the same in all runs of a sweep."""
    constant = HydraConfig.get().job.config.override_dirname.exclude_keys
    return frozenset(overridden).difference(constant)


class _Prefixed(TextIOBase):
    """Writes whole lines to a stream, each with a prefix."""

    def __init__(self, prefix: str, stream: TextIO) -> None:
        self.prefix, self.stream, self.held = prefix, stream, ""

    def write(self, text: str) -> int:
        *lines, self.held = (self.held + text).split("\n")
        # One write, so that the lines of several processes do not mix.
        whole = "".join(f"{self.prefix}{line}\n" for line in lines)
        print(whole, end="", file=self.stream, flush=True)
        return len(text)

    def close(self) -> None:
        if self.held:
            self.write("\n")
        super().close()


class PrintBest(Callback):
    """Prints the best run at the end of a sweep; of one over several seeds, a table of the other
    settings. Hydra makes it, as `sweep_overrides` asks."""

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        if not any(folder.glob("*/summary.json")):
            return
        rows = read_finished([folder])
        if len({row["seed"] for row in rows}) > 1:
            groups = group(rows)
            lines = summary_lines(groups, compare(groups), target_loss(groups))
            lines += scaling(rows).lines()
            print("\n".join(["", *map(printable, lines)]))
            return
        best = min(rows, key=lambda row: row["val_bpb"])
        hydra = yaml.safe_load(Path(best["run"], ".hydra", "hydra.yaml").read_text("utf-8"))[
            "hydra"
        ]
        print(
            f"Best of {len(rows)} runs: {hydra['job']['override_dirname']}, "
            f"{best['val_bpb']:.4f} bits per byte, {best['run']}"
        )
