"""What the index reads of the headers of steps."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event

from tensorboard_attention.index import Index
from tensorboard_attention.tests.conftest import served
from tensorboard_attention.tests.events import (
    HEADER,
    NAME,
    event,
    look,
    write,
    write_losses,
)

SAID = ("sentences", "roles", "details")


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


def test_curves_contain_only_what_was_measured_on_the_same_text(tmp_path: Path) -> None:
    """As on the text of the last step."""
    places: list[dict[str, str]] = [
        {},
        {"a": "tales"},
        {"a": "this text"},
        {"a": "tales", "b": "tales"},
    ]
    scores = {"a": [[1, 2]], "b": [[3, 4]]}
    headers = [
        HEADER | {"scores": scores, "measured": measured} for measured in [*places, places[1]]
    ]
    write(tmp_path, *(event(step, header) for step, header in enumerate(headers)))
    index = Index(str(tmp_path))
    index.refresh()
    _, values = index.scores(".", "probe")
    none = np.nan
    np.testing.assert_array_equal(
        np.frombuffer(values, "<f4").reshape(5, 4),
        [[none, none, 3, 4], [1, 2, 3, 4], [none, none, 3, 4], [1, 2, none, none], [1, 2, 3, 4]],
    )


def test_curves_have_scores_that_only_earlier_steps_have(tmp_path: Path) -> None:
    """Unless these have other heads."""
    steps = [{"a": [[1, 2]], "b": [[3, 4]]}, {"a": [[5]], "c": [[6]]}, {"a": [[7, 8]]}]
    headers = [
        HEADER
        | {"scores": scores, "heads": [*map(len, scores["a"])]}
        | {name: [HEADER[name][0][:1] * len(scores["a"][0])] for name in SAID}
        for scores in steps
    ]
    write(tmp_path, *(event(step, header) for step, header in enumerate(headers)))
    index = Index(str(tmp_path))
    index.refresh()
    found, values = index.scores(".", "probe")
    none = np.nan
    assert found["names"] == ("a", "b")
    np.testing.assert_array_equal(
        np.frombuffer(values, "<f4").reshape(3, 4),
        [[1, 2, 3, 4], [none] * 4, [7, 8, none, none]],
    )


def test_it_opens_on_the_longest_run_of_the_newest_day(tmp_path: Path) -> None:
    """Of equal ones, on that with the lowest loss at its last step, or on the newest."""

    def write_run(name: str, last: int, wall_time: float, bits: float | None = None) -> None:
        data = Event.FromString(event(last))
        data.wall_time = wall_time
        write(tmp_path / name, data.SerializeToString())
        if bits is not None:
            text = {"unit": "bits", "texts": [["a"]], "groups": {"all": [[0]]}, "floor": None}
            steps = {"9": {"values": {}, "bits": [[9.0]]}, "10": {"values": {}, "bits": [[bits]]}}
            write_losses(tmp_path / name, {**text, "steps": steps})

    noon = datetime(2026, 3, 1, 12).timestamp()
    assert look(tmp_path)["first"] is None
    write_run("no time", 9000, float("nan"))
    write_run("yesterday", 5000, noon - 86_400)
    write_run("long", 500, noon)
    write_run("short", 20, noon + 60)
    assert look(tmp_path)["first"] == "long"
    write_run("as long", 500, noon + 30)
    assert look(tmp_path)["first"] == "as long"
    write_run("worse", 500, noon + 40, 3.0)
    write_run("better", 500, noon + 20, 2.0)
    assert look(tmp_path)["first"] == "better"


def test_scores_are_found_by_name(tmp_path: Path) -> None:
    """Of steps with other names, another order, or other heads."""
    scores = [
        ([2], {"a": [[1, 2]], "b": [[3, 4]]}),
        ([2], {"b": [[5, None]]}),
        ([1], {"b": [[6]], "a": [[7]]}),
        ([2], {"b": [[8, 9]], "a": [[10, 11]]}),
    ]
    said = {
        n: {
            "sentences": [[["", None, 0]] * n],
            "roles": [[["", ""]] * n],
            "details": [[""] * n],
        }
        for n in (1, 2)
    }
    headers = [
        HEADER | said[heads[0]] | {"heads": heads, "scores": found} for heads, found in scores
    ]
    write(tmp_path, *(event(step, header) for step, header in enumerate(headers)))
    index = Index(str(tmp_path))
    index.refresh()
    header, values = index.scores(".", "probe")
    texts = [0, 0, 0, 0]
    assert header == {"names": ("b", "a"), "steps": [0, 1, 2, 3], "texts": texts, "heads": (2,)}
    none = np.nan
    np.testing.assert_array_equal(
        np.frombuffer(values, "<f4").reshape(4, 4),
        [[3, 4, 1, 2], [5, none, none, none], [none] * 4, [8, 9, 10, 11]],
    )
