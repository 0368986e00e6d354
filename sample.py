"""Open a run and let it write: `python sample.py run=runs/latest prompt="Once"`."""

from __future__ import annotations

import openmp  # noqa: F401  # isort: skip

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from omegaconf import DictConfig

from configs.cli import run_script
from configs.schema import SampleConfig, TrainConfig, build, load_run_config
from data import StreamDecoder, Tokenizer
from errors import UserError
from model import GPT, generate
from training.checkpoint import load_weights
from training.device import choose_device
from training.run import Run


def main(cfg: DictConfig) -> None:
    config = build(cfg, SampleConfig)
    device = choose_device(config.device, "device")
    run_config, tokenizer, model, _ = open_model(config.run, config.checkpoint, device)
    writer = Writer(model, tokenizer, run_config.data.document_end)
    if config.interactive:
        _interact(writer, config)
    else:
        prompt = config.prompt if config.prompt_file is None else _read(config.prompt_file)
        _print(writer, config, prompt)


def open_model(
    path: str, checkpoint: str, device: torch.device
) -> tuple[TrainConfig, Tokenizer, GPT, Path]:
    """A run's settings, its tokenizer, its model with the weights of `checkpoint`, and that folder.

    Raises UserError if any of them is missing or damaged.
    """
    run = Run.open(path, "run")
    config = build(load_run_config(run.config_file), TrainConfig)
    weights = run.checkpoints.find(checkpoint, "run")
    tokenizer = Tokenizer.load(run.tokenizer_folder)
    model = GPT(config.model, tokenizer.vocab_size)
    load_weights(model, weights)
    return config, tokenizer, model.to(device).eval(), weights


class Writer:
    """Text from a model. `document_end` stands between two documents, if the corpus has a mark."""

    def __init__(self, model: GPT, tokenizer: Tokenizer, document_end: str | None) -> None:
        self.model, self.tokenizer, self.document_end = model, tokenizer, document_end

    def stream(
        self,
        prompt: str,
        num_samples: int,
        max_new_tokens: int,
        seed: int,
        temperature: float,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> Iterator[list[str]]:
        """After every token, the text that it adds to each sample: whole characters only.

        A prompt begins a document, and a sample stops where the document ends. The same seed writes
        the same text.
        """
        device = next(self.model.parameters()).device
        context = (self.document_end or ("" if prompt else "\n")) + prompt
        tokens = torch.tensor(self.tokenizer.encode(context), device=device).expand(num_samples, -1)
        generator = torch.Generator(device).manual_seed(seed)
        rows = [_Row(self.tokenizer, self.document_end) for _ in range(num_samples)]
        for step in generate(
            self.model,
            tokens,
            max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            generator=generator,
        ):
            yield [row.feed(token) for row, token in zip(rows, step.tolist(), strict=True)]
            if all(row.ended for row in rows):
                return
        yield [row.flush() for row in rows]

    def write(
        self,
        prompt: str,
        max_new_tokens: int,
        seed: int,
        temperature: float,
        top_p: float | None = None,
    ) -> str:
        """One sample, prompt included, as one string."""
        steps = self.stream(prompt, 1, max_new_tokens, seed, temperature, top_p=top_p)
        return prompt + "".join(step[0] for step in steps)


class _Row:
    """The text of one sample: whole characters, up to the end of the document."""

    def __init__(self, tokenizer: Tokenizer, document_end: str | None) -> None:
        self.decoder, self.document_end = StreamDecoder(tokenizer), document_end
        self.held, self.ended = "", False

    def feed(self, token: int) -> str:
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
        # What may be the beginning of the mark waits for the rest of it.
        n_held = next(
            n
            for n in range(len(self.document_end) - 1, -1, -1)
            if text.endswith(self.document_end[:n])
        )
        self.held = text[len(text) - n_held :]
        return text[: len(text) - n_held]


def _print(writer: Writer, config: SampleConfig, prompt: str) -> None:
    """The first sample appears as it is written, the others, written beside it, after it."""
    others: list[list[str]] = []
    beginning = "--- 1 ---\n" + prompt if config.num_samples > 1 else prompt
    for first, *rest in writer.stream(
        prompt,
        config.num_samples,
        config.max_new_tokens,
        config.seed,
        config.temperature,
        config.top_k,
        config.top_p,
    ):
        print(beginning + first, end="", flush=True)
        beginning = ""
        others.append(rest)
    print()
    for number, pieces in enumerate(zip(*others, strict=True), start=2):
        print(f"--- {number} ---\n{prompt}{''.join(pieces)}")


def _interact(writer: Writer, config: SampleConfig) -> None:
    import readline  # noqa: F401 - gives input() line editing and a history

    print("Type a prompt and press Enter; an empty line starts a new document; Ctrl-D ends.")
    if config.prompt:
        _print(writer, config, config.prompt)
    while True:
        try:
            prompt = input("> ")
        except EOFError:
            print()
            return
        _print(writer, config, prompt)
        config = replace(config, seed=config.seed + 1)  # the same prompt again goes on otherwise


def _read(path: str) -> str:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return data.decode().removesuffix("\n")  # an editor's last line end is no part of it
    except OSError as error:
        raise UserError(
            f"prompt_file: {path} cannot be read ({error.strerror}); give a text file"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"prompt_file: {path} is not UTF-8 (byte {error.start}); convert it to UTF-8"
        ) from error


if __name__ == "__main__":
    run_script("sample", main)
