"""What a run learned when: the file, what is refused, and what the tab shows of it."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright import sync_api

from tensorboard_attention.losses import NAME, read_losses
from tensorboard_attention.tests import events
from tensorboard_attention.tests.conftest import HOSTILE, REFRESH, OpenTab, log

LOSSES: dict[str, Any] = {
    "unit": "bits per tale above the floor",
    "texts": [["Ida", " sang", HOSTILE], [" Tom"]],
    "groups": {
        "roles/names again": [[0], [0]],
        "roles/song": [[1, 2], []],
        "roles/objects again": [[], []],  # nothing of them was logged
    },
    "floor": [[1.0, 0.0, 2.0], [3.0]],
    "steps": {
        "100": {
            "values": {"roles/names again": 20.0, "roles/song": 4.0},
            "bits": [[9.0, 8.0, 2.0], [3.5]],
        },
        "20": {
            "values": {"roles/names again": 30.0, "roles/song": 8},
            "bits": [[9.5, 8.0, 4.0], [7.0]],
        },
    },
}

# Of each token: what it says, whether it is marked, and how strong its colour is.
SHADES = """all => all.map((one) =>
    [one.title, one.matches(".other, .lucky"), one.style.getPropertyValue("--loss")])"""

changed = partial(events.changed, LOSSES)


def test_a_file_in_the_format_is_read(tmp_path: Path) -> None:
    assert read_losses(events.write_losses(tmp_path, LOSSES)) == LOSSES
    unknown = changed("floor", to=None)
    with (events.write_losses(tmp_path, unknown) / NAME).open("a") as file:
        file.write('{"step": 10, "val')  # is being written
    assert read_losses(tmp_path) == unknown


@pytest.mark.parametrize(
    "found",
    [
        [],
        changed("texts", 0, 0, to=3),
        changed("floor", 0, to=None),
        changed("groups", "roles/song", to=[[1, 3], []]),
        changed("groups", "roles/song", to=[[1]]),
        changed("groups", to={}),
        changed("steps", "20", "bits", to=[[1.0], [1.0]]),
        changed("floor", 1, to=[]),
        changed("steps", "20", "bits", 1, 0, to=float("nan")),
    ],
    ids=str,
)
def test_anything_else_is_refused(tmp_path: Path, found: object) -> None:
    with pytest.raises(ValueError, match=r"it is not in the format|NaN is not a number"):
        read_losses(events.write_losses(tmp_path, found))


def test_the_tab_shows_what_was_learned_when(logs: Path, open_tab: OpenTab) -> None:
    log(logs / "learned", 0, 100)
    events.write_losses(logs / "learned", changed("steps", to={"20": LOSSES["steps"]["20"]}))
    tab = open_tab(run="learned")
    cells = tab[".learned td button"]
    sync_api.expect(cells).to_have_count(2)
    events.write_losses(logs / "learned", LOSSES)
    tab.page.clock.run_for(REFRESH)
    sync_api.expect(cells).to_have_count(4)
    said = tab[".learned p[role=status]"]
    sync_api.expect(said).to_contain_text("Step 100, names again")  # the last, until one is chosen
    labels = cells.evaluate_all("all => all.map((one) => one.title)")
    assert labels == [
        *("step 20, names again: 30.0", "step 100, names again: 20.0"),
        *("step 20, song: 8.000", "step 100, song: 4.000"),
    ]
    colours = cells.evaluate_all("all => all.map((one) => getComputedStyle(one).backgroundColor)")
    assert len({*colours}) == 4
    unit = LOSSES["unit"]
    cells.nth(3).click()
    sync_api.expect(said).to_have_text(f"Step 100, song: 4.000 of 24.0 {unit}")
    tab.page.keyboard.press("ArrowLeft")
    tab.page.keyboard.press("ArrowUp")
    sync_api.expect(said).to_have_text(f"Step 20, names again: 30.0 of 38.0 {unit}")
    assert tab[".learned .token"].evaluate_all(SHADES) == [
        ["token 0: 9.50 bits, floor 1.00", False, "100.0%"],
        ["token 1: 8.00 bits, floor 0.00", True, "100.0%"],
        ["token 2: 4.00 bits, floor 2.00", True, "25.0%"],
        ["token 3: 7.00 bits, floor 3.00", False, "50.0%"],
    ]
    tab[".picker select >> nth=0"].select_option("trained")
    sync_api.expect(cells).to_have_count(0)


def test_without_a_floor_colours_go_from_least_to_largest(logs: Path, open_tab: OpenTab) -> None:
    log(logs / "unbounded", 0)
    events.write_losses(logs / "unbounded", changed("floor", to=None))
    tab = open_tab(run="unbounded")
    shares = tab[".learned td button"].evaluate_all(
        "all => all.map((one) => parseFloat(one.style.getPropertyValue('--value')))"
    )
    assert shares == pytest.approx(
        [80 * np.log1p(value - 4) / np.log1p(26) for value in (30, 20, 8, 4)], abs=0.06
    )
    notes = tab[".learned:not(.guesses) .note"]
    sync_api.expect(notes.first).to_contain_text("Loss by the position of the token, in")
    sync_api.expect(notes.last).to_have_text("The palest colour is 4.000, the strongest 30.0.")


def test_the_tab_shows_what_could_be_known(logs: Path, open_tab: OpenTab) -> None:
    """The losses of the probe above their floors, and what can come after the chosen token."""
    rows = [[["b", 0.9, 1.0]], [[HOSTILE, 0.25, 0.5], ["d", 0.2, None]], [["a", 1, 0]]]
    header = {**events.HEADER, "losses": [None, 2.5, 1.0], "floor": [0, 1.75, 1.5], "next": rows}
    cut = {**header, "floor": [0, 1.75, None]}
    events.write(logs / "cut", events.event(5, cut))
    events.write(logs / "known", events.event(5, header))
    tab = open_tab(run="known")
    tokens = tab[".guesses .token"]
    assert tokens.evaluate_all(SHADES) == [
        ["token 0: floor 0.00 bits", False, "0.0%"],
        ["token 1: loss 2.50, floor 1.75, avoidable 0.75 bits", False, "50.0%"],
        ["token 2: loss 1.00, floor 1.50, avoidable -0.50 bits", True, "33.3%"],
    ]
    note = tab[".guesses .note"]
    assert "+0.125 bits a token" in note.inner_text() and "From" not in note.inner_text()
    tokens.nth(1).click()
    cells = tab[".guesses tr:nth-child(n + 2) :is(th, td)"]
    hostile = re.compile("<img")
    sync_api.expect(cells).to_have_text([hostile, "25.0%", "50.0%", "d", "20.0%", "unknown"])
    tab[".picker select >> nth=0"].select_option("cut")
    sync_api.expect(note).to_have_text(re.compile(r"\+0\.750 .* From token 2 on, nothing"))
    tab[".picker select >> nth=0"].select_option("trained")
    sync_api.expect(tab[".guesses"]).to_be_hidden()
