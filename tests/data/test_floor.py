"""The floor and the role of every token of a tale: the floor, compared with the tokens of all texts
of a grammar."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from data.batches import UNSCORED
from data.floor import floor_of
from data.roles import ROLES, tale_roles, token_roles
from data.tales import STORY, Grammar, Tales, read_rules
from data.tales_grammar import FORMS
from data.tokenizer import Tokenizer, fixed_tokenizer, train_bpe
from launch.schema import preset
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
# Few texts, in which a later word depends on an earlier one.
SHORT = read_rules(
    {
        "story": ["{A thing} met {a thing.b}, and {thing.b} ran.*3", "{thing.c} {thing.d}!"],
        "thing": ["hat", "ham*2", "egg"],
    },
    unique=frozenset({"thing"}),
)


def all_texts(grammar: Grammar) -> dict[str, float]:
    """Every text, with its probability, by exhaustive search."""
    texts: dict[str, float] = defaultdict(float)
    # What is left to write, the text so far, its probability, the words of the slots, and of each
    # choice the rule, the word, and where the text was.
    drafts: list[Any] = [([STORY], "", 1.0, {}, [])]
    while drafts:
        left, text, probability, words, chosen = drafts.pop()
        while left and (isinstance(left[0], str) or left[0].name in words):
            part, *left = left
            if not isinstance(part, str):
                part = FORMS[part.form](words[part.name]) if part.form else words[part.name]
            text += part
        if not left:
            texts[text] += probability
            continue
        slot, *rest = left
        held = {
            word
            for rule, word, place in chosen
            if rule in grammar.unique or not re.search("[.!?]", text[place:])
        }
        options = [each for each in grammar.rules[slot.rule].options if each.parts[0] not in held]
        total = sum(option.weight for option in options)
        for option in options:
            chance, (word, *more) = probability * option.weight / total, option.parts
            if isinstance(word, str) and not more:
                choice = (slot.rule, word, len(text))
                drafts.append((left, text, chance, {**words, slot.name: word}, [*chosen, choice]))
            else:
                drafts.append(([*option.parts, *rest], text, chance, words, chosen))
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


@pytest.mark.parametrize("name", [*NAMES, "own", "imported"])
def test_every_token_of_every_text_of_a_grammar(name: str) -> None:
    texts = all_texts(MEMORY)
    check(MEMORY, texts, every_tokenizer(name, texts), 40)


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
    texts = all_texts(grammar)
    # A choice takes a word that the sentence does not have yet: of equal words, none may be left.
    assume(math.isclose(math.fsum(texts.values()), 1))
    for tokenizer in PATTERNED.values():
        check(grammar, texts, tokenizer, 5)


@pytest.mark.parametrize(
    ("text", "known", "says"),
    [
        ("Call me Ishmael.", "C", "'Call' on"),
        ("Once there was a whale.", "Once there was a w", "' whale.' on, or ends within a word"),
        ("Once there was a jolly\nox.", "Once there was a jolly", r"' jolly\nox.' on, or"),
    ],
)
def test_a_text_that_is_no_tale(text: str, known: str, says: str) -> None:
    """Up to there, everything is known."""
    tokenizer = make("byte").of_text((), "\n\n")
    floor = floor_of(tokenizer.encode_document(text), tokenizer)
    assert floor.unknown.startswith(f"text: is no tale, from {says}")
    is_known = [n < len("\n\n" + known) for n in range(len(floor.nats))]
    assert np.isfinite(floor.nats).tolist() == [*map(bool, floor.next_tokens)] == is_known
    tensor: Any = torch.tensor(tokenizer.encode_document(text))
    np.testing.assert_array_equal(floor_of(tensor, tokenizer).nats, floor.nats)


TALES = Tales(preset("data", "tales"))


def test_the_roles_of_a_sentence_by_hand():
    tokens = ["Mia", " ", "had", " a", " ha", "t", ".", " Mi", "a", "'s", " hat", " san", "g", "."]
    tokens += [" It", " lay", " un", "der", " a", " log", "."]
    text = "".join(tokens)
    mentions = [
        ("hero", text.index("Mia"), text.index("Mia") + 3),
        ("object", text.index("hat"), text.index("hat") + 3),
        ("hero", text.rindex("Mia"), text.rindex("Mia") + 3),
        ("object", text.rindex("hat"), text.rindex("hat") + 3),
        ("sung.0", text.index("sang"), text.index("sang") + 4),
        ("place", text.index("under"), text.index("under a log") + len("under a log")),
    ]
    expected = {
        "names again": [" Mi"],
        "objects again": [" hat"],
        "song": [" san"],
        "first choices": ["Mia", " ha", " un", " a", " log"],
        "sentence forms": [" ", "had", " a", ".", "'s", ".", " It", " lay", "."],
        "spelling within a word": ["t", "a", "g", "der"],
    }
    roles = token_roles(text, np.array([*map(len, tokens)]), mentions)
    for index, name in enumerate(ROLES):
        got = [token for token, role in zip(tokens, roles.tolist(), strict=True) if role == index]
        assert got == expected[name], name


TOKENIZERS = {"bpe": train_bpe(TALES.pieces("val"), 600), "byte": fixed_tokenizer("byte")}


@pytest.mark.parametrize("tokenizer", (TOKENIZERS | PATTERNED).values(), ids=TOKENIZERS | PATTERNED)
def test_the_floor_of_whole_tales(tokenizer: Tokenizer) -> None:
    """Their tokens are those of the corpus, and the floor of these adds up to that of the tale."""
    found = tale_roles(TALES, tokenizer, 6, 2000)
    assert found is not None
    assert ((found.roles == UNSCORED) == (found.targets == UNSCORED)).all()
    scored = found.targets != UNSCORED
    assert (found.floor[scored] >= -1e-9).all()
    assert np.abs(found.floor[~scored]).max(initial=0) < 1e-12
    corpus = "".join(islice(TALES.pieces("val"), 6)) + "Once"
    own = found.targets[scored].tolist()
    assert tokenizer.encode(corpus)[: len(own)] == own and corpus.startswith(tokenizer.decode(own))
    for row, tale in zip(range(6), TALES.tales("val"), strict=False):
        assert tokenizer.decode(found.targets[row][scored[row]].tolist()) == tale.text + "\n\n"
        assert found.floor[row].sum() == pytest.approx(tale.bits, abs=1e-9)
    assert {*np.unique(found.roles[scored])} == {*range(len(ROLES))}


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
def test_tales_that_are_cut(tokenizer: Tokenizer) -> None:
    whole, cut = (tale_roles(TALES, tokenizer, 3, n) for n in (2000, 50))
    assert whole is not None and cut is not None and cut.inputs.shape == (3, 50)
    for part, full in zip(cut, whole, strict=True):
        assert (part == full[:, :50]).all()


def test_the_floor_of_tokens_that_cross_spaces_is_not_known() -> None:
    tokenizer = imported(TOKENIZERS["bpe"], in_text=["Once upon"])
    assert tale_roles(TALES, tokenizer, 1, 50) is None


def test_one_tale_and_a_short_context() -> None:
    tales = Tales(preset("data", "tales", n_bytes=10_000, val_fraction=0.01))
    short = tale_roles(tales, fixed_tokenizer("byte"), 16, 1)
    assert short is not None and short.inputs.shape == (1, 1)
    assert (short.targets == UNSCORED).all()
