"""The curves of many seeds in TensorBoard, histograms of the weights and gradients of every
parameter, by layer, and token embeddings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
from tensorboard.util.tensor_util import make_ndarray
from torch import Tensor
from werkzeug.test import Client, TestResponse

from common.errors import UserError
from data.tokenizer import Tokenizer
from model import GPT
from observe.curves import write_curves
from observe.histograms import Histograms, histogram_tag
from observe.tensorboard import open_events, projector_labels
from store.results import find_runs, open_log
from tests.conftest import last_checkpoint, small_config
from tests.observe.conftest import run_context, trainer_at
from training.callback import Callback
from training.trainer import Trainer

TAG = "loss/bits_per_byte_train"


def run_with(folder: Path, losses: np.ndarray) -> Path:
    """What a run measured, at steps 1, 2, ... as metrics.jsonl has it; and role losses, once."""
    folder.mkdir(parents=True)
    lines = [{"step": step, "train_bpb": loss} for step, loss in enumerate(losses.tolist(), 1)]
    lines.append({"step": len(losses), "val_bpb": 0.5, "roles/song": 0.25, "tokens": 9})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text + '{"step": ')  # a kill
    return folder


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    return [(found.step, make_ndarray(found.tensor_proto).item()) for found in events.Tensors(tag)]


def test_curves_are_mean_lowest_and_highest(tmp_path: Path) -> None:
    losses = np.random.default_rng(1).random((3, 40))
    runs = [run_with(tmp_path / f"runs/{seed}", found) for seed, found in enumerate(losses)]
    folder = tmp_path / "runs/curves"
    for _ in range(2):  # in the place of what is there
        write_curves(folder, {"lr=0.1, tied": runs, "lr=0.1; tied": runs[:1]})
    place = folder / "lr=0.1,_tied"
    values = (losses.mean(axis=0), losses.min(axis=0), losses.max(axis=0))
    tags = (TAG, f"seeds/{TAG}/lowest", f"seeds/{TAG}/highest")
    for tag, expected in zip(tags, values, strict=True):
        found = scalars(place, tag)
        assert [step for step, _ in found] == [*range(1, 41)]
        np.testing.assert_allclose([value for _, value in found], expected, rtol=1e-6)
    assert scalars(place, "roles/song") == [(40, 0.25)]
    assert scalars(folder / "lr=0.1_tied", TAG)[-1][1] == pytest.approx(losses[0, -1])
    assert len([*place.iterdir()]) == 1


def test_a_curve_ends_where_the_first_run_does(tmp_path: Path) -> None:
    runs = [run_with(tmp_path / f"{n}", np.arange(n, 0.0, -1)) for n in (3, 5)]
    write_curves(tmp_path / "curves", {"both": runs})
    assert scalars(tmp_path / "curves/both", TAG) == [(1, 4.0), (2, 3.0), (3, 2.0)]


def test_tensorboard_draws_the_band(tmp_path: Path) -> None:
    runs = [run_with(tmp_path / f"{seed}", np.ones(3)) for seed in range(2)]
    other = run_with(tmp_path / "other", np.ones(3)) / "metrics.jsonl"
    other.write_text(other.read_text().replace("roles/song", "target position/0 to 15"))
    write_curves(tmp_path / "curves", {"all runs": runs, "other": [other.parent]})
    layouts = []
    for name in ("all_runs", "other"):
        events = EventAccumulator(str(tmp_path / "curves" / name)).Reload()
        (stored,) = events.Tensors("custom_scalars__config__")
        layouts.append(Layout.FromString(stored.tensor_proto.string_val[0]))
    layout, same = layouts  # TensorBoard loses what the second one adds
    assert layout == same
    series = {chart.title: chart.margin.series[0] for chart in layout.category[0].chart}
    names = (series[TAG].value, series[TAG].lower, series[TAG].upper)
    assert names == (TAG, f"seeds/{TAG}/lowest", f"seeds/{TAG}/highest")
    # TensorBoard shows the last one first.
    others = ["roles/song", "target position/0 to 15"]
    assert [*series][::-1] == ["loss/bits_per_byte_val", TAG, *others]


def test_curves_are_no_runs(tmp_path: Path) -> None:
    """For those who look for runs or maps; and a run is not written into."""
    write_curves(tmp_path / "curves", {"all runs": [run_with(tmp_path / "run", np.ones(3))]})
    with pytest.raises(UserError, match="contains no run"):
        find_runs(tmp_path / "curves")
    assert open_log(tmp_path / "curves").steps() == {}
    (tmp_path / "run/config.yaml").touch()
    with pytest.raises(UserError, match="run is a run; rename it"):
        write_curves(tmp_path / "run", {})


def histograms(folder: Path) -> event_accumulator.EventAccumulator:
    sizes = {"histograms": 0}
    return event_accumulator.EventAccumulator(str(folder), size_guidance=sizes).Reload()


def assert_matches(histogram: object, tensor: Tensor) -> None:
    """Assert that the statistics of the histogram are those of the tensor."""
    value, numbers = histogram.histogram_value, tensor.flatten().double()  # type: ignore[attr-defined]
    assert value.num == numbers.numel() == sum(value.bucket)
    assert value.min == numbers.min() and value.max == numbers.max()
    assert value.sum == pytest.approx(numbers.sum().item(), abs=1e-9)
    assert value.sum_squares == pytest.approx((numbers**2).sum().item())


class Copies(Callback):
    """Keeps the weights after every step, and its gradients."""

    def __init__(self) -> None:
        self.weights: dict[int, dict[str, Tensor]] = {}
        self.gradients: dict[int, dict[str, Tensor]] = {}

    def on_step(self, trainer: Trainer) -> None:
        parameters = dict(trainer.model.named_parameters())
        found = {name: each.detach().clone() for name, each in parameters.items()}
        self.weights[trainer.state.step] = found
        gradients = {name: each.grad for name, each in parameters.items() if each.grad is not None}
        found = {name: each.clone() for name, each in gradients.items()}
        self.gradients[trainer.state.step] = found

    on_start = on_step


@pytest.mark.parametrize("bad_step", [0, 4])
def test_weights_and_gradients_match_the_model(tmp_path: Path, bad_step: int) -> None:
    torch.manual_seed(0)
    gpt = GPT(small_config(2, 2, 8, 4, tied_embeddings=False), 256)
    context = run_context(tmp_path, "trainer.max_steps=5", model=gpt)
    copies, observer = Copies(), Histograms(2, context.model, writer := open_events(tmp_path))
    trainer = trainer_at(context, 0, copies, observer)
    gpt.register_forward_hook(
        lambda module, arguments, loss: (
            loss * torch.nan if trainer.state.step + 1 == bad_step else loss
        )
    )
    trainer.fit()
    writer.close()
    logged = histograms(tmp_path)
    names = copies.weights[0].keys()
    assert names == copies.gradients[1].keys() == dict(gpt.named_parameters()).keys()
    tags = logged.Tags()["histograms"]
    assert len(tags) == 2 * len(names)
    # TensorBoard groups tags by the part before the first slash.
    assert {"layer 1/mlp.up.weight", "around the layers/final_norm.weight gradient"} <= {*tags}
    for name in names:
        weights = logged.Histograms(histogram_tag(name))
        assert [each.step for each in weights] == [0, 2, 4]
        gradients = logged.Histograms(histogram_tag(f"{name} gradient"))
        assert [each.step for each in gradients] == ([2] if bad_step else [2, 4])
        for each in weights:
            assert_matches(each, copies.weights[each.step][name])
        for each in gradients:
            assert_matches(each, copies.gradients[each.step][name])


@pytest.mark.parametrize("value", [1e21, -1e30, float("inf"), float("nan")])
def test_a_diverging_run_ends_with_its_own_message(tmp_path: Path, value: float) -> None:
    """TensorBoard cannot draw such values; all others are drawn."""
    gpt = GPT(small_config(1, 2, 8, 4), vocab_size=11)
    context = run_context(tmp_path, model=gpt)
    observer = Histograms(1, context.model, writer := open_events(tmp_path))
    with torch.no_grad():
        gpt.token_embedding.weight[3, 2] = value
    observer.on_step(trainer_at(context, 1))
    writer.close()
    parameters = {histogram_tag(name) for name, _ in gpt.named_parameters()}
    tags = histograms(tmp_path).Tags()["histograms"]
    assert set(tags) == parameters - {histogram_tag("token_embedding.weight")}


def test_the_projector_shows_a_finished_run(tiny: Path, tiny_run: Path) -> None:
    logs, run = str(tiny / "runs"), tiny_run.name
    runs = EventMultiplexer().AddRunsFromDirectory(logs).Reload()
    context = TBContext(logdir=logs, data_provider=MultiplexerDataProvider(runs, logs))
    routes = ProjectorPlugin(context).get_plugin_apps()

    def get(route: str, **query: str) -> TestResponse:
        return Client(routes[route]).get("/", query_string=query)

    (embedding,) = get("/info", run=run).get_json()["embeddings"]
    name = embedding["tensorName"]
    flat = np.frombuffer(get("/tensor", run=run, name=name).data, dtype=np.float32)
    points = flat.reshape(embedding["tensorShape"])
    labels = get("/metadata", run=run, name=name).text.splitlines()
    weights = load_file(last_checkpoint(tiny_run) / "model.safetensors")["token_embedding.weight"]
    np.testing.assert_allclose(points, weights, atol=6e-6)
    tokenizer = Tokenizer.load(tiny_run / "tokenizer")
    assert len(labels) == tokenizer.vocab_size == len(weights)
    assert labels[ord("a")] == "a" and labels[ord("\n")] == "⏎" and labels[0xFF] == r"\xff"
    assert labels[tokenizer.encode(" the")[0]].startswith("·")


@given(st.lists(st.one_of(st.binary(max_size=4), st.text(max_size=200).map(str.encode))))
def test_every_label_is_one_visible_word(tokens: list[bytes]) -> None:
    """A label is not empty, and has no newline or tab to start another line or column."""
    for label in projector_labels(tokens):
        assert label.split() == [label]
