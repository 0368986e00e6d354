"""Histograms contain the weights and gradients of every parameter, by layer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from model import GPT
from observe.histograms import Histograms, histogram_tag
from observe.tensorboard import open_events
from tests.conftest import small_config
from tests.observe.conftest import run_context, trainer_at
from training.callback import Callback
from training.trainer import Trainer


def events(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance={"histograms": 0}).Reload()


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
        found = {name: each.grad.clone() for name, each in parameters.items() if each.grad is not None}
        self.gradients[trainer.state.step] = found

    on_start = on_step


@pytest.mark.parametrize("bad_step", [0, 4])
def test_weights_and_gradients_match_the_model(tmp_path: Path, bad_step: int) -> None:
    torch.manual_seed(0)
    gpt = GPT(small_config(2, 2, 8, 4, tied_embeddings=False), 256)
    context = run_context(tmp_path, "trainer.max_steps=5", model=gpt)
    copies, histograms = Copies(), Histograms(2, context.model, writer := open_events(tmp_path))
    trainer = trainer_at(context, 0, copies, histograms)
    gpt.register_forward_hook(
        lambda module, arguments, loss: (
            loss * torch.nan if trainer.state.step + 1 == bad_step else loss
        )
    )
    trainer.fit()
    writer.close()
    logged = events(tmp_path)
    names = copies.weights[0].keys()
    assert names == copies.gradients[1].keys() == dict(gpt.named_parameters()).keys()
    assert len(logged.Tags()["histograms"]) == 2 * len(names)
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
    histograms = Histograms(1, context.model, writer := open_events(tmp_path))
    with torch.no_grad():
        gpt.token_embedding.weight[3, 2] = value
    histograms.on_step(trainer_at(context, 1))
    writer.close()
    parameters = {histogram_tag(name) for name, _ in gpt.named_parameters()}
    tags = events(tmp_path).Tags()["histograms"]
    assert set(tags) == parameters - {histogram_tag("token_embedding.weight")}


def test_tags_are_grouped_by_layer() -> None:
    """TensorBoard groups tags by the part before the first slash."""
    assert histogram_tag("blocks.11.mlp.up.weight") == "layer 11/mlp.up.weight"
    assert (
        histogram_tag("final_norm.weight gradient")
        == "around the layers/final_norm.weight gradient"
    )
