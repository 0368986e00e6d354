"""A profiled run has a trace and a table of exactly the requested steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from observe.profile import Profile, ProfileConfig
from tests.conftest import TINY, command
from tests.observe.conftest import run_context, trainer_at


def names(trace: Path) -> list[str]:
    """Return the names of all events that have a duration."""
    events = json.loads(trace.read_text())["traceEvents"]
    return [event["name"] for event in events if event.get("ph") == "X"]


def test_the_requested_steps_are_profiled(tiny: Path, tiny_run: Path, tmp_path: Path) -> None:
    """Steps 2 and 3 of 6 are profiled: the model embeds two batches, and the result is the same."""
    settings = [
        *TINY,
        f"cache_dir={tiny / '.cache'}",
        "observe.attention.every=0",
        "observe.profile.steps=2",
        "observe.profile.skip_first=1",
        "run_dir=run",
    ]
    done = command("train", *settings, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    run = tmp_path / "run"
    trace, table = run / "profile/steps-2-3.json", run / "profile/steps-2-3.txt"
    assert sorted((run / "profile").iterdir()) == [trace, table]
    recorded = names(trace)
    assert sum(name.startswith("ProfilerStep#") for name in recorded) == 2
    assert recorded.count("aten::embedding") == 2
    lines = [line.split() for line in table.read_text().splitlines()]
    (product,) = (line for line in lines if line[:1] == ["aten::mm"])
    assert int(product[-1]) == recorded.count("aten::mm") > 0  # the number of calls
    assert "profile of steps 2 to 3" in (run / "train.log").read_text()
    weights = "checkpoints/last/model.safetensors"
    assert (run / weights).read_bytes() == (tiny_run / weights).read_bytes()


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
        assert names(tmp_path / f"profile/{found}.json").count("aten::cosh_") == 2
