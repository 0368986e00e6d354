"""The hyperparameters and the result of a run, for TensorBoard's HParams tab."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from common.settings import flat
from observe.context import RunContext

if TYPE_CHECKING:
    from training.callback import Summary

# Beginnings of names of what is trained and how; no paths, and nothing of what is saved, measured
# or shown.
TRAINED = (
    *("seed", "model.", "tokenizer.", "optimizer.", "data.name", "data.n_bytes"),
    *("trainer.max_steps", "trainer.batch_size", "trainer.grad_accumulation"),
    *("trainer.max_grad_norm", "trainer.precision", "trainer.compile"),
)
# Shown of every run, after what the command line sets. More columns would hide the result.
ALWAYS = ("data.name", "seed")


def hyperparameters(context: RunContext) -> dict[str, int | float | str]:
    """Settings by their full names: those that the command line sets, and those that are shown of
    every run. Derived sizes of the model are in the place of nulls."""
    settings = flat({**asdict(context.config), "model": asdict(context.model.config)})
    names = [
        name
        for beginning in (*sorted(context.varied), *ALWAYS)
        for name in settings
        if name.startswith(beginning) and name.startswith(TRAINED)
    ]
    return {name: _value(settings[name]) for name in names if settings[name] is not None}


def result(summary: Summary) -> dict[str, float]:
    """The metrics of a finished run by tag."""
    found = {
        "result/bpb": summary.val_bpb,
        "result/seconds": summary.seconds,
    }
    if summary.floor_bpb:
        found["result/percent_above_floor"] = 100 * (summary.val_bpb / summary.floor_bpb - 1)
    return found


def _value(setting: object) -> int | float | str:
    """A number or a text: TensorBoard's writer has no booleans."""
    if isinstance(setting, int | float) and not isinstance(setting, bool):
        return setting
    return setting if isinstance(setting, str) else json.dumps(setting)
