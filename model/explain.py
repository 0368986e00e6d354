"""Why a head looks where it looks: the score of one cell of its map as a sum over what wrote the
query and what wrote the key.

The residual stream is the sum of what the embedding, the heads and the MLPs of earlier layers have
written. With the scales of the norms frozen at their values, everything between the stream and a
score is linear in the query's side and in the key's side (Elhage et al. 2021, "A Mathematical
Framework for Transformer Circuits"), rotary positions included.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor, nn

from errors import check_range
from model.attention import CausalSelfAttention, split_heads
from model.block import block_of, blocks_of
from model.gpt import GPT, evaluating
from model.position import NoPosition

Parts = dict[str, Float64[Tensor, "token d_model"]]


@torch.no_grad()
def explain_score(
    model: GPT,
    tokens: Int[Tensor, " token"],
    head: tuple[int, int],
    query: int,
    key: int,
) -> dict[tuple[str, str], float]:
    """The scaled score of a head, given as (layer, head), for the tokens at positions `query` and
    `key`, as terms that sum to it.

    A term (a, b) is the product of what part a wrote into the query with what part b wrote into the
    key. Parts are "embedding", "position" (learned ones), "L0H1" for a head, "L0 MLP" for an MLP,
    and "biases" for those on the way. Computed in float64, with dropout off. What `ablate` and
    `patch` make of heads and MLPs is what these have written.

    Raises ValueError for a head or a cell that the model or the text does not have.
    """
    layer, index = head
    block = block_of(model, layer, index)
    attention = block.attention
    check_range("query", query, 0, len(tokens) - 1)
    check_range("key", key, 0, query)
    parts = stream_parts(model, tokens, layer)
    names, values = [*parts], torch.stack([*parts.values()])
    normed = _frozen(block.attention_norm, values, values.sum(0))
    n_shared = attention.query.out_features // attention.key.out_features  # queries of a key
    queries = _per_head(attention, attention.query, attention.query_norm, normed)[:, index, query]
    keys = _per_head(attention, attention.key, attention.key_norm, normed)
    keys = keys[:, index // n_shared, key]
    terms = queries @ keys.T / math.sqrt(attention.d_head)
    return {
        (names[a], names[b]): terms[a, b].item()
        for a in range(len(names))
        for b in range(len(names))
    }


@torch.no_grad()
def stream_parts(model: GPT, tokens: Int[Tensor, " token"], layer: int) -> Parts:
    """What has written the residual stream before `layer`, by name; "biases" come last."""
    gathered: list[Tensor] = []  # by the heads of each layer
    added: list[Tensor] = []  # by the MLP of each layer
    hooks = [
        hook
        for block in blocks_of(model)
        for hook in (
            block.attention.output.register_forward_pre_hook(
                lambda _matrix, inputs: gathered.append(inputs[0])
            ),
            block.mlp.register_forward_hook(lambda _mlp, _inputs, output: added.append(output)),
        )
    ]
    try:
        with evaluating(model):
            model.hidden(tokens[None])
            embedding = model.token_embedding(tokens).double()
            embedded = model.embed(tokens[None])[0].double()
    finally:
        for hook in hooks:
            hook.remove()
    parts = {"embedding": embedding}
    if not isinstance(model.position, NoPosition):
        parts["position"] = embedded - embedding
    biases = torch.zeros_like(embedding)
    for index, block in enumerate(blocks_of(model)[:layer]):
        for head, written in enumerate(_written(block.attention, gathered[index])):
            parts[f"L{index}H{head}"] = written
        if block.attention.output.bias is not None:
            biases += block.attention.output.bias.double()
        parts[f"L{index} MLP"] = added[index][0].double()
    return parts | {"biases": biases}


def _written(
    attention: CausalSelfAttention, gathered: Float[Tensor, "1 token width"]
) -> Float64[Tensor, "head token d_model"]:
    """What each head adds to the residual stream, without the bias of the output matrix."""
    heads = split_heads(gathered.double(), attention.d_head)[0]
    output = split_heads(attention.output.weight[None].double(), attention.d_head)[0]
    return heads @ output.transpose(-2, -1)


def _per_head(
    attention: CausalSelfAttention,
    matrix: nn.Linear,
    norm: nn.Module,
    parts: Float64[Tensor, "part token d_model"],
) -> Float64[Tensor, "part head token d_head"]:
    """Parts of queries or keys; the last part gets the bias."""
    found = parts @ matrix.weight.double().T
    if matrix.bias is not None:
        found[-1] += matrix.bias.double()
    heads = split_heads(found, attention.d_head)
    return attention.position(_frozen(norm, heads, heads.sum(0)), 0)


def _frozen(norm: nn.Module, parts: Tensor, whole: Tensor) -> Tensor:
    """What a norm makes of each part of its input, where its scale is that of the `whole`; the last
    part gets the bias."""
    if isinstance(norm, nn.Identity):
        return parts
    gain = norm.get_parameter("weight").double()
    if isinstance(norm, nn.RMSNorm):
        assert norm.eps is not None
        return parts * gain * (whole.square().mean(-1, keepdim=True) + norm.eps).rsqrt()
    if not isinstance(norm, nn.LayerNorm):
        raise ValueError(f"norm: the scale of {type(norm).__name__} is not known here")
    scale = (whole.var(-1, correction=0, keepdim=True) + norm.eps).rsqrt()
    found = (parts - parts.mean(-1, keepdim=True)) * gain * scale
    if norm.bias is not None:
        found[-1] += norm.bias.double()
    return found
