"""The sentence of a head: on heads that do one thing, and on what was trained."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tensorboard_attention import encode

# Every token of the second half occurred before; so did some of the words that come next.
HALF = [" once", " there", " was", " a", " hen", "."]
TOKENS = HALF * 2
N = len(TOKENS)


def pointing(targets: list[int], weight: float = 1.0) -> np.ndarray:
    """Each query attends to one key with this weight, and evenly to itself and all before."""
    even = np.tri(N) / np.arange(1, N + 1)[:, None]
    return weight * np.eye(N)[targets] + (1 - weight) * even


def told(*heads: np.ndarray, tokens: list[str] = TOKENS, **given: Any) -> list[list[Any]]:
    """The sentences of these heads of a single layer."""
    (layer,) = json.loads(encode([np.stack(heads)[None]], tokens, **given)[0])["sentences"]
    return layer


PREVIOUS = [max(0, query - 1) for query in range(N)]
ITSELF = list(range(N))
FIRST = [0] * N
INDUCTION = [*[0] * (N // 2), *(query - N // 2 + 1 for query in range(N // 2, N))]
DUPLICATE = [*[0] * (N // 2), *(query - N // 2 for query in range(N // 2, N))]


@pytest.mark.parametrize(
    ("targets", "sentence"),
    [
        (PREVIOUS, "Mostly looks at the token before: 1.00 of its attention (from "),
        (ITSELF, "Mostly looks at the token itself: 1.00 of its attention (from "),
        (FIRST, "Mostly rests on the first token: 1.00 of its attention (from "),
        (
            INDUCTION,
            "Mostly looks at what followed earlier occurrences of the same token: 1.00 of its "
            "attention where the token occurred before (from ",
        ),
        (
            DUPLICATE,
            "Mostly looks back at earlier occurrences of the same token: 1.00 of its attention "
            "where the token occurred before (from ",
        ),
    ],
)
def test_heads_that_do_one_thing(targets: list[int], sentence: str) -> None:
    ((text, (query, key), tells),) = told(pointing(targets))
    assert text.startswith(sentence)
    assert key == targets[query], "the example is one of what the head does"
    assert text.endswith(f"(from '{TOKENS[query].strip()}' to '{TOKENS[key].strip()}')")
    assert "." not in (TOKENS[query], TOKENS[key]), "words are preferred"
    assert 0 < tells <= 1


def test_a_head_without_another_pattern_that_looks_nearby() -> None:
    n = 48
    tokens = [f" word{i}" for i in range(n)]
    queries = np.arange(n)
    even = np.tri(n) / (queries + 1)[:, None]
    away = np.random.default_rng(0).integers(2, 9, n)
    near = 0.95 * np.eye(n)[np.maximum(0, queries - away)] + 0.05 * even
    found = told(near, even, tokens=tokens)
    text, (query, key), tells = found[0]
    assert text.startswith(
        "Mostly looks nearby, at most 8 tokens away: 0.96 of its attention beyond the first 16 "
        "tokens ("
    )
    assert query - key == away[query] and 0 < tells < 0.25
    assert found[1][0].startswith("Spreads its attention almost evenly")


def test_the_degree_is_that_of_the_number() -> None:
    numbers = [0.9, 0.5, 0.3, 0.2]
    found = told(*[pointing(PREVIOUS)] * 4, scores={"previous token": [numbers]})
    assert [text.split(":")[0] for text, *_ in found[:3]] == [
        "Mostly looks at the token before",
        "Looks at the token before",
        "Partly looks at the token before",
    ]
    assert found[3][0].startswith("No pattern that the scores know")


@pytest.mark.parametrize("n", [2, 3, 12])
def test_even_attention_has_no_pattern(n: int) -> None:
    """Although in a short text half of it is on the token before."""
    even = np.tri(n) / np.arange(1, n + 1)[:, None]
    most = np.log2(np.arange(1, n + 1)).mean()
    for maps, bits in [(even, most), (np.full((n, n), 1 / n), np.log2(n))]:
        assert told(maps, tokens=TOKENS[:n]) == [
            [
                "Spreads its attention almost evenly over the tokens: "
                f"entropy {bits:.2f} of at most {bits:.2f} bits",
                None,
                0,
            ]
        ]


def test_heads_of_no_known_pattern_have_an_example() -> None:
    far = [max(0, query - 3) for query in range(N)]
    assert told(pointing(far), tokens=[f" w{i}" for i in range(N)]) == [
        ["No pattern that the scores know (for example, from 'w11' to 'w8')", [11, 8], 0]
    ]
    assert told(np.eye(1), tokens=["a"]) == [["No pattern that the scores know", None, 0]]


OTHER = [*[f" {word}" for word in ("hen", "was", "there", "once", "fox")], "."]


def cross_told(*heads: np.ndarray, tokens: list[str] = HALF) -> list[list[Any]]:
    return told(*heads, tokens=tokens, key_tokens=OTHER)


def across(targets: list[int], weight: float = 0.9) -> np.ndarray:
    """Each query attends to one key of the other text with this weight, and evenly to all."""
    n = len(OTHER)
    return weight * np.eye(n)[targets] + (1 - weight) / n


SAME = [OTHER.index(word) if word in OTHER else 4 for word in HALF]


@pytest.mark.parametrize(
    ("targets", "sentence"),
    [
        (
            SAME,
            "Mostly looks at the same token in the other text: 0.92 of its attention "
            "from tokens that are there (from '",
        ),
        ([0] * 6, "Mostly rests on the first token of the other text: 0.92 of its attention ("),
        ([5] * 6, "Mostly rests on the last token of the other text: 0.92 of its attention ("),
        ([4, 4, 1, 1, 3, 2], "No pattern that the scores know (for example, from '"),
    ],
)
def test_heads_of_cross_attention(targets: list[int], sentence: str) -> None:
    ((text, (query, key), tells),) = cross_told(across(targets))
    assert text.startswith(sentence) and key == targets[query] and 0 <= tells <= 1
    assert text.endswith(f"from '{HALF[query].strip()}' to '{OTHER[key].strip()}')")
    assert (tells > 0) == ("No pattern" not in text)


def test_a_given_score_says_where_it_was_measured() -> None:
    """The example is of this text: what is told of the other one need not be true here."""
    heads = pointing(INDUCTION), pointing(PREVIOUS)
    scores = {"copy": [[0.56, 0.02]], "induction": [[0.1, 0.1]]}
    first, second = told(*heads, scores=scores, measured={"copy": "4 tales"})
    assert first[0].startswith(
        "Looks back at earlier mentions of the word that comes next: 0.56 of its attention "
        "where the next word was mentioned before, on 4 tales (here from '"
    )
    query, key = first[1]
    assert TOKENS[key] == TOKENS[query + 1] and key < query
    assert second[0].startswith("Mostly looks at the token before: ") and " on " not in second[0]
    arguments = [np.stack(heads)[None]], TOKENS, scores
    header = json.loads(encode(*arguments, measured="random tokens")[0])
    found = header["measured"]
    assert {name for name, where in found.items() if where == "random tokens"} == {*scores}
    assert {*found.values()} == {"random tokens", "this text"} and {*found} == {*header["scores"]}


def test_the_highest_score_that_means_something() -> None:
    """Attention sinks are common and tell little."""
    sink, previous, copies = told(
        pointing(FIRST), pointing(PREVIOUS), pointing(INDUCTION), scores={"copy": [[0, 0, 0.8]]}
    )
    assert sink[2] < previous[2] < copies[2]


def test_the_pattern_that_fits_best_is_named() -> None:
    """Also if a smaller share is in a more specific one, unless that is nearly as large."""
    tokens = ["the", "cat", "saw", "the", "dog", "and", "the", "cat", "saw", "the", "hen"]
    n = len(tokens)
    sink = 0.88 * np.eye(n)[[0] * n] + 0.12 * np.eye(n)
    ((text, *_),) = told(sink, tokens=tokens)
    assert text.startswith("Mostly rests on the first token: 0.88 of its attention (")
    shares = {"induction": [[0.83, 0.33]], "nearby": [[0.89, 0.83]]}
    close, far = told(sink, sink, tokens=tokens, scores={**shares, "first token": [[0, 0]]})
    assert "followed earlier occurrences of the same token: 0.83" in close[0]
    assert far[0].startswith("Mostly looks nearby, at most 8 tokens away: 0.83")


def test_weights_that_are_not_finite() -> None:
    broken = pointing(PREVIOUS)
    broken[3, 5] = np.nan
    first, second = told(broken, pointing(PREVIOUS), scores={"copy": [[0.9, 0]]})
    assert first == ["Has weights that are not finite", None, 0] and "before" in second[0]


def test_tokens_cannot_garble_a_sentence() -> None:
    tokens = [" ", "\u202eabc", "x" * 300, "\n", "q", "it's"]
    for key in range(5):
        maps = np.eye(6)
        maps[5] = np.eye(6)[key]
        ((text, *_),) = told(maps[:, :], tokens=tokens)
        assert text.isprintable() and len(text) < 200


@pytest.mark.parametrize(
    "measured", [{"mine": "tales"}, {"entropy": "tales"}, {"copy": 3}, {"copy": None}]
)
def test_where_a_score_was_measured_is_a_text_by_its_name(measured: Any) -> None:
    with pytest.raises(ValueError, match="measured: "):
        encode([np.eye(N)[None, None]], TOKENS, {"copy": [[0.5]]}, measured=measured)
