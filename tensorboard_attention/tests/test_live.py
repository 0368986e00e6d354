"""The Attention tab in a real browser while its log changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention
from tensorboard_attention.tests.conftest import Tab, causal_maps

REFRESH = 10_000  # milliseconds between checks for new steps


def uniform(n: int, heads: tuple[int, ...] = (2,)) -> list[Tensor]:
    """Every query attends equally to all earlier tokens and itself."""
    rows = torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None]
    return [rows.repeat(1, count, 1, 1) for count in heads]


def to_itself(n: int, heads: tuple[int, ...] = (2,)) -> list[Tensor]:
    return [torch.eye(n).repeat(1, count, 1, 1) for count in heads]


def log(folder: Path, *steps: list[Tensor], mine: list[float] | None = None) -> SummaryWriter:
    """Maps at every step, in a log that stays open. mine: a score for all heads, one per step."""
    writer = SummaryWriter(str(folder))
    for step, maps in enumerate(steps):
        tokens = [chr(ord("a") + place) for place in range(maps[0].shape[-1])]
        found = {"mine": [torch.full(each.shape[1:2], mine[step]) for each in maps]} if mine else {}
        add_attention(writer, "probe", maps, tokens, step, found)
    writer.flush()
    return writer


def test_new_steps_of_a_run_are_shown(logs: Path, open_tab: Callable[..., Tab]) -> None:
    writer = log(logs / "growing", uniform(4))
    tab = open_tab(run="growing", token=2)
    assert tab.shown() == [["growing", "probe", 0]]
    add_attention(writer, "probe", to_itself(4), list("abcd"), 1)
    writer.close()
    tab.page.clock.run_for(REFRESH)
    tab.shown(["growing", "probe", 1])
    assert tab.listed("to") == {2: 1.0}
    tab[".picker select >> nth=0"].select_option("trained")
    tab.shown(["trained", "attention", 6])  # from the last step to the last step


@pytest.mark.long
def test_scores_and_curves_are_those_that_were_logged(
    logs: Path, open_tab: Callable[..., Tab]
) -> None:
    log(logs / "scored", *[uniform(4, (2, 3))] * 3, mine=[0.25, 0.75, 0.5]).close()
    tab = open_tab(run="scored", layer=1, head=2)
    score = tab["[data-score=mine]"]
    assert score.locator("b").inner_text() == "0.500"
    curve = score.locator("polyline").get_attribute("points") or ""
    assert score.locator(".bounds").inner_text().split() == ["1", "0"]
    low, high, middle = (float(point.split(",")[1]) for point in curve.split())
    assert low > middle > high and middle == pytest.approx((low + high) / 2, abs=0.1)
    assert score.locator(".meaning").count() == 0
    # Four tokens that attend evenly: the means of log2 of 1, 2, 3, 4, and of 0, 1/2, 1, 3/2.
    assert tab["[data-score=entropy] b"].inner_text() == "1.146"
    assert tab["[data-score='mean distance'] b"].inner_text() == "0.750"


@pytest.mark.long
def test_a_curve_is_cut_where_the_text_changes(logs: Path, open_tab: Callable[..., Tab]) -> None:
    """And a rise there is named only of a score that was measured on one text throughout."""
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
    assert tab[".sudden"].all_inner_texts() == [
        "elsewhere rose from 0.10 to 0.70 between steps 5 and 10"
    ]
