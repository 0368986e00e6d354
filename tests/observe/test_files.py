"""metrics.jsonl; what TensorBoard has of a run: curves, texts and its HParams tab; and Weights &
Biases, which has the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator as TensorBoardEvents,
)
from tensorboard.plugin_util import markdown_to_safe_html
from tensorboard.util.tensor_util import make_ndarray

from observe.metrics_file import MetricsFile
from observe.roles import Outputs
from observe.tensorboard import LAYOUT, TensorBoard, hyperparameters, open_events, preformatted
from store.results import open_log
from store.run import Run
from tensorboard_attention import add_attention
from tests.conftest import TINY, succeed
from tests.observe.conftest import METRICS, SUMMARY, run_context, trainer_at
from training.callback import EvalMetrics


def test_metrics_are_lines_of_json(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    file = MetricsFile(context, outputs := Outputs(context))
    file.on_start(trainer_at(context, 0))
    file.on_step(trainer_at(context, 9))
    trainer = trainer_at(context, 10)
    file.on_metrics(trainer, METRICS)
    file.on_eval(trainer, EvalMetrics(1.5, 0.55, 60, 0.4))
    first, second = map(json.loads, file.path.read_text().splitlines())
    assert first["step"] == second["step"] == 10
    assert (first["train_loss"], first["tokens_per_second"]) == (2.0, 3200.0)
    assert (second["val_loss"], second["val_bpb"], second["floor_bpb"]) == (1.5, 0.55, 0.4)
    assert second.items() >= outputs.losses(10).items() != {}


def test_a_resume_drops_the_lines_of_repeated_steps(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    file = MetricsFile(context, Outputs(context))
    for step in (10, 20, 30):
        file.on_metrics(trainer_at(context, step), METRICS)
        file.on_eval(trainer_at(context, step), EvalMetrics(1.5, 0.55, 60, 0.4))
    with file.path.open("ab") as half:
        half.write(b'\xff\n[]\n{"steps": 3}\n')  # a damaged disk
    with file.path.open("a") as half:
        half.write('{"step": 10}')  # the process was killed before it had written the line end
    for evaluated, kept in ((20, [10, 10, 20, 20]), (10, [10, 10, 20])):
        trainer = trainer_at(context, 20)
        trainer.state.evaluated = evaluated  # an evaluation that was interrupted comes again
        file.on_start(trainer)
        lines = map(json.loads, file.path.read_text().splitlines())
        assert [line["step"] for line in lines] == kept


@pytest.mark.parametrize("seconds", [0, 1, -1, -120, -1e8, -1e10, 1e8])
def test_of_steps_that_a_resume_repeats_the_later_ones_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """In TensorBoard and in the Attention tab, however far the clock goes between sessions."""
    maps, clock = [np.eye(2)[None, None]], iter(range(10**9))
    for session, (first, steps) in enumerate(((0, (10, 20, 30)), (20, (30, 40)), (40, (50,)))):
        now = max(1.7e9 + session * seconds, 0)
        monkeypatch.setattr(time, "time", lambda now=now: now + next(clock) / 1e6)
        writer = open_events(tmp_path, purge_step=first + 1 if first else 0)
        for step in steps:
            writer.add_scalar("loss", first + step, step)
            add_attention(writer, "probe", maps, ["a", "b"], step)
        writer.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    values = {event.step: event.value for event in events.Scalars("loss")}
    assert values == {10: 10, 20: 20, 30: 50, 40: 60, 50: 90}
    assert open_log(tmp_path).steps() == {".": {"probe": [10, 20, 30, 40, 50]}}


@pytest.mark.parametrize("is_written", [True, False])
def test_a_result_that_comes_again_is_shown_once(tmp_path: Path, is_written: bool) -> None:
    """Sessions that are killed before the last evaluation and the result are recorded, whether
    these are in TensorBoard by then or not; the third takes up an earlier checkpoint."""
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    for first, writes in ((0, is_written), (20, True), (10, is_written), (20, True)):
        context = run_context(tmp_path, "trainer.max_steps=20", write_sample=lambda: "a text")
        context.first_step = first
        writer = open_events(tmp_path, purge_step=first + 1 if first else 0)
        board = TensorBoard(context, Outputs(context), writer)
        trainer = trainer_at(context, first)
        board.on_start(trainer)
        trainer.state.step, trainer.summary = 20, SUMMARY if writes else None
        if first < 20:
            board.on_metrics(trainer, METRICS)
        if writes:
            board.on_eval(trainer, EvalMetrics(1.5, 0.55, 60))
        board.on_end(trainer)
    events = TensorBoardEvents(str(tmp_path)).Reload()
    steps = {tag: [each.step for each in events.Tensors(tag)] for tag in events.Tags()["tensors"]}
    del steps["settings/text_summary"], steps["custom_scalars__config__"]  # of each session
    assert [*steps.values()] == [[20]] * len(steps)
    names = {"loss/bits_per_byte_train", "loss/bits_per_byte_val", "sample/text_summary"}
    assert {*names, "result/bpb", "_hparams_/session_start_info"} <= steps.keys()


def test_scalars_text_and_layout(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    context = run_context(
        tmp_path, "observe.samples.every=10", write_sample=lambda: "Once *upon*\na time"
    )
    board = TensorBoard(context, outputs := Outputs(context), open_events(tmp_path))
    board.on_start(trainer_at(context, 0))
    board.on_step(trainer_at(context, 9))
    trainer = trainer_at(context, 10)
    board.on_metrics(trainer, METRICS)
    board.on_eval(trainer, EvalMetrics(1.5, 0.55, 60, 0.5))
    board.on_end(trainer)
    events = EventAccumulator(str(tmp_path)).Reload()
    scalars = {tag: events.Scalars(tag)[0].value for tag in events.Tags()["scalars"]}
    assert scalars == pytest.approx(
        outputs.losses(10)
        | {
            "loss/bits_per_byte_train": 0.7,
            "loss/bits_per_byte_val": 0.55,
            "loss/bits_per_byte_val_floor": 0.5,
            "loss/learning_rate": 0.01,
            "training/grad_norm": 1.0,
            "training/tokens_per_second": 3200.0,
        }
    )
    tensors = {tag: events.Tensors(tag)[0].tensor_proto for tag in events.Tags()["tensors"]}
    assert tensors["sample/text_summary"].string_val[0] == b"    Once *upon*\n    a time\n"
    assert b"seed: 1" in tensors["settings/text_summary"].string_val[0]
    layout = tensors["custom_scalars__config__"].string_val[0]
    ((_, (pattern,)),) = LAYOUT["Loss"].values()
    assert pattern.encode() in layout
    # TensorBoard takes it for a regular expression, of how a tag begins.
    shown = {tag.removeprefix("loss/bits_per_byte_") for tag in scalars if re.match(pattern, tag)}
    assert shown == {"train", "val", "val_floor"}
    # TensorBoard sorts groups by name, and opens the first ones of its first page.
    assert sorted(scalars)[:2] == ["loss/bits_per_byte_train", "loss/bits_per_byte_val"]


def test_the_settings_of_a_resumed_run_are_its_newest(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    (tmp_path / "resumed.yaml").write_text("seed: 1\ntrainer: new\n")
    context = run_context(tmp_path)
    board = TensorBoard(context, Outputs(context), writer := open_events(tmp_path))
    board.on_start(trainer_at(context, 5))
    writer.close()
    (event,) = EventAccumulator(str(tmp_path)).Reload().Tensors("settings/text_summary")
    assert event.step == 5
    assert event.tensor_proto.string_val[0] == b"    seed: 1\n    trainer: new\n"


def test_a_sample_is_written_once_for_all_observers(tmp_path: Path) -> None:
    written = iter(["first", "second", "third"])
    context = run_context(
        tmp_path,
        *("observe.samples.every=10", "trainer.max_steps=25"),
        write_sample=lambda: next(written),
    )
    board = TensorBoard(context, outputs := Outputs(context), open_events(tmp_path))
    for step in (0, 5, 10, 15, 25):
        board.on_eval(trainer_at(context, step), EvalMetrics(1.5, 0.55, 60))
    assert outputs.sample(25) == "third"
    board.on_end(trainer_at(context, 25))
    events = EventAccumulator(str(tmp_path)).Reload().Tensors("sample/text_summary")
    shown = {event.step: event.tensor_proto.string_val[0].decode().strip() for event in events}
    assert shown == {0: "first", 10: "second", 25: "third"}


def test_no_character_ends_the_verbatim_text() -> None:
    """In TensorBoard's own Markdown."""
    for code in (*range(32), 0x7F, *range(0x80, 0xA0), 0x2028, 0x2029):
        for mark in (chr(code), chr(code) * 2, f"{chr(code)}\n"):
            html = markdown_to_safe_html(preformatted(f"one{mark}# two{mark}<b>three"))
            inside = re.fullmatch(r"<pre><code>(.*)</code></pre>\s*", html, re.DOTALL)
            assert inside and "# two" in inside[1] and "&lt;b&gt;three" in inside[1], (code, html)


@pytest.mark.parametrize(
    ("varied", "expected"),
    [
        ([], ["data.name", "seed"]),
        (["run_dir", "observe.attention.every"], ["data.name", "seed"]),
        (["seed", "model.d_mlp"], ["model.d_mlp", "seed", "data.name"]),
        (
            ["optimizer.lr", "trainer.compile"],
            ["optimizer.lr", "trainer.compile", "data.name", "seed"],
        ),
    ],
)
def test_given_settings_come_first_and_few_others(
    tmp_path: Path, varied: list[str], expected: list[str]
) -> None:
    context = run_context(tmp_path, "seed=3", "optimizer.lr=0.006", varied=frozenset(varied))
    found = hyperparameters(context)
    assert [*found] == expected
    values = {"seed": "3", "optimizer.lr": 0.006, "trainer.compile": "false", "data.name": "text"}
    values["model.d_mlp"] = 32  # with derived sizes in the place of nulls
    assert found == {name: values[name] for name in expected}


def test_metrics_are_scalars_of_a_run_that_is_finished(tmp_path: Path) -> None:
    """For the HParams tab, beside its settings."""
    for name, summary in (("finished", SUMMARY), ("stopped", None)):
        (folder := tmp_path / name).mkdir()
        (folder / "config.yaml").touch()
        context = run_context(folder)
        board = TensorBoard(context, Outputs(context), open_events(folder))
        board.on_start(trainer := trainer_at(context, 0))
        trainer.state.step, trainer.summary = 7, summary
        board.on_end(trainer)
    events = TensorBoardEvents(str(tmp_path / "finished")).Reload()
    session = events.SummaryMetadata("_hparams_/session_start_info")
    assert b"data.name" in session.plugin_data.content
    for tag, value in {"result/bpb": 0.55, "result/seconds": 20.0}.items():
        (event,) = events.Tensors(tag)
        assert event.step == 7 and make_ndarray(event.tensor_proto) == pytest.approx(value)
    tags = TensorBoardEvents(str(tmp_path / "stopped")).Reload().Tags()["tensors"]
    assert not [tag for tag in tags if tag.startswith(("result", "_hparams_"))]


OFFLINE = {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}


def records(folder: Path, kind: str) -> list[dict[str, Any]]:
    """What wandb has written below `folder`, in order."""
    found = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        inspect = [sys.executable, "-m", "wandb", "leet", "inspect", str(file), "--json"]
        done = subprocess.run(inspect, capture_output=True, text=True, check=True)
        found += [json.loads(line) for line in done.stdout.splitlines()]
    return [each[kind] for each in found if each["type"] == kind]


def values(folder: Path, tag: str) -> list[tuple[int, Any]]:
    """By step."""
    rows = [each["item"] for each in records(folder, "history")]
    return [(row["global_step"], row[tag]) for row in rows if tag in row]


@pytest.mark.long
def test_a_run_and_its_continuation_are_one_run_with_the_values_of_tensorboard(
    tmp_path: Path,
) -> None:
    succeed("train", *TINY, "observe.wandb=true", "run_dir=runs/one", cwd=tmp_path, **OFFLINE)
    assert {path.name for path in tmp_path.iterdir()} == {"runs", ".cache", "wandb"}
    events = EventAccumulator(str(tmp_path / "runs/one")).Reload()
    tags = events.Tags()["scalars"]
    assert {"loss/bits_per_byte_train", "loss/bits_per_byte_val", "result/bpb"} <= {*tags}
    for tag in tags:
        expected = [(event.step, pytest.approx(event.value)) for event in events.Scalars(tag)]
        assert values(tmp_path, tag) == expected, tag
    arguments, given = ("resume=runs/one", "trainer.max_steps=8"), {"WANDB_PROJECT": "mine"}
    succeed("train", *arguments, cwd=tmp_path, **OFFLINE, **given)
    first, second = records(tmp_path, "run")
    assert first["run_id"] == second["run_id"] and first["display_name"] == "one"
    assert (first["project"], second["project"]) == ("glassgpt", "mine")
    assert [step for step, _ in values(tmp_path, "loss/bits_per_byte_train")] == [2, 4, 6, 8]
    Run.open(str(tmp_path / "runs/one"), "run")  # which has no links
