"""Cross attention: queries in rows, keys of another text in columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention, encode
from tensorboard_attention.summary import MAX_TOKENS
from tensorboard_attention.tests.conftest import Tab
from tensorboard_attention.tests.test_checks import letters
from tensorboard_attention.tests.test_summary import decode

QUERIES, KEYS = ["w0", "w1", "w2", "w3"], [f"k{i}" for i in range(7)]


def cross_maps(n: int = 4, m: int = 7, layers: int = 2, heads: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [*(2 * torch.randn(layers, 1, heads, n, m, generator=generator)).softmax(-1)]


@pytest.mark.parametrize(("n", "m"), [(4, 7), (7, 4), (5, 5)])
def test_what_is_logged_comes_back(n: int, m: int) -> None:
    maps = cross_maps(n, m)
    header, layers = decode(encode(maps, letters(n), key_tokens=letters(m)))
    assert header["tokens"] == letters(n) and header["keys"] == letters(m)
    assert header["causal"] is False, "keys of another text are not later"
    for layer, given in zip(layers, maps, strict=True):
        assert np.abs(np.sqrt(layer) - given[0].sqrt().numpy()).max() <= 0.5 / 255 + 1e-6
    assert list(header["scores"]) == list(header["meanings"])
    assert {*header["scores"]} == {"entropy"}


@pytest.mark.parametrize(("n", "m"), [(600, 3), (3, 600)])
def test_both_axes_are_cut(n: int, m: int) -> None:
    logged = encode([torch.full((1, 1, n, m), 1 / m)], ["x"] * n, key_tokens=["y"] * m)
    header, (layer,) = decode(logged)
    shown = [min(each, MAX_TOKENS) for each in (n, m)]
    assert [len(header["tokens"]), len(header["keys"])] == shown
    assert layer.shape == (1, *shown)
    assert (f"of {n} tokens" in header["note"]) == (n > MAX_TOKENS)
    assert (f"of {m} key tokens" in header["note"]) == (m > MAX_TOKENS)


@pytest.mark.parametrize(
    ("tokens", "keys", "message"),
    [
        (QUERIES, None, "4 tokens need .*; for cross attention give key_tokens"),
        (KEYS, QUERIES, "7 tokens and 4 key_tokens need .batch, head, 7, 4."),
        (QUERIES, [], "key_tokens: is empty"),
    ],
)
def test_what_does_not_fit_is_refused(tokens: Any, keys: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode(cross_maps(), tokens, key_tokens=keys)


@pytest.mark.long
def test_a_token_shows_the_logged_weights(logs: Path, open_tab: Callable[..., Tab]) -> None:
    """Of a query; and of a key, whose places come before those of the queries."""
    with SummaryWriter(str(logs / "translated")) as writer:
        target, source = [f"t{i}" for i in range(4)], [f"s{i}" for i in range(6)]
        add_attention(writer, "cross", cross_maps(4, 6), target, 1, key_tokens=source)
    weights = cross_maps(4, 6)[1][0, 1]
    tab = open_tab(run="translated", tag="cross", layer=1, head=1)
    tokens = tab[".panel:not([hidden]) .token"].all_text_contents()
    assert tokens == ["s0", "s1", "s2", "s3", "s4", "s5", "t0", "t1", "t2", "t3"]
    heading = tab[".panel:not([hidden]) .lists h4"]
    assert "attends to" in heading.inner_text(), "a query is chosen first"
    tab = open_tab(run="translated", tag="cross", layer=1, head=1, token=2)
    heading = tab[".panel:not([hidden]) .lists h4"]
    listed = tab.listed("to")
    assert sorted(listed) == [4, 5, 6, 7, 8, 9], "the places of the keys"
    for place, weight in listed.items():
        assert abs(weight - weights[2, place - 4]) < 0.01
    assert heading.all_text_contents() == ["t2 attends to"]
    lines = tab[".panel:not([hidden]) .lines .to"].count()
    assert lines == sum(weight > 0.01 for weight in listed.values())
    assert tab[".panel:not([hidden]) .lines .from"].count() == 0
    tab[".panel:not([hidden]) .token[data-place='5']"].click()  # the second key
    listed = tab.listed("from")
    assert sorted(listed) == [0, 1, 2, 3] and not tab.listed("to")
    for place, weight in listed.items():
        assert abs(weight - weights[place, 1]) < 0.01
    assert heading.all_text_contents() == ["s1 is attended to by"]
