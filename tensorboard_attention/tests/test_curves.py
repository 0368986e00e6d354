"""The scores of all steps, as the tab draws them: from a log, and from a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from playwright import sync_api

from tensorboard_attention.tests.conftest import module, served
from tensorboard_attention.tests.events import HEADER, event, write

CODE = """async (headers) => {
    const { Logs, Embedded } = await import("/source.js");
    const entries = headers.map((_, step) => ({ tag: "probe", step }));
    const found = [];
    for (const source of [new Logs(), new Embedded({ run: ".", entries }, headers)]) {
        const { values, ...rest } = await source.scores(".", "probe");
        found.push({ ...rest, values: [...values] });
    }
    return found;
}"""


def header(scores: dict[str, list[Any]], measured: dict[str, str], text: str) -> dict[str, Any]:
    """Of one layer with as many heads as there are values."""
    n = len(next(iter(scores.values())))
    said = {"sentences": ["", None, 0], "roles": ["", ""], "details": ""}
    return {
        **HEADER,
        **{name: [[value] * n] for name, value in said.items()},
        **{"heads": [n], "measured": measured, "tokens": [*text]},
        "scores": {name: [values] for name, values in scores.items()},
    }


def test_curves_are_found_by_name_text_and_heads(tmp_path: Path, browser: sync_api.Browser) -> None:
    """Those of the last step, and those that only earlier ones with as many heads have."""
    tales, here = {"a": "tales"}, {"a": "this text"}
    headers = [
        header({"a": [1, 2], "b": [3, 4]}, tales, "abc"),
        header({"b": [5, None]}, {}, "abc"),
        header({"b": [6], "a": [7], "d": [8]}, tales, "abc"),  # of another model
        header({"a": [9, 10], "c": [11, 12]}, here, "abd"),
        header({"a": [13, 14], "c": [15, 16]}, {"c": "tales"}, "abd"),
        header({"b": [17, 18], "a": [19, 20]}, tales, "abc"),
    ]
    write(tmp_path, *(event(step, header) for step, header in enumerate(headers)))
    answer = served(tmp_path)("/scores", run=".", tag="probe")[1]
    page = browser.new_page()
    page.route("**/*.js", module)
    page.route("**/scores?*", lambda route: route.fulfill(body=answer))
    page.route("http://tab/", lambda route: route.fulfill(body="", content_type="text/html"))
    page.goto("http://tab/")
    log, embedded = page.evaluate(CODE, headers)
    page.close()
    none = np.nan
    for found in (log, embedded):
        assert found["names"] == ["b", "a", "c"] and found["heads"] == [2]
        assert found["steps"] == [*range(6)]
        texts = [text == found["texts"][0] for text in found["texts"]]
        assert texts == [True, True, True, False, False, True]
        np.testing.assert_array_equal(
            np.reshape(found["values"], (6, 6)),
            [
                [3, 4, 1, 2, none, none],
                [5, none, none, none, none, none],
                [none] * 6,
                [none] * 6,
                [none, none, none, none, 15, 16],
                [17, 18, 19, 20, none, none],
            ],
        )
