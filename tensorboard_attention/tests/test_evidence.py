"""What heads and neurons do over many texts: the file, what is refused, and what the tab shows."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright import sync_api

from tensorboard_attention.evidence import NAME, read_evidence
from tensorboard_attention.tests import events
from tensorboard_attention.tests.conftest import HOSTILE, REFRESH, OpenTab, log, served

SPELLED = [" Mia", " sang", HOSTILE, "."]


def head(role: str, pattern: str, *passages: list[Any]) -> dict[str, Any]:
    return {
        "role": [role, pattern],
        "says": f"{role} over {HOSTILE}",
        "details": f"{role}: over 300 tokens",
        "interest": 0.9 if pattern == "copies" else 0.1,
        "shares": {"copies": [0.31, 40]},
        "need": [0.01234, 0.0234, 0.0014],
        "kinds": {
            "a": [0.001, 0.002, 0.003],
            HOSTILE: [0.1, 0.05, 0.15],
            "c": [0.3, -0.1, 0.7],
            "d": [0.02, 0.02, 0.02],
        },
        "passages": [*passages],
    }


def neuron(active: float, at: int) -> dict[str, Any]:
    passages = [[at, -2.5], [0, 1.5]]
    return {"active": active, "passages": passages, "raises": SPELLED[:2], "lowers": SPELLED[2:]}


EVIDENCE: dict[str, Any] = {
    "step": 5,
    "n_tokens": 7,
    "where": "2 validation documents",
    "windows": [6, 3],
    "ids": [0, 1, 2, 3, 0, 1, 2, 0, 3],
    "spelled": SPELLED,
    "heads": {
        "L0H0": head("mixed", ""),
        "L0H1": head("previous token 70%", "previous token"),
        "L1H0": head("nearby 81%", "nearby"),
        "L1H1": head(
            "copies 56%", "copies", [5, 9.5986, [[1, 0.75], [4, 0.1]]], [8, 1, [[7, 0.5]]]
        ),
    },
    "neurons": [[neuron(0.5, 2), neuron(0.75, 3)], [neuron(0.25, 7), neuron(0, 8)]],
}

changed = partial(events.changed, EVIDENCE)


def write(folder: Path, found: object) -> None:
    (folder / NAME).write_text(json.dumps(found))


@pytest.mark.parametrize(
    "found",
    [
        [],
        changed("step", to=None),
        changed("heads", to={"first": EVIDENCE["heads"]["L0H0"]}),
        changed("windows", to=[6, 4]),
        changed("ids", 0, to=4),
        changed("heads", "L1H1", "passages", 0, 0, to=9),
        changed("heads", "L1H1", "passages", 0, 2, 0, 0, to=-1),
        changed("neurons", 1, 0, "passages", 0, 0, to=9),
        changed("heads", "L0H0", "role", to=["copies 56%"]),
        changed("heads", "L0H0", "kinds", to={"a": [0.1, 0.2, None]}),
        changed("neurons", 1, 0, to={"active": 0.5}),
    ],
    ids=str,
)
def test_anything_else_is_refused(tmp_path: Path, found: object) -> None:
    with pytest.raises(ValueError, match="it is not in the format"):
        write(tmp_path, found)
        read_evidence(tmp_path)


def test_the_server_answers_with_it(tmp_path: Path) -> None:
    for run in ("one", "two", "three"):
        log(tmp_path / run, 0)
    write(tmp_path / "one", EVIDENCE)
    write(tmp_path / "two", [])
    (tmp_path / "three" / NAME).symlink_to(tmp_path / "one" / NAME)
    get = served(tmp_path)
    assert {*json.loads(get("/runs")[1])["evidence"]} == {"one", "two"}
    assert json.loads(get("/evidence", run="one")[1]) == EVIDENCE
    assert [get("/evidence", run=run)[0] for run in ("two", "three", "..")] == [404] * 3


def test_a_head_has_the_name_that_many_texts_gave_it(logs: Path, open_tab: OpenTab) -> None:
    """At the step of the evidence; at others, that which was logged."""
    log(logs / "judged", 0, 5)
    write(logs / "judged", EVIDENCE)
    tab = open_tab(run="judged")
    verdict, need = tab[".verdict >> nth=0"], tab[".sentence >> nth=0"]
    sync_api.expect(tab[".panel h2 >> nth=0"]).to_have_text("L1H1")  # of the largest interest
    sync_api.expect(verdict).to_have_text(EVIDENCE["heads"]["L1H1"]["says"])
    assert verdict.get_attribute("title") == (
        "copies 56%: over 300 tokens. Measured over 2 validation documents."
    )
    names = tab[".head .role"].all_inner_texts()
    assert names == [head["role"][0] for head in EVIDENCE["heads"].values()]
    assert tab[".overview"].inner_text() == "4 heads: mixed, previous token, nearby, copies."
    tab.page.keyboard.press(",")
    tab.shown(["judged", "probe", 0])
    sync_api.expect(verdict).to_contain_text("(on this text)")
    assert need.inner_text() == "" and tab[".matters >> nth=0"].is_hidden()
    tab.page.keyboard.press(".")
    tab[".head >> nth=1"].click()
    chart = tab[".headcurves h3"]
    sync_api.expect(chart).to_have_text("previous token, all heads")
    tab.page.keyboard.press(",")
    sync_api.expect(verdict).to_contain_text("(on this text)")
    assert chart.inner_text() == "previous token, all heads", "while one scrubs"
    (logs / "judged" / NAME).write_text("{")
    tab.page.clock.run_for(REFRESH)
    sync_api.expect(tab[".notice"]).to_have_text(
        re.compile("evidence.json is not read: .*: line 1 column 2")
    )


def test_the_tab_shows_the_need_for_a_head_and_its_passages(logs: Path, open_tab: OpenTab) -> None:
    """The need has its halves, and the kinds of tokens of which both are positive."""
    log(logs / "passages", 5)
    write(logs / "passages", EVIDENCE)
    tab = open_tab(run="passages", layer=1, head=1)
    assert tab[".sentence >> nth=0"].inner_text() == (
        "Need: without it, the loss rises by 0.012 nats per token (0.023 and 0.001 in the halves), "
        f"of it {' '.join(HOSTILE.split())} 0.100, d 0.020."
    )
    card = tab[".head-scores [data-score=need]"]
    assert card.locator(".value b").inner_text() == "0.012"
    assert card.locator(".measured").inner_text() == "on 2 validation documents, over 7 tokens"
    rows = tab[".panel:not([hidden]) .matters li"]
    sync_api.expect(rows).to_have_count(2)
    assert rows.locator("b").all_inner_texts() == ["+9.60", "+1.00"]
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
