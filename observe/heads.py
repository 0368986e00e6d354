"""What the heads of a model do, measured over whole documents of the validation split.

Promises: the same documents at every step, in two halves; how many depends on the run alone. The
names are those of the rule of `tensorboard_attention.naming`, whatever the number of documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from data.batches import UNSCORED
from data.documents import N_TOKENS, ROWS, Documents
from data.encoding import Dataset
from data.tokenizer import Tokenizer
from model import GPT, eval_mode, record_attention, wiring_matrices
from model.hooks import OutputSums
from tensorboard_attention.naming import Measure, Names
from tensorboard_attention.patterns import CONTINUES, PATTERNS, Text
from tensorboard_attention.scores import Heads, heads_of
from tensorboard_attention.tokens import token_texts

Maps = Float[np.ndarray, "head query key"]  # of all layers

MAX_KEPT = 2**29  # numbers of the maps that are in memory together


def documents_of(model: GPT, dataset: Dataset, n_tokens: int = N_TOKENS) -> Documents:
    """The documents over which a model is measured, as many in a batch as memory allows. Raises
    ValueError for a model whose maps of one window are too large."""
    config = model.config
    length, n_heads = config.context_length, config.n_layers * config.n_heads
    rows = min(ROWS, MAX_KEPT // (n_heads * length * (length + config.d_model)))
    if rows == 0:
        raise ValueError("the maps of a context of this model are too large to be measured")
    return Documents(dataset, length, n_tokens, rows)


def read_maps(
    model: GPT, tokens: Int[Tensor, "batch token"]
) -> tuple[list[Float[Tensor, "batch head query key"]], Float[Tensor, "batch token d_model"]]:
    """The attention maps of every layer on the CPU, in float32, without dropout; and the residual
    stream after the final norm."""
    with torch.no_grad(), eval_mode(model), record_attention(model) as maps:
        hidden = model.hidden(tokens.to(next(model.parameters()).device))
    return [weights.float().cpu() for weights in maps], hidden


def spell(tokenizer: Tokenizer, vocab_size: int) -> list[str]:
    """What each token spells, and such as <50256> for one that spells nothing."""
    texts = token_texts([tokenizer.decode_bytes([id]) for id in range(vocab_size)], None)
    return [text or f"<{id}>" for id, text in enumerate(texts)]


class HeadNames:
    """The patterns and names of all heads over given documents.

    outputs: what heads and MLPs compute on them, when the model last read them.
    """

    def __init__(self, model: GPT, spelled: Sequence[str], documents: Documents) -> None:
        self.model, self.documents = model, documents
        self.outputs = OutputSums(model)
        texts = [
            Text(
                window.ids,
                [spelled[id] for id in window.ids],
                window.half,
                following=int(window.targets[-1]),
                counts=window.targets != UNSCORED,
            )
            for window in documents.windows
        ]
        self.measure_maps = Measure(texts)
        # Where most queries continue a repeat: a text in which heads copy, for their wiring.
        place = PATTERNS.index(CONTINUES)
        most = max(range(len(texts)), key=lambda number: texts[number].queries[place])
        self.wired = documents.windows[most].ids
        self.copying = np.zeros(len(self.wired), bool)
        self.copying[texts[most].cells[place] // len(self.wired)] = True

    def measure(self, before: Names, maps: Iterable[Maps] | None = None) -> Heads:
        """Of the model as it is. before: what heads were called at the step before; [] if nothing
        was measured. maps: of each window in order, if they are at hand."""
        config = self.model.config
        shares = self.measure_maps(self._maps() if maps is None else maps)
        sizes = [config.n_heads] * config.n_layers
        return heads_of(shares, sizes, before=[*chain.from_iterable(before)])

    def _maps(self) -> Iterator[Maps]:
        windows = iter(self.documents.windows)
        self.outputs = OutputSums(self.model)
        for inputs, targets in self.documents.batches:
            with self.outputs.reading(targets):
                maps, _ = read_maps(self.model, inputs)
            for weights in torch.cat(maps, 1).numpy():
                yield weights[:, : (n := len(next(windows).ids)), :n]

    def wiring(self) -> Float[Tensor, "3 layer head layer writer"] | None:
        """What heads read where a text repeats itself; None if none does."""
        if not self.copying.any():
            return None
        queries = torch.from_numpy(self.copying)
        return wiring_matrices(self.model, torch.from_numpy(self.wired), queries)
