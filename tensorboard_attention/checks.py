"""Checks of what is given as attention maps, with answers to the usual mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

ROUNDING = 0.01  # bfloat16 may add this much to a weight of 1, or to a sum of 1
EAGER = (
    'load a model of transformers with attn_implementation="eager" and call it with '
    "output_attentions=True, or nn.MultiheadAttention with need_weights=True and "
    "average_attn_weights=False"
)


def check_maps(maps: Any, queries: int, keys: int, is_cross: bool) -> list[np.ndarray]:
    """The first text's maps: a float32 array of shape (1, head, query, key) per layer. Raises
    ValueError, with what to give, for anything else."""
    _check_layers(maps)
    wanted = f"{queries} tokens need (batch, head, {queries}, {keys})"
    if is_cross:
        wanted = wanted.replace("tokens", f"tokens and {keys} key_tokens")
    for layer, array in enumerate(maps):
        shape = tuple(np.shape(array))
        if len(shape) != 4 or 0 in shape or shape[2:] != (queries, keys):
            is_other = not is_cross and len(shape) == 4 and shape[2] == queries
            hint = "; for cross attention give key_tokens" * is_other
            raise ValueError(f"maps: layer {layer} has the shape {shape}; {wanted}{hint}")
    arrays = [floats(array[:1]) for array in maps]
    for layer, (weights,) in enumerate(arrays):
        _check_sums(layer, weights)
    return arrays


def floats(values: Any) -> np.ndarray:
    """The values as float32. NumPy refuses torch tensors that are bfloat16, on a GPU, or require
    gradients."""
    if hasattr(values, "detach"):
        values = values.detach().float().cpu()
    return np.asarray(values, dtype=np.float32)


def _check_layers(maps: Any) -> None:
    """Raises ValueError for what models return in place of one array per layer; shapes are checked
    later."""
    if isinstance(maps, Mapping):
        raise ValueError(
            "maps: is all that a model returned; give its attentions, or its encoder_attentions, "
            "decoder_attentions or cross_attentions"
        )
    if maps is None or not len(maps):  # what transformers returns without either of the two
        raise ValueError(f"maps: is {'None' if maps is None else 'empty'}; {EAGER}")
    if any(layer is None for layer in maps):
        raise ValueError(f"maps: contains None; {EAGER}")
    if any(map(_has_layers, maps)):
        raise ValueError(
            "maps: has layers for every new token, as generate() returns them; call the model once "
            "on the whole text: model(ids, output_attentions=True).attentions, or for an "
            "encoder-decoder model(ids, decoder_input_ids=new, output_attentions=True)"
            ".cross_attentions"
        )


def _has_layers(value: Any) -> bool:
    return isinstance(value, tuple | list) and (not value or np.ndim(value[0]) == 4)


def _check_sums(layer: int, weights: np.ndarray) -> None:
    """Raises ValueError unless the rows of a layer, of shape (head, query, key), sum to one. Rows
    of zeros are masked queries; those with values that are not finite have a note in the tab."""
    with np.errstate(invalid="ignore", over="ignore"):
        sums = weights.sum(-1)
        wrong = (abs(sums - 1) > ROUNDING) & weights.any(-1)
    wrong &= np.isfinite(weights).all(-1)
    if not wrong.any():
        return
    head, query = np.argwhere(wrong)[0]
    # Dropout scales what it keeps, so that some rows sum to more.
    cause = (
        "scores before softmax? or dropout, which model.eval() turns off?"
        if weights[head].min() < -ROUNDING or sums[wrong].max() > 1
        else "does a sink take the rest, as in gpt-oss? then divide each row by its sum; or are "
        "these a part of the keys? give all of them"
    )
    raise ValueError(
        f"maps: the weights of layer {layer}, head {head}, query {query} sum to "
        f"{sums[head, query]:.4g}, not to 1: {cause}"
    )
