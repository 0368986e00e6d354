"""look.py logs the attention over any text, next to what the run itself logged; and pages. What a
head does has the same words in every view of a run."""

from __future__ import annotations

import base64
import datetime
import json
import math
import re
import zlib
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from playwright import sync_api

import glassgpt
from common.errors import printable
from inference.opening import open_run
from look import about
from model import record_attention
from tensorboard_attention import encode
from tensorboard_attention.naming import UNMEASURED, HeadName
from tensorboard_attention.summary import name_fields
from tensorboard_attention.tests.conftest import Tab, browser, tensorboard
from tensorboard_attention.tests.events import HEADER, event, write
from tests.conftest import command, files, logged, refused, succeed
from tests.live.pages import Live, check_names

__all__ = ["browser"]


def embedded(page: Path) -> list[dict[str, Any]]:
    """The steps in a page, with the maps as they were logged."""
    text = page.read_text("utf-8")
    data, packed = (
        text.split(f'id="{name}">')[1].split("</script>")[0] for name in ("data", "packed")
    )
    script = zlib.decompress(base64.b64decode(packed)).decode()
    headers = json.loads(json.loads(script.rsplit(", JSON.parse(", 1)[1].removesuffix(")));")))
    entries = json.loads(data)["entries"]
    for entry, header in zip(entries, headers, strict=True):
        entry |= {"header": header, "maps": base64.b64decode(entry["maps"])}
    return entries


def test_what_can_be_known_of_the_probe_is_logged(run: Path) -> None:
    """In bits, beside the losses of the model at each step and its attention."""
    opened = open_run(run, "last")
    header, packed = logged(run, "attention")[6]
    ids = opened.tokenizer.encode("".join(header["tokens"]))
    with torch.no_grad(), record_attention(opened.model) as maps:
        floor, logits = opened.floor(ids), opened.model(torch.tensor([ids]))[0]
    found, expected = (
        np.frombuffer(zlib.decompress(each), np.uint8).astype(int)
        for each in (packed, encode(maps, header["tokens"])[1])
    )
    assert np.abs(found - expected).max() <= 1
    nats = F.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none")
    assert np.array(header["floor"]) * math.log(2) == pytest.approx(floor.nats, abs=1e-5)
    assert header["losses"][0] is None and len(ids) > 20
    assert np.array(header["losses"][1:]) * math.log(2) == pytest.approx(nats.tolist(), abs=1e-4)
    assert logged(run, "attention")[0][0]["losses"] != header["losses"]
    assert len(header["next"]) == len(ids)


def test_of_a_text_that_is_no_tale_nothing_is_said(run: Path) -> None:
    for text, known in (("%.", False), ("Once %.", True)):
        succeed("look", "run=run", f"text={text}", cwd=run.parent)
        assert ("next" in logged(run, f"text: {text}")[6][0]) == known


def test_a_text_beside_a_perfect_reader(run: Path) -> None:
    before = files(run)
    given = ["run=run", "text=Once there was no", "reader=true"]
    done = command("look", *given, cwd=run.parent)
    assert done.returncode == 0 and files(run) == before
    both = command("look", *given, "circuit=true", cwd=run.parent).stdout
    assert both.endswith(done.stdout) and "The smallest part that answers" in both
    assert done.stderr == "note: text: is no tale, from ' no' on, or ends within a word\n"
    opened = open_run(run, "last")
    reading = opened.read("Once there was no")
    begun = len(reading.tokens) - len(opened.tokenizer.encode("Once there was no"))
    losses = F.cross_entropy(reading.logits[:-1], reading.tokens[1:], reduction="none").numpy()
    rows, of_known = [], []
    for loss, least in zip(losses[begun - 1 :], reading.floor.nats[begun:], strict=True):
        if np.isnan(least):
            rows.append((f"{np.exp(-loss):.1%}", "?", "?"))
            continue
        rows.append((f"{np.exp(-loss):.1%}", f"{np.exp(-least):.1%}", f"{loss - least:+.3f}"))
        of_known.append((loss, least))
    assert re.findall(r"^  \S+ +(\S+%) +(\S+) +(\S+) ", done.stdout, re.MULTILINE) == rows
    loss, least = np.mean(of_known, axis=0)
    whole = f"loss {loss:.4f} nats per token, floor {least:.4f}, avoidable {loss - least:+.4f}\n"
    assert done.stdout.endswith(whole)


def test_the_page_contains_what_was_logged(run: Path) -> None:
    text = "Once there was a hen, and <b>once</b> there was none."
    output = succeed("look", "run=run", f"text={text}", "html=hen.html", cwd=run.parent)
    assert "Wrote hen.html" in output
    assert r"Put '\n\n' in front" in output
    (entry,) = embedded(run.parent / "hen.html")
    assert entry["step"] == 6
    assert (entry["header"], entry["maps"]) == logged(run, entry["tag"])[6]
    assert f"\n\n{text}".startswith("".join(entry["header"]["tokens"]))
    output = succeed("look", "run=run", "text=Once", "start=text", "html=bare.html", cwd=run.parent)
    assert "in front" not in output
    (entry,) = embedded(run.parent / "bare.html")
    assert entry["tag"] == "bare text: Once" and "".join(entry["header"]["tokens"]) == "Once"


def test_all_steps_of_the_own_probe_fit_into_a_page(run: Path) -> None:
    before = sorted(path.name for path in run.iterdir())
    output = succeed("look", "run=run", "html=run.html", "steps=all", cwd=run.parent)
    assert "Wrote run.html" in output and "Logged" not in output
    assert sorted(path.name for path in run.iterdir()) == before, "nothing is logged"
    assert "<h1>Attention of run</h1>" in (run.parent / "run.html").read_text("utf-8")
    entries = embedded(run.parent / "run.html")
    assert {each["tag"] for each in entries} == {"attention"}
    found = {each["step"]: (each["header"], each["maps"]) for each in entries}
    expected, names = logged(run, "attention"), open_run(run, "last").head_names()
    assert names
    said = json.loads(json.dumps(name_fields(names)))
    expected[6][0].update(said)
    assert found == expected and [*found] == [0, 3, 6]


def test_all_steps_of_a_text_are_those_of_checkpoints(run: Path) -> None:
    settings = ("run=run", "text=A hen.", "steps=all", "html=hen.html")
    output = succeed("look", *settings, cwd=run.parent)
    assert "steps 3, 6" in output
    entries = embedded(run.parent / "hen.html")
    assert [each["step"] for each in entries] == [3, 6]
    assert entries[0]["maps"] != entries[1]["maps"]
    for each in entries:
        assert (each["header"], each["maps"]) == logged(run, "text: A hen.")[each["step"]]


def test_steps_that_cannot_be_shown_are_left_out(run: Path) -> None:
    odd = {**HEADER, "scores": {"a": [[float("nan"), 1.0]]}}
    written = write(run, event(4, odd, "attention"), event(5, tag="attention"))
    written.rename(run / "events.out.tfevents.9999999999")
    done = command("look", "run=run", "html=run.html", "steps=all", cwd=run.parent)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("note: events.out.tfevents.9999999999: step 4 of 'attention' is skipped")
    assert [each["step"] for each in embedded(run.parent / "run.html")] == [0, 3, 5, 6]


def test_a_run_without_a_logged_probe(run: Path) -> None:
    for events in run.glob("events.*"):
        events.unlink()
    line = refused("look", "run=run", "html=run.html", "steps=all", cwd=run.parent)
    assert line.startswith("error: run: ") and "observe.attention.every" in line


def test_what_is_known_of_a_run_is_said(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    known = about(open_run(run, "last"))
    for part in (
        *("2 layers of 2 heads", "tales", "step 6"),
        f"{summary['val_loss']:.3f} nats per token",
        f"{summary['val_bpb']:.3f} bits per byte",
        f"trained on {datetime.date.fromisoformat((run / 'train.log').read_text()[:10])}",
    ):
        assert part in known
    (run / "summary.json").write_text(json.dumps(summary | {"steps": 5}))
    assert "nats" not in about(open_run(run, "last")), "of another step"
    (run / "train.log").unlink()
    (run / "summary.json").write_text('{"val_loss": "<b>", "val_bpb": 1e999, "steps": 6}')
    less = about(open_run(run, "last"))
    assert "2 layers" in less and not re.search("nats|trained on|nan|inf", less)


def test_the_printed_link_opens_the_probe(run: Path, browser: sync_api.Browser) -> None:
    text = "A hen & a <b>50%</b> #1=ö?"
    odd = run.parent / "my run &#1%"
    run.rename(odd)
    output = succeed("look", f"run={odd}", f"text={text}", cwd=run.parent)
    (link,) = re.findall(r"http://localhost:6006/(#\S+)", output)
    tab = Tab(browser, tensorboard(run.parent) + link)
    assert tab.shown() == [["my run &#1%", f"text: {text}", 6]]
    tab.close()


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
