"""What every head and neuron does over documents of the validation split: evidence.json, from the
end of a run.

A head is judged over many texts and not over one: what it attends to (observe/heads.py), for which
tokens the model needs it, and the passages in which it needs it most. "Without a head" means with
its output, at every token, replaced by its mean over all tokens that are scored.

The format is in `tensorboard_attention.evidence`. A neuron is active where the input of its
activation function is positive. What it raises and lowers is by the direct path alone; where its
output has the other sign, it lowers and raises them. If its output is 0 at every token, all three
are empty.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from common.files import replace_text
from data.batches import UNSCORED
from data.corpus import Corpus
from data.documents import N_TOKENS, Window
from data.encoding import Dataset
from model import GPT, eval_mode, mean_outputs
from model.gpt import blocks_of
from model.hooks import Part
from observe.attention import AttentionMaps
from observe.context import RunContext
from observe.heads import HeadNames, Maps, documents_of, read_maps, spell
from observe.need import target_kinds, token_losses
from tensorboard_attention.evidence import NAME
from tensorboard_attention.naming import Names
from tensorboard_attention.scores import Heads
from training.callback import Callback

if TYPE_CHECKING:
    from training.trainer import Trainer

log = logging.getLogger("training")

Tokens = Int64[Tensor, "window query"]

MAX_TOKENS = 32_768
SHARE_OF_RUN = 0.01  # of the products of a run that those of measuring may be
N_PASSAGES, N_ATTENDED, N_MOVED = 8, 3, 6  # of neurons: tokens raised and lowered


@contextmanager
def record_neurons(model: GPT) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """Two lists that a forward pass fills, with one item for each layer: the outputs of the neurons
    of its MLP, Float[Tensor, "batch query d_mlp"], and the inputs of their activation function."""
    outputs: list[Tensor] = []
    inputs: list[Tensor] = []
    with ExitStack() as stack:
        for block in blocks_of(model):
            mlp: Any = block.mlp
            first = getattr(mlp, "gate", mlp.up)
            for hook in (
                first.register_forward_hook(lambda _module, _given, out: inputs.append(out)),
                mlp.down.register_forward_pre_hook(lambda _module, given: outputs.append(given[0])),
            ):
                stack.callback(hook.remove)
        yield outputs, inputs


def measure_evidence(
    model: GPT,
    corpus: Corpus | None,
    dataset: Dataset,
    step: int,
    before: Names,
    n_tokens: int = MAX_TOKENS,
) -> dict[str, Any]:
    """The content of evidence.json, from about `n_tokens` scored tokens of the validation split.
    before: what heads were called when they were last measured; [] if they were not. Raises
    ValueError for a model whose maps of one window are too large."""
    documents = documents_of(model, dataset, n_tokens)
    spelled = spell(dataset.tokenizer, model.vocab_size)
    kinds, of_windows = target_kinds(corpus, dataset.tokenizer, documents)
    # In a pass of its own: the mean of a head is over all that is measured, not over a batch of it.
    found = Evidence(model, spelled, mean_outputs(model, documents.batches), kinds)
    windows = zip(documents.windows, of_windows, strict=True)
    maps = (
        weights
        for inputs, targets in documents.batches
        for weights in found.add(inputs, targets, [next(windows) for _ in inputs])
    )
    with torch.no_grad(), eval_mode(model):
        heads = HeadNames(model, spelled, documents).measure(before, maps)
    config = model.config
    places = {f"L{i}H{j}": (i, j) for i, j in np.ndindex(config.n_layers, config.n_heads)}
    return {
        "step": step,
        "n_tokens": documents.n_tokens,
        "where": documents.where,
        **found.read(),
        "heads": {
            name: {**_said(heads, *place), **found.head(index)}
            for index, (name, place) in enumerate(places.items())
        },
        "neurons": [found.neurons(layer) for layer in range(config.n_layers)],
    }


def _said(heads: Heads, layer: int, head: int) -> dict[str, Any]:
    """The name of a head, and what it rests on, as in evidence.json."""
    name = heads.names[layer][head]
    values = {pattern: float(values[layer][head]) for pattern, values in heads.scores.items()}
    return {
        "role": [name.label, name.pattern],
        "says": name.headline,
        "details": name.details,
        "interest": name.interest,
        "shares": {
            pattern: [round(value, 4), heads.counts[pattern]]
            for pattern, value in values.items()
            if np.isfinite(value)
        },
    }


class Evidence:
    """Sums over the queries of many windows, and the passages with the largest values.

    Heads are counted over all layers. A query counts where its target is scored.

    means: what replaces a head, as `mean_outputs` returns them. kinds: of targets, their names.
    """

    def __init__(
        self, model: GPT, texts: list[str], means: Mapping[Part, Tensor], kinds: tuple[str, ...]
    ) -> None:
        config = model.config
        self.model, self.texts, self.means, self.kinds = model, texts, means, kinds
        n_heads = config.n_layers * config.n_heads
        self.n_read = 0
        self.windows: list[list[int]] = []
        # By half: tokens; and by head and kind of target, the rise of the loss without the head.
        self.counts, self.rises = np.zeros(2), np.zeros((2, n_heads, len(kinds)))
        self.active = torch.zeros(config.n_layers, config.d_mlp)
        self.of_heads: list[list[list[Any]]] = []  # by window and head: a passage
        self.of_neurons: list[tuple[Tensor, Tensor]] = []  # by batch: outputs, and where they are

    def add(
        self,
        inputs: Tokens,
        targets: Tokens,
        windows: list[tuple[Window, Int64[np.ndarray, " _query"]]],
    ) -> list[Float[np.ndarray, "_head _query _key"]]:
        """Read a batch. windows: of its rows, and the kinds of their targets. Returns the maps of
        each."""
        with record_neurons(self.model) as (outputs, gates):
            maps, _ = read_maps(self.model, inputs)
        without, intact = token_losses(self.model, (inputs, targets), self.means)
        rises = (without - intact).reshape(-1, *inputs.shape)  # head, window, token
        weights = torch.cat(maps, 1).numpy()
        offsets = self.n_read + np.cumsum([0, *(len(each.ids) + 1 for each, _ in windows)])
        shown = []
        for row, (window, kinds) in enumerate(windows):
            shown.append(weights[row, :, : (n := len(window.ids)), :n])
            self._add_window(window, kinds, shown[row], rises[:, row, :n], int(offsets[row]))
        self._add_neurons(outputs, gates, targets != UNSCORED, torch.from_numpy(offsets[:-1]))
        self.n_read = int(offsets[-1])
        return shown

    def _add_window(
        self,
        window: Window,
        kinds: Int64[np.ndarray, " query"],
        maps: Maps,
        rises: Float[np.ndarray, "head query"],
        offset: int,
    ) -> None:
        half = window.half
        self.windows.append([*window.ids.tolist(), int(window.targets[-1])])
        scored = window.targets != UNSCORED
        self.counts[half] += scored.sum()
        np.add.at(self.rises[half].T, kinds[scored], rises[:, scored].T)
        at = rises.argmax(-1)  # unscored tokens have no loss, with and without a head
        passages = []
        for head, query in enumerate(at.tolist()):
            row = maps[head, query]
            keys = (-row).argsort()[:N_ATTENDED]
            attended = [[offset + int(key), round(float(row[key]), 3)] for key in keys if row[key]]
            passages.append([offset + query + 1, round(float(rises[head, query]), 4), attended])
        self.of_heads.append(passages)

    def _add_neurons(
        self,
        outputs: list[Tensor],
        gates: list[Tensor],
        scored: Bool[Tensor, "window query"],
        offsets: Tensor,
    ) -> None:
        """Add the outputs of one batch: of each layer, Float[Tensor, "window query neuron"]."""
        values = torch.stack(outputs).float().cpu()
        gate = torch.stack(gates).float().cpu()
        counts = scored[None, :, :, None]
        self.active += ((gate > 0) & counts).sum((1, 2))
        at = values.abs().where(counts, -1).argmax(2, keepdim=True)  # layer, window, 1, neuron
        largest = values.gather(2, at)[:, :, 0]
        self.of_neurons.append((largest, at[:, :, 0] + offsets[None, :, None]))

    def read(self) -> dict[str, Any]:
        """What was read, as in evidence.json."""
        ids = [id for window in self.windows for id in window]
        known, places = np.unique(ids, return_inverse=True)
        return {
            "windows": [len(window) for window in self.windows],
            "ids": places.tolist(),
            "spelled": [self.texts[id] for id in known],
        }

    def head(self, head: int) -> dict[str, Any]:
        """The need for a head, and its passages, as in evidence.json."""
        both = self.rises[:, head].sum(0) / self.counts.sum()
        halves = self.rises[:, head] / np.maximum(self.counts, 1)[:, None]
        rounded = np.stack([both, *halves], 1).round(4)  # kind; all, and each half
        largest = sorted((window[head] for window in self.of_heads), key=lambda found: -found[1])
        return {
            "need": [round(float(value), 4) for value in (both.sum(), *halves.sum(1))],
            "kinds": dict(zip(self.kinds, rounded.tolist(), strict=True)),
            "passages": [found for found in largest[:N_PASSAGES] if found[1] > 0],
        }

    def neurons(self, layer: int) -> list[dict[str, Any]]:
        """Those of a layer, as in evidence.json."""
        values, places = (torch.cat([pair[i][layer] for pair in self.of_neurons]) for i in (0, 1))
        order = values.abs().argsort(0, descending=True)[:N_PASSAGES]
        values, places = values.gather(0, order), places.gather(0, order)  # passage, neuron
        mlp: Any = blocks_of(self.model)[layer].mlp
        norm = self.model.final_norm
        # What the neuron writes in its first passage, but for its size, and what the final norm
        # makes of it, but for its scale.
        written = mlp.down.weight.T.float() * values[0].sign()[:, None].to(mlp.down.weight.device)
        if isinstance(norm, nn.LayerNorm):
            written = written - written.mean(-1, keepdim=True)
        written = written * norm.get_parameter("weight").float()
        logits = written @ self.model.unembedding.weight.float().T  # neuron, token
        raised = logits.topk(N_MOVED).indices.tolist()
        lowered = logits.topk(N_MOVED, largest=False).indices.tolist()
        active = (self.active[layer] / self.counts.sum()).tolist()
        return [
            {
                "active": round(active[neuron], 4),
                "passages": [
                    [int(place), round(float(value), 3)]
                    for place, value in zip(places[:, neuron], values[:, neuron], strict=True)
                    if value
                ],
                "raises": [self.texts[id] for id in raised[neuron] if values[0, neuron]],
                "lowers": [self.texts[id] for id in lowered[neuron] if values[0, neuron]],
            }
            for neuron in range(len(active))
        ]


class EvidenceFile(Callback):
    """Writes evidence.json at the end of a run."""

    def __init__(self, context: RunContext, maps: AttentionMaps) -> None:
        self.context, self.maps = context, maps

    def on_finish(self, trainer: Trainer) -> None:
        context, state = self.context, trainer.state
        model, dataset = context.model, context.dataset
        # About as often a token is read: twice as the model is, and without each head, where what
        # is below the head is not read again. In training, its gradient takes two thirds.
        passes = 1 + model.config.n_layers * model.config.n_heads
        affordable = int(3 * SHARE_OF_RUN * state.tokens / passes)
        n_tokens = min(MAX_TOKENS, max(N_TOKENS, affordable))
        try:
            before = self.maps.names
            found = measure_evidence(model, context.corpus, dataset, state.step, before, n_tokens)
            write_evidence(context.folder, found)
        except (RuntimeError, ValueError, MemoryError) as error:
            # Such as memory that a larger model lacks: the result of the run is still to come.
            log.warning("the heads were not measured over the validation split: %s", error)


def write_evidence(folder: Path, evidence: Mapping[str, Any]) -> None:
    replace_text(folder / NAME, json.dumps(evidence, allow_nan=False) + "\n")
