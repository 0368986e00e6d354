"""The importance of heads: how much the loss rises without what a head contributes.

Promises: each head alone is replaced by its mean, over given tokens and never over padding; on the
same held-out text at every step; and the model is as it was before.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from data.batches import UNSCORED, EvalBatches
from model import GPT, ablate_each_head, eval_mode, mean_outputs
from model.gpt import Block
from model.hooks import Batch, Part
from observe.context import RunContext
from tensorboard_attention.scores import measure

# More tokens give less of an error, and one look takes longer: about as long as this many products
# of a weight, with a token, for each head.
PRODUCTS = 10**11
MIN_TOKENS, MAX_TOKENS = 256, 1024
COPIES = 4  # of these tokens in one call: more take memory, and not less time


def held_out(context: RunContext) -> Batch:
    """From MIN_TOKENS to MAX_TOKENS tokens of the validation split, fewer of a larger model, and
    their targets: the windows of medium length, which are whole documents where the corpus has
    any."""
    dataset, model = context.dataset, context.model
    heads = model.config.n_layers * model.config.n_heads
    n_tokens = min(MAX_TOKENS, max(MIN_TOKENS, PRODUCTS // (heads * model.n_parameters)))
    length, starts = model.config.context_length, dataset.val_starts
    if starts is None:
        length = min(length, n_tokens // 4)  # several, for the error
    whole = EvalBatches(dataset.val, length, 1, starts)
    count = max(1, round(n_tokens * len(whole) / whole.n_targets))
    windows = EvalBatches(dataset.val, length, count, starts)
    inputs, targets = windows.batch(len(windows) // 2)
    begins = targets[:, 0] != UNSCORED
    if begins.any():  # otherwise all windows continue a document
        inputs, targets = inputs[begins], targets[begins]
    return inputs, targets


def importance(model: GPT, batch: Batch) -> dict[str, Float[np.ndarray, "layer head"]]:
    """The scores that need losses: the loss of the model with the output of each head alone
    replaced by its mean over all tokens of the batch that are scored, compared with the loss of the
    model."""
    means = mean_outputs(model, [batch])
    with eval_mode(model):
        without, loss = (found.sum(-1) for found in token_losses(model, batch, means))
    found = measure("losses", list(without), loss, (batch[1] != UNSCORED).sum(1).numpy())
    return {name: np.stack(values) for name, values in found.items()}


@torch.no_grad()
def token_losses(
    model: GPT, batch: Batch, means: Mapping[Part, Tensor]
) -> tuple[Float[np.ndarray, "layer head batch query"], Float[np.ndarray, "batch query"]]:
    """The loss of every target in nats with each head alone replaced by its mean, as `mean_outputs`
    returns them, and that of the model; 0 for targets that are not scored."""
    device = next(model.parameters()).device
    inputs, targets = (tensor.to(device) for tensor in batch)

    def loss(x: Float[Tensor, "batch query d_model"]) -> Float[Tensor, "batch query"]:
        rows = zip(model.final_norm(x), targets, strict=True)  # a vocabulary may be large
        return torch.stack(
            [F.cross_entropy(model.logits(row).float(), y, reduction="none") for row, y in rows]
        )

    def apply(
        block: nn.Module, streams: Float[Tensor, "copy batch query d_model"]
    ) -> Float[Tensor, "copy batch query d_model"]:
        return block(streams.flatten(0, 1)).unflatten(0, (len(streams), -1))

    # The residual stream of the model, and then those without one head each, of the layers so far.
    streams = model.embed(inputs)[None]
    for layer, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        after = [apply(block, chunk) for chunk in streams.split(COPIES)]
        of_heads = torch.stack([means[layer, head] for head in range(model.config.n_heads)])
        with ablate_each_head(block, of_heads):
            after.append(apply(block, streams[:1].expand(model.config.n_heads, -1, -1, -1)))
        streams = torch.cat(after)
    # One transfer for all: each waits for a GPU.
    intact, *without = torch.stack([*map(loss, streams)]).double().cpu().numpy()
    shape = (model.config.n_layers, model.config.n_heads, *inputs.shape)
    return np.reshape(without, shape), intact
