"""Comparing two models or steps: the twins of heads, and the difference of their maps."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright import sync_api
from torch import Tensor

from tensorboard_attention import encode, match_heads
from tensorboard_attention.summary import decode
from tensorboard_attention.tests.conftest import (
    TEXT,
    OpenTab,
    causal_maps,
    log,
    served,
    shown_byte,
)
from tensorboard_attention.twins import match_logged


def test_the_overlap_of_two_heads_by_hand() -> None:
    one, two = (causal_maps(seed, layers=1, heads=1, n=5) for seed in (1, 2))
    ((head, twin, overlap),) = match_heads(one, two)
    total = 0.0
    for query in range(1, 5):
        for key in range(query + 1):
            total += min(one[0][0, 0, query, key].item(), two[0][0, 0, query, key].item())
    assert (head, twin) == ((0, 0), (0, 0)) and overlap == pytest.approx(total / 4)


@pytest.mark.parametrize(("weight", "shown"), [(np.nan, 0), (1e38, 1)])
def test_invalid_weights_count_as_they_are_shown(weight: float, shown: float) -> None:
    one, same, two = (causal_maps(seed, layers=1, heads=3, n=5) for seed in (1, 1, 2))
    one[0][0, 1], same[0][0, 1] = weight, shown
    assert match_heads(one, two) == match_heads(same, two)
    assert len(match_heads([torch.full((1, 3, 5, 5), weight)], two)) == 3


def test_models_with_other_numbers_of_heads() -> None:
    """The twins with the largest overlap come first."""
    small, large = causal_maps(1, layers=1, heads=2, n=6), causal_maps(1, layers=3, heads=2, n=6)
    twins = match_heads(large, small)
    assert (len(match_heads(small, large)), len(twins)) == (2, 6)
    overlaps = [twin.overlap for twin in twins]
    assert overlaps == sorted(overlaps, reverse=True) and overlaps[-1] < 1
    with pytest.raises(ValueError, match="not of the same text"):
        match_heads(small, causal_maps(1, layers=1, heads=2, n=7))
    with pytest.raises(ValueError, match=r"shape \(batch, head, query, key\)"):
        match_heads([layer[0] for layer in large], large)


def permuted(maps: list[Tensor]) -> list[Tensor]:
    """The same heads, each in another place."""
    return [layer.flip(1) for layer in reversed(maps)]


@pytest.mark.long
def test_the_tab_follows_the_twin_in_another_run(logs: Path, open_tab: OpenTab) -> None:
    log(logs / "one", 6, maps=(maps := causal_maps(6, n=8)))
    log(logs / "two", 6, maps=permuted(maps))
    tab = open_tab(run="one", run2="two", layer=0, head=1, difference=1)
    titles = tab[".panel:not([hidden]) h2"]
    status = tab["p[role=status] >> nth=0"]
    sync_api.expect(titles.nth(1)).to_have_text("L1H0 · two, step 6")
    sync_api.expect(titles.nth(2)).to_have_text("L0H1 · one, step 6 minus L1H0 · two, step 6")
    sync_api.expect(status).to_have_text(
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
    maps = causal_maps(1, n=8)
    log(tmp_path / "one", 0, maps=maps)
    log(tmp_path / "two", 0, maps=permuted(maps))
    log(tmp_path / "other", 0, maps=maps, tokens=TEXT[::-1])
    get = served(tmp_path)
    query = {"run": "one", "tag": "probe", "step": "0", "tag2": "probe", "step2": "0"}
    answer = json.loads(get("/twins", run2="two", **query)[1])
    found = {tuple(row[:2]): tuple(row[2:4]) for row in answer}
    assert found == {(layer, head): (1 - layer, 1 - head) for layer in (0, 1) for head in (0, 1)}
    assert [get("/twins", run2=run, **query)[0] for run in ("other", "none")] == [404, 404]
    large = {"tokens": ["a"] * 220, "heads": [12] * 12}, b""  # GPT-2's, as the guide says
    with pytest.raises(ValueError, match="maps: are too large"):
        match_logged(large, large)
    header, packed = encode(maps, TEXT)
    for damaged in (packed[:-9], zlib.compress(bytes(10**6))):
        with pytest.raises((ValueError, zlib.error)):
            decode(json.loads(header), damaged)


MINUS = "\u2212"


@pytest.mark.long
def test_the_difference_of_two_views(logs: Path, open_tab: OpenTab) -> None:
    """Its cells, signs and numbers are those of the logged weights, first minus second."""
    log(logs / "differ", 0, 1)
    tab = open_tab(run="differ", step=1, run2="differ", step2=0, layer=1, head=1)
    assert tab[".panel.difference"].is_hidden()
    tab["button:has-text('Difference')"].click()
    panel = tab[".panel.difference"]
    sync_api.expect(panel.locator("h2")).to_have_text("L1H1 · step 1 minus step 0")
    one, two = (shown_byte(causal_maps(step, n=8)[1][0, 1].numpy()) for step in (1, 0))
    lines = tab.table(".panel.difference")
    assert len(lines) == 36
    for line in lines:
        at = int(line["query"]), int(line["key"])
        assert float(line["difference"]) == pytest.approx(one[at] - two[at], abs=1e-5)
    # The readout of a cell.
    canvas = panel.locator("canvas")
    box = canvas.bounding_box()
    assert box
    canvas.hover(position={"x": box["width"] - 10, "y": box["height"] - 10})
    one_is, two_is, difference = one[7, 7], two[7, 7], one[7, 7] - two[7, 7]
    sign = MINUS if difference < 0 else "+"
    sync_api.expect(panel.locator(".readout")).to_have_text(
        f"7 t7 → 7 t7: {one_is:.3f} {MINUS} {two_is:.3f} = {sign}{abs(difference):.3f}"
    )
    ticks = panel.locator(".ticks span").all_inner_texts()
    assert ticks == [f"{MINUS}1", f"{MINUS}.25", f"{MINUS}.05", "0", "+.05", "+.25", "+1"]
    assert "more in step 0" in panel.locator(".more").inner_text()
    tab.page.keyboard.press("d")
    sync_api.expect(panel).to_be_hidden()
