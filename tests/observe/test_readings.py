"""How often a text can be read: the table of the guide, and the line at the start of a run."""

from __future__ import annotations

import re

import pytest

from observe.readings import MANY, ROWS, Row, advice
from tests.conftest import ROOT


def test_the_rows_are_those_of_the_guide() -> None:
    page = (ROOT / "docs/text.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| (\S+ .B) \| (.* width \d+) \|.*\| (\S+) \|$", page, re.MULTILINE)
    expected = ["-" if row.is_last else f"{row.readings:g}" for row in ROWS]
    assert lines == [(*row[:3:2], said) for row, said in zip(ROWS, expected, strict=True)]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_the_nearest_to_itself(row: Row) -> None:
    assert advice(row.n_tokens, row.n_parameters, MANY * row.n_tokens) is None
    line = advice(row.n_tokens, row.n_parameters, 100 * row.n_tokens)
    said = (
        f"The text is read 100 times. Nearest in docs/text.md: {row.text} and {row.model}, where "
    )
    assert line and line.startswith(said)
    assert advice(2 * row.n_tokens, row.n_parameters, 200 * row.n_tokens) == line
