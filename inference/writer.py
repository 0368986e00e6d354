"""Text from a model: whole characters, up to the end of the document."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Int
from torch import Tensor

from data.tokenizer import StreamDecoder, Tokenizer
from inference.generation import SamplingConfig, generate
from model import GPT


class Writer:
    """Writes text with a model and its tokenizer, which knows the text or the ids that begin and
    end a document, if there are any."""

    def __init__(self, model: GPT, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer

    def stream(self, sampling: SamplingConfig, num_samples: int = 1) -> Iterator[list[str]]:
        """Yield, after every token, the text that it adds to each sample: whole characters only.

        A prompt begins a document, and a sample ends where the document ends. The same seed writes
        the same text.
        """
        rows = [Row(self.tokenizer) for _ in range(num_samples)]
        for step in self.tokens(sampling, num_samples):
            yield [row.feed(token) for row, token in zip(rows, step.tolist(), strict=True)]
            if all(row.ended for row in rows):
                return
        yield [row.flush() for row in rows]

    def tokens(
        self, sampling: SamplingConfig, num_samples: int = 1
    ) -> Iterator[Int[Tensor, " sample"]]:
        """Yield the next token of each sample, also after the end of its document."""
        device = next(self.model.parameters()).device
        return generate(
            self.model,
            torch.tensor([self.tokenizer.encode_document(sampling.prompt)], device=device),
            sampling.max_new_tokens,
            num_samples=num_samples,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            generator=torch.Generator(device).manual_seed(sampling.seed),
        )

    def write(self, sampling: SamplingConfig) -> str:
        """One sample as a string, which begins with the prompt."""
        return sampling.prompt + "".join(step[0] for step in self.stream(sampling))


class Row:
    """The text of one sample: whole characters, up to the end of the document."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.decoder, self.document_end = StreamDecoder(tokenizer), tokenizer.document_end
        self.eos_ids = tokenizer.eos_ids if self.document_end is None else ()
        self.held, self.ended = "", False

    def feed(self, token: int) -> str:
        if token in self.eos_ids:
            text, self.ended = self.flush(), True
            return text
        return "" if self.ended else self._emit(self.decoder.feed(token))

    def flush(self) -> str:
        return "" if self.ended else self._emit(self.decoder.flush()) + self.held

    def _emit(self, text: str) -> str:
        if self.document_end is None:
            return text
        text = self.held + text
        before, mark, _ = text.partition(self.document_end)
        if mark:
            self.ended, self.held = True, ""
            return before
        # A possible beginning of the mark is held back until the rest of it is known.
        lengths = range(len(self.document_end) - 1, -1, -1)
        n_held = next(n for n in lengths if text.endswith(self.document_end[:n]))
        self.held = text[len(text) - n_held :]
        return text[: len(text) - n_held]
