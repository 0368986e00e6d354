"""Opening a trained run: its settings, tokenizer and model, checked and ready for inference.

Promises: opening a run executes nothing that the run names, writes nothing and fetches nothing.
Only the settings of the model and the name are read: no other setting can prevent opening.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, make_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from common.errors import UserError, check_choice
from data.tokenizer import Tokenizer
from inference.generation import SamplingConfig
from inference.writer import Writer
from model import GPT, ModelConfig, mean_outputs, record_attention
from model.hooks import Part
from store.checkpoint import load_state
from store.results import evidence_of, head_names, unmeasured
from store.run import Run
from store.weights import load_model

if TYPE_CHECKING:
    from data.corpus import Corpus, CorpusConfig
    from data.encoding import Dataset
    from data.floor import Floor
    from store.results import Names

STARTS = ("document", "text")  # what a text begins with: as in training, or with itself


@dataclass(frozen=True)
class RunConfig:
    """The settings of a run that opening it needs."""

    model: ModelConfig
    name: str | None = None


@dataclass(frozen=True, eq=False)
class Reading:
    """A text as the model reads it.

    spelled: what each token spells; bytes that are not UTF-8 as escapes.
    logits: of the token after each.
    maps: the attention weights of each layer.
    contexts: of each layer, what its heads gather: the weighted sums of values, before the output
        matrix and before any edit of the same layer.
    """

    tokens: Int[Tensor, " token"]
    spelled: list[str]
    logits: Float[Tensor, "token vocab"]
    maps: list[Float[Tensor, "head query key"]]
    contexts: list[Float[Tensor, "head query d_head"]]
    _run: OpenRun = field(repr=False)

    @cached_property
    def floor(self) -> Floor:
        """What a perfect reader of tales makes of the text; see `OpenRun.floor`."""
        return self._run.floor(self.tokens.tolist())


@dataclass(frozen=True)
class OpenRun:
    """A run with the model of one checkpoint, in eval mode, and the step of that."""

    run: Run
    config: RunConfig
    tokenizer: Tokenizer
    checkpoint: Path
    model: GPT
    step: int

    def tokens(self, text: str, start: str = "document") -> Int[Tensor, " token"]:
        """The ids of a text.

        start: "document" puts before them those that begin a document in training; "text" does not.

        Raises ValueError if there are none, or more than the context.
        """
        ids = self.encode(text, start)
        most = self.config.model.context_length
        if not 0 < len(ids) <= most:
            raise ValueError(f"text: has {len(ids)} tokens; give one of 1 to {most}")
        return torch.tensor(ids, device=next(self.model.parameters()).device)

    def encode(self, text: str, start: str = "document") -> list[int]:
        """The ids of a text of any length; see `tokens`."""
        check_choice("start", start, STARTS)
        encode = self.tokenizer.encode_document if start == "document" else self.tokenizer.encode
        return encode(text)

    def first_tokens(self, text: str, start: str = "document") -> list[int]:
        """The first ids of a text of any length that fit the context. Prints how many, if they are
        not all."""
        ids, most = self.encode(text, start), self.config.model.context_length
        if len(ids) > most:
            print(f"Using the first {most} of {len(ids)} tokens: the model's context length")
        return ids[:most]

    @torch.no_grad()
    def read(self, text: str, start: str = "document") -> Reading:
        """What the model makes of a text, inside of `ablate`, `patch` and `edit` with their
        changes. `start` is that of `tokens`, and errors are raised as there."""
        tokens = self.tokens(text, start)
        with record_attention(self.model, keep="steps") as layers:
            logits = self.model(tokens[None])[0]
        spelled = [self.tokenizer.decode_bytes([token]) for token in tokens.tolist()]
        return Reading(
            tokens,
            [spelling.decode(errors="backslashreplace") for spelling in spelled],
            logits,
            [steps.weights[0] for steps in layers],
            [steps.context[0] for steps in layers],
            self,
        )

    def floor(self, tokens: Sequence[int]) -> Floor:
        """What a reader who knows the grammar of tales makes of the tokens of a text: the
        information of each token in nats, and what can come next. If the run was not trained on
        tales, nothing is known, and `unknown` says why."""
        from data.floor import floor_of, no_floor  # writing a text does without these
        from data.tales import TalesConfig

        why = f"run: {self.run.path} was not trained on tales, whose grammar says what can be known"
        try:
            if isinstance(self.corpus(), TalesConfig):
                return floor_of(tokens, self.tokenizer)
        except UserError as error:
            why = str(error)
        return no_floor(len(tokens), why)

    def corpus(self) -> CorpusConfig | None:
        """The settings of the text that the run was trained on; None if the run was converted from
        another format, and has no corpus. Raises UserError if they are damaged."""
        from data.corpora import CORPORA  # as in `floor`
        from data.corpus import CorpusConfig

        stored = make_dataclass("stored", [("data", Annotated[CorpusConfig | None, CORPORA])])
        return self.run.config(stored).data

    def text(self, cache_dir: str | Path = ".cache") -> tuple[Corpus, Dataset]:
        """The text that the run was trained on, and the tokens of its validation split, which are
        kept in `cache_dir`. Raises UserError if the run has none, as one that was converted, and if
        it is not at hand or has changed."""
        from data.corpora import load_dataset

        config = self.corpus()
        if config is None:
            raise UserError(f"run: {self.run.path} has no text of its own")
        found = load_dataset(config, self.tokenizer, cache_dir, 1, ("val",), trusted=False)
        self.run.check_tokens(found[1].sha256, "run")
        return found

    def means(self, cache_dir: str | Path = ".cache") -> dict[Part, Tensor]:
        """The mean of what each head and MLP computes over some 2,000 tokens of whole validation
        documents, for `ablate` and `circuit`; raises as `text` does."""
        from data.documents import Documents

        _, dataset = self.text(cache_dir)
        documents = Documents(dataset, self.config.model.context_length)
        return mean_outputs(self.model, documents.batches)

    def evidence(self) -> dict[str, Any]:
        """What every head and neuron does over a part of the validation split: evidence.json,
        which observe/evidence.py describes. Raises UserError if the run has none."""
        return evidence_of(self.run)

    def head_names(self) -> Names | None:
        """What each head is called, by layer and head: the same in every view, also if it was not
        measured at the step of the checkpoint. None for a run that has no text of its own, as one
        that was converted: its heads are named by each text that they read."""
        sizes = self.config.model.n_layers, self.config.model.n_heads
        names = head_names(self.run, [self.step]).get(self.step)
        if names and [*map(len, names)] == [sizes[1]] * sizes[0]:
            return names
        return None if self.corpus() is None else unmeasured(*sizes)

    def sample(
        self,
        prompt: str = "",
        max_new_tokens: int = 200,
        temperature: float = 0.8,
        top_k: int | None = None,
        top_p: float | None = 0.95,
        seed: int = 1,
    ) -> str:
        """A text that begins with the prompt, as sample.py writes it with the same settings."""
        sampling = SamplingConfig(prompt, max_new_tokens, temperature, top_k, top_p, seed)
        return Writer(self.model, self.tokenizer).write(sampling)


def open_run(
    path: str | Path = "latest",
    checkpoint: str = "best",
    device: torch.device | str = "cpu",
    setting: str = "run",
) -> OpenRun:
    """Open the run in the folder `path`, or the `latest` (see `store.run.find_run`), with its
    checkpoint `checkpoint`, "best" or "last".

    Raises UserError, naming `setting`, if a part of the run is missing or damaged.
    """
    run = Run.open(str(path), setting)
    config, tokenizer = run.config(RunConfig), Tokenizer.load(run.tokenizer_folder)
    while True:
        folder = run.checkpoints.find(checkpoint, setting)
        if opened := _open(run, config, tokenizer, folder, device):
            return opened


def each_checkpoint(opened: OpenRun) -> Iterator[OpenRun]:
    """The run with the model of each of its intact checkpoints, oldest first."""
    run, config, tokenizer = opened.run, opened.config, opened.tokenizer
    for folder in run.checkpoints.intact():
        if found := _open(run, config, tokenizer, folder, next(opened.model.parameters()).device):
            yield found


def _open(
    run: Run, config: RunConfig, tokenizer: Tokenizer, folder: Path, device: torch.device | str
) -> OpenRun | None:
    """The run with the model of the checkpoint in `folder`; None if a training has deleted it."""
    try:
        model = load_model(config.model, tokenizer.vocab_size, folder)
        step = load_state(folder).step
    except UserError:
        if folder.exists():
            raise
        return None
    return OpenRun(run, config, tokenizer, folder, model.to(device).eval(), step)
