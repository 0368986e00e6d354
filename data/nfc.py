"""Unicode's normalization form C, as the package `tokenizers` computes it.

Promises: the result depends neither on where a text is cut between two visible words or lines, nor
on the version of Python.
"""

from __future__ import annotations

import re
import unicodedata

# `tokenizers` has the tables of Unicode 9, where newer marks are ordinary characters, which are
# neither reordered nor composed. These are the marks, and other parts of composed characters, up to
# Unicode 17; where a range is wider, its other characters are never changed.
_NEWER = (
    "7FD 897-89F 8CA-8D3 9FE C3C CF3 D3B-D3C EBA ECE 1715 1ABF-1AEB 1DF6-1DFA A82C 105D2 105DA "
    "10D24-10D27 10D69-10D6D 10EAB-10EAC 10EFA-10EFF 10F46-10F50 10F82-10F85 11070 11241 1133B "
    "113B8-113D2 113E1-113E2 1145E 11839-1183A 11930 1193D-1193E 11943 119E0 11A34 11A47 11A99 "
    "11D42-11D45 11D97 11F00-11F03 11F34-11F42 11F5A 13440 13447-13455 1611E-1612F 16D63-16D67 "
    "16FF0-16FF1 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF 1E6E3-1E6F5"
)
_NEWER_MARK = re.compile(
    "([{}])".format(re.sub(r"\w+", lambda each: chr(int(each[0], 16)), _NEWER).replace(" ", ""))
)


def nfc(text: str) -> str:
    """The text in normalization form C."""
    parts = _NEWER_MARK.split(text)
    parts[::2] = [unicodedata.normalize("NFC", part) for part in parts[::2]]
    return "".join(parts)
