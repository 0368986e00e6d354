"""Writing with a tokenizer whose ids begin and end documents, and the text that it streams."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import tiktoken
import torch

from data.pieces import BYTE
from data.tokenizer import Limits, Tokenizer
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


MARKED: dict[str, Any] = {"bos_id": START, "adds_bos": False, "eos_ids": (5,)}
OF_TEXT: dict[str, Any] = {"eos_ids": (5,), "document_end": "\n\n"}


@pytest.mark.parametrize(
    ("limits", "prompt", "ids"),
    [
        ({"bos_id": START}, "", [START]),
        ({"bos_id": START}, "Once", [START, *b"Once"]),
        (OF_TEXT, "Once", [*b"\n\nOnce"]),
        ({**OF_TEXT, "bos_id": START}, "Once", [*b"\n\nOnce"]),
        (MARKED, "Once", [*b"Once"]),
        (MARKED, "", [START]),
        ({"bos_id": START, "start_ids": (START,)}, "Once", [START, *b"Once"]),
        # Of a model that was then trained on a text without documents.
        ({"bos_id": START, "start_ids": (10,)}, "Once", [*b"Once"]),
        ({"bos_id": START, "start_ids": (10,)}, "", [10]),
    ],
)
def test_what_a_document_begins_with(limits: dict[str, Any], prompt: str, ids: list[int]) -> None:
    assert tokenizer(**limits).encode_document(prompt) == ids


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
    ids = (ord("n"),)  # of another corpus
    assert shown(Row(tokenizer(eos_ids=ids, document_end="\n\n")), written) == text
