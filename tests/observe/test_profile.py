"""A profiled run has a trace and a table of exactly the requested steps."""

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


@pytest.mark.parametrize(
    ("start", "skip_first", "found"),
    [(0, 4, "steps-5-6"), (100, 4, "steps-105-106"), (0, 6, None), (0, 20, None)],
)
def test_a_run_that_ends_early(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, start: int, skip_first: int, found: str | None
) -> None:
    """Of the requested steps, those before the end are kept. If there are none, this is logged."""
    caplog.set_level("INFO", logger="training.profile")
    context = run_context(tmp_path)
    profile = Profile(ProfileConfig(9, skip_first), context)
    profile.on_start(trainer_at(context, start))
    for step in range(start + 1, start + 7):
        torch.zeros(3).cosh_()
        profile.on_step(trainer_at(context, step))
    profile.on_end(trainer_at(context, start + 6))
    assert not torch.autograd._profiler_enabled()
    (message,) = caplog.messages
    if found is None:
        assert message == f"no profile: the run ended before step {skip_first + 1}"
        assert not (tmp_path / "profile").exists()
    else:
        trace, table = (tmp_path / f"profile/{found}.{kind}" for kind in ("json", "txt"))
        assert sorted((tmp_path / "profile").iterdir()) == [trace, table]
        assert names(trace).count("aten::cosh_") == 2
        lines = [line.split() for line in table.read_text().splitlines()]
        assert [line[-1] for line in lines if line[:1] == ["aten::cosh_"]] == ["2"]  # calls
        assert "profile of steps" in message
