"""The measure of heads is that of explicit loops, and names follow from it."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import pytest

from tensorboard_attention.naming import (
    EVENLY,
    LEAST,
    ONE_TOKEN,
    HeadName,
    Measure,
    Shares,
    kind_of,
    name_heads,
    overview,
)
from tensorboard_attention.patterns import PATTERNS, Text, is_punctuation, is_word
from tensorboard_attention.summary import encode

WORDS = [
    *("the", "cat", ",", "the", "dog", ".", "the", "cat", "ran", ";", "the", "cat"),
    *(",", "the", "dog", "sat", ".", "a", "dog", ",", "a", "cat", "ran", "off"),
]
RNG = np.random.default_rng(0)


def drawn(n: int, heads: int = 2) -> np.ndarray:
    weights = RNG.random((heads, n, n)) ** 4 * np.tri(n)
    found: np.ndarray = weights / weights.sum(-1, keepdims=True)
    return found


def marks(name: str, tokens: list[str], following: str, query: int, key: int) -> bool:
    """Whether a pattern, or a token, marks a key, in words of its own."""
    read = [*tokens, following]
    match name:
        case "continues repeats":
            ends = [
                k
                for k in range(2, query + 1)
                if read[k - 2 : k] == read[query - 1 : query + 1] and query > 0
            ]
            return key in ends and any(read[k] == read[query + 1] for k in ends)
        case "copies":
            return read[key] == read[query + 1]
        case "last word":
            words = [k for k in range(query) if len(read[k]) >= 3]
            return bool(words) and key == words[-1]
        case "punctuation":
            return read[key] in ",.;"
        case "previous token":
            return key == query - 1
        case "first token":
            return key == 0 and query > 0
        case "nearby":
            return query > 16 and query - key <= 8
        case token:  # but not as the first of a text
            return key > 0 and read[key] == token


def loop(
    texts: list[tuple[list[str], str, list[bool]]], maps: list[np.ndarray], name: str, head: int
) -> tuple[float, float, int]:
    """The share of a head, that of chance, and the number of queries."""
    queries = 0
    cells = []  # distance, weight, whether it is marked, that of even attention
    for (tokens, following, counts), weights in zip(texts, maps, strict=True):
        for query in np.flatnonzero(counts).tolist():
            marked = [marks(name, tokens, following, query, k) for k in range(query + 1)]
            queries += any(marked)
            row = weights[head, query]
            cells += [(query - k, row[k], marked[k], 1 / (query + 1)) for k in range(query + 1)]
    every, others = defaultdict(list), defaultdict(list)
    for distance, weight, is_marked, _ in cells:
        every[distance].append(weight)
        if not is_marked:
            others[distance].append(weight)
    share = chance = 0.0
    for distance, weight, is_marked, even in cells:
        if is_marked and name in ("previous token", "first token", "nearby"):
            chance += even
        elif is_marked and name in WORDS:
            chance += np.mean(every[distance])
        elif is_marked:
            chance += np.mean(others[distance] or every[distance])
        share += weight * is_marked
    return share, chance, queries


def test_shares_and_chance_are_those_of_a_loop() -> None:
    """Over texts of several lengths, of which the first queries may be in another window."""
    texts = []
    for number, (start, end) in enumerate([(0, 24), (3, 21), (7, 24), (0, 9)]):
        n = end - start
        following = WORDS[end] if end < len(WORDS) else "x"
        counts = [place >= 4 * (number == 1) for place in range(n)]
        texts.append((WORDS[start:end], following, counts))
    vocabulary = sorted({*WORDS, "x"})
    maps = [drawn(len(tokens)) for tokens, *_ in texts]
    found = Measure(
        [
            Text(
                np.array([vocabulary.index(token) for token in tokens]),
                tokens,
                number % 2,
                vocabulary.index(following),
                np.array(counts),
            )
            for number, (tokens, following, counts) in enumerate(texts)
        ]
    )(maps)
    for place, pattern in enumerate(PATTERNS):
        for head in range(2):
            both = np.zeros(3)
            for half in range(2):
                share, chance, queries = loop(texts[half::2], maps[half::2], pattern.name, head)
                both += share, chance, queries
                assert found.queries[half, place] == queries
                if queries:
                    got = found.halves[half, head, place], found.chance[half, head, place]
                    assert got == pytest.approx((share / queries, chance / queries)), pattern.name
            assert found.share[head, place] == pytest.approx(both[0] / both[2]), pattern.name
    even = found.share[:, found.names.index(EVENLY)]
    expected = np.zeros(2)
    for (_, _, counts), weights in zip(texts, maps, strict=True):
        for query in np.flatnonzero(counts):
            row = weights[:, query, : query + 1]
            expected += np.minimum(row, 1 / (query + 1)).sum(-1)
    assert even == pytest.approx(expected / sum(sum(counts) for *_, counts in texts))
    place = found.names.index(ONE_TOKEN)
    for head in range(2):
        sums = {
            token: [loop(texts[half::2], maps[half::2], token, head)[:2] for half in range(2)]
            for token in sorted({*WORDS})
        }
        assert found.tokens[head] == max(
            sums, key=lambda token: min(share - chance for share, chance in sums[token])
        )
        for half, (share, chance) in enumerate(sums[found.tokens[head]]):
            queries = found.queries[half, place]
            got = found.halves[half, head, place], found.chance[half, head, place]
            assert got == pytest.approx((share / queries, chance / queries))


def pointing(choose: dict[int, int], n: int) -> np.ndarray:
    """A head in which a query attends to one key, and evenly where none is given."""
    weights = np.tri(n) / np.arange(1, n + 1)[:, None]
    for query, key in choose.items():
        weights[query] = np.eye(n)[key]
    return weights


SONG = [f"w{i}" for i in range(6)] * 8


@pytest.mark.parametrize(
    ("keys", "label"),
    [
        ({q: q - 5 for q in range(7, 48)}, "continues repeats 100%"),
        ({q: q - 1 for q in range(1, 48)}, "previous token 100%"),
        (dict.fromkeys(range(1, 48), 0), "first token 100%"),
        ({q: q for q in range(48)}, "nearby 100%"),
        ({q: q - q % 6 for q in range(48)}, "looks at 'w0' 88%"),
        ({}, "evenly 100%"),
    ],
)
def test_heads_that_do_one_thing(keys: dict[int, int], label: str) -> None:
    header = json.loads(encode([pointing(keys, 48)[None, None]], SONG)[0])
    assert header["roles"][0][0][0] == label


def test_a_head_at_a_fixed_distance_does_not_continue_a_song_whose_verses_are_as_long() -> None:
    """It looks five tokens back in a text without repeats as well: only there is it chance."""
    plain = [f"v{i}" for i in range(48)]
    keys = {q: q - 5 for q in range(7, 48)}
    both = [Text(np.arange(48) % 6, SONG, half) for half in (0, 1)]
    others = [Text(100 + np.arange(48), plain, half) for half in (0, 1)]
    head = pointing(keys, 48)[None]
    alone = name_heads(Measure(both)([head] * 2))
    among = name_heads(Measure([*both, *others])([head] * 4))
    assert alone[0].pattern == "continues repeats"
    assert among[0].pattern == "nearby"


def shares(
    value: list[float], chance: float = 0, queries: int = 50, name: str = "copies"
) -> Shares:
    """One head, of which one pattern has these shares in the two halves."""
    names = (*(pattern.name for pattern in PATTERNS), ONE_TOKEN, EVENLY)
    halves = np.zeros((2, 1, len(names)))
    halves[:, 0, names.index(name)] = value
    return Shares(
        names,
        halves.mean(0),
        halves,
        np.full(halves.shape, chance),
        np.full((2, len(names)), queries),
        ["'odd\n"],
    )


def test_a_pattern_is_beyond_chance_in_both_halves() -> None:
    least = LEAST["copies"]
    assert name_heads(shares([least + 0.01] * 2))[0].label == f"copies {100 * least + 1:.0f}%"
    for none in (
        shares([0.9, least - 0.01]),
        shares([0.9, 0.9], chance=0.9 - least + 0.01),
        shares([0.9, 0.9], queries=2),
    ):
        (name,) = name_heads(none)
        assert (name.label, name.pattern, name.interest) == ("mixed", "", 0)


def test_a_head_keeps_its_name_at_a_threshold() -> None:
    least = LEAST["copies"]
    labels = []
    before: list[HeadName] = []
    for share in (0.95, 1.01, 0.99, 0.76, 0.74, 0.99):
        (name,) = name_heads(shares([least * share] * 2), before=before)
        labels.append(kind_of(name.label))
        before = [name]
    assert labels == ["mixed", "copies", "copies", "copies", "mixed", "mixed"]
    (nearby,) = name_heads(shares([0.9] * 2, name="nearby"))
    assert name_heads(shares([least * 0.9] * 2), before=[nearby])[0].label == "mixed"
    odd = shares([0.5] * 2, name=ONE_TOKEN)
    fewer, before = shares([0.19] * 2, name=ONE_TOKEN), name_heads(odd)
    assert name_heads(fewer, before=before)[0].label == r"looks at ''odd' 19%"
    other = fewer._replace(tokens=["other"])
    assert name_heads(other, before=before)[0].label == "mixed", "it is another name"


def test_special_stands_before_usual() -> None:
    found = shares([0.5, 0.6])
    nearby = found.names.index("nearby")
    found.halves[:, 0, nearby] = found.share[0, nearby] = 0.7
    (name,) = name_heads(found, "on this text")
    assert name.label == "copies 55%" and name.pattern == "copies"
    where = "where what comes next was mentioned before"
    assert name.headline == f"copies 55% {where} · nearby 70% over all text (on this text)"
    assert name.details.startswith(
        "Copies 55%: over 100 tokens; 50% and 60% in the halves, chance 0%"
    )
    (other,) = name_heads(shares([0.9, 0.9], name="nearby"))
    assert 0 < other.interest < name.interest < 1
    (both,) = name_heads(shares([0.9, 0.9], name="previous token"))
    assert both.headline == "previous token 90% over all text", "and not twice"


def test_letters_and_punctuation_of_any_script() -> None:
    words = ["the", " कित", "▁кот", "àb"]
    others = ["", " ", "\\xba", "\\xe0\\xa4", "<|end|>", "12", "ab"]
    assert all(map(is_word, words)) and not any(map(is_word, others))
    punctuation = [".", " „", "।", "😀", "\n)", "\u2764\ufe0f"]
    assert all(map(is_punctuation, punctuation))
    assert not any(map(is_punctuation, [*words, *others, "ि", "\n"]))


@pytest.mark.parametrize(
    ("targets", "label"),
    [
        ([3, 2, 1, 0] * 5, "same token 100%"),
        ([0] * 20, "first token 100%"),
        ([3] * 20, "last token 100%"),
    ],
)
def test_heads_of_cross_attention(targets: list[int], label: str) -> None:
    tokens, keys = ["d", "c", "b", "a"] * 5, ["a", "b", "c", "d"]
    header = json.loads(encode([np.eye(4)[targets][None, None]], tokens, key_tokens=keys)[0])
    assert header["roles"] == [[[label, label.rpartition(" ")[0]]]]
    assert [*header["scores"]] == ["entropy"]


def test_a_few_words_that_two_texts_share_name_no_head() -> None:
    tokens, keys = [*"abcdefghij"], [*"cab", *"uvwxyz"]
    looks = np.eye(9)[[keys.index(token) if token in keys else 4 for token in tokens]]
    header = json.loads(encode([looks[None, None]], tokens, key_tokens=keys)[0])
    assert not header["roles"][0][0][0].startswith("same token")


def test_the_overview_counts_names() -> None:
    labels = ["mixed", "nearby 60%", "mixed", "looks at ', ' 30%", "looks at 'a 9%' 40%"]
    assert overview(labels) == "5 heads: mixed (2), looks at one token (2), nearby"
    assert overview(["copies 5%"]) == "1 head: copies"
