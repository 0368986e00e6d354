"""The HParams tab gets the settings that matter, and the result of the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util.tensor_util import make_ndarray

from observe.roles import Outputs
from observe.tensorboard import TensorBoard, hyperparameters, open_events
from store.run import Summary
from tests.observe.conftest import SUMMARY, run_context, trainer_at


def log(folder: Path, *overrides: str, summary: Summary | None = SUMMARY) -> None:
    """Log the start and the end of a run with these settings."""
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").touch()
    context = run_context(folder, *overrides)
    board, trainer = (
        TensorBoard(context, Outputs(context), open_events(folder)),
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
    log(tmp_path, "seed=3")
    assert logged(tmp_path)["seed"] == "3"


def test_metrics_are_scalars_of_a_run_that_is_finished(tmp_path: Path) -> None:
    for name, summary in (("finished", SUMMARY), ("stopped", None)):
        log(tmp_path / name, summary=summary)
    events = EventAccumulator(str(tmp_path / "finished")).Reload()
    for tag, value in {"result/bpb": 0.55, "result/seconds": 20.0}.items():
        (event,) = events.Tensors(tag)
        assert event.step == 7 and make_ndarray(event.tensor_proto) == pytest.approx(value)
    tags = EventAccumulator(str(tmp_path / "stopped")).Reload().Tags()["tensors"]
    assert not [tag for tag in tags if tag.startswith(("result", "_hparams_"))]
