"""What a head does has the same words in every view of a run."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from playwright import sync_api

import glassgpt
from common.errors import printable
from tensorboard_attention.naming import UNMEASURED, HeadName
from tensorboard_attention.tests.conftest import Tab, browser, tensorboard
from tests.conftest import command, succeed
from tests.live.pages import Live, check_names

__all__ = ["browser"]

TEXT = "Once there was a hen. Once there was a fox."
ODD = [
    ("continues repeats 61%", "continues repeats", "continues repeats 61% where a passage repeats"),
    ("mixed", "", "mixed: no pattern clearly beyond chance"),
    ("looks at 'hen' 35%", "one token", "looks at 'hen' 35% over all text · evenly 61% over it"),
    ("nearby 84%", "nearby", "nearby 84% over all text"),
]


@pytest.mark.parametrize(
    "source",
    [
        "evidence",
        pytest.param("log", marks=pytest.mark.long),
        pytest.param(None, marks=pytest.mark.long),
    ],
)
def test_every_view_says_the_same(run: Path, browser: sync_api.Browser, source: str | None) -> None:
    """Of the evidence at its step, without it of what the run logged, and without both that nothing
    was measured."""
    evidence, measured = run / "evidence.json", glassgpt.open_run(run, "last").head_names()
    assert measured
    if source == "evidence":  # other names than those that were logged
        found = json.loads(evidence.read_text())
        for i, (head, (label, pattern, says)) in enumerate(
            zip(found["heads"].values(), ODD, strict=True)
        ):
            head |= {"role": [label, pattern], "says": says, "details": says + ": so"}
            head |= {"interest": i / 10}
        evidence.write_text(json.dumps(found))
    else:
        evidence.unlink()
    if source is None:
        for events in run.glob("events.*"):
            events.unlink()
        for file in (run / "live").iterdir():
            file.unlink()
    opened = glassgpt.open_run(run, "last")
    names = opened.head_names()
    assert names
    if source == "evidence":
        assert [head[:3] for head in chain(*names)] == ODD
    assert (source is None) == ([*chain(*names)] == [UNMEASURED] * 4)
    row, cwd = glassgpt.results(run)[0], run.parent
    labels = {f"L{i // 2}H{i % 2}": head.label for i, head in enumerate(chain(*names))}
    assert row.get("heads") == (labels if source == "evidence" else None)
    for i, j in np.ndindex(2, 2):
        shown = command("sample", "run=run", "checkpoint=last", f"show=L{i}H{j}", cwd=cwd)
        assert printable(f"L{i}H{j}: {names[i][j].headline}") in shown.stderr.splitlines()

    succeed("look", "run=run", "html=live.html", "checkpoint=last", cwd=cwd)
    live = Live(browser, (cwd / "live.html").as_uri())
    live.type(TEXT)
    check_names(live, names)
    live.close()

    pages = ["text.html", "cell.html"]
    if source:
        succeed("look", "run=run", "html=steps.html", "steps=all", "checkpoint=last", cwd=cwd)
        pages.append("steps.html")
    text = f"text={TEXT}"
    succeed("look", "run=run", text, "html=text.html", "checkpoint=last", cwd=cwd)
    (cwd / "cell.html").write_text(glassgpt.look(opened, TEXT).page)
    for name in pages:
        check_tab(Tab(browser, (cwd / name).as_uri(), frame=False), names)
    (cwd / "live.html").write_text(glassgpt.look(opened, TEXT, live=True).page)
    check_tab(Live(browser, (cwd / "live.html").as_uri()), names)
    url = tensorboard(cwd)
    for tag in ("attention",) * bool(source) + (f"text: {TEXT[:40]}",):
        link = f"#attention&p.attention.run=run&p.attention.tag={tag}"
        address = f"{url}data/plugin_entry.html?name=attention{link}"
        check_tab(Tab(browser, address, frame=False), names)
    if source:
        check_tab(Live(browser, f"{url}data/plugin/attention/follow?run=run"), names)


def check_tab(tab: Tab | Live, names: list[list[HeadName]]) -> None:
    check_names(tab, names)
    tab.page.context.close()
    assert tab.errors == []
