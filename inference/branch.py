"""The run that a branch continues, its trunk, and what a branch starts with.

Promises: nothing is written into the trunk. An error names `branch`, `step` or `hold_off`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from common.errors import UserError
from data import Tokenizer
from inference.opening import new_model, read_section
from model import GPT, ModelConfig, evaluating
from model.attention import split_heads
from model.block import blocks_of
from model.config import heads_of
from training.checkpoint import Checkpoints
from training.distributed import Ranks
from training.run import Run
from training.state import TrainState, load_state
from training.weights import load_weights

MEAN_TOKENS = 16_384  # at least, over which the mean of a head is taken

Batches = Callable[[int], tuple[Int[Tensor, "batch query"], Int[Tensor, "batch query"]]]


@dataclass(frozen=True)
class Trunk:
    """A run to branch off from, and the checkpoint to continue; `model_config` is the run's own."""

    run: Run
    checkpoint: Path
    state: TrainState
    model_config: ModelConfig

    def holding_off(self, names: str | None) -> ModelConfig:
        """The model of a branch without some heads, beside those that the trunk does without.
        Raises UserError for a head that the model does not have, or does without already."""
        before = heads_of(self.model_config.hold_off)
        try:
            heads = before + heads_of(names)
            if again := [head for head in heads_of(names) if head in before]:
                raise ValueError(
                    f"hold_off: {self.run.path} already does without {_names(again)}; leave it out"
                )
            return replace(self.model_config, hold_off=_names(heads) or None)
        except ValueError as error:
            raise UserError(str(error)) from error

    def load_into(self, model: GPT, tokenizer: Tokenizer, batches: Batches, ranks: Ranks) -> None:
        """Give the model of a branch the weights of the checkpoint. A head that it holds off gets
        its mean in the trunk as its constant: over the batches of the next steps, which are
        training data, and enough of them for MEAN_TOKENS tokens.

        Raises UserError if the weights are damaged.
        """
        if model.config.hold_off == self.model_config.hold_off:
            load_weights(model, self.checkpoint)
            return
        trunk = new_model(self.model_config, tokenizer)
        load_weights(trunk, self.checkpoint)
        model.load_state_dict(trunk.state_dict(), strict=False)  # without the new constants
        step, length = self.state.step, self.model_config.context_length
        count = math.ceil(MEAN_TOKENS / (len(batches(step)[0]) * length))
        read = (batches(step + i)[0] for i in range(count))
        means = ranks.broadcast(head_means(trunk, read) if ranks.is_main else None)
        assert means is not None
        held_before = heads_of(self.model_config.hold_off)
        for layer, head in heads_of(model.config.hold_off):
            if (layer, head) not in held_before:
                name = f"blocks.{layer}.attention.hold.constants.{head}"
                model.get_parameter(name).data.copy_(means[layer, head])


def find_trunk(path: str, step: int | None) -> Trunk:
    """The run in the folder `path`, to be continued from its checkpoint of `step`, by default the
    last. Raises UserError if the folder is not a run, or has no such checkpoint."""
    run = Run.open(path, "branch")
    checkpoint = _find_checkpoint(run.checkpoints, step)
    return Trunk(run, checkpoint, load_state(checkpoint), read_section(run, "model", ModelConfig))


def _names(heads: Iterable[tuple[int, int]]) -> str:
    return ",".join(f"L{layer}H{head}" for layer, head in heads)


def _find_checkpoint(checkpoints: Checkpoints, step: int | None) -> Path:
    if step is None:
        return checkpoints.find("last", "branch")
    return checkpoints.at(step, "step")


@torch.no_grad()
def head_means(
    model: GPT, batches: Iterable[Int[Tensor, "batch query"]]
) -> Float[Tensor, "layer head d_head"]:
    """What each head gathers, before the output matrix, as its mean over all tokens of `batches`,
    without dropout."""
    attentions = [block.attention for block in blocks_of(model)]
    sums = torch.zeros(
        len(attentions), model.config.n_heads, model.config.d_head, dtype=torch.float64
    )
    n_tokens = 0

    def add(layer: int, gathered: Float[Tensor, "batch query width"]) -> None:
        heads = split_heads(gathered, model.config.d_head)
        sums[layer] += heads.double().sum((0, 2))

    hooks = [
        attention.output.register_forward_pre_hook(
            lambda _matrix, inputs, layer=layer: add(layer, inputs[0])
        )
        for layer, attention in enumerate(attentions)
    ]
    try:
        with evaluating(model):
            for tokens in batches:
                model.hidden(tokens)
                n_tokens += tokens.numel()
    finally:
        for hook in hooks:
            hook.remove()
    return (sums / n_tokens).float()
