"""Open a run and write text with it: `python sample.py run=runs/latest prompt="Once"`."""

from __future__ import annotations

import openmp  # noqa: F401  # isort: skip

import signal

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # during the imports, which take a second or two

import sys
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from configs.cli import as_utf8, run_script
from configs.schema import SampleConfig, build
from errors import UserError
from inference import Writer, open_run
from training.device import choose_device

MAX_PROMPT = 10_000_000


def main(cfg: DictConfig) -> None:
    config = build(cfg, SampleConfig)
    opened = open_run(config.run, config.checkpoint, choose_device(config.device, "device"))
    model = opened.model.bfloat16() if config.precision == "bf16" else opened.model
    writer = Writer(model, opened.tokenizer, opened.config.document_end)
    if config.interactive:
        interact(writer, config)
    else:
        if config.prompt_file is not None:
            config = replace(config, prompt=read_prompt(config.prompt_file), prompt_file=None)
        print_samples(writer, config)


def print_samples(writer: Writer, config: SampleConfig) -> None:
    """Print the first sample while it is generated, then the others of the same batch."""
    others: list[list[str]] = []
    beginning = "--- 1 ---\n" + config.prompt if config.num_samples > 1 else config.prompt
    for first, *rest in writer.stream(config, config.num_samples):
        print(beginning + first, end="", flush=True)
        beginning = ""
        others.append(rest)
    print()
    for number, pieces in enumerate(zip(*others, strict=True), start=2):
        print(f"--- {number} ---\n{config.prompt}{''.join(pieces)}")


def interact(writer: Writer, config: SampleConfig) -> None:
    """Ask for prompts until the input ends."""
    with suppress(ImportError):  # on Windows
        import readline  # noqa: F401 - gives input() line editing and a history

    print(
        "Type a prompt and press Enter. An empty line starts a new document. "
        "Ctrl-C stops a text; Ctrl-D quits."
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which raises an exception

    def show(config: SampleConfig) -> None:
        try:
            print_samples(writer, config)
        except KeyboardInterrupt:  # stops this text; at the prompt, it ends the program
            print()

    if config.prompt:
        show(config)
    while True:
        try:
            prompt = as_utf8(input("> "))
            prompt.encode()
        except EOFError:
            print()
            return
        except UnicodeError:
            raise UserError("interactive: the prompt is not UTF-8; enter UTF-8") from None
        show(replace(config, prompt=prompt))
        config = replace(config, seed=config.seed + 1)  # so that repeated prompts differ


def read_prompt(path: str) -> str:
    """The text of a file or of standard input (`-`), without the last line end."""
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            data = file.read(MAX_PROMPT + 1)
        if len(data) > MAX_PROMPT:
            raise UserError(
                f"prompt_file: {path} has more than {MAX_PROMPT:,} bytes; give a shorter text"
            )
        return data.decode().removesuffix("\n")
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
