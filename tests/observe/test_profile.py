"""A recorded run has a trace and a table of just the steps that were asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import TINY, succeed


def names(trace: Path) -> list[str]:
    """Of all that has a duration."""
    events = json.loads(trace.read_text())["traceEvents"]
    return [event["name"] for event in events if event.get("ph") == "X"]


def test_the_steps_that_were_asked_for(tiny: Path, tiny_run: Path, tmp_path: Path) -> None:
    """Steps 2 and 3 of 6: the model embeds two batches, and the result is the same."""
    settings = [
        *TINY,
        f"cache_dir={tiny / '.cache'}",
        "observe.attention.every=0",
        "observe.profile.steps=2",
        "observe.profile.skip_first=1",
        "run_dir=run",
    ]
    succeed("train", *settings, cwd=tmp_path)
    run = tmp_path / "run"
    trace, table = run / "profile/steps-2-3.json", run / "profile/steps-2-3.txt"
    assert sorted((run / "profile").iterdir()) == [trace, table]
    recorded = names(trace)
    assert sum(name.startswith("ProfilerStep#") for name in recorded) == 2
    assert recorded.count("aten::embedding") == 2
    lines = [line.split() for line in table.read_text().splitlines()]
    (embedding,) = (line for line in lines if line[:1] == ["aten::embedding"])
    assert embedding[-1] == "2"  # calls
    assert "profile of steps 2 to 3" in (run / "train.log").read_text()
    weights = "checkpoints/last/model.safetensors"
    assert (run / weights).read_bytes() == (tiny_run / weights).read_bytes()


@pytest.mark.parametrize(("skip_first", "found"), [(4, "steps-5-6.json"), (6, None), (20, None)])
def test_a_run_that_ends_first(
    tiny: Path, tmp_path: Path, skip_first: int, found: str | None
) -> None:
    """Six steps: what there is of the asked ones is kept, and where there is none, the log says
    so."""
    settings = [
        *TINY,
        f"cache_dir={tiny / '.cache'}",
        "observe.profile.steps=9",
        f"observe.profile.skip_first={skip_first}",
        "run_dir=run",
    ]
    succeed("train", *settings, cwd=tmp_path)
    assert ((tmp_path / "run/profile").exists()) == (found is not None)
    if found:
        assert (tmp_path / "run/profile" / found).is_file()
    missing = f"no profile: the run ended before step {skip_first + 1}"
    assert (missing in (tmp_path / "run/train.log").read_text()) == (found is None)
