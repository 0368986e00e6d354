"""Open a run and write text with it: `python sample.py run=latest prompt="Once"`.

Prints the prompt and its continuation to standard output, as they are written. Exit status 0; 2 for
a mistake in the settings; 130 after Ctrl-C.
"""

from __future__ import annotations

import common.startup  # noqa: F401  # isort: skip

import io
import re
import signal
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from common.console import SteadyConsole
from common.device import DTYPES, choose_device
from common.errors import UserError, check_choice, check_range, printable
from common.settings import Values, build
from data.decoding import NotText, decoded
from data.tokenizer import StreamDecoder
from inference.generation import SamplingConfig
from inference.opening import OpenRun, open_run
from inference.writer import Row, Writer
from launch.cli import run_script
from model import ModelConfig, record_attention

MAX_PROMPT = 10_000_000
SCALE = ((235, 70), (243, 140), (255, 255))  # red, green, blue, of weight 0 and 1
MIN_WEIGHT = 0.01


@dataclass
class SampleConfig(SamplingConfig):
    """The settings of sample.py; configs/sample.yaml explains them."""

    run: str
    checkpoint: str
    prompt_file: str | None
    interactive: bool
    show: str | None
    num_samples: int
    device: str
    precision: str

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("num_samples", self.num_samples, 1, 10**6)
        check_choice("precision", self.precision, DTYPES)
        if self.show is not None and not re.fullmatch(r"L\d{1,4}H\d{1,4}", self.show):
            raise ValueError(f"show: {self.show!r} is no head; give one such as L1H3")
        if self.show is not None and self.num_samples > 1:
            raise ValueError("show: shows one sample; leave num_samples out")
        if self.prompt_file is not None and (self.prompt or self.interactive):
            raise ValueError(
                "prompt_file: cannot be combined with prompt or interactive; give only one of them"
            )


def main(values: Values) -> None:
    config = build(SampleConfig, values)
    opened = open_run(config.run, config.checkpoint, choose_device(config.device, "device"))
    source = printable(f"{opened.run.path}, step {opened.step}")
    if config.show is not None:
        check_head(config.show, opened.config.model)
        source += f"\n{legend(opened, config.show)}"
    writer = Writer(opened.model.to(DTYPES[config.precision]), opened.tokenizer)
    if config.interactive:
        print(source)
        interact(writer, config)
    else:
        if config.prompt_file is not None:
            config = replace(config, prompt=read_prompt(config.prompt_file), prompt_file=None)
        write(writer, config, source)


def write(writer: Writer, config: SampleConfig, source: str = "") -> None:
    """Write one or more samples, coloured if that is asked for and possible. `source`, if given, is
    printed on standard error before the first token."""
    console = SteadyConsole(highlight=False)
    if config.show is None or not console.color_system:
        print_samples(writer, config, source)
    else:
        print(source, file=sys.stderr)
        show_attention(writer, config, console)


def legend(opened: OpenRun, head: str) -> str:
    """What the head does, if that was measured, and what the colours mean."""
    colours = "the bluer a token, the more of its attention went there before the bold one came"
    names = opened.head_names()
    if names is None:
        return f"{head}: {colours}"
    layer, number = numbers_of(head)
    return printable(f"{head}: {names[layer][number].headline}") + f"\n{head}: {colours}"


def check_head(name: str, model: ModelConfig) -> None:
    """Raise UserError unless the model has the head called `name`, such as L1H3."""
    layer, head = numbers_of(name)
    if layer >= model.n_layers or head >= model.n_heads:
        raise UserError(
            f"show: the model has no {name}; give one from L0H0 to "
            f"L{model.n_layers - 1}H{model.n_heads - 1}"
        )


def numbers_of(name: str) -> tuple[int, int]:
    """L1H3: layer 1, head 3."""
    layer, head = map(int, name[1:].split("H"))
    return layer, head


def show_attention(writer: Writer, config: SampleConfig, console: Console) -> None:
    """Write a sample and, after each token, colour the context by what the token before it attended
    to in a head: where the model looked when it chose this token."""
    layer, head = numbers_of(config.show or "")
    tokenizer, ids = writer.tokenizer, writer.tokenizer.encode_document(config.prompt)
    row = Row(tokenizer)
    with (
        record_attention(writer.model) as maps,
        Live(console=console, auto_refresh=False, vertical_overflow="visible") as live,
    ):
        for step in writer.tokens(config):
            weights = maps[layer][0, head, -1].tolist()  # of the tokens that fit the context
            unseen, text, decoder = len(ids) - len(weights), Text(), StreamDecoder(tokenizer)
            for token, weight in zip(ids, [0.0] * unseen + weights, strict=True):
                text.append(printable(decoder.feed(token)), colour(weight))
            ids.append(int(step[0]))
            row.feed(ids[-1])
            if row.ended:
                break
            text.append(printable(decoder.feed(ids[-1])), "bold")
            lines = text.wrap(console, console.width)  # of which the last ones fit the terminal
            live.update(Text("\n").join(lines[2 - console.height :]), refresh=True)
        live.update(text)


def colour(weight: float) -> str:
    """From nearly white to blue; none for next to nothing. The root keeps small weights visible."""
    strength = weight**0.5
    red, green, blue = (round(light + strength * (dark - light)) for light, dark in SCALE)
    return f"black on rgb({red},{green},{blue})" if weight > MIN_WEIGHT else ""


def print_samples(writer: Writer, config: SampleConfig, source: str) -> None:
    """Print the first sample while it is generated, then the others of the same batch. A terminal
    gets `printable` text, a file or pipe the exact text."""
    shown = printable if sys.stdout.isatty() else str
    others: list[list[str]] = []
    beginning = "--- 1 ---\n" + config.prompt if config.num_samples > 1 else config.prompt
    is_empty = not config.prompt
    for first, *rest in writer.stream(config, config.num_samples):
        is_empty = is_empty and not first.strip()
        if source:
            print(source, file=sys.stderr)
            source = ""
        print(shown(beginning + first), end="", flush=True)
        beginning = ""
        others.append(rest)
    print()
    if is_empty and config.num_samples == 1:
        said = "the model ended the document, or wrote only white space"
        print(f"note: the sample has no text: {said}", file=sys.stderr)
    for number, pieces in enumerate(zip(*others, strict=True), start=2):
        print(shown(f"--- {number} ---\n{config.prompt}{''.join(pieces)}"))


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
            write(writer, config)
        except KeyboardInterrupt:
            print()

    if config.prompt:
        show(config)
    while True:
        try:
            prompt = text_of(io.BytesIO(input("> ").encode()))
        except (EOFError, KeyboardInterrupt):
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
        return text_of(io.BytesIO(data))
    except OSError as error:
        raise UserError(
            f"prompt_file: {path} cannot be read ({error.strerror}); give a text file"
        ) from error
    except NotText as error:
        raise UserError(f"prompt_file: {path} {error}") from error


def text_of(stream: BinaryIO) -> str:
    """A text without a byte order mark, and without the last line end."""
    text = "".join(decoded(stream)).removeprefix("\ufeff")
    return text.removesuffix("\n").removesuffix("\r")


if __name__ == "__main__":
    run_script("sample", main, SampleConfig)
