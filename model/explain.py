"""Why a head looks where it looks: the score of one cell of its map as a sum over what wrote the
query and what wrote the key; and which earlier heads a head reads, over a whole text.

The residual stream is the sum of what the embedding, the heads and the MLPs of earlier layers have
written. With the scales of the norms frozen at their values, everything between the stream and a
score is linear in the query's side and in the key's side (Elhage et al. 2021, "A Mathematical
Framework for Transformer Circuits"), rotary positions included.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from common.errors import check_range
from model.attention import AttentionSteps, CausalSelfAttention, split_heads
from model.gpt import GPT, Block, block_of, blocks_of, check_tokens, eval_mode
from model.hooks import editing, record_attention
from model.layers import NoPosition

Parts = dict[str, Float[Tensor, "token d_model"]]
Shares = dict[str, Float[Tensor, "way head"]]
WAYS = ("query", "key", "value")
KNOWN_NORMS = nn.RMSNorm, nn.LayerNorm


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
    "edit" for what edits and patches of the residual stream have added to it, if there are any, and
    "biases" for those on the way. Computed in float64, with dropout off. What `ablate`, `edit` and
    `patch` make of heads and MLPs is what these have written.

    Raises ValueError for a head or a cell that the model or the text does not have, and where a
    hook changes what the head computes, which then is not the sum of these parts.
    """
    layer, index = head
    block = block_of(model, layer, index)
    check_tokens(tokens, 1)
    check_range("query", query, 0, len(tokens) - 1)
    check_range("key", key, 0, query)
    with record_attention(model, keep="steps") as recorded:
        parts = stream_parts(model, tokens)[layer]
    names, (queries, keys, _) = [*parts], _vectors(block, parts, recorded[layer])
    n_shared = queries.shape[1] // keys.shape[1]  # queries of a key
    products = queries[:, index, query] @ keys[:, index // n_shared, key].T
    terms = products / math.sqrt(block.attention.d_head)
    return {
        (names[a], names[b]): terms[a, b].item()
        for a in range(len(names))
        for b in range(len(names))
    }


@torch.no_grad()
def wiring(
    model: GPT, tokens: Int[Tensor, " token"], queries: Bool[Tensor, " token"] | None = None
) -> list[Shares]:
    """What the heads of each layer read: by name of a part that wrote the stream before the layer
    (as in `explain_score`), its share in the queries, the keys and the values of each head.

        wiring(model, tokens)[1]["L0H2"][1, 3]    # of what L1H3 reads through its keys

    The shares of a head sum to 1 in each way; one below 0 works against the others.

    - query, key: of the preference sum_k (a_k - u_k) s_k, where s are the scaled scores of a query,
      a its weights and u those of a query that attends evenly to all its keys. Subtracting
      sum_k u_k s_k leaves out what changes no weight, since softmax ignores a constant. The
      preference equals KL(a|u) + KL(u|a), so it is never below 0. It is linear in what wrote the
      query, and in what wrote the keys.
    - value: of |o|^2, where o = sum_k a_k v_k is what the head gathers for a query: the parts of o
      along o. Of a head that is edited, what it would gather.

    Both are summed over `queries` (None: all) before they are divided: a query without a preference
    has no weight. What matters in few queries, such as where a text repeats itself, can be lost in
    the sum over all. NaN for a head that attends exactly evenly, or gathers nothing. Computed in
    float32, with dropout off and the scales of norms frozen. Raises ValueError for a text without
    tokens, for `queries` that are not a boolean for each, and as `explain_score` does for hooks.
    """
    check_tokens(tokens, 1)
    if queries is None:
        queries = torch.ones_like(tokens, dtype=torch.bool)
    if queries.dtype != torch.bool or queries.shape != tokens.shape:
        raise ValueError(
            f"queries: have the shape {[*queries.shape]} and the type {queries.dtype}; give "
            f"{len(tokens)} booleans, one for each token"
        )
    tokens = tokens.to(model.token_embedding.weight.device)
    counted = queries.to(tokens.device, torch.float32)
    with record_attention(model, keep="steps") as recorded:
        streams = stream_parts(model, tokens, torch.float32)
    return [
        _shares(block, parts, steps, counted)
        for block, parts, steps in zip(blocks_of(model), streams, recorded, strict=True)
    ]


def wiring_matrices(
    model: GPT,
    tokens: Int[Tensor, " token"],
    queries: Bool[Tensor, " token"] | None = None,
    longest: int = 256,
) -> Float[Tensor, "way layer head layer writer"] | None:
    """Of the `wiring`, the shares of earlier heads, and after them of the MLP of their layer, as
    `add_attention` takes them: on the CPU, and 0 where the writer is not in an earlier layer.
    Without `queries`, only the first `longest` tokens are read. None for a model with norms whose
    scale is not known here."""
    if not all(isinstance(block.attention_norm, KNOWN_NORMS) for block in blocks_of(model)):
        return None
    n_layers, n_heads = model.config.n_layers, model.config.n_heads
    found = torch.zeros(len(WAYS), n_layers, n_heads, n_layers, n_heads + 1)
    if queries is None:
        tokens = tokens[:longest]
    for layer, parts in enumerate(wiring(model, tokens, queries)):
        for earlier in range(layer):
            names = [*(f"L{earlier}H{head}" for head in range(n_heads)), f"L{earlier} MLP"]
            found[:, layer, :, earlier] = torch.stack([parts[name] for name in names], -1)
    return found


def _shares(
    block: Block, parts: Parts, steps: AttentionSteps, counted: Float[Tensor, " token"]
) -> Shares:
    """`wiring` of one layer; the steps are those of one text."""
    vectors = _vectors(block, parts, steps)
    steps = AttentionSteps(*(step[0].float() for step in steps))
    n_heads, n_shared = len(steps.query), len(steps.query) // len(steps.key)  # queries of a key
    allowed = steps.masked.isfinite()
    weights = steps.weights * counted[:, None]
    preference = weights - counted[:, None] * allowed / allowed.sum(-1, keepdim=True)
    # Sums over tokens of a vector times one of these: the preference, but for a factor, and |o|^2.
    met = (
        preference @ steps.key.repeat_interleave(n_shared, 0),
        preference.mT @ steps.query,
        weights.mT @ (steps.weights @ steps.value.repeat_interleave(n_shared, 0)),
    )
    sums = [
        torch.einsum("phtd,htd->hp", vector.repeat_interleave(n_heads // vector.shape[1], 1), other)
        for vector, other in zip(vectors, met, strict=True)
    ]
    shares = torch.stack([found / found.sum(-1, keepdim=True) for found in sums])
    return dict(zip(parts, shares.unbind(-1), strict=True))


def _vectors(
    block: Block, parts: Parts, steps: AttentionSteps
) -> list[Float[Tensor, "part head token d_head"]]:
    """What each part has written into the queries, keys and values of a layer. Raises ValueError if
    they do not sum to those in `steps`, of one text, but for rounding."""
    attention = block.attention
    normed = _frozen(block.attention_norm, torch.stack([*parts.values()]))
    found = [
        _projected(attention, matrix, normed)
        for matrix in (attention.query, attention.key, attention.value)
    ]
    for place, norm in enumerate((attention.query_norm, attention.key_norm)):
        found[place] = attention.position(_frozen(norm, found[place]), 0)
    for vectors, actual in zip(found, steps, strict=False):
        precision = max(torch.finfo(each.dtype).eps for each in (actual, vectors))
        rounding = 1000 * precision * vectors.abs().sum(0).max()
        if ((vectors.sum(0) - actual[0]).abs() > rounding).any():
            raise ValueError(
                "model: a hook changes the queries, keys or values, which are then not the sum of "
                "what its parts have written; remove the hook"
            )
    return found


@torch.no_grad()
def stream_parts(
    model: GPT, tokens: Int[Tensor, " token"], dtype: torch.dtype = torch.float64
) -> list[Parts]:
    """What has written the residual stream before each layer, by name; "biases" come last."""
    # Of each layer: the stream before it, what the heads gather, and what attention and MLP add.
    streams, gathered, attended, added = (list[Tensor]() for _ in range(4))

    def keep(kept: list[Tensor], value: Tensor) -> Tensor:
        kept.append(value)
        return value

    with ExitStack() as stack, eval_mode(model):
        for block in blocks_of(model):
            stack.enter_context(editing(block.stream_edits, partial(keep, streams)))
            stack.enter_context(editing(block.attention.edits, partial(keep, gathered)))
            stack.enter_context(editing(block.mlp_edits, partial(keep, added)))
            hook = block.attention.register_forward_hook(lambda *given: attended.append(given[2]))
            stack.callback(hook.remove)
        model.hidden(tokens[None])
        embedding = model.token_embedding(tokens).to(dtype)
        stream = model.embed(tokens[None])
    parts = {"embedding": embedding}
    if not isinstance(model.position, NoPosition):
        parts["position"] = stream[0].to(dtype) - embedding
    edits, biases = torch.zeros_like(embedding), torch.zeros_like(embedding)
    before = []
    for index, block in enumerate(blocks_of(model)):
        # Without an edit the two are the same sums, to the last bit.
        edits = edits + (streams[index] - stream)[0].to(dtype)
        edited = {"edit": edits} if edits.any() else {}
        before.append(parts | edited | {"biases": biases})
        stream = streams[index] + attended[index] + added[index]
        # What each head adds, (head, token, d_model), without the bias.
        output = split_heads(block.attention.output.weight[None].to(dtype), block.attention.d_head)
        written = gathered[index][0].to(dtype) @ output[0].mT
        parts |= {f"L{index}H{head}": each for head, each in enumerate(written)}
        if block.attention.output.bias is not None:
            biases = biases + block.attention.output.bias.to(dtype)
        parts[f"L{index} MLP"] = added[index][0].to(dtype)
    return before


def _projected(
    attention: CausalSelfAttention, matrix: nn.Linear, parts: Float[Tensor, "part token d_model"]
) -> Float[Tensor, "part head token d_head"]:
    """What a matrix makes of each part, in heads; the last part gets the bias."""
    found = parts @ matrix.weight.to(parts.dtype).T
    if matrix.bias is not None:
        found[-1] += matrix.bias.to(parts.dtype)
    return split_heads(found, attention.d_head)


def _frozen(norm: nn.Module, parts: Tensor) -> Tensor:
    """What a norm makes of each part of its input, where its scale is that of their sum; the last
    part gets the bias."""
    if isinstance(norm, nn.Identity):
        return parts
    whole = parts.sum(0)
    gain = norm.get_parameter("weight").to(parts.dtype)
    if isinstance(norm, nn.RMSNorm):
        assert norm.eps is not None
        return parts * gain * (whole.square().mean(-1, keepdim=True) + norm.eps).rsqrt()
    if not isinstance(norm, nn.LayerNorm):
        raise ValueError(f"norm: the scale of {type(norm).__name__} is not known here")
    scale = (whole.var(-1, correction=0, keepdim=True) + norm.eps).rsqrt()
    found = (parts - parts.mean(-1, keepdim=True)) * gain * scale
    if norm.bias is not None:
        found[-1] += norm.bias.to(parts.dtype)
    return found
