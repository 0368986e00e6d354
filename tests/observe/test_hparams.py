"""The HParams tab gets the settings that matter, and the result of the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util.tensor_util import make_ndarray

from observe.hparams import hyperparameters
from observe.measured import Measured
from observe.tensorboard import TensorBoard, open_events
from tests.observe.conftest import run_context, trainer_at
from training.callback import Summary

SUMMARY = Summary(
    val_loss=1.2,
    val_bpb=0.75,
    val_tokens=900,
    best_val_loss=1.1,
    best_val_bpb=0.7,
    best_val_tokens=100,
    steps=7,
    tokens=4096,
    seconds=2.5,
    tokens_per_second=1638.4,
    parameters=123,
    bad_steps=0,
)
SHOWN_FIRST = ["optimizer.lr", "model.n_layers", "model.d_model", "data.name", "seed"]


def log(folder: Path, *overrides: str, summary: Summary | None = SUMMARY) -> None:
    """Log the start and the end of a run with these settings."""
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").touch()
    context = run_context(folder, *overrides)
    board, trainer = (
        TensorBoard(context, Measured(context), open_events(folder)),
        trainer_at(context, 0),
    )
    board.on_start(trainer)
    trainer.state.step, trainer.summary = 7, summary
    board.on_end(trainer)


def logged(folder: Path) -> dict[str, float | str]:
    events = EventAccumulator(str(folder)).Reload()
    data = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    found = plugin_data_pb2.HParamsPluginData.FromString(data).session_start_info.hparams
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in found.items()}


def test_settings_that_matter_are_logged(tmp_path: Path) -> None:
    settings = ("seed=3", "model.qk_norm=true", "trainer.max_steps=7", "run_dir=elsewhere")
    log(tmp_path, *settings, "optimizer.lr=0.006")
    found = logged(tmp_path)
    some = ("seed", "data.name", "tokenizer.name", "trainer.max_steps", "optimizer.lr")
    assert [found[name] for name in some] == [3, "text", "byte", 7, 0.006]
    assert found["trainer.compile"] == "false"
    # Of the model, with the derived sizes.
    assert [found[f"model.{name}"] for name in ("n_kv_heads", "d_head", "d_mlp")] == [1, 4, 32]
    saved = ("run_dir", "cache_dir", "resume", "data.path", "observe.", "trainer.checkpoint_every")
    assert not [name for name in found if name.startswith((*saved, "trainer.device"))]


@pytest.mark.parametrize(
    ("varied", "first"),
    [
        ([], SHOWN_FIRST),
        (["run_dir", "observe.attention.every"], SHOWN_FIRST),
        (["seed", "trainer.precision"], ["seed", "trainer.precision", *SHOWN_FIRST[:3]]),
        (["optimizer", "seed"], ["optimizer.name", "optimizer.lr"]),
    ],
)
def test_settings_of_the_command_line_come_first(
    tmp_path: Path, varied: list[str], first: list[str]
) -> None:
    """TensorBoard shows the first five at first."""
    found = [*hyperparameters(run_context(tmp_path, varied=frozenset(varied)))]
    assert found[: len(first)] == first
    assert len({*found}) == len(found) > 20


@pytest.mark.parametrize(
    ("floor_bpb", "above"), [(0.5, {"result/percent_above_floor": 50.0}), (None, {})]
)
def test_metrics_are_scalars_of_the_run(
    tmp_path: Path, floor_bpb: float | None, above: dict[str, float]
) -> None:
    log(tmp_path, summary=replace(SUMMARY, floor_bpb=floor_bpb))
    events = EventAccumulator(str(tmp_path)).Reload()
    found = {
        tag: (events.Tensors(tag)[0].step, make_ndarray(events.Tensors(tag)[0].tensor_proto).item())
        for tag in events.Tags()["tensors"]
        if tag.startswith("result/")
    }
    expected = {
        "result/bpb": 0.75,
        "result/loss": 1.2,
        "result/parameters": 123,
        "result/seconds": 2.5,
        "result/tokens_per_second": 1638.4,
        **above,
    }
    assert found == {tag: (7, pytest.approx(value)) for tag, value in expected.items()}


def test_a_run_that_was_stopped_has_no_result(tmp_path: Path) -> None:
    log(tmp_path, summary=None)
    tags = EventAccumulator(str(tmp_path)).Reload().Tags()
    assert not [tag for tag in tags["tensors"] if tag.startswith(("result", "_hparams_"))]
