"""look.py logs the attention over any text, next to what the run itself logged."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import succeed


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    shutil.copytree(tiny_run, tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def test_a_text_is_logged_as_another_probe(run: Path) -> None:
    output = succeed("look", "run=run", "text=Once there was a hen.", cwd=run.parent)
    assert "step 6" in output and "tensorboard --logdir ." in output
    events = EventAccumulator(str(run)).Reload()
    tag = "text: Once there was a hen."
    assert {f"{tag}/layer 0", f"{tag}/layer 1", "attention/layer 0"} <= {*events.Tags()["images"]}
    assert [each.step for each in events.Images(f"{tag}/layer 0")] == [6]
    assert {tag, "attention"} <= {*events.Tags()["tensors"]}
    # The run's own curves are unchanged.
    assert events.Scalars("loss/train")[-1].step == 6


def test_the_page_contains_what_was_logged(run: Path) -> None:
    text = "Once there was a hen, and <b>once</b> there was none."
    output = succeed("look", "run=run", f"text={text}", "html=hen.html", cwd=run.parent)
    assert "Wrote hen.html" in output
    page = (run.parent / "hen.html").read_text("utf-8")
    (entry,) = json.loads(page.split('id="data">')[1].split("</script>")[0])
    events = EventAccumulator(str(run)).Reload()
    logged = events.Tensors(entry["tag"])[-1].tensor_proto.string_val
    assert entry["step"] == 6 and entry["header"] == json.loads(logged[0])
    assert base64.b64decode(entry["maps"]) == logged[1]
    assert "".join(entry["header"]["tokens"]) == text[: len("".join(entry["header"]["tokens"]))]


def test_texts_with_the_same_start_are_separate_probes(run: Path) -> None:
    begin = "Once upon a time there was a small hen who lived. "
    for end in "AB":
        succeed("look", "run=run", f"text={begin}{end}", cwd=run.parent)
    tags = EventAccumulator(str(run)).Reload().Tags()["tensors"]
    assert sum(tag.startswith(f"text: {begin[:40]}… ") for tag in tags) == 2


def test_a_text_that_is_too_long_is_truncated(run: Path) -> None:
    output = succeed("look", "run=run", "text=" + "a hen, " * 40, cwd=run.parent)
    assert "Using the first 32 of " in output
