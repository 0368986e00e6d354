"""look.py logs the attention over any text, next to what the run itself logged; and pages."""

from __future__ import annotations

import base64
import datetime
import json
import math
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from playwright import sync_api

from inference.opening import open_run
from tensorboard_attention.summary import name_fields
from tensorboard_attention.tests.conftest import Tab, browser, tensorboard
from tensorboard_attention.tests.events import HEADER, event, write
from tests.conftest import command, files, logged, succeed

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
    """In bits, beside the losses of the model at each step, and what both say of the next token."""
    opened = open_run(run, "last")
    header, _ = logged(run, "attention")[6]
    ids = opened.tokenizer.encode("".join(header["tokens"]))
    floor, logits = opened.floor(ids), opened.model(torch.tensor([ids]))[0]
    nats = F.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none")
    assert np.array(header["floor"]) * math.log(2) == pytest.approx(floor.nats, abs=1e-5)
    assert header["losses"][0] is None and len(ids) > 20
    assert np.array(header["losses"][1:]) * math.log(2) == pytest.approx(nats.tolist(), abs=1e-4)
    assert logged(run, "attention")[0][0]["losses"] != header["losses"]
    said = zip(header["next"], logits.softmax(-1), floor.next_tokens, strict=True)
    for rows, model, known in said:
        assert [p for _, p, _ in rows] == sorted((p for _, p, _ in rows), reverse=True)
        assert {round(max(known.values()), 6), round(max(model.tolist()), 4)} <= {
            *(q for _, _, q in rows),
            *(round(p, 4) for _, p, _ in rows),
        }


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
    chances = reading.logits.softmax(-1)
    *_, loss_line = done.stdout.strip().splitlines()
    rows = [line.split() for line in done.stdout.splitlines() if "%" in line]
    shares = iter(rows)
    losses, known = [], []
    begun = len(reading.tokens) - len(opened.tokenizer.encode("Once there was no"))
    for place in range(begun, len(reading.tokens)):
        p = chances[place - 1, reading.tokens[place]].item()
        row = next(row for row in shares if len(row) > 3 and row[1] == f"{p:.1%}")
        nats = reading.floor.nats[place]
        if np.isnan(nats):
            assert row[2:4] == ["?", "?"]
            continue
        assert row[2] == f"{math.exp(-nats):.1%}" and row[3] == f"{-math.log(p) - nats:+.3f}"
        losses.append(-math.log(p))
        known.append(nats)
    mean, least = np.mean(losses), np.mean(known)
    whole = f"loss {mean:.4f} nats per token, floor {least:.4f}, avoidable {mean - least:+.4f}"
    assert loss_line == whole


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
    done = command("look", "run=run", "html=run.html", "steps=all", cwd=run.parent)
    assert done.returncode == 2 and not (run.parent / "run.html").exists()
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: run: ") and "observe.attention.every" in line


def heading(run: Path, name: str) -> str:
    """That of the page of the run's own probe."""
    succeed("look", "run=run", f"html={name}", "steps=all", cwd=run.parent)
    page = (run.parent / name).read_text("utf-8")
    return re.findall(r'<div class="about">(.*?)</div>', page, re.DOTALL)[0]


def test_the_heading_says_what_is_known(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    known = heading(run, "run.html")
    for part in (
        "<h1>Attention of run</h1>",
        "2 layers of 2 heads",
        f"{open_run(run, 'last').model.n_parameters:,} parameters",
        "tales",
        f"{summary['val_loss']:.3f} nats per token",
        f"{summary['val_bpb']:.3f} bits per byte",
        "step 6",
        f"trained on {datetime.date.fromisoformat((run / 'train.log').read_text()[:10])}",
    ):
        assert part in known
    (run / "train.log").unlink()
    (run / "summary.json").write_text('{"val_loss": "<b>", "val_bpb": 1e999, "steps": 6}')
    less = heading(run, "less.html")
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
