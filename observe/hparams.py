"""The hyperparameters and the result of a run, for TensorBoard's HParams tab."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from common.settings import flat
from observe.context import RunContext

if TYPE_CHECKING:
    from training.callback import Summary

# Names, or their beginnings, of what is trained and how; no paths, and nothing of what is saved,
# measured or shown. The tab shows the first five at first.
NAMES = (
    *("optimizer.lr", "model.n_layers", "model.d_model", "data.name", "seed"),
    *("model.", "tokenizer.", "optimizer.", "data.n_bytes", "trainer.max_steps"),
    *("trainer.batch_size", "trainer.grad_accumulation", "trainer.max_grad_norm"),
    *("trainer.precision", "trainer.compile"),
)


def hyperparameters(context: RunContext) -> dict[str, int | float | str]:
    """Settings by their full names: first those that the command line sets, then by NAMES. Derived
    sizes of the model are in the place of nulls."""
    settings = flat({**asdict(context.config), "model": asdict(context.model.config)})
    names = [
        name
        for beginning in (*sorted(context.varied), *NAMES)
        for name in settings
        if name.startswith(beginning) and name.startswith(NAMES)
    ]
    return {name: _value(settings[name]) for name in names if settings[name] is not None}


def result(summary: Summary) -> dict[str, float]:
    """The metrics of a finished run by tag."""
    found = {
        "result/bpb": summary.val_bpb,
        "result/loss": summary.val_loss,
        "result/parameters": summary.parameters,
        "result/seconds": summary.seconds,
        "result/tokens_per_second": summary.tokens_per_second,
    }
    if summary.floor_bpb:
        found["result/percent_above_floor"] = 100 * (summary.val_bpb / summary.floor_bpb - 1)
    return found


def _value(setting: object) -> int | float | str:
    """A number or a text: TensorBoard's writer has no booleans."""
    if isinstance(setting, int | float) and not isinstance(setting, bool):
        return setting
    return setting if isinstance(setting, str) else json.dumps(setting)
