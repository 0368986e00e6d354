"""Writing with a tokenizer whose ids begin and end documents, and the text that it streams."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import tiktoken
import torch

from data.pieces import BYTE
from data.tokenizer import Limits, Tokenizer, fixed_tokenizer
from inference.generation import SamplingConfig, generate
from inference.writer import Row, Writer
from model import GPT
from tests.conftest import small_config

START = 256


def tokenizer(**more: Any) -> Tokenizer:
    """Bytes, and a special token that begins documents."""
    encoding = tiktoken.Encoding(
        "imported",
        pat_str=BYTE,
        mergeable_ranks={bytes([byte]): byte for byte in range(256)},
        special_tokens={"<start>": START},
    )
    return Tokenizer(encoding, Limits(**more))


@pytest.fixture
def model() -> GPT:
    torch.manual_seed(0)
    return GPT(small_config(1, 2, 16, 64, tied_embeddings=False), 257).eval()


def greedy(model: GPT, context: list[int], n: int = 40) -> list[int]:
    steps = generate(model, torch.tensor([context]), n, temperature=0.0)
    return [int(step) for step in steps]


def settings(prompt: str, temperature: float = 0.0) -> SamplingConfig:
    return SamplingConfig(prompt, 40, temperature, None, None, seed=1)


@pytest.mark.parametrize("prompt", ["", "Once"])
def test_a_document_begins_with_its_token(model: GPT, prompt: str) -> None:
    started = tokenizer(bos_id=START)
    tokens = greedy(model, [START, *prompt.encode()])
    assert Writer(model, started).write(settings(prompt)) == prompt + started.decode(tokens)
    assert tokens != greedy(model, [*(prompt or "\n").encode()])


@pytest.mark.parametrize("start", [None, START])
def test_a_text_that_separates_documents_comes_first(model: GPT, start: int | None) -> None:
    """The tokenizer's own ids are those of another corpus."""
    tokens = greedy(model, [*b"\n\nOnce"])
    assert b"\n\n" not in bytes(each for each in tokens if each < 256)
    written = Writer(
        model, tokenizer(bos_id=start, eos_ids=(tokens[5],), document_end="\n\n")
    ).write(settings("Once"))
    assert written == "Once" + tokenizer().decode(tokens)


def test_a_mark_that_is_not_added_begins_only_empty_prompts(model: GPT) -> None:
    marked = tokenizer(bos_id=START, adds_bos=False, eos_ids=(START,))
    first = Writer(model, marked).write(settings("Once"))
    assert first == "Once" + marked.decode(until(greedy(model, [*b"Once"]), START))
    begun = Writer(model, marked).write(settings(""))
    assert begun == marked.decode(until(greedy(model, [START]), START))


def until(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end)] if end in tokens else tokens


def test_a_sample_ends_at_any_of_the_ends(model: GPT) -> None:
    tokens = greedy(model, [START, *b"Once"])
    for place in (0, 5, 20):
        length = next(n for n, token in enumerate(tokens) if token in (tokens[place], 7))
        ended = tokenizer(bos_id=START, eos_ids=(tokens[place], 7))
        writer = Writer(model, ended)
        pieces = [piece for (piece,) in writer.stream(settings("Once"))]
        assert "".join(pieces) == ended.decode(tokens[:length])
        assert len(pieces) == length + 1  # nothing is generated after it


def test_each_sample_ends_by_itself(model: GPT) -> None:
    ends = tuple(range(0, 257, 8))
    writer = Writer(model, tokenizer(bos_id=START, eos_ids=ends))
    endless = Writer(model, tokenizer(bos_id=START))
    columns = list(zip(*writer.stream(settings("Once", 1.0), 4), strict=True))
    assert len(columns) == 4
    texts = ["".join(column) for column in columns]
    others = zip(*endless.stream(settings("Once", 1.0), 4), strict=True)
    for text, column in zip(texts, others, strict=True):
        assert "".join(column).startswith(text.rstrip("\ufffd")) and not {*text.encode()} & {*ends}
    assert len({*map(len, texts)}) > 1


def shown(row: Row, tokens: Iterable[int]) -> str:
    return "".join(map(row.feed, tokens)) + row.flush()


def test_a_character_that_is_cut_by_the_end_is_shown() -> None:
    tokens = [*b"a\xf0\x9f", START, *b"b"]
    assert shown(Row(tokenizer(eos_ids=(START,))), tokens) == "a\ufffd"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (b"One.\n\nTwo.\n\n", "One."),
        (b"One.\nStill one.\n\nTwo.", "One.\nStill one."),
        (b"One.\n", "One.\n"),
        (b"", ""),
    ],
)
def test_a_sample_ends_with_its_document(written: bytes, text: str) -> None:
    assert shown(Row(fixed_tokenizer("byte").of_text((), "\n\n")), written) == text
