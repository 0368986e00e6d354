"""The need for heads: how much the loss rises without what a head contributes (Michel et al. 2019,
"Are Sixteen Heads Really Better than One?", section 3.2).

Promises: each head alone is replaced by its mean over all measured tokens, never over padding; and
the model is as it was before.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from data.corpus import Corpus
from data.documents import Documents
from data.roles import ROLES, document_roles
from data.tokenizer import Tokenizer
from model import GPT, ablate
from model.hooks import Batch, Part
from tensorboard_attention.patterns import character_kinds

COPIES = 4  # of the tokens of a batch in one call: more take memory, and not less time
# What a token can be where no grammar says it.
KINDS = ("words mentioned before", "new words", "within words", "punctuation", "white space")
BEFORE, NEW, WITHIN, PUNCTUATION, SPACE = range(len(KINDS))
LETTERS = {*"LMN"}  # letters, marks such as vowel signs, and digits: `character_kinds`


def target_kinds(
    corpus: Corpus | None, tokenizer: Tokenizer, documents: Documents
) -> tuple[tuple[str, ...], Iterator[Int64[np.ndarray, " query"]]]:
    """What the targets of each window are: names, and for each window, which of them a target is.
    The roles of tales, if the documents are tales, or else KINDS."""
    roles = document_roles(corpus, tokenizer, documents.tokens, documents.starts)
    if roles is not None:
        windows = documents.windows
        return ROLES, (roles[each.begin :][: len(each.targets)] for each in windows)
    return KINDS, (
        token_kinds([tokenizer.decode_bytes([int(id)]) for id in (*window.ids, window.targets[-1])])
        for window in documents.windows
    )


def token_kinds(read: Sequence[bytes]) -> Int64[np.ndarray, " query"]:
    """The kind of each token but the first, an index into KINDS. A word that is divided into tokens
    is new, or was mentioned before, as a whole, which its first token says. The end of a document,
    which has no bytes, is white space.

    What a byte is, its character says, also where a token has a part of it.
    """
    spelled = [token or b"\n" for token in read]
    of_bytes = _categories(b"".join(spelled))
    ends = np.cumsum([*map(len, spelled)]).tolist()
    of_tokens = [of_bytes[end - len(token) : end] for token, end in zip(spelled, ends, strict=True)]
    continues = [
        last[-1] in LETTERS and kinds[0] in LETTERS for last, kinds in pairwise(["Z", *of_tokens])
    ]
    found, known = [], set[bytes]()
    for place, kinds in enumerate(of_tokens):
        if continues[place]:
            kind = WITHIN
        elif LETTERS & {*kinds}:
            end = place + 1
            while end < len(read) and continues[end]:
                end += 1
            word = b"".join(read[place:end]).strip()
            kind = BEFORE if word in known else NEW
            known.add(word)
        else:
            kind = PUNCTUATION if {*"PS"} & {*kinds} else SPACE
        found.append(kind)
    return np.array(found[1:])


def _categories(text: bytes) -> str:
    """For each byte, the kind of its character."""
    characters = text.decode(errors="surrogateescape")
    sizes = (len(each.encode(errors="surrogateescape")) for each in characters)
    return "".join(map(operator.mul, character_kinds(characters), sizes))


@torch.no_grad()
def token_losses(
    model: GPT, batch: Batch, means: Mapping[Part, Tensor]
) -> tuple[Float[np.ndarray, "layer head batch query"], Float[np.ndarray, "batch query"]]:
    """The loss of every target in nats with each head alone replaced by its mean, as `mean_outputs`
    returns them, and that of the model, in eval mode; 0 for targets that are not scored."""
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
        after = [apply(block, chunk) for chunk in streams.split(COPIES)]
        for head in range(model.config.n_heads):
            with ablate(model, [(layer, head)], means):
                after.append(apply(block, streams[:1]))
        streams = torch.cat(after)
    # One transfer for all: each waits for a GPU.
    intact, *without = torch.stack([*map(loss, streams)]).cpu().double().numpy()
    shape = (model.config.n_layers, model.config.n_heads, *inputs.shape)
    return np.reshape(without, shape), intact
