"""The wiring of heads in a browser."""

from __future__ import annotations

from pathlib import Path

import torch
from playwright.sync_api import expect
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention
from tensorboard_attention.tests.conftest import OpenTab, Tab, causal_maps

TOKENS = [f" w{i}" for i in range(24)]


def wires(key: float) -> Tensor:
    """L1H0 reads L0H1 through its keys, and the MLP through its queries; L1H1 reads L0H0."""
    found = torch.zeros(3, 2, 2, 2, 3)
    found[1, 1, 0, 0, 1] = key
    found[0, 1, 0, 0, 2] = 0.9
    found[2, 1, 1, 0, 0] = -0.25
    return found


def labels(tab: Tab) -> list[str]:
    return tab[".wiring .edge"].evaluate_all("all => all.map((one) => one.ariaLabel)")


def test_edges_follow_the_step_and_select_both_heads(logs: Path, open_tab: OpenTab) -> None:
    with SummaryWriter(str(logs / "wired")) as writer:
        for step, share in ((0, 0.01), (10, 0.62)):
            maps, where = causal_maps(step), {"wiring": "a song"}
            add_attention(writer, "probe", maps, TOKENS, step, measured=where, wiring=wires(share))
    tab = open_tab(run="wired", layer=0, head=0)
    said, slider = tab[".wiring output"], tab["input[type=range] >> nth=0"]
    key = "L0H1 to L1H0, key: 62%"
    assert {*labels(tab)} == {"L0 MLP to L1H0, query: 90%", key, "L0H0 to L1H1, value: -25%"}
    assert tab[".wiring .against.edge"].count() == 1
    edge = tab[f'.wiring [aria-label="{key}"]']
    assert tab[".wiring .note >> nth=0"].inner_text().endswith(" Measured on a song.")
    edge.dispatch_event("pointerenter")
    expect(said).to_have_text("L0H1 → L1H0, key: 62%")
    edge.dispatch_event("click")
    expect(tab['.head[aria-label="layer 1, head 0"]']).to_have_attribute("aria-pressed", "true")
    expect(tab[".cell.marked .head"]).to_have_attribute("aria-label", "layer 0, head 1")
    assert tab[".reads li"].all_inner_texts() == ["90% L0 MLP", "62% L0H1"]
    slider.fill("0")
    tab.shown(["wired", "probe", 0])
    expect(said).to_have_text("L0H1 → L1H0, key: below 5%")
    assert len(labels(tab)) == 2
    tab['.head[aria-label="layer 1, head 1"]'].click()
    expect(tab[".cell.marked"]).to_have_count(0)
