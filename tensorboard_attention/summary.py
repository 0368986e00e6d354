"""Attention maps as TensorBoard summaries that the Attention tab reads; for any model.

    add_attention(writer, "my probe", outputs.attentions, tokens, step)

One summary holds all layers and heads of one probe at one step: a tensor of two byte strings.

    header  JSON: version, tokens, note (what was cut), heads of each layer, causal, scores
    maps    zlib: one byte a weight, round(255 sqrt(weight)), layer by layer, head by head, row by
            row; of causal maps only the keys up to the query. The square root keeps the small
            weights of long texts apart; it is off by at most 1/510.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tensorboard_attention import PLUGIN_NAME
from tensorboard_attention import scores as head_scores

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from torch.utils.tensorboard import SummaryWriter

VERSION = 1
ROUNDING = 0.01  # what bfloat16 may add to a weight of 1
MAX_TOKENS = 512  # longer maps are cut: 12 x 12 causal maps of 512 tokens are 19 MB a step


def add_attention(
    writer: SummaryWriter,
    tag: str,
    maps: Sequence[Float[Tensor, "batch head query key"]],
    tokens: Sequence[str],
    step: int,
    scores: Mapping[str, Sequence[Float[Tensor, " head"]]] | None = None,
) -> None:
    """Log the attention maps of a text, to be looked at in TensorBoard's Attention tab.

    maps: one tensor a layer, as `transformers` gives with `output_attentions=True`. Rows sum to
        one; queries and keys are the same tokens. Of a batch, the first text is shown.
    tokens: the text of every token.
    scores: more scores beside those of `measure`, by name: one tensor a layer.

    Raises ValueError where shapes do not fit. With a note, maps longer than MAX_TOKENS are cut,
    weights that are not finite shown as 0, and those outside 0 to 1 as the nearer of the two.
    """
    writer._get_file_writer().add_summary(attention_summary(tag, maps, tokens, scores), step)


def attention_summary(
    tag: str,
    maps: Sequence[Float[Tensor, "batch head query key"]],
    tokens: Sequence[str],
    scores: Mapping[str, Sequence[Float[Tensor, " head"]]] | None = None,
) -> Summary:
    """What `add_attention` writes."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.util.tensor_util import make_tensor_proto

    content = encode(maps, tokens, scores)
    # Of no data class: of tensors TensorBoard would keep up to a hundred a tag in memory, and the
    # tab's index reads the files themselves.
    metadata = SummaryMetadata(
        plugin_data=SummaryMetadata.PluginData(plugin_name=PLUGIN_NAME, content=b"1")
    )
    return Summary(
        value=[Summary.Value(tag=tag, metadata=metadata, tensor=make_tensor_proto(content))]
    )


def encode(
    maps: Sequence[Float[Tensor, "batch head query key"]],
    tokens: Sequence[str],
    scores: Mapping[str, Sequence[Float[Tensor, " head"]]] | None = None,
) -> list[bytes]:
    """The header and the maps, as the file's docstring says."""
    if not len(maps):
        raise ValueError("maps: are empty; give one tensor a layer")
    if any(each is None for each in maps):  # what transformers gives for its fused kernels
        raise ValueError('maps: are None; load the model with attn_implementation="eager"')
    maps = [torch.as_tensor(each) for each in maps]
    tokens = [str(token) for token in tokens]
    n = len(tokens)
    if not n:
        raise ValueError("tokens: are empty; give the text of every token")
    for layer, each in enumerate(maps):
        if each.ndim != 4 or not len(each) or tuple(each.shape[2:]) != (n, n):
            raise ValueError(
                f"maps: layer {layer} has the shape {tuple(each.shape)}; "
                f"{n} tokens need (batch, head, {n}, {n})"
            )
    firsts = [each[:1].detach().float().cpu() for each in maps]
    found = {**measure(firsts, tokens), **(scores or {})}
    for name, layers in found.items():
        if [tuple(each.shape) for each in layers] != [(each.shape[1],) for each in maps]:
            raise ValueError(f"scores: {name} needs one number a head, in one tensor a layer")
    n_shown = min(n, MAX_TOKENS)
    cut = [each[..., :n_shown, :n_shown] for each in firsts]
    notes = [f"The first {n_shown} of {n} tokens; scores are of all."] if n_shown < n else []
    if not all(bool(each.isfinite().all()) for each in cut):
        notes.append("Weights that are not finite are shown as 0; their heads have no scores.")
        cut = [each.nan_to_num(0, 0, 0) for each in cut]
    if any(bool(((each < -ROUNDING) | (each > 1 + ROUNDING)).any()) for each in cut):
        notes.append("Weights outside 0 to 1 are shown as 0 or 1.")
    causal = all(bool((each.triu(1) == 0).all()) for each in cut)
    rows, columns = np.tril_indices(n_shown) if causal else np.indices((n_shown, n_shown))
    packed = zlib.compressobj(level=6)
    data = b"".join(
        packed.compress(np.rint(np.sqrt(head.clip(0, 1)) * 255).astype(np.uint8)[rows, columns])
        for each in cut
        for head in each[0].numpy()
    )
    header = {
        "version": VERSION,
        "tokens": tokens[:n_shown],
        "note": " ".join(notes),
        "heads": [each.shape[1] for each in cut],
        "causal": causal,
        "scores": {
            name: [[_finite(value) for value in each.tolist()] for each in layers]
            for name, layers in found.items()
        },
    }
    return [json.dumps(header).encode(), data + packed.flush()]


def measure(
    maps: Sequence[Float[Tensor, "batch head query key"]], tokens: Sequence[str]
) -> dict[str, list[Float[Tensor, " head"]]]:
    """The scores that need nothing but the maps and which tokens are equal."""
    known = {token: number for number, token in enumerate(tokens)}
    ids = torch.tensor([[known[token] for token in tokens]])
    return {
        "entropy": [head_scores.entropy(each) for each in maps],
        "mean distance": [head_scores.mean_distance(each) for each in maps],
        "previous token": [head_scores.previous_token(each) for each in maps],
        "first token": [head_scores.first_token(each) for each in maps],
        "same token": [head_scores.same_token(each) for each in maps],
        "duplicate token": [head_scores.duplicate_token(each, ids) for each in maps],
        "induction": [head_scores.induction(each, ids) for each in maps],
    }


def _finite(value: float) -> float | None:
    """JSON has no NaN."""
    return round(value, 6) if math.isfinite(value) else None
