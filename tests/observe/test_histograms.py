"""Histograms contain the weights and gradients of every parameter, by layer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from model import GPT
from observe.histograms import Histograms, HistogramsConfig, histogram_tag
from tests.conftest import TINY, small_config, succeed
from tests.observe.conftest import observed_run


def events(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance={"histograms": 0}).Reload()


def assert_matches(histogram: object, tensor: Tensor) -> None:
    """Assert that the statistics and buckets of the histogram are those of the tensor."""
    value, numbers = histogram.histogram_value, tensor.flatten().double()  # type: ignore[attr-defined]
    assert value.num == numbers.numel() == sum(value.bucket)
    assert value.min == numbers.min() and value.max == numbers.max()
    assert value.sum == pytest.approx(numbers.sum().item(), abs=1e-9)
    assert value.sum_squares == pytest.approx((numbers**2).sum().item())
    below = 0.0
    for limit, count in zip(value.bucket_limit, value.bucket, strict=True):
        below += count
        assert abs((numbers < limit).sum().item() - below) <= 1  # the last bucket is closed


def test_weights_and_gradients_match_the_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    gpt = GPT(small_config(2, 2, 8, 4, tied_embeddings=False), vocab_size=11)
    histograms = Histograms(HistogramsConfig(2), observed_run(tmp_path, gpt))
    histograms.on_start(0)
    first = {name: each.detach().clone() for name, each in gpt.named_parameters()}
    for step in range(1, 4):
        gpt(torch.arange(4)[None]).square().sum().backward()
        histograms.on_gradients(step)
        if step == 2:
            gradients = {name: each.grad.clone() for name, each in gpt.named_parameters()}  # type: ignore[union-attr]
        with torch.no_grad():
            for each in gpt.parameters():
                assert each.grad is not None
                each.sub_(0.01 * each.grad)
                each.grad = None
        histograms.on_step(step, None)
        if step == 2:
            second = {name: each.detach().clone() for name, each in gpt.named_parameters()}
    assert histograms.writer
    histograms.writer.close()
    logged = events(tmp_path)
    assert len(logged.Tags()["histograms"]) == 2 * len(first)
    for name in first:
        before, after = logged.Histograms(histogram_tag(name))
        assert (before.step, after.step) == (0, 2)
        assert_matches(before, first[name])
        assert_matches(after, second[name])
        (gradient,) = logged.Histograms(histogram_tag(f"{name} gradient"))
        assert gradient.step == 2
        assert_matches(gradient, gradients[name])


@pytest.mark.parametrize("value", [1e21, -1e30, float("inf"), float("nan")])
def test_a_diverging_run_ends_with_its_own_message(tmp_path: Path, value: float) -> None:
    """TensorBoard cannot draw such values; all others are drawn."""
    gpt = GPT(small_config(1, 2, 8, 4), vocab_size=11)
    histograms = Histograms(HistogramsConfig(1), observed_run(tmp_path, gpt))
    with torch.no_grad():
        gpt.token_embedding.weight[3, 2] = value
    histograms.on_step(1, None)
    assert histograms.writer
    histograms.writer.close()
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


def test_histograms_do_not_change_the_weights(tiny: Path, tiny_run: Path, tmp_path: Path) -> None:
    cache = f"cache_dir={tiny / '.cache'}"
    settings = [*TINY, "observe.histograms.every=2", cache, "run_dir=run"]
    succeed("train", *settings, cwd=tmp_path)
    for name in ("model", "optimizer"):
        path = f"checkpoints/last/{name}.safetensors"
        assert (tmp_path / "run" / path).read_bytes() == (tiny_run / path).read_bytes()
    logged = events(tmp_path / "run")
    weights = load_file(tmp_path / "run/checkpoints/last/model.safetensors")
    for name, tensor in weights.items():
        all_steps = logged.Histograms(histogram_tag(name))
        assert [each.step for each in all_steps] == [0, 2, 4, 6]
        assert_matches(all_steps[-1], tensor)
        gradients = logged.Histograms(histogram_tag(f"{name} gradient"))
        assert [each.step for each in gradients] == [2, 4, 6]
    assert not events(tiny_run).Tags()["histograms"]  # off by default
