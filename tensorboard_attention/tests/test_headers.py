"""What the index reads of the headers of steps."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tensorboard.compat.proto.event_pb2 import Event

from tensorboard_attention.summary import encode
from tensorboard_attention.tests.conftest import served
from tensorboard_attention.tests.events import (
    HEADER,
    MAPS,
    NAME,
    TOKENS,
    event,
    look,
    write,
)

SAID = ("sentences", "roles", "details")
TWO_LAYERS = json.loads(encode(2 * MAPS, TOKENS)[0])


@pytest.mark.parametrize(
    "header",
    [
        {name: HEADER[name] for name in HEADER if name != "tokens"},
        {**HEADER, "version": 2},
        {**HEADER, "heads": [4, -2]},
        {**HEADER, "heads": [200_000_000], "scores": {}},
        {**HEADER, "scores": {"a": [[1, 2, 3]]}},
        {**HEADER, "scores": {"a": [[1, 10**400]]}},
        {**HEADER, "tokens": ["x" * 5_000_000, "b", "c"]},
        {**HEADER, "tokens": []},
        {**HEADER, "of a later version": [{"a": float("-inf")}]},
        {**HEADER, "not_finite": True},
        {**HEADER, "counts": {"entropy": "3"}},
        {**HEADER, "details": [["x", 1]]},
        {**HEADER, "details": [["x"]]},
        {**HEADER, "wiring": [[1, 1, 0, 0, 1]]},
        {**TWO_LAYERS, "wiring": [[1, 1, 2, 0, 1, 0.5]]},
        {**HEADER, "scores": {"a": [[1, 1e300]]}},
        {**TWO_LAYERS, "losses": [1.0]},
        b"[" * 100_000,
        b"\xff\xfe",
    ],
    ids=lambda header: str(header)[:60],
)
def test_a_step_with_another_header_is_skipped(tmp_path: Path, header: Any) -> None:
    """The steps before and after it are shown."""
    write(tmp_path, event(1), event(2, header), event(3))
    get = served(tmp_path)
    found = json.loads(get("/runs")[1])
    assert found["steps"] == {".": {"probe": [1, 3]}}
    (note,) = found["notes"]
    assert note.startswith(f"{NAME}: step 2 of 'probe' is skipped: ")
    query = {"run": ".", "tag": "probe", "step": "2"}
    assert get("/maps", **query)[0] == 404
    status, scores = get("/scores", **query)
    assert status == 200 and len(scores) < 1000


def test_it_opens_on_the_longest_run_of_the_newest_day(tmp_path: Path) -> None:
    """Of equal ones, on the newest."""

    def write_run(name: str, last: int, wall_time: float) -> None:
        data = Event.FromString(event(last))
        data.wall_time = wall_time
        write(tmp_path / name, data.SerializeToString())

    noon = datetime(2026, 3, 1, 12).timestamp()
    assert look(tmp_path)["first"] is None
    write_run("no time", 9000, float("nan"))
    write_run("yesterday", 5000, noon - 86_400)
    write_run("long", 500, noon)
    write_run("short", 20, noon + 60)
    assert look(tmp_path)["first"] == "long"
    write_run("as long", 500, noon + 30)
    assert look(tmp_path)["first"] == "as long"
