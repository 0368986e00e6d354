"""The Attention tab outlines the cells of the patterns that a head is named by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from playwright import sync_api

from observe.evidence import MARKED, is_punctuation
from tensorboard_attention.export import STATIC
from tensorboard_attention.scores import are_words
from tensorboard_attention.tests.conftest import browser

__all__ = ["browser"]
TOKENS = (
    'Once there was a cat. "Oh, a cat, a hen, there," said the cat. Oh, a hen said it was a hen'
)


@pytest.fixture(scope="module")
def patterns(browser: sync_api.Browser) -> Any:
    """patterns(tokens): the cells of each pattern."""
    page = browser.new_page()

    def serve(route: sync_api.Route) -> None:
        name = route.request.url.rpartition("/")[2]
        if name.endswith(".js"):
            route.fulfill(path=STATIC / name, content_type="text/javascript")
        else:
            route.fulfill(body="<!doctype html>", content_type="text/html")

    page.route("**/*", serve)
    page.goto("http://tab/")
    code = """async (tokens) => {
        const { PATTERNS } = await import("/marks.js");
        const row = (is, q) => tokens.map((_, k) => k <= q && Boolean(is(tokens, q, k)));
        const cells = (is) => tokens.map((_, q) => row(is, q));
        return Object.entries(PATTERNS).map(([score, is]) => [score, cells(is)]);
    }"""
    yield lambda tokens: dict(page.evaluate(code, tokens))
    page.close()


def test_the_cells_are_those_that_the_evidence_counts(patterns: Any) -> None:
    tokens = [part for word in TOKENS.split() for part in (" ", word[:-1], word[-1]) if part]
    ids = np.unique(tokens, return_inverse=True)[1]
    found, words = patterns(tokens), are_words(tokens)
    causal = np.tri(len(tokens), dtype=bool)
    marks = {rule.score: rule.marks(ids, words) for rule in MARKED if rule.score != "punctuation"}
    marks["punctuation"] = np.array([is_punctuation(token) for token in tokens])
    assert {*found} == {*marks} == {rule.score for rule in MARKED}
    for score, cells in found.items():
        assert np.array_equal(cells, marks[score] & causal), score
