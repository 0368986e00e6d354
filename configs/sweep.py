"""What is printed at the end of a sweep (-m): the table of compare.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from common.errors import print, printable
from inference.comparison import compare, group, notes, summary_lines, target_loss
from inference.results import read_finished


class PrintTable(Callback):
    """Hydra makes it, as `configs.cli` asks."""

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        if any(folder.rglob("summary.json")):
            rows = read_finished([folder])
            groups = group(rows)
            lines = summary_lines(groups, compare(groups), target_loss(groups))
            lines += [f"note: {note}" for note in notes(rows)]
            print("\n".join(["", *map(printable, lines)]))
