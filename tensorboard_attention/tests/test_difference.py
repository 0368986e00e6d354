"""Comparing in the Attention tab: their difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright import sync_api

from tensorboard_attention.tests.conftest import Tab, causal_maps, log, shown_byte

pytestmark = pytest.mark.long

MINUS = "\u2212"


def test_the_difference_of_two_views(logs: Path, open_tab: Callable[..., Tab]) -> None:
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
