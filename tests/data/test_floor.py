"""The floor of every token of a tale, compared with the tokens of all texts of a grammar."""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from data.floor import floor_of
from data.tales import Grammar, read_rules
from data.tokenizer import Tokenizer, train_bpe
from tests.data.derivations import derivations
from tests.data.strings import NAMES, PATTERNED, make
from tests.exchange.fast import imported

BEFORE, AFTER = "\n\n", "\n\nA"
MEMORY = read_rules(
    {
        "story": [
            "{He hero} saw {a thing}. {hero} saw {a thing.b}, and {a thing.c}.*3",
            "{hero} had {a thing}. {His hero} {thing} was {look}{more}.*2",
            "{hero} met {friend}, and {friend}'s {thing} {him hero}.",
        ],
        "more": [" too", " and {look.b}*2", ", {look.b}", " and {look.b}, and {a thing.d}"],
        "hero": ["Ida", "Tom*4"],
        "friend": ["Ida", "Tom", "Amy"],
        "thing": ["hat", "ham*2", "egg"],
        "look": ["old", "odd*3", "red"],
    },
    unique=frozenset({"thing"}),
)
# An option begins as another one does, within a word, at its end, and with several words.
BEGINNINGS = read_rules(
    {
        "story": ["{when}, {x} {had}{end}*3", "{when} {x}'s hat{end}", '"{x} {had}"{end}*2'],
        "when": ["On", "One*2", "Once a day*3", "On a"],
        "x": ["a", "an*2", "ants", "a hat"],
        "had": ["had", "hadn't*2", "hats"],
        "end": ["!{x.b}", "! {x.b}*2", "\n{had.b}", ".", "  {had.b}  2."],
    }
)


# Few texts, in which a later word depends on an earlier one.
SHORT = read_rules(
    {
        "story": ["{A thing} met {a thing.b}, and {thing.b} ran.*3", "{thing.c} {thing.d}!"],
        "thing": ["hat", "ham*2", "egg"],
    },
    unique=frozenset({"thing"}),
)


def all_texts(grammar: Grammar) -> dict[str, float]:
    """Every text, with its probability."""
    texts: dict[str, float] = defaultdict(float)
    for drawn in derivations(grammar):
        texts[drawn.text] += 2**-drawn.bits
    assert math.fsum(texts.values()) == pytest.approx(1, abs=1e-12)
    return texts


def check(grammar: Grammar, texts: Mapping[str, float], tokenizer: Tokenizer, n_texts: int) -> None:
    """The probability of the first tokens of a text is that of all texts that begin with them."""
    tokenizer = tokenizer.of_text((), "#")  # with which no text begins
    prefixes: dict[tuple[int, ...], float] = defaultdict(float)
    for text, probability in texts.items():
        tokens = tokenizer.encode(text + AFTER)
        for length in range(len(tokens) + 1):
            prefixes[tuple(tokens[:length])] += probability
    for text in random.Random(0).sample([*texts], min(n_texts, len(texts))):
        tokens = tokenizer.encode(text + AFTER)
        known = [math.log(prefixes[tuple(tokens[:n])]) for n in range(len(tokens) + 1)]
        found = floor_of(tokens, tokenizer, grammar, after=[AFTER]).nats
        np.testing.assert_allclose(found, -np.diff(known), atol=1e-9)


def every_tokenizer(name: str, texts: Mapping[str, float]) -> Tokenizer:
    own = train_bpe(texts, 330)
    made = {"own": lambda: own, "imported": lambda: imported(own, in_text=["ha", "\n\n", " "])}
    tokenizer = made.get(name, lambda: make(name))().of_text((), BEFORE)
    assert tokenizer.cuts_at_spaces
    return tokenizer


@pytest.mark.parametrize("grammar", [MEMORY, BEGINNINGS], ids=["memory", "beginnings"])
@pytest.mark.parametrize("name", [*NAMES, "own", "imported"])
def test_every_token_of_every_text_of_a_grammar(name: str, grammar: Grammar) -> None:
    texts = all_texts(grammar)
    check(grammar, texts, every_tokenizer(name, texts), 40)


@pytest.mark.parametrize("name", [*NAMES, "own", "imported"])
def test_what_comes_next_in_every_place_of_two_texts(name: str) -> None:
    """The probability of a token is that of all pairs of texts which go on with it."""
    texts = all_texts(SHORT)
    tokenizer = every_tokenizer(name, texts)
    pairs: dict[tuple[int, ...], float] = defaultdict(float)
    for (one, p), (two, q) in itertools.product(texts.items(), texts.items()):
        pairs[tuple(tokenizer.encode_document(one + BEFORE + two + AFTER)[:-1])] += p * q
    following: dict[tuple[int, ...], dict[int, float]] = {}
    for tokens, probability in pairs.items():
        for n in range(len(tokens)):
            chances = following.setdefault(tokens[:n], defaultdict(float))
            chances[tokens[n]] += probability
    for tokens in random.Random(0).sample([*pairs], 25):
        floor = floor_of(tokens, tokenizer, SHORT)
        assert floor.unknown == "" and len(floor.next_tokens) == len(tokens)
        for n in range(1, len(tokens)):
            whole = math.fsum(following[tokens[:n]].values())
            expected = {token: p / whole for token, p in following[tokens[:n]].items()}
            found = floor.next_tokens[n - 1]
            assert found == pytest.approx(expected, abs=1e-12), tokenizer.decode(tokens[:n])
            assert floor.nats[n] == pytest.approx(-math.log(found[tokens[n]]), abs=1e-12)


words = st.lists(st.text("aBst1'/ \n", min_size=1, max_size=4), min_size=3, max_size=4, unique=True)
templates = st.lists(
    st.sampled_from(["{x}", "{x.b}", "{y}", "{z}", " ", "  ", "a", "'s", "\n", "!", " B", "1"]),
    max_size=4,
).map(lambda parts: "{x}" + "".join(parts))
options = st.lists(templates, min_size=1, max_size=3, unique=True)


@given(
    options,
    words,
    words,
    st.lists(st.sampled_from(["{y}a", "{y} a", "{y.b} *2", "! {y.b}"]), min_size=1, unique=True),
)
@settings(max_examples=40, deadline=None)
@example(["{x}{x.b}{y}{z}"], ["1", "B", "2"], ["1", "B", "11"], ["{y.b} *2"])
def test_every_token_of_any_grammar(
    story: list[str], x: list[str], y: list[str], z: list[str]
) -> None:
    grammar = read_rules({"story": story, "x": [x[0] + "*3", *x[1:]], "y": y, "z": z})
    # A choice takes a word that the sentence does not have yet: of equal words, none may be left.
    assume(math.isclose(math.fsum(2**-drawn.bits for drawn in derivations(grammar)), 1))
    texts = all_texts(grammar)
    for tokenizer in PATTERNED.values():
        check(grammar, texts, tokenizer, 5)


@pytest.mark.parametrize(
    ("text", "known", "says"),
    [
        ("Call me Ishmael.", "C", "'Call' on"),
        ("Once there was a whale.", "Once there was a w", "' whale.' on, or ends within a word"),
        (
            "Once there was a jolly\nox.",
            "Once there was a jolly",
            r"' jolly\nox.' on, or",
        ),
    ],
)
def test_a_text_that_is_no_tale(text: str, known: str, says: str) -> None:
    """Up to there, everything is known."""
    tokenizer = make("byte").of_text((), "\n\n")
    floor = floor_of(tokenizer.encode_document(text), tokenizer)
    assert floor.unknown.startswith(f"text: is no tale, from {says}")
    n_known = len("\n\n" + known)
    assert np.isfinite(floor.nats).sum() == n_known
    assert [*map(bool, floor.next_tokens)] == [n < n_known for n in range(len(floor.nats))]
    assert np.isfinite(floor.nats[:n_known]).all()
    tensor: Any = torch.tensor(tokenizer.encode_document(text))
    np.testing.assert_array_equal(floor_of(tensor, tokenizer).nats, floor.nats)
