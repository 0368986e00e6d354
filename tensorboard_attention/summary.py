"""Attention maps as TensorBoard summaries, for the Attention tab.

A summary holds all layers and heads of one probe at one step, as a tensor of two byte strings:

    header  JSON: version, tokens, note (what is not shown as given), heads (number per layer),
            causal, scores, meanings of the scores; by name of the score, its unit unless it is a
            share, and where it was measured; sentences: for each layer and head its sentence, the
            example as [query, key] or null, and how much it tells. Older logs lack the last four.
    maps    zlib: one byte per weight, round(255 sqrt(weight)), layer by layer, head by head, row by
            row; for causal maps only the keys up to the query. The square root keeps small weights
            apart; it is off by at most 1/510.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorboard_attention.scores import SCORES, measure
from tensorboard_attention.sentences import THIS_TEXT, sentences

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from torch.utils.tensorboard import SummaryWriter

Layers = Sequence[Any]  # one array per layer
PLUGIN_NAME = "attention"
VERSION = 1
ROUNDING = 0.01  # bfloat16 may add this much to a weight of 1
MAX_TOKENS = 512  # 12 x 12 causal maps of 512 tokens are 19 MB per step before compression


def add_attention(
    writer: SummaryWriter,
    tag: str,
    maps: Layers,
    tokens: Sequence[str],
    step: int,
    scores: Mapping[str, Layers] | None = None,
    measured: Mapping[str, str] | str | None = None,
) -> None:
    """Log the attention maps of a text for TensorBoard's Attention tab.

    maps: one array per layer, of shape (batch, head, query, key), such as `transformers` returns
        with `output_attentions=True`: torch tensors of any type on any device, NumPy arrays or
        lists. Rows sum to one; queries and keys are the same tokens. Only the first text of a batch
        is logged.
    tokens: the text of every token.
    scores: head scores by name: one array of shape (head,) per layer. They replace the scores of
        the same name that are otherwise measured on `maps`.
    measured: where the given scores were measured, such as "random tokens, repeated": for all of
        them, or by name. Shown beside them; all other scores are measured on "this text".

    Maps of more than MAX_TOKENS tokens are cut, weights that are not finite are shown as 0, and
    weights outside 0 to 1 as 0 or 1; the tab then shows a note. Raises ValueError for shapes that
    do not fit.
    """
    writer._get_file_writer().add_summary(
        attention_summary(tag, maps, tokens, scores, measured), step
    )


def attention_summary(
    tag: str,
    maps: Layers,
    tokens: Sequence[str],
    scores: Mapping[str, Layers] | None = None,
    measured: Mapping[str, str] | str | None = None,
) -> Summary:
    """The summary that `add_attention` writes, for writers other than torch's."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.util.tensor_util import make_tensor_proto

    # Without a data class: TensorBoard would keep up to a hundred tensors per tag in memory, but
    # the plugin reads the event files itself.
    metadata = SummaryMetadata(plugin_data={"plugin_name": PLUGIN_NAME, "content": b"1"})
    tensor = make_tensor_proto(encode(maps, tokens, scores, measured))
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


def encode(
    maps: Layers,
    tokens: Sequence[str],
    scores: Mapping[str, Layers] | None = None,
    measured: Mapping[str, str] | str | None = None,
) -> list[bytes]:
    """The header and the maps, in the format above. Arguments and errors as for `add_attention`."""
    tokens = [str(token) for token in tokens]
    arrays = _check(maps, tokens)
    given = {name: [*map(_floats, layers)] for name, layers in (scores or {}).items()}
    for name, values in given.items():
        if [each.shape for each in values] != [each.shape[1:2] for each in arrays]:
            raise ValueError(f"scores: {name} needs one array per layer with one number per head")
    places = _places(measured, given)
    ids = np.unique(tokens, return_inverse=True)[1][None]
    found = {
        **measure("maps", arrays, known=given),
        **measure("tokens", arrays, ids, known=given),
        **given,
    }
    places |= {name: THIS_TEXT for name in found if name not in given}
    meanings = {each.name: each.meaning for each in SCORES if each.name in found}
    layers, note = _shown(arrays)
    causal, packed = _pack(layers)
    header = {
        "version": VERSION,
        "tokens": tokens[:MAX_TOKENS],
        "note": note,
        "heads": [len(each) for each in layers],
        "causal": causal,
        "scores": {
            name: [[_finite(value) for value in each.tolist()] for each in found[name]]
            for name in dict.fromkeys([*meanings, *found])
        },
        "meanings": meanings,
        "units": {each.name: each.unit for each in SCORES if each.name in found and each.unit},
        "measured": places,
        "sentences": sentences(
            [each[..., :MAX_TOKENS, :MAX_TOKENS] for each in arrays],
            tokens[:MAX_TOKENS],
            found,
            places,
            causal,
        ),
    }
    return [json.dumps(header).encode(), packed]


def _check(maps: Layers, tokens: Sequence[str]) -> list[np.ndarray]:
    """The first text's maps: a float32 array of shape (1, head, query, key) per layer."""
    n = len(tokens)
    if not len(maps):
        raise ValueError("maps: is empty; give one array per layer")
    if any(each is None for each in maps):  # transformers returns None for fused kernels
        raise ValueError('maps: contains None; load the model with attn_implementation="eager"')
    if not n:
        raise ValueError("tokens: is empty; give the text of every token")
    for layer, each in enumerate(maps):
        shape = tuple(np.shape(each))
        if len(shape) != 4 or 0 in shape or shape[2:] != (n, n):
            raise ValueError(
                f"maps: layer {layer} has the shape {shape}; "
                f"{n} tokens need (batch, head, {n}, {n})"
            )
    return [_floats(each[:1]) for each in maps]


def _places(measured: Mapping[str, str] | str | None, given: Mapping[str, Any]) -> dict[str, str]:
    """Where the given scores were measured, by name."""
    places = dict.fromkeys(given, measured) if isinstance(measured, str) else dict(measured or {})
    for name, where in places.items():
        if name not in given or not isinstance(where, str):
            raise ValueError(
                f"measured: {name} is not a given score with the text it was measured on"
            )
    return {name: where for name, where in places.items() if isinstance(where, str)}


def _shown(maps: Sequence[np.ndarray]) -> tuple[list[np.ndarray], str]:
    """What the tab shows: weights from 0 to 1, an array of shape (head, query, key) per layer; and
    a note on what differs from the maps."""
    n = maps[0].shape[-1]
    layers = [each[0, :, :MAX_TOKENS, :MAX_TOKENS] for each in maps]
    notes = []
    if n > MAX_TOKENS:
        notes.append(f"Only the first {MAX_TOKENS} of {n} tokens are shown; scores use all.")
    if not all(np.isfinite(each).all() for each in layers):
        notes.append("Weights that are not finite are shown as 0; their heads have no scores.")
        layers = [np.nan_to_num(each, posinf=0, neginf=0) for each in layers]
    if any(each.min() < -ROUNDING or each.max() > 1 + ROUNDING for each in layers):
        notes.append("Weights outside 0 to 1 are shown as 0 or 1.")
    return [each.clip(0, 1) for each in layers], " ".join(notes)


def _pack(layers: Sequence[np.ndarray]) -> tuple[bool, bytes]:
    """Whether no query attends to a later key, and the compressed bytes."""
    n = layers[0].shape[-1]
    causal = not any(np.triu(each, 1).any() for each in layers)
    rows, columns = np.tril_indices(n) if causal else np.indices((n, n))
    packed = zlib.compressobj()
    data = b"".join(
        packed.compress(np.rint(np.sqrt(head[rows, columns]) * 255).astype(np.uint8))
        for each in layers
        for head in each
    )
    return causal, data + packed.flush()


def _floats(values: Any) -> np.ndarray:
    """As float32. NumPy refuses torch tensors of bfloat16, on a GPU, or that require gradients."""
    if hasattr(values, "detach"):
        values = values.detach().float().cpu()
    return np.asarray(values, dtype=np.float32)


def _finite(value: float) -> float | None:
    """JSON has no NaN."""
    return round(value, 6) if math.isfinite(value) else None
