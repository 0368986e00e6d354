"""What every head and neuron does over a part of the validation split: evidence.json, from the end
of a run.

A head is judged over many texts and not over one: how much of its attention each pattern explains,
and the passages in which the model needs it most. The role that these give a head is the one that
every view shows. "Without a head" means with its output, at every token, replaced by its mean over
all tokens that are scored.

step       completed steps of the model
n_tokens   how many tokens were scored
windows    what was read: for each window, the number of its tokens in `ids`
ids        the windows one after another, as places in `spelled`. An "at" is a place in `ids`.
spelled    what tokens spell
heads      by name, such as "L1H3":
    role      a label, such as "induction 87%", and the score in it, or ""
    says      the sentence behind the label
    patterns  by score: [share of attention, how often it is more than half, the share where the
              model needs the head, queries that count]. Only queries that can show the pattern
              count, of those that need the head by how much their loss rises.
    passages  where the loss of a token rises most without the head, one in a window: [at, rise in
              nats, [[place of a token that the head attended to, weight], ...]]
neurons    of each layer:
    active    the share of tokens at which the input of the activation function is positive
    passages  where its output is largest in size, one in a window: [at, output]
    raises, lowers   the tokens whose logits it raises and lowers most in the first passage, by the
              direct path alone. Where its output has the other sign, it lowers and raises them.
    All three are empty if its output is 0 at every token.
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
from data.batches import UNSCORED, EvalBatches
from data.tokenizer import Tokenizer
from data.tokens import Dataset
from model import GPT, eval_mode, mean_outputs, record_attention
from model.gpt import blocks_of
from model.hooks import Part
from observe.context import RunContext
from observe.importance import token_losses
from tensorboard_attention.evidence import NAME
from tensorboard_attention.scores import RULES, Marks, Rule, are_words
from tensorboard_attention.sentences import UNKNOWN, choose, claim, label
from tensorboard_attention.tokens import token_texts
from training.callback import Callback

if TYPE_CHECKING:
    from training.trainer import Trainer

log = logging.getLogger("training")

Tokens = Int64[Tensor, "window query"]

MIN_TOKENS, MAX_TOKENS = 512, 32_768
SHARE_OF_RUN = 0.01  # of the products of a run that those of measuring may be
# Windows that are read together, and how many numbers their maps and the residual streams without
# each head may have: of a larger model, fewer windows are read together.
ROWS, MAX_KEPT = 8, 2**29
MIN_QUERIES = 30  # that need a head; a pattern that fewer show may be chance
# The part of the need for a head that falls on tokens that can show the pattern it is named after.
MIN_PART = 0.25
MIN_RISE = 0.05  # nats over all targets: less may be rounding
NEEDED = 0.3  # nats by which the loss of a token that needs a head rises without it
N_PASSAGES, N_ATTENDED, N_TOKENS = 8, 3, 6
OFTEN = 0.5  # of the attention of a query


def is_punctuation(text: str) -> bool:
    """Whether a token has other characters than letters, digits and white space, and none of the
    first two."""
    return bool(text.strip()) and not any(map(str.isalnum, text))


def last_word(ids: np.ndarray, words: np.ndarray) -> Bool[np.ndarray, "query key"]:
    """The nearest word before the query."""
    places = np.arange(len(ids))
    last = np.maximum.accumulate(np.where(words, places, -1))
    before = np.append(-1, last[:-1])
    return before[:, None] == places


# Where the model needs a head, it copies any token, not only words as in RULES.
COPY = RULES[0]._replace(
    phrase="looks back at earlier mentions of what comes next",
    marks=Marks(nearest=0, same=(1, 0)),
    meaning="share of attention on earlier mentions of the next token, over the tokens whose next "
    "token was mentioned before",
    role="copies",
    counted=" where what comes next was mentioned before",
)
# Patterns of which only many texts can say how much is chance.
LAST_WORD = Rule(
    "last word",
    "looks at the last word before",
    "last word",
    ("looks at the last word", "look at the last word"),
    0.6,
    last_word,
    "share of attention on the nearest word of three letters or more before the token",
)
PUNCTUATION = Rule(
    "punctuation",
    "looks at punctuation",
    "punctuation",
    ("looks at punctuation", "look at punctuation"),
    0.35,
    np.asarray,  # given the marks
    "share of attention on punctuation",
)
ONE_TOKEN = Rule(
    "one token",
    "looks at one token wherever it is",
    "one token",
    ("looks at one token", "look at one token"),
    0.25,
    np.asarray,
    "share of attention on the token that has most of it beyond that of even attention",
)
MARKED = (COPY, *RULES[1:], LAST_WORD, PUNCTUATION)


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
    model: GPT, tokenizer: Tokenizer, windows: EvalBatches, step: int, n_tokens: int = MAX_TOKENS
) -> dict[str, Any]:
    """The content of evidence.json, from about `n_tokens` scored tokens of `windows`."""
    texts = token_texts([tokenizer.decode_bytes([id]) for id in range(model.vocab_size)], None)
    texts = [text or f"<{id}>" for id, text in enumerate(texts)]  # such as the end of a document
    chosen = windows.part(n_tokens)
    # In a pass of its own: the mean of a head is over all that is measured, not over a batch of it.
    found = Evidence(model, texts, mean_outputs(model, chosen))
    with torch.no_grad(), eval_mode(model):
        for inputs, targets in chosen:
            found.add(inputs, targets)
        return found.as_json(step)


class Evidence:
    """Sums over the queries of many windows, and the passages with the largest values.

    Heads are counted over all layers. A query counts where its target is scored.

    means: what replaces a head, as `mean_outputs` returns them.
    """

    def __init__(self, model: GPT, texts: list[str], means: Mapping[Part, Tensor]) -> None:
        config, vocab = model.config, model.vocab_size
        self.model, self.texts, self.means = model, texts, means
        self.words = are_words(texts)
        self.punctuation = np.array([is_punctuation(text) for text in texts])
        n_heads, n_rules = config.n_layers * config.n_heads, len(MARKED)
        self.n_tokens, self.n_read = 0, 0
        self.windows: list[list[int]] = []
        # By rule: attention on the marked keys, and over how many queries.
        self.shares, self.often = (np.zeros((n_heads, n_rules)) for _ in range(2))
        self.queries = np.zeros(n_rules)
        # Of queries that need a head, each counted as much as its loss rises without it: by rule,
        # attention on the marked keys, that of even attention, the weights, and how many they are.
        self.needed, self.even, self.weights, self.n_needed = np.zeros((4, n_heads, n_rules))
        # By token: attention on it, that of even attention, and the rise of its own loss.
        self.on_token, self.even_on_token, self.rise_of = np.zeros((3, n_heads, vocab))
        self.active = torch.zeros(config.n_layers, config.d_mlp)
        self.of_heads: list[list[list[Any]]] = []  # by window and head: a passage
        self.of_neurons: list[tuple[Tensor, Tensor]] = []  # by batch: outputs, and where they are

    def add(self, inputs: Tokens, targets: Tokens) -> None:
        """Read a batch of windows, as `EvalBatches` yields them."""
        device = next(self.model.parameters()).device
        with record_attention(self.model) as maps, record_neurons(self.model) as (outputs, gates):
            self.model.hidden(inputs.to(device))
        without, intact = token_losses(self.model, (inputs, targets), self.means)
        rises = (without - intact).reshape(-1, *inputs.shape)  # head, window, token
        scored = targets != UNSCORED
        weights = torch.cat([layer.float().cpu().transpose(0, 1) for layer in maps])
        lengths = [int(row.nonzero().max()) + 1 for row in scored]
        offsets = self.n_read + np.cumsum([0, *(length + 1 for length in lengths)])
        for row, length in enumerate(lengths):
            window = inputs[row, :length].numpy(), targets[row, :length].numpy()
            shown = weights[:, row, :length, :length].numpy()
            self._add_window(*window, shown, rises[:, row, :length], int(offsets[row]))
        self._add_neurons(outputs, gates, scored, torch.from_numpy(offsets[:-1]))
        self.n_read = int(offsets[-1])
        self.n_tokens += int(scored.sum())

    def _add_window(
        self,
        ids: Int64[np.ndarray, " query"],
        targets: Int64[np.ndarray, " query"],
        maps: Float[np.ndarray, "head query key"],
        rises: Float[np.ndarray, "head query"],
        offset: int,
    ) -> None:
        self.windows.append([*ids.tolist(), int(targets[-1])])
        scored = targets != UNSCORED
        maps = maps[:, scored]
        read = np.append(ids, targets[-1])  # some patterns depend on the token after a query
        marks = [rule.marks(read, self.words[read]) for rule in MARKED[:-1]]
        marks.append(np.tile(self.punctuation[read], (len(read), 1)))
        causal = np.tri(len(ids))
        marked = (np.stack(marks)[:, :-1, :-1] & causal.astype(bool))[:, scored].astype(np.float32)
        even = (causal / causal.sum(-1, keepdims=True))[scored]
        counts = marked.any(-1)  # rule, query
        shares = np.einsum("hqk,rqk->hrq", maps, marked, optimize=True)
        even_shares = np.einsum("rqk,qk->rq", marked, even, optimize=True)
        self.shares += (shares * counts).sum(-1)
        self.often += ((shares > OFTEN) & counts).sum(-1)
        self.queries += counts.sum(-1)
        risen = rises[:, scored]
        need = risen * (risen > NEEDED)  # head, query
        self.needed += np.einsum("hrq,hq->hr", shares, need)
        self.even += need @ even_shares.T
        self.weights += need @ counts.T
        self.n_needed += (need > 0) @ counts.T.astype(float)
        np.add.at(self.on_token.T, ids, np.einsum("hqk,hq->kh", maps, need))
        np.add.at(self.even_on_token.T, ids, (need @ even).T)
        np.add.at(self.rise_of.T, targets[scored], risen.T)
        at = rises.argmax(-1)  # unscored tokens have no loss, with and without a head
        passages = []
        for head, query in enumerate(at.tolist()):
            row = maps[head, scored[:query].sum()]
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

    def as_json(self, step: int) -> dict[str, Any]:
        """The content of evidence.json."""
        ids = [id for window in self.windows for id in window]
        known, places = np.unique(ids, return_inverse=True)
        config = self.model.config
        names = [f"L{i}H{j}" for i in range(config.n_layers) for j in range(config.n_heads)]
        return {
            "step": step,
            "n_tokens": self.n_tokens,
            "windows": [len(window) for window in self.windows],
            "ids": places.tolist(),
            "spelled": [self.texts[id] for id in known],
            "heads": {name: self._head(index) for index, name in enumerate(names)},
            "neurons": [self._neurons(layer) for layer in range(config.n_layers)],
        }

    def _head(self, head: int) -> dict[str, Any]:
        with np.errstate(invalid="ignore", divide="ignore"):  # a pattern may be nowhere
            shares, often = self.shares[head] / self.queries, self.often[head] / self.queries
            needed, chance = (
                total[head] / self.weights[head] for total in (self.needed, self.even)
            )
        need = self.weights[head].max()  # of "same token", which every query can show
        is_rare = (self.n_needed[head] < MIN_QUERIES) | (self.weights[head] < MIN_PART * need)
        values = np.where(is_rare, np.nan, needed)
        beyond = self.on_token[head] - self.even_on_token[head]
        token, total = int(beyond.argmax()), self.even_on_token[head].sum()
        is_known = self.n_needed[head].max() >= MIN_QUERIES
        values = np.append(values, self.on_token[head, token] / total if is_known else np.nan)
        chance = np.append(chance, self.even_on_token[head, token] / max(total, 1e-9))
        (rule,), _ = choose((*MARKED, ONE_TOKEN), values[:, None], chance[:, None])
        role, says = self._named(head, int(rule), self.texts[token], float(values[rule]))
        largest = sorted((window[head] for window in self.of_heads), key=lambda found: -found[1])
        return {
            "role": role,
            "says": says,
            "patterns": {
                rule.score: [*(round(float(value), 4) for value in row[:3]), int(row[3])]
                for rule, *row in zip(
                    MARKED, shares, often, np.nan_to_num(needed), self.queries, strict=True
                )
                if row[3]
            },
            "passages": [found for found in largest[:N_PASSAGES] if found[1] > 0],
        }

    def _named(self, head: int, rule: int, token: str, value: float) -> tuple[list[str], str]:
        """The role of a head and the sentence behind it.

        rule: its number, -1 for none. token: which has most of the attention beyond that of even
            attention.
        """
        rises = self.rise_of[head]
        largest = [id for id in (-rises).argsort()[:6] if rises[id] > MIN_RISE]
        first = [*dict.fromkeys(label(self.texts[id]) for id in largest)][:3]
        if not first:
            return ["no effect", ""], "Without it, the loss hardly rises"
        helps = "; without it, the loss rises most for " + ", ".join(f"'{text}'" for text in first)
        if rule < 0:
            return [f"helps with '{first[0]}'", ""], UNKNOWN + helps
        named = (*MARKED, ONE_TOKEN)[rule]
        role, phrase = named.role, named.phrase
        if named is ONE_TOKEN:
            role = f"looks at '{label(token)}'"
            phrase = f"{role} wherever it is"
        says = claim(named, value, phrase) + ", among the tokens that need this head" + helps
        return [f"{role} {100 * value:.0f}%", named.score], says

    def _neurons(self, layer: int) -> list[dict[str, Any]]:
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
        raised = logits.topk(N_TOKENS).indices.tolist()
        lowered = logits.topk(N_TOKENS, largest=False).indices.tolist()
        active = (self.active[layer] / self.n_tokens).tolist()
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

    def __init__(self, context: RunContext) -> None:
        self.context = context

    def on_finish(self, trainer: Trainer) -> None:
        context, state = self.context, trainer.state
        model, dataset = context.model, context.dataset
        # About as often a token is read: twice as the model is, and without each head, where what
        # is below the head is not read again. In training, its gradient takes two thirds.
        passes = 1 + model.config.n_layers * model.config.n_heads
        affordable = int(3 * SHARE_OF_RUN * state.tokens / passes)
        n_tokens = min(MAX_TOKENS, max(MIN_TOKENS, affordable))
        try:
            windows = validation_windows(model, dataset)
            found = measure_evidence(model, dataset.tokenizer, windows, state.step, n_tokens)
            write_evidence(context.folder, found)
        except (RuntimeError, ValueError, MemoryError) as error:
            # Such as memory that a larger model lacks: the result of the run is still to come.
            log.warning("the heads were not measured over the validation split: %s", error)


def validation_windows(model: GPT, dataset: Dataset) -> EvalBatches:
    """The validation split in windows that fit the model, whole documents where there are any."""
    config = model.config
    length, n_heads = config.context_length, config.n_layers * config.n_heads
    rows = min(ROWS, MAX_KEPT // (n_heads * length * (length + config.d_model)))
    if rows == 0:
        raise ValueError("the model and its context are too large to be read without each head")
    return EvalBatches(dataset.val, length, rows, dataset.val_starts)


def write_evidence(folder: Path, evidence: Mapping[str, Any]) -> None:
    replace_text(folder / NAME, json.dumps(evidence, allow_nan=False) + "\n")
