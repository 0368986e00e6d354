"""The Attention tab outlines the cells of the patterns that a head is named by."""

from __future__ import annotations

import numpy as np
import pytest

from tensorboard_attention.patterns import PATTERNS, Text
from tests.live.conftest import Call

TALE = 'Once there was a cat. "Oh, a cat, a hen, there," said the cat. Oh, a hen said it was a hen'
TOKENS = [part for word in TALE.split() for part in (" ", word[:-1], word[-1]) if part]


CELLS = """({ PATTERNS }, tokens) => {
    const row = (is, q) => tokens.map((_, k) => k <= q && Boolean(is(tokens, q, k)));
    const cells = (is) => tokens.map((_, q) => row(is, q));
    return Object.entries(PATTERNS).map(([score, is]) => [score, cells(is)]);
}"""
WORDS = [" the", " hen", "the", " a", ".", ',"', "\n", " ", "é", "3", "\u202e", "🐔", " fox's"]
WORDS += ["می\u200c", "a\u00adb", "1️⃣2️⃣", "เมื่"]


def drawn(seed: int) -> list[str]:
    """Few words, of which passages come again."""
    random = np.random.default_rng(seed)
    words = random.choice(WORDS, int(random.integers(2, 6)), replace=False)
    return [str(each) for each in random.choice(words, int(random.integers(1, 40)))]


@pytest.mark.parametrize("tokens", [TOKENS, *map(drawn, range(30))])
def test_the_cells_are_those_that_are_measured(module: Call, tokens: list[str]) -> None:
    ids = np.unique(tokens, return_inverse=True)[1]
    text, found = Text(ids, tokens, 0), dict(module("marks.js", CELLS, tokens))
    for pattern, cells in zip(PATTERNS, text.cells, strict=True):
        marked = np.flatnonzero(found.pop(pattern.name))
        assert np.array_equal(marked, cells), pattern.name
    assert not found
