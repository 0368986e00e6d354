"""The floor of every character of a tale, compared with all texts of a grammar."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from data.floor import character_bits
from data.tales import read_rules, tale, tales_rules
from tests.data.derivations import derivations


def test_every_character_of_every_text_of_a_grammar():
    """The probability of a prefix is that of all texts that begin with it."""
    grammar = read_rules(
        {
            "story": [
                "{He hero} saw {a thing}. {hero} saw {a thing.b}, and {a thing.c}.*3",
                "{hero} had {a thing}. {His hero} {thing} was {look}{more}.*2",
                "{hero} met {friend}, and {he friend} met {him hero}.",
            ],
            "more": [" too", " and {look.b}*2", ", {look.b}", " and {look.b}, and {a thing.d}"],
            "hero": ["Ida", "Tom*4"],
            "friend": ["Ida", "Tom", "Amy"],
            "thing": ["hat", "ham*2", "egg"],
            "look": ["old", "odd*3", "red"],
        },
        unique=frozenset({"thing"}),
    )
    texts = {drawn.text + "\n\n": 2**-drawn.bits for drawn in derivations(grammar)}
    assert len(texts) == 178
    assert math.fsum(texts.values()) == pytest.approx(1, abs=1e-12)

    def probability(prefix: str) -> float:
        return math.fsum(value for text, value in texts.items() if text.startswith(prefix))

    for text in random.Random(0).sample([*texts], 40):
        prefixes = [probability(text[:length]) for length in range(len(text) + 1)]
        expected = -np.diff(np.log2(prefixes))
        np.testing.assert_allclose(character_bits(text, grammar), expected, atol=1e-9)


def test_the_bits_of_a_tale():
    rng, grammar = random.Random(3), tales_rules()
    for _ in range(20):
        drawn = tale(rng, grammar)
        bits = character_bits(drawn.text + "\n\n", grammar)
        assert bits.sum() == pytest.approx(drawn.bits, abs=1e-6)
        assert bits.min() >= -1e-9
        np.testing.assert_allclose(character_bits(drawn.text, grammar), bits[:-2], atol=1e-9)


def test_a_text_that_is_no_tale():
    with pytest.raises(ValueError, match="is no tale, from 'all me Ishmael"):
        character_bits("Call me Ishmael.", tales_rules())
