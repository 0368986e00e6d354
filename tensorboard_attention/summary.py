"""Attention maps as TensorBoard summaries, for the Attention tab.

A summary holds all layers and heads of one probe at one step, as a tensor of two byte strings:

    header  a JSON object, in which the fields from `not_finite` on can be missing:
                version    of this format
                tokens     the text
                keys       for cross attention only: the tokens that are attended to
                note       what differs between the given maps and those shown
                heads      the number of heads of each layer
                causal     whether no query attends to a later key
                scores     by name, the score of each layer and head; null if it is not finite
                meanings   by name of the score, its definition
                units      by name of the score, its unit; those that are missing are shares
                measured   by name of the score, the text on which it was measured
                counts     by name of the score, the number of queries that it averages
                sentences  of each layer and head: what it does; null (once an example); and how
                           informative this is, from 0 to 1
                roles      of each layer and head: its name with a percentage, such as "nearby 89%",
                           and the name of the pattern
                details    of each layer and head: how its name was measured
                overview   one sentence on all heads
                not_finite [layer, head] of each head with weights that are not finite
                wiring     edges, the largest share first: way (0 query, 1 key, 2 value), layer and
                           head, earlier layer and head (-1: its MLP), share
                losses     the loss of each token in bits; null for the first
                floor      the same of a perfect reader, who knows all that can be known; null where
                           it is unknown
                next       after each token, tokens that can come next, with their probability by
                           the model, and by the perfect reader (null: unknown)
    maps    zlib: one byte per weight, round(255 sqrt(weight)), layer by layer, head by head, row by
            row; for causal maps only the keys up to the query. The square root keeps small weights
            apart; it is off by at most 1/510.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensorboard_attention.checks import ROUNDING, check_maps, floats
from tensorboard_attention.naming import HeadName, overview
from tensorboard_attention.patterns import PATTERNS
from tensorboard_attention.scores import MEANINGS, THIS_TEXT, UNITS, measure_text
from tensorboard_attention.strict import to_json
from tensorboard_attention.tokens import token_texts

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from torch.utils.tensorboard import SummaryWriter

Layers = Sequence[Any]  # one array per layer
Tokens = Sequence[str | bytes]
PLUGIN_NAME = "attention"
VERSION = 1
MAX_TOKENS = 512  # 12 x 12 causal maps of 512 tokens are 19 MB per step before compression
WEAKEST, MAX_EDGES = 0.05, 2000  # smaller shares are not logged, nor more edges


class Guesses(NamedTuple):
    """What a model says of the tokens of a text, beside what a perfect reader says, who knows all
    that can be known.

    losses: of each token, in bits. floor: the same of the perfect reader. NaN: unknown.
    next_tokens: after each token, the bytes of some that can come next, with the probability that
        the model gives them, and that of the perfect reader (NaN: unknown).
    """

    losses: Sequence[float]
    floor: Sequence[float]
    next_tokens: Sequence[Sequence[tuple[bytes, float, float]]]


def add_attention(
    writer: SummaryWriter,
    tag: str,
    maps: Layers,
    tokens: Tokens,
    step: int,
    scores: Mapping[str, Layers] | None = None,
    key_tokens: Tokens | None = None,
    decode: str | None = None,
    measured: Mapping[str, str] | str | None = None,
    wiring: Any = None,
    counts: Mapping[str, int] | None = None,
    names: Sequence[Sequence[HeadName]] | None = None,
    guesses: Guesses | None = None,
) -> None:
    """Log the attention maps of a text for TensorBoard's Attention tab.

    maps: one array per layer, of shape (batch, head, query, key), such as `transformers` returns
        with `output_attentions=True`: torch tensors of any type on any device, NumPy arrays or
        lists. Rows sum to one, or are all zero for queries that are masked. Only the first text of
        a batch is logged.
    tokens: every token, as text or bytes, or as the `convert_ids_to_tokens` of a tokenizer of
        `transformers` returns it.
    scores: head scores by name: one array of shape (head,) per layer. They replace the scores of
        the same name that are otherwise measured on `maps`.
    key_tokens: for cross attention, the tokens that are attended to, which are the columns of the
        maps; `tokens` are the rows. Only scores that do not compare the two are measured.
    decode: "byte_level" reads tokens in the letters of byte-level tokenizers, such as `Ġthere`;
        "text" shows them as they are. By default they are read if all of them have only such
        letters, which spell a text in UTF-8.
    measured: where the given scores were measured, such as "random tokens, repeated": for all of
        them, or by name, of which one may be "wiring". Shown beside them; all else is measured on
        "this text".
    wiring: how much of what a head reads was written by each earlier head, an array of shape (3,
        layer, head, earlier layer, head): shares in its queries, keys and values. The last axis may
        have one more, for the MLP of the earlier layer. The tab draws shares of at least WEAKEST,
        or at most -WEAKEST, as edges; those that are not of earlier layers do not count.
    counts: over how many queries given scores are means, by name; shown beside them.
    names: what each head is called, by layer and head, as `name_heads` returns it for many texts.
        By default, heads are named after what they do on this text.
    guesses: what the model says of each token and of what comes next, beside what can be known.

    Maps of more than MAX_TOKENS tokens are cut, weights that are not finite are not shown, and
    weights outside 0 to 1 as 0 or 1; the tab then shows a note. Raises ValueError, with the likely
    cause, for shapes that do not fit, and for rows that do not sum to one.
    """
    summary = attention_summary(
        tag, maps, tokens, scores, key_tokens, decode, measured, wiring, counts, names, guesses
    )
    writer._get_file_writer().add_summary(summary, step)


def attention_summary(tag: str, *given: Any, **named: Any) -> Summary:
    """The summary that `add_attention` writes, for writers other than torch's. The arguments after
    the tag are those of `encode`."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.util.tensor_util import make_tensor_proto

    # Without a data class: TensorBoard would keep up to a hundred tensors per tag in memory, but
    # the plugin reads the event files itself.
    metadata = SummaryMetadata(plugin_data={"plugin_name": PLUGIN_NAME, "content": b"1"})
    tensor = make_tensor_proto(encode(*given, **named))
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


def encode(
    maps: Layers,
    tokens: Tokens,
    scores: Mapping[str, Layers] | None = None,
    key_tokens: Tokens | None = None,
    decode: str | None = None,
    measured: Mapping[str, str] | str | None = None,
    wiring: Any = None,
    counts: Mapping[str, int] | None = None,
    names: Sequence[Sequence[HeadName]] | None = None,
    guesses: Guesses | None = None,
) -> list[bytes]:
    """The header and the maps, in the format above. Arguments and errors as for `add_attention`."""
    is_cross = key_tokens is not None
    texts = token_texts(tokens, decode)
    keys = texts if key_tokens is None else token_texts(key_tokens, decode)
    if not texts or not keys:
        raise ValueError(f"{'key_' * bool(texts)}tokens: is empty; give the text of every token")
    arrays = check_maps(maps, len(texts), len(keys), is_cross)
    given = {name: [*map(floats, layers)] for name, layers in (scores or {}).items()}
    _check_given(given, counts or {}, names, [array.shape[1] for array in arrays])
    places = _places(measured, given, wiring is not None)
    layers, changes = _shown(arrays, is_cross)
    causal, packed = _pack(layers, is_cross)
    here = measure_text(
        [layer[0] for layer in arrays],
        texts,
        causal,
        keys if is_cross else None,
        is_named=names is not None and given.keys() >= {pattern.name for pattern in PATTERNS},
    )
    found = {**here.scores, **given}
    places |= {name: THIS_TEXT for name in found if name not in given}
    header = {
        "version": VERSION,
        "tokens": texts[:MAX_TOKENS],
        **({"keys": keys[:MAX_TOKENS]} if is_cross else {}),
        "note": changes,
        "heads": [len(weights) for weights in layers],
        "causal": causal,
        "scores": {
            name: [[_finite(value) for value in array.tolist()] for array in found[name]]
            for name in sorted(found, key=[*MEANINGS, *found].index)
        },
        "meanings": {name: text for name, text in MEANINGS.items() if name in found},
        "units": {name: unit for name, unit in UNITS.items() if name in found},
        "measured": places,
        "counts": {name: n for name, n in here.counts.items() if name not in given}
        | {name: int(count) for name, count in (counts or {}).items()},
        **name_fields(here.names if names is None else names),
        **({} if wiring is None else {"wiring": _edges(wiring, [*map(len, layers)])}),
        **({} if guesses is None else _guess_fields(guesses, len(texts))),
    }
    if broken := _not_finite(arrays):
        header["not_finite"] = broken
    return [to_json(header).encode(), packed]


def _check_given(
    scores: Mapping[str, Sequence[np.ndarray]],
    counts: Mapping[str, int],
    names: Sequence[Sequence[HeadName]] | None,
    heads: Sequence[int],
) -> None:
    """Raise ValueError for what does not fit the number of heads of each layer."""
    for name, values in scores.items():
        if [array.shape for array in values] != [(count,) for count in heads]:
            raise ValueError(f"scores: {name} needs one array per layer with one number per head")
    if unknown := counts.keys() - scores.keys():
        raise ValueError(f"counts: {min(unknown)} is not a given score")
    if names is not None and [*map(len, names)] != [*heads]:
        raise ValueError("names: give one for each head, by layer")


def _not_finite(arrays: Sequence[np.ndarray]) -> list[list[int]]:
    """Layer and head of each head with weights that are not finite."""
    return [
        [layer, head]
        for layer, array in enumerate(arrays)
        for head in np.flatnonzero(~np.isfinite(array[0]).all((1, 2))).tolist()
    ]


def name_fields(names: Sequence[Sequence[HeadName]]) -> dict[str, Any]:
    """The fields of a header that say what heads do."""
    return {
        "sentences": [[[name.headline, None, name.interest] for name in layer] for layer in names],
        "roles": [[[name.label, name.pattern] for name in layer] for layer in names],
        "details": [[name.details for name in layer] for layer in names],
        "overview": overview([name.label for layer in names for name in layer]),
    }


def _guess_fields(guesses: Guesses, n_tokens: int) -> dict[str, Any]:
    """The fields of a header with what is said of tokens."""
    if {*map(len, guesses)} != {n_tokens}:
        raise ValueError(f"guesses: do not fit {n_tokens} tokens; give as many of each")
    rows = guesses.next_tokens[:MAX_TOKENS]
    texts = iter(token_texts([token for row in rows for token, _, _ in row], None))
    said = [
        [[next(texts), _finite(model), _finite(known)] for _, model, known in row] for row in rows
    ]
    return {
        "losses": [*map(_finite, guesses.losses[:MAX_TOKENS])],
        "floor": [*map(_finite, guesses.floor[:MAX_TOKENS])],
        "next": said,
    }


def decode(header: Mapping[str, Any], packed: bytes) -> list[np.ndarray]:
    """The logged maps, up to the rounding of `encode`: an array of shape (1, head, query, key) for
    each layer. Raises ValueError if they do not fit their header."""
    n, heads = len(header["tokens"]), header["heads"]
    m = len(header.get("keys", header["tokens"]))
    rows, columns = np.tril_indices(n) if header["causal"] else np.indices((n, m)).reshape(2, -1)
    size = sum(heads) * len(rows)
    data = zlib.decompressobj().decompress(packed, size + 1)  # few bytes can inflate to many
    if len(data) != size:
        raise ValueError("the maps do not fit their header")
    weights = np.zeros((sum(heads), n, m), np.float32)
    weights[:, rows, columns] = np.frombuffer(data, np.uint8).reshape(sum(heads), -1) / 255
    return [layer[None] for layer in np.split(weights**2, np.cumsum(heads)[:-1])]


def _places(
    measured: Mapping[str, str] | str | None, given: Mapping[str, Any], is_wired: bool
) -> dict[str, str]:
    """Where the given scores, and the wiring, were measured, by name."""
    places = dict.fromkeys(given, measured) if isinstance(measured, str) else dict(measured or {})
    for name, where in places.items():
        is_given = name in given or (name == "wiring" and is_wired)
        if not is_given or not isinstance(where, str):
            raise ValueError(
                f"measured: {name} is not a given score with the text it was measured on"
            )
    return places


def _edges(wiring: Any, heads: Sequence[int]) -> list[list[float]]:
    """The strongest shares of heads and MLPs in later heads, as in the header."""
    shares, n_layers, most = floats(wiring), len(heads), max(heads)
    wanted = (3, n_layers, most, n_layers, most)
    if shares.shape not in (wanted, (*wanted[:-1], most + 1)):
        raise ValueError(f"wiring: has the shape {shares.shape}; {heads} heads need {wanted}")
    found = []
    for place in np.argwhere(np.isfinite(shares) & (abs(shares) >= WEAKEST)).tolist():
        way, layer, head, earlier, writer = place
        if earlier < layer and head < heads[layer] and (writer < heads[earlier] or writer == most):
            share = round(float(shares[tuple(place)]), 4)
            found.append([way, layer, head, earlier, -1 if writer == most else writer, share])
    return sorted(found, key=lambda edge: -abs(edge[-1]))[:MAX_EDGES]


def _shown(maps: Sequence[np.ndarray], is_cross: bool) -> tuple[list[np.ndarray], str]:
    """What the tab shows: weights from 0 to 1, an array of shape (head, query, key) per layer; and
    a note on what differs from the maps."""
    n, m = maps[0].shape[2:]
    layers = [layer[0, :, :MAX_TOKENS, :MAX_TOKENS] for layer in maps]
    notes = []
    if n > MAX_TOKENS:
        notes.append(f"Only the first {MAX_TOKENS} of {n} tokens are shown; scores use all.")
    if is_cross and m > MAX_TOKENS:
        notes.append(f"Only the first {MAX_TOKENS} of {m} key tokens are shown; scores use all.")
    if not all(np.isfinite(layer).all() for layer in layers):
        notes.append("Weights that are not finite are not shown; their heads have no scores.")
        layers = [np.nan_to_num(layer, posinf=0, neginf=0) for layer in layers]
    if any(layer.min() < -ROUNDING or layer.max() > 1 + ROUNDING for layer in layers):
        notes.append("Weights outside 0 to 1 are shown as 0 or 1.")
    return [layer.clip(0, 1) for layer in layers], " ".join(notes)


def _pack(layers: Sequence[np.ndarray], is_cross: bool) -> tuple[bool, bytes]:
    """Whether no query attends to a later key, and the compressed bytes. Keys of cross attention
    are not later."""
    n, m = layers[0].shape[1:]
    causal = not is_cross and not any(np.triu(layer, 1).any() for layer in layers)
    rows, columns = np.tril_indices(n) if causal else np.indices((n, m))
    packed = zlib.compressobj()
    data = b"".join(
        packed.compress(np.rint(np.sqrt(head[rows, columns]) * 255).astype(np.uint8))
        for layer in layers
        for head in layer
    )
    return causal, data + packed.flush()


def _finite(value: float) -> float | None:
    """JSON has no NaN."""
    return round(value, 6) if math.isfinite(value) else None
