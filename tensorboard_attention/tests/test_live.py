"""The Attention tab in a real browser while its log changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention
from tensorboard_attention.tests.conftest import OpenTab, causal_maps, log, shown_byte

REFRESH = 10_000  # milliseconds between checks for new steps


def test_new_steps_of_a_run_are_shown(logs: Path, open_tab: OpenTab) -> None:
    log(logs / "growing", 0)
    tab = open_tab(run="growing", layer=1, head=1, token=2)
    assert tab.shown() == [["growing", "probe", 0]]
    log(logs / "growing", 1)
    tab.page.clock.run_for(REFRESH)
    tab.shown(["growing", "probe", 1])
    weights = shown_byte(causal_maps(1, n=8)[1][0, 1, 2, :3].numpy())
    assert tab.listed("to") == pytest.approx(dict(enumerate(weights)), abs=6e-4)
    tab[".picker select >> nth=0"].select_option("trained")
    tab.shown(["trained", "attention", 6])  # from the last step to the last step


@pytest.mark.long
def test_scores_and_curves_are_those_that_were_logged(logs: Path, open_tab: OpenTab) -> None:
    """Of four tokens that attend evenly."""
    maps = [(torch.ones(4, 4).tril() / torch.arange(1, 5)[:, None]).repeat(1, 2, 1, 1)]
    with SummaryWriter(str(logs / "scored")) as writer:
        for step, mine in enumerate((0.25, 0.75, 0.5)):
            add_attention(writer, "probe", maps, [*"abcd"], step, {"mine": [[mine, mine]]})
    tab = open_tab(run="scored", layer=0, head=1)
    score = tab["[data-score=mine]"]
    assert score.locator("b").inner_text() == "0.500"
    curve = score.locator("polyline").get_attribute("points") or ""
    assert score.locator(".bounds").inner_text().split() == ["1", "0"]
    low, high, middle = (float(point.split(",")[1]) for point in curve.split())
    assert low > middle > high and middle == pytest.approx((low + high) / 2, abs=0.1)
    assert score.locator(".meaning").count() == 0
    # The means of log2 of 1, 2, 3, 4, and of 0, 1/2, 1, 3/2.
    assert tab["[data-score=entropy] b"].inner_text() == "1.146"
    assert tab["[data-score='mean distance'] b"].inner_text() == "0.750"


@pytest.mark.long
def test_a_curve_is_cut_where_the_text_changes(logs: Path, open_tab: OpenTab) -> None:
    with SummaryWriter(str(logs / "two texts")) as writer:
        for step in (0, 5, 10, 15, 20):
            text, value = ("abcabcabcabc", 0.1) if step < 10 else ("xyzxyzxy", 0.7)
            scores = {"elsewhere": [[value] * 2] * 2, "here": [[value] * 2] * 2}
            where = {"elsewhere": "4 tales"}  # where `here` was measured is not known
            maps = causal_maps(step, n=len(text))
            add_attention(writer, "probe", maps, [*text], step, scores, measured=where)
    tab = open_tab(run="two texts")
    for score, lengths in (("entropy", [2, 3]), ("here", [2, 3]), ("elsewhere", [5])):
        card = tab[f"[data-score={score}]"]
        card.locator("polyline").first.wait_for(state="attached")
        pieces = card.locator("polyline").evaluate_all(
            "all => all.map(each => each.getAttribute('points').split(' ').length)"
        )
        assert pieces == lengths
        cut = ["cut at step 10, where the text changes"] * (len(lengths) - 1)
        assert card.locator(".differs").all_inner_texts() == cut
