"""What heads and neurons do over many texts: the file, what is refused, and what the tab shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright import sync_api

from tensorboard_attention.evidence import NAME, read_evidence
from tensorboard_attention.tests import events
from tensorboard_attention.tests.conftest import HOSTILE, Tab, log, served
from tensorboard_attention.tests.test_live import REFRESH

SPELLED = [" Mia", " sang", HOSTILE, "."]


def head(role: str, score: str, *passages: list[Any]) -> dict[str, Any]:
    says = f"It {role}, {HOSTILE}"
    patterns = {"copy": [0.1, 0.05, 0.5, 300]}
    return {"role": [role, score], "says": says, "patterns": patterns, "passages": [*passages]}


def neuron(active: float, at: int) -> dict[str, Any]:
    passages = [[at, -2.5], [0, 1.5]]
    return {"active": active, "passages": passages, "raises": SPELLED[:2], "lowers": SPELLED[2:]}


EVIDENCE: dict[str, Any] = {
    "step": 5,
    "n_tokens": 7,
    "windows": [6, 3],
    "ids": [0, 1, 2, 3, 0, 1, 2, 0, 3],
    "spelled": SPELLED,
    "heads": {
        "L0H0": head("helps with 'a'", ""),
        "L0H1": head("previous token 70%", "previous token"),
        "L1H0": head("nearby 81%", "nearby"),
        "L1H1": head("copies 56%", "copy", [5, 9.5986, [[1, 0.75], [4, 0.1]]], [8, 1, [[7, 0.5]]]),
    },
    "neurons": [[neuron(0.5, 2), neuron(0.75, 3)], [neuron(0.25, 7), neuron(0, 8)]],
}

changed = partial(events.changed, EVIDENCE)
write = partial(events.write_json, NAME)


@pytest.mark.parametrize(
    "found",
    [
        [],
        changed("step", to=None),
        changed("windows", to=[6, 4]),
        changed("ids", 0, to=4),
        changed("heads", "L0H0", "role", to=["copies 56%"]),
        changed("heads", "L1H1", "passages", 0, 0, to=9),
        changed("heads", "L1H1", "passages", 0, 2, 0, 0, to=-1),
        changed("neurons", 1, 0, "passages", 0, 0, to=9),
        changed("neurons", 1, 0, "active", to="0.5"),
    ],
    ids=str,
)
def test_anything_else_is_refused(tmp_path: Path, found: object) -> None:
    with pytest.raises(ValueError, match="it is not in the format"):
        read_evidence(write(tmp_path, found))


def test_the_server_answers_with_it(tmp_path: Path) -> None:
    for run in ("one", "two", "three"):
        log(tmp_path / run, 0)
    write(tmp_path / "one", EVIDENCE)
    write(tmp_path / "two", [])
    get = served(tmp_path)
    assert {*json.loads(get("/runs")[1])["evidence"]} == {"one", "two"}
    assert json.loads(get("/evidence", run="one")[1]) == EVIDENCE
    assert [get("/evidence", run=run)[0] for run in ("two", "three", "..")] == [404] * 3


def test_a_head_has_the_name_that_many_texts_gave_it(
    logs: Path, open_tab: Callable[..., Tab]
) -> None:
    """At the step of the evidence; at others, what it does on the text."""
    log(logs / "judged", 0, 5)
    write(logs / "judged", EVIDENCE)
    tab = open_tab(run="judged", layer=1, head=1)
    verdict, here = tab[".verdict >> nth=0"], tab[".sentence >> nth=0"]
    sync_api.expect(verdict).to_have_text("Copies 56%")
    assert verdict.get_attribute("title") == (
        f"It copies 56%, {HOSTILE}. Measured over 7 tokens of many texts; "
        '"without it": replaced by its mean over them.'
    )
    assert here.inner_text().startswith("On this text: ")
    names = tab[".head .role"].all_inner_texts()
    assert names == [head["role"][0] for head in EVIDENCE["heads"].values()]
    assert (
        tab[".overview"].inner_text().startswith("4 heads: helps with 'a', previous token, nearby")
    )
    tab.page.keyboard.press(",")
    tab.shown(["judged", "probe", 0])
    sync_api.expect(verdict).not_to_have_text("Copies 56%")
    assert here.inner_text().endswith(". At step 5, over many texts: copies 56%.")
    assert tab[".matters >> nth=0"].is_hidden()
    tab.page.keyboard.press(".")
    tab[".head >> nth=1"].click()
    chart = tab[".headcurves h3"]
    sync_api.expect(chart).to_have_text("previous token, all heads")
    tab.page.keyboard.press(",")
    sync_api.expect(verdict).not_to_have_text("Previous token 70%")
    assert chart.inner_text() == "previous token, all heads", "while one scrubs"
    (logs / "judged" / NAME).write_text("{")
    tab.page.clock.run_for(REFRESH)
    sync_api.expect(tab[".notice"]).to_have_text(
        "evidence.json is not read: it is not in the format"
    )


def test_the_tab_shows_the_passages_of_heads_and_neurons(
    logs: Path, open_tab: Callable[..., Tab]
) -> None:
    log(logs / "passages", 5)
    write(logs / "passages", EVIDENCE)
    tab = open_tab(run="passages", layer=1, head=1)
    rows = tab[".panel:not([hidden]) .matters li"]
    sync_api.expect(rows).to_have_count(2)
    assert rows.locator("b").all_inner_texts() == ["+9.599", "+1.000"]
    marked = "all => all.map((one) => [one.className, one.textContent, one.title])"
    assert rows.nth(0).locator("mark").evaluate_all(marked) == [
        ["looked", " sang", "75% of its attention"],
        ["looked", " Mia", "10% of its attention"],
        ["rises", " sang", ""],
    ]
    whole = rows.nth(0).locator("span").evaluate("one => one.textContent")
    assert whole.startswith(f" Mia sang{HOSTILE[:20]}") and whole.endswith("…. Mia sang")
    # Of the second window alone.
    second = rows.nth(1).locator("span").evaluate("one => one.textContent")
    assert second.startswith(HOSTILE[:20]) and second.endswith("… Mia.")
    tab[".neurons > summary"].click()
    neurons = tab[".neurons-list > details"]
    tab[".neurons select >> nth=0"].select_option("0")
    tab[".neurons select >> nth=1"].select_option("often")
    assert neurons.locator(".active").all_inner_texts() == ["75% active", "50% active"]
    tab[".neurons select >> nth=1"].select_option("rare")
    sync_api.expect(neurons.locator("summary b").first).to_have_text("0")
    raises = neurons.nth(0).locator(".raises")
    assert raises.locator(".token").all_inner_texts() == ["·Mia", "·sang"]
    assert raises.inner_text().startswith("at -2.500 raises"), "the sign in which it does so"
    neurons.nth(0).locator("summary").click()
    places = neurons.nth(0).locator(".passages li")
    sync_api.expect(places).to_have_count(2)
    assert places.locator("b").all_inner_texts() == ["-2.500", "+1.500"]
    assert places.nth(0).locator("mark").inner_text().startswith(HOSTILE[:20])
