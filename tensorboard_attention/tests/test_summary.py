"""What is logged is what was given, up to quantisation, and its scores; what does not fit is
refused."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from tensorboard.compat.proto.summary_pb2 import DataClass
from torch import Tensor

from tensorboard_attention import Guesses, encode, scores, summary
from tensorboard_attention.header import read_header
from tensorboard_attention.naming import UNMEASURED
from tensorboard_attention.summary import MAX_TOKENS, attention_summary


def make(
    n: int, heads: int = 2, causal: bool = True, seed: int = 0, m: int | None = None
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(1, heads, n, m or n, generator=generator)
    if causal:
        logits = logits.masked_fill(torch.ones(n, m or n).triu(1).bool(), -torch.inf)
    return logits.softmax(-1)


def decode(encoded: list[bytes]) -> tuple[dict, list[np.ndarray]]:
    """The described format, read by loops."""
    header, data = json.loads(encoded[0]), iter(zlib.decompress(encoded[1]))
    n, m, layers = len(header["tokens"]), len(header.get("keys", header["tokens"])), []
    for heads in header["heads"]:
        maps = np.zeros((heads, n, m))
        for head in range(heads):
            for query in range(n):
                for key in range(query + 1 if header["causal"] else m):
                    maps[head, query, key] = (next(data) / 255) ** 2
        layers.append(maps)
    assert next(data, None) is None
    return header, layers


@hypothesis.given(
    n=st.integers(2, 9),
    m=st.none() | st.integers(2, 9),
    heads=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    causal=st.booleans(),
    text=st.text(),
)
def test_what_is_logged_comes_back(
    n: int, m: int | None, heads: list[int], causal: bool, text: str
) -> None:
    """Also of cross attention to m keys, which are never later."""
    maps = [make(n, count, causal, seed, m) for seed, count in enumerate(heads)]
    tokens, keys = [f"{text}{i}" for i in range(n)], [f"{text}{i}" for i in range(m or 0)]
    encoded = encode(maps, tokens, key_tokens=keys or None, decode="text")
    header, layers = decode(encoded)
    assert header["tokens"] == tokens and header.get("keys", []) == keys
    assert header["heads"] == heads and header["note"] == ""
    assert header["causal"] == (causal and m is None)
    read = summary.decode(header, encoded[1])
    for given_maps, layer, mine in zip(maps, layers, read, strict=True):
        error = np.abs(np.sqrt(layer) - given_maps[0].sqrt().numpy())
        assert error.max() <= 0.5 / 255 + 1e-6
        assert_allclose(mine[0], layer, atol=1e-6)


def test_tensorboards_own_server_keeps_no_maps() -> None:
    """It keeps up to a hundred steps of every tag in memory, except of an unknown data class."""
    (value,) = attention_summary("probe", [make(3, 1, True, 0)], ["a", "b", "c"]).value
    assert value.metadata.plugin_data.plugin_name == "attention"
    assert value.metadata.data_class == DataClass.Value("DATA_CLASS_UNKNOWN")


def test_scores_are_logged_with_the_maps() -> None:
    maps = [torch.eye(3)[[0, 0, 1]][None, None]]
    more = {"mine": [torch.tensor([0.25])]}
    header, _ = decode(encode(maps, ["a", "b", "c"], more))
    assert header["scores"]["previous token"] == [[1]]
    assert header["scores"]["continues repeats"] == [[None]], "no token occurs twice"
    assert header["scores"]["mine"] == [[0.25]]
    assert set(header["meanings"]) == set(header["scores"]) - {"mine"}
    assert header["counts"] == {
        **{"continues repeats": 0, "copies": 0, "last word": 0, "punctuation": 0, "nearby": 0},
        **{"previous token": 2, "first token": 2, "entropy": 3, "mean distance": 3},
    }
    header, _ = decode(encode(maps, ["a", "b", "c"], more, counts={"mine": 24}))
    assert header["counts"]["mine"] == 24 and header["counts"]["entropy"] == 3
    with pytest.raises(ValueError, match="counts: entropy is not a given score"):
        encode(maps, ["a", "b", "c"], more, counts={"entropy": 24})


def test_strong_edges_from_earlier_heads_and_mlps_are_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of heads of different number: the third is missing in the first layer."""
    wiring = torch.zeros(3, 3, 3, 3, 3)
    wiring[0, 1, 2, 0, 1] = 0.3
    wiring[1, 2, 0, 1, 2] = -0.7
    wiring[2, 2, 1, 0, 0] = 0.05
    wiring[2, 2, 1, 0, 1] = 0.049  # too weak
    # Heads that are not there, or not earlier.
    wiring[1, 1, 0, 0, 2] = wiring[1, 1, 0, 1, 1] = wiring[1, 0, 0, 2, 0] = 1
    wiring[1, 1, 1, 0, 0] = torch.nan
    wiring[1, 1, 1, 0, 1] = torch.inf
    maps = [make(3, 2), make(3, 3), make(3, 3)]
    header, _ = decode(encode(maps, list("abc"), wiring=wiring))
    expected = [[1, 2, 0, 1, 2, -0.7], [0, 1, 2, 0, 1, 0.3], [2, 2, 1, 0, 0, 0.05]]
    assert header["wiring"] == expected
    assert "wiring" not in decode(encode(maps, list("abc")))[0]
    with_mlps = torch.nn.functional.pad(wiring, (0, 1))
    with_mlps[0, 1, 0, 0, 3] = 0.9
    header, _ = decode(encode(maps, list("abc"), wiring=with_mlps))
    assert header["wiring"] == [[0, 1, 0, 0, -1, 0.9], *expected]
    monkeypatch.setattr(summary, "MAX_EDGES", 2)
    assert decode(encode(maps, list("abc"), wiring=wiring))[0]["wiring"] == expected[:2]
    with pytest.raises(ValueError, match=r"wiring: has the shape \(3, 2, 3, 2, 3\)"):
        encode(maps, list("abc"), wiring=wiring[:, :2, :, :2])


@pytest.mark.parametrize(
    "convert",
    [
        lambda maps: maps.bfloat16(),
        lambda maps: maps.double().requires_grad_(),
        lambda maps: maps.numpy(),
        lambda maps: maps.tolist(),
    ],
)
def test_arrays_of_any_kind_are_logged(convert: Callable[[Tensor], Any]) -> None:
    maps = torch.tensor([[[[1.0, 0.0], [0.25, 0.75]]]])  # exact in bfloat16
    assert encode([convert(maps)], "ab") == encode([maps], "ab")


@pytest.mark.parametrize(("n", "m"), [(600, None), (600, 3), (3, 600)])
def test_long_maps_are_cut_and_say_so(n: int, m: int | None) -> None:
    keys = None if m is None else ["y"] * m
    logged = encode([make(n, 1, causal=False, m=m)], ["x"] * n, key_tokens=keys)
    header, (layer,) = decode(logged)
    shown = [min(each, MAX_TOKENS) for each in (n, m or n)]
    assert [len(header["tokens"]), len(header.get("keys", header["tokens"]))] == shown
    assert layer.shape == (1, *shown)
    assert (f"first {MAX_TOKENS} of {n} tokens" in header["note"]) == (n > MAX_TOKENS)
    assert (f"of {m} key tokens" in header["note"]) == ((m or 0) > MAX_TOKENS)


def test_weights_outside_0_to_1_are_noted() -> None:
    maps = torch.tensor([[[[1.0, 0.0], [-7.0, 8.0]]]])  # rows sum to 1
    header, (decoded,) = decode(encode([maps], ["a", "b"]))
    assert "outside 0 to 1" in header["note"]
    assert decoded[0].tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("weight", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_shown_as_zero(weight: float) -> None:
    """And their head, but no other, has no name and no scores."""
    maps = [(torch.ones(9, 9).tril() / torch.arange(1, 10)[:, None]).repeat(1, 2, 1, 1)]
    maps[0][0, 1, 7, 3] = weight
    header, (layer,) = decode(encode(maps, list("abcdefghi")))
    assert layer[1, 7, 3] == 0 and layer[1, 8, 3] > 0 and "not finite" in header["note"]
    assert header["not_finite"] == [[0, 1]] and header["roles"][0][1] == ["not finite", ""]
    assert header["roles"][0][0][1] == "evenly"
    assert [score is None for score in header["scores"]["entropy"][0]] == [False, True]


def test_guesses_are_logged_with_the_maps() -> None:
    nan, rows = float("nan"), [[(b" a", 0.5, 0.25)], [(b"b", 0.1, float("nan"))]]
    maps, guesses = [torch.eye(2)[None, None]], Guesses([nan, 2.5], [0, 1], rows)
    strings = encode(maps, ["a", "b"], guesses=guesses)
    read_header(strings)
    found = json.loads(strings[0])
    assert found["losses"] == [None, 2.5] and found["floor"] == [0, 1]
    assert found["next"] == [[[" a", 0.5, 0.25]], [["b", 0.1, None]]]
    with pytest.raises(ValueError, match="guesses: do not fit 3 tokens"):
        encode([torch.eye(3)[None, None]], list("abc"), guesses=Guesses([1, 2], [1, 2], rows))


def test_names_and_counts_are_what_the_tab_reads() -> None:
    maps, names = [torch.ones(1, 2, 1, 1)] * 2, [[UNMEASURED] * 2] * 2
    counts, mine = {"mine": np.int64(5)}, {"mine": [np.zeros(2)] * 2}
    read_header(encode(maps, ["a"], mine, counts=counts, names=names))
    for wrong in ([], names[:1], [names[0], [UNMEASURED]]):
        with pytest.raises(ValueError, match="names: give one for each head, by layer"):
            encode(maps, ["a"], names=wrong)


ONES = [torch.ones(1, 2, 3, 3)]


@pytest.mark.parametrize(
    ("maps", "tokens", "given", "message"),
    [
        ([], ["a"], {}, "maps: is empty"),
        ([torch.ones(1, 2, 1, 1)], torch.tensor([7]), {}, "tokens: a Tensor is no token; give"),
        ([*ONES, torch.ones(2, 3, 3)], "abc", {}, "maps: layer 1 has the shape"),
        (ONES, "abcd", {}, r"4 tokens need \(batch, head, 4, 4\)"),
        ([ONES[0] / 3], "abc", {"scores": {"mine": [torch.ones(3)]}}, "scores: mine"),
        ([make(4, m=7)], "abcd", {}, "4 tokens need .*; for cross attention give key_tokens"),
        ([make(4, m=7)], "abcdefg", {"key_tokens": "abcd"}, "7 tokens and 4 key_tokens need"),
        ([make(4, m=7)], "abcd", {"key_tokens": []}, "key_tokens: is empty"),
    ],
)
def test_what_does_not_fit_is_refused(
    maps: Any, tokens: Any, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        encode(maps, [*tokens], **given)


@hypothesis.given(st.integers(2, 12))
def test_scores_of_even_attention(n: int) -> None:
    """Queries without any weight do not count."""
    even = (np.tri(n) / np.arange(1, n + 1)[:, None])[None]
    padded = np.pad(even, ((0, 0), (0, 3), (0, 3)))
    for maps in (even, padded):
        assert_allclose(scores.entropy(maps), [np.log2(np.arange(1, n + 1)).mean()])
        assert_allclose(scores.mean_distance(maps), [(n - 1) / 4])
    found = scores.measure_text([padded], [*map(str, range(n + 3))], causal=True)
    assert found.counts["first token"] == n - 1
    shares = 1 / np.arange(2, n + 1)
    assert_allclose(found.scores["first token"][0], [shares.mean()])
    assert_allclose(found.scores["previous token"][0], [shares.mean()])


def test_the_readme_explains_every_score() -> None:
    readme = (Path(scores.__file__).parent / "README.md").read_text()
    table = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in scores.MEANINGS.items())
    assert table in readme
