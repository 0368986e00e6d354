"""Twins of heads: each finds its like, and overlaps are those of a loop."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright import sync_api
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention, encode, match_heads
from tensorboard_attention.summary import decode
from tensorboard_attention.tests.conftest import Tab, causal_maps, served


def test_permuted_heads_find_each_other() -> None:
    maps = causal_maps(3, layers=2, heads=3, n=9)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0)).tolist()
    flat = [maps[place // 3][:, place % 3] for place in order]
    moved = [torch.stack(flat[:3], 1), torch.stack(flat[3:], 1)]
    twins = match_heads(maps, moved)
    assert len(twins) == 6
    for (layer, head), (other_layer, other_head), overlap in twins:
        assert order[3 * other_layer + other_head] == 3 * layer + head
        assert overlap == pytest.approx(1, abs=1e-6)


def test_the_overlap_of_two_heads_by_hand() -> None:
    one, two = (causal_maps(seed, layers=1, heads=1, n=5) for seed in (1, 2))
    ((head, twin, overlap),) = match_heads(one, two)
    total = 0.0
    for query in range(1, 5):
        for key in range(query + 1):
            total += min(one[0][0, 0, query, key].item(), two[0][0, 0, query, key].item())
    assert (head, twin) == ((0, 0), (0, 0)) and overlap == pytest.approx(total / 4)


def test_maps_without_a_batch_are_refused() -> None:
    maps = causal_maps(1, layers=2, heads=2, n=5)
    with pytest.raises(ValueError, match=r"shape \(batch, head, query, key\)"):
        match_heads([layer[0] for layer in maps], maps)


@pytest.mark.parametrize("weight", [np.nan, 1e38])
def test_a_head_with_invalid_weights_is_matched_last(weight: float) -> None:
    """And all others as without it."""
    one, two = (causal_maps(seed, layers=1, heads=3, n=5) for seed in (1, 2))
    one[0][0, 1] = weight
    kept = [one[0].clamp(0, 1) if abs(weight) < np.inf else one[0].nan_to_num(0, 0, 0)]
    twins = match_heads(one, two)
    assert twins == match_heads(kept, two) and len(twins) == 3
    assert all(0 <= twin.overlap <= 1 for twin in twins)
    if weight != 1e38:
        assert twins[-1].head == (0, 1) and twins[-1].overlap == 0
    assert len(match_heads([torch.full((1, 3, 5, 5), weight)], two)) == 3


def test_models_with_other_numbers_of_heads() -> None:
    small, large = causal_maps(1, layers=1, heads=2, n=6), causal_maps(1, layers=3, heads=2, n=6)
    assert (len(match_heads(small, large)), len(match_heads(large, small))) == (2, 6)
    with pytest.raises(ValueError, match="not of the same text"):
        match_heads(small, causal_maps(1, layers=1, heads=2, n=7))


def permuted(maps: list[Tensor]) -> list[Tensor]:
    """The same heads, each in another place."""
    return [layer.flip(1) for layer in reversed(maps)]


@pytest.mark.long
def test_the_tab_follows_the_twin_in_another_run(logs: Path, open_tab: Callable[..., Tab]) -> None:
    tokens, maps = [f" w{i}" for i in range(24)], causal_maps(6)
    for name, logged in (("one", maps), ("two", permuted(maps))):
        writer = SummaryWriter(str(logs / name))
        add_attention(writer, "attention", logged, tokens, 6)
        writer.close()
    link = {"run": "one", "run2": "two", "layer": 0, "head": 1}
    tab = open_tab(**link, difference=1)
    titles = tab[".panel:not([hidden]) h2"]
    told = tab["p[role=status] >> nth=0"]
    sync_api.expect(titles.nth(1)).to_have_text("L1H0 · two, step 6")
    sync_api.expect(titles.nth(2)).to_have_text("L0H1 · one, step 6 minus L1H0 · two, step 6")
    sync_api.expect(told).to_have_text(
        "Its twin, the head of the other view with the most similar attention, is L1H0: "
        "100% of the attention is the same."
    )
    tab["label:has-text('Twins') input"].uncheck()
    sync_api.expect(titles.nth(1)).to_have_text("L0H1 · two, step 6")
    tab.page.wait_for_url("**twins=0*")
    tab.page.reload()
    sync_api.expect(titles.nth(1)).to_have_text("L0H1 · two, step 6")
    steps = open_tab(run="trained", run2="trained", step2=0, layer=0, head=1)
    sync_api.expect(steps[".panel:not([hidden]) h2 >> nth=1"]).to_contain_text("L0H1")


def test_the_server_matches_what_was_logged(tmp_path: Path) -> None:
    tokens, maps = list("abcdefgh"), causal_maps(1, n=8)
    for name, logged, texts in (
        ("one", maps, tokens),
        ("two", permuted(maps), tokens),
        ("other", maps, tokens[::-1]),
    ):
        writer = SummaryWriter(str(tmp_path / name))
        add_attention(writer, "probe", logged, texts, 0)
        writer.close()
    get = served(tmp_path)
    query = {"run": "one", "tag": "probe", "step": "0", "tag2": "probe", "step2": "0"}
    answer = json.loads(get("/twins", run2="two", **query)[1])
    found = {tuple(row[:2]): tuple(row[2:4]) for row in answer}
    assert found == {(layer, head): (1 - layer, 1 - head) for layer in (0, 1) for head in (0, 1)}
    assert [get("/twins", run2=run, **query)[0] for run in ("other", "none")] == [404, 404]
    header, packed = encode(maps, tokens)
    for layer, decoded in zip(maps, decode(json.loads(header), packed), strict=True):
        assert np.abs(np.sqrt(layer.numpy()) - np.sqrt(decoded)).max() <= 0.5 / 255 + 1e-6
    for damaged in (packed[:-9], zlib.compress(bytes(10**6))):
        with pytest.raises((ValueError, zlib.error)):
            decode(json.loads(header), damaged)
