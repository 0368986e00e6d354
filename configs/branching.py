"""The settings of a branch: those of its trunk, from one of its checkpoints on, apart from what a
resume could change too, and the heads that it holds off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig

from common.errors import UserError
from configs.schema import literal, resumed_config


def branch_config(today: DictConfig, trunk: Any, overrides: Sequence[str]) -> DictConfig:
    """The newest settings of the trunk, with the overridden ones of the composed `today` on top.

    trunk: an `inference.branch.Trunk`.

    Raises UserError if a branch cannot change one of them, or if the trunk does not have a head.
    """
    model = trunk.holding_off(today.hold_off)
    settings = resumed_config(trunk.run, today, overrides, "branch")
    for name in ("name", "run_dir", "branch", "hold_off"):  # the branch's own
        settings[name] = None if today[name] is None else literal(today[name])
    settings.step = step = trunk.state.step
    settings.model.hold_off = model.hold_off
    last = settings.trainer.max_steps
    if step >= last:
        others = [str(other) for other in trunk.run.checkpoints.steps if other < last]
        earlier = f"give an earlier step ({', '.join(others)}), or " if others else ""
        raise UserError(
            f"step: no step is left for a branch from step {step} that ends at step {last} "
            f"(trainer.max_steps); {earlier}set trainer.max_steps to more than {step}"
        )
    return settings
