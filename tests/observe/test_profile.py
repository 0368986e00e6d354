"""A profiled run has a trace of exactly the requested steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from observe.profile import Profile, ProfileConfig
from tests.observe.conftest import run_context, trainer_at


def names(trace: Path) -> list[str]:
    """Return the names of all events that have a duration."""
    events = json.loads(trace.read_text())["traceEvents"]
    return [event["name"] for event in events if event.get("ph") == "X"]


@pytest.mark.parametrize(("steps", "skip_first", "found"), [(3, 2, 3), (9, 4, 2), (9, 20, None)])
def test_the_requested_steps_are_traced(
    tmp_path: Path, steps: int, skip_first: int, found: int | None
) -> None:
    """Of a run that ends early, those before its end."""
    context = run_context(tmp_path)
    profile = Profile(ProfileConfig(steps, skip_first), context)
    profile.on_start(trainer_at(context, 0))
    for step in range(1, 7):
        torch.zeros(3).cosh_()
        profile.on_step(trainer_at(context, step))
    profile.on_end(trainer_at(context, 6))
    assert not torch.autograd._profiler_enabled()
    traces = [*tmp_path.glob("profile/*.pt.trace.json")]
    assert len(traces) == (found is not None)
    assert [names(trace).count("aten::cosh_") for trace in traces] == [found] * len(traces)
