"""How often a text can be read before a model learns it by heart, as it was measured.

Promises: the rows are those of the table in docs/text.md for five minutes, which has the commands.
"""

from __future__ import annotations

import math
from typing import NamedTuple

MANY = 20  # readings, of which a start says something


class Row(NamedTuple):
    """What was measured of a text and a model: the validation loss was lowest after so many
    readings of `n_tokens` training tokens; or, `is_last`, within 1% of the lowest at the end of the
    run, after so many."""

    text: str
    n_tokens: int
    model: str
    n_parameters: int
    readings: float
    is_last: bool = False


ROWS = (
    Row("100 kB", 33_427, "2 layers of width 96", 320_064, 7.4),
    Row("100 kB", 33_427, "4 layers of width 128", 935_296, 12.0),
    Row("100 kB", 33_427, "6 layers of width 192", 2_853_696, 9.9),
    Row("1 MB", 404_986, "2 layers of width 96", 320_064, 12.2, is_last=True),
    Row("1 MB", 404_986, "4 layers of width 128", 935_296, 4.8, is_last=True),
    Row("1 MB", 404_986, "6 layers of width 192", 2_853_696, 1.9, is_last=True),
    Row("10 MB", 2_788_329, "2 layers of width 96", 614_976, 2.0, is_last=True),
    Row("10 MB", 2_788_329, "4 layers of width 128", 1_328_512, 0.7, is_last=True),
    Row("10 MB", 2_788_329, "6 layers of width 192", 3_443_520, 0.2, is_last=True),
)


def advice(n_tokens: int, n_parameters: int, n_read: int) -> str | None:
    """One line with the nearest row, if `n_read` tokens are read of a text of `n_tokens`, and that
    is more than twenty times; otherwise None."""
    readings = n_read / n_tokens
    if readings <= MANY:
        return None
    row = min(
        ROWS,
        key=lambda row: (
            abs(math.log(row.n_tokens / n_tokens)),
            abs(math.log(row.n_parameters / n_parameters)),
        ),
    )
    found = "about lowest at the end, after" if row.is_last else "lowest after"
    return (
        f"The text is read {readings:,.0f} times. Nearest in docs/text.md: {row.text} and "
        f"{row.model}, where the validation loss was {found} {row.readings:.2g}"
    )
