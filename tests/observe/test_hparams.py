"""The HParams tab gets the settings that matter, with their types, and the result of the run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util.tensor_util import make_ndarray

from observe.hparams import COMPARED, FIRST, METRICS, OTHER
from observe.tensorboard import TensorBoard
from tensorboard_attention.tests.conftest import tensorboard
from tests.observe.conftest import observed_run
from training.observer import Summary

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
SETTINGS = {
    "seed": 3,
    "run_dir": "runs/a",
    "resume": None,
    "cache_dir": ".cache",
    "data.name": "text",
    "data.path": "/home/me/b\udce4.txt",
    "data.n_bytes": None,
    "tokenizer.name": "bp\udce4",
    "tokenizer.vocab_size": 512,
    "model.n_kv_heads": None,
    "model.bias": False,
    "model.qk_norm": True,
    "optimizer.name": "muon",
    "optimizer.lr": 0.006,
    "trainer.max_steps": 7,
    "trainer.compile": True,
    "trainer.eval_every": 100,
    "trainer.device": "auto",
    "observe.terminal": True,
    "experiment": None,
}


def logged(folder: Path, floor_bpb: float | None = 0.5, **changes: Any) -> EventAccumulator:
    """What the end of a run with these settings logs."""
    board = TensorBoard(replace(observed_run(folder), settings=SETTINGS, **changes))
    board.on_start(0)
    board.on_end(7, replace(SUMMARY, floor_bpb=floor_bpb))
    return EventAccumulator(str(folder)).Reload()


def content(events: EventAccumulator, name: str) -> Any:
    data = events.SummaryMetadata(f"_hparams_/{name}").plugin_data.content
    return getattr(plugin_data_pb2.HParamsPluginData.FromString(data), name)


def values(events: EventAccumulator) -> dict[str, bool | float | str]:
    found = content(events, "session_start_info").hparams
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in found.items()}


def test_settings_that_matter_keep_their_types(tmp_path: Path) -> None:
    found = values(logged(tmp_path))
    model = {name: value for name, value in found.items() if name.startswith("model.")}
    assert {name: value for name, value in found.items() if name not in model} == {
        "seed": 3,
        "data.name": "text",
        "tokenizer.name": "bp\\udce4",
        "tokenizer.vocab_size": 512,
        "optimizer.name": "muon",
        "optimizer.lr": 0.006,
        "trainer.max_steps": 7,
        "trainer.compile": True,
        OTHER: "default",
    }
    assert found["trainer.compile"] is True
    # Those of the model, with the derived sizes.
    assert (model["model.n_kv_heads"], model["model.d_head"], model["model.d_mlp"]) == (1, 4, 32)
    assert model["model.qk_norm"] is True and model["model.bias"] is False


def listed(events: EventAccumulator) -> dict[str, Any]:
    return {info.name: info for info in content(events, "experiment").hparam_infos}


def test_only_what_is_compared_or_changed_is_listed(tmp_path: Path) -> None:
    usual = {name for name in (*COMPARED, OTHER) if name in SETTINGS or "model." in name}
    usual |= {OTHER}
    events = logged(tmp_path / "default", changed=frozenset({"run_dir", "optimizer.lr"}))
    assert listed(events).keys() == usual
    assert values(events)[OTHER] == "default"
    # Changed by an experiment; on the command line to the default value.
    changed = frozenset({"trainer.compile", "model.norm_eps", "seed", "data.path"})
    events = logged(tmp_path / "changed", changed=changed, varied=frozenset({"model.bias"}))
    assert listed(events).keys() == usual | {"trainer.compile", "model.norm_eps", "model.bias"}
    assert sorted(str(values(events)[OTHER]).split(", ")) == ["compile=true", "norm_eps=1e-05"]


def test_a_run_has_the_default_of_what_another_changes(tmp_path: Path) -> None:
    """TensorBoard lists the hyperparameters of one run, and shows them of all."""
    for name in ("a", "b"):
        logged(tmp_path / name, changed=frozenset({"model.norm_eps"} if name == "a" else ()))
    with tensorboard(tmp_path) as url:
        listing = ask(f"{url}data/plugin/hparams/experiment", {"experimentName": ""})
        infos = [each["name"] for each in listing["hparamInfos"]]
        query = {"startIndex": 0, "sliceSize": 9, "allowedStatuses": ["STATUS_SUCCESS"]}
        found = ask(f"{url}data/plugin/hparams/session_groups", query)["sessionGroups"]
    runs = {each["sessions"][0]["name"]: each["hparams"] for each in found}
    assert runs["a"]["model.norm_eps"] == runs["b"]["model.norm_eps"] == 1e-5
    assert (runs["a"][OTHER], runs["b"][OTHER]) == ("norm_eps=1e-05", "default")
    assert OTHER in infos


def ask(url: str, query: dict[str, Any]) -> Any:
    request = Request(url, json.dumps(query).encode(), {"Content-Type": "application/json"})
    with urlopen(request) as answer:
        return json.load(answer)


def test_types_are_those_of_the_values(tmp_path: Path) -> None:
    events = logged(tmp_path, changed=frozenset({"model.bias"}))
    infos = listed(events)
    kinds = {1: str, 2: bool, 3: float}
    found = values(events)
    assert len(infos) > 8
    for name, info in infos.items():
        assert kinds[info.type] is type(found[name])
    assert list(infos["model.bias"].domain_discrete) == [False, True]


@pytest.mark.parametrize(
    ("varied", "expected"),
    [
        (set(), set(FIRST)),
        ({"run_dir", "observe.attention.every"}, set(FIRST)),
        ({"seed", "optimizer", "run_dir"}, {"seed", "optimizer.name", *FIRST[:3]}),
        ({"optimizer.lr", "seed"}, {"seed", *FIRST[:4]}),
        ({*FIRST, "seed"}, {*FIRST, "seed"}),
    ],
)
def test_columns_begin_with_what_the_command_line_sets(
    tmp_path: Path, varied: set[str], expected: set[str]
) -> None:
    experiment = content(logged(tmp_path, varied=frozenset(varied)), "experiment")
    assert {info.name for info in experiment.hparam_infos if info.differs} == expected


@pytest.mark.parametrize(
    ("floor_bpb", "above"), [(0.5, {"result/percent_above_floor": 50.0}), (None, {})]
)
def test_metrics_are_scalars_of_the_run(
    tmp_path: Path, floor_bpb: float | None, above: dict[str, float]
) -> None:
    events = logged(tmp_path, floor_bpb)
    infos = content(events, "experiment").metric_infos
    assert {info.name.tag: info.display_name for info in infos} == METRICS
    found = {
        tag: (events.Tensors(tag)[0].step, make_ndarray(events.Tensors(tag)[0].tensor_proto).item())
        for tag in METRICS
        if tag in events.Tags()["tensors"]
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
    board = TensorBoard(observed_run(tmp_path))
    board.on_start(0)
    board.on_end(7, None)
    tags = EventAccumulator(str(tmp_path)).Reload().Tags()
    assert not [tag for tag in tags["tensors"] if tag.startswith(("result", "_hparams_"))]
