"""Compare generation with its definition: a full forward pass over the window for each token; and
the text that is streamed with a tokenizer whose ids begin and end documents."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import pytest
import tiktoken
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from data.pieces import BYTE
from data.tokenizer import Limits, Tokenizer
from inference.generation import SamplingConfig, generate, sampling_probabilities, window_start
from inference.writer import Row, Writer
from model import record_attention


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sampled(model, prompt, n, **settings):
    return torch.stack(list(generate(model, prompt, n, **settings)), dim=1)


@given(st.integers(1, 40), st.integers(1, 200))
def test_the_oldest_half_is_dropped_when_the_window_is_full(context_length, n_tokens):
    start = 0
    for n in range(1, n_tokens + 1):
        if n - start > context_length:
            start += max(1, context_length // 2)
        assert window_start(n, context_length) == start


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_the_cache_changes_no_token(make_model, family, temperature):
    """The reference reads the whole window again for every token."""
    model = make_model(**family)
    text = torch.randint(13, (2, 3), generator=seeded(1))
    tokens = sampled(model, text, 18, temperature=temperature, generator=seeded())
    generator = seeded()
    for token in tokens.T:
        start = window_start(text.shape[1], model.config.context_length)
        with torch.no_grad():
            logits = model(text[:, start:])[:, -1]
        if temperature:
            probabilities = sampling_probabilities(logits, temperature)
            expected = torch.multinomial(probabilities, 1, generator=generator).squeeze(1)
        else:
            expected = logits.argmax(-1)
        assert torch.equal(token, expected)
        text = torch.cat((text, token[:, None]), dim=1)


def test_a_recording_sees_every_token(make_model):
    """Also one that is opened between two tokens."""
    model = make_model()
    stream = generate(model, torch.tensor([[1, 2, 3]]), 4, temperature=0.0)
    next(stream), next(stream)
    with record_attention(model) as maps:
        shapes = [maps[0].shape[-2:] for _ in stream]
    assert shapes == [(1, 5), (1, 6)]


@pytest.mark.parametrize("n_prompt", [3, 12])
def test_samples_of_one_prompt_equal_a_batch_of_copies(make_model, n_prompt):
    """The prompt is read once; a window of 8 tokens moves on while the samples are written."""
    model = make_model(n_kv_heads=2, window=3)
    prompts = torch.randint(13, (2, n_prompt), generator=seeded(1))
    settings = {"temperature": 1.5, "top_k": 9, "generator": seeded()}
    samples = sampled(model, prompts, 14, num_samples=3, **settings)
    copies = prompts.repeat_interleave(3, dim=0)
    assert torch.equal(samples, sampled(model, copies, 14, **{**settings, "generator": seeded()}))
    assert len({tuple(row) for row in samples.tolist()}) == 6


def reference_probabilities(logits, temperature, top_k, top_p):
    warped = TemperatureLogitsWarper(temperature)(None, logits)
    if top_k is not None:
        warped = TopKLogitsWarper(top_k)(None, warped)
    if top_p is not None:
        warped = TopPLogitsWarper(top_p)(None, warped)
    return warped.softmax(dim=-1)


@given(
    st.integers(0, 2**31),
    st.integers(1, 40),
    st.floats(0.05, 5.0),
    st.none() | st.integers(1, 50),
    st.none() | st.floats(0.01, 1.0),
)
def test_probabilities_match_the_reference(seed, vocab, temperature, top_k, top_p):
    logits = 3 * torch.randn(3, vocab, generator=seeded(seed))
    expected = reference_probabilities(logits, temperature, top_k, top_p)
    actual = sampling_probabilities(logits, temperature, top_k, top_p)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-6)


def test_draws_follow_the_probabilities(make_model):
    model = make_model()
    prompt = torch.tensor([[3, 1, 4]])
    settings = {"temperature": 1.3, "top_k": 5, "top_p": 0.95}
    expected = reference_probabilities(model(prompt)[:, -1], *settings.values())[0]
    n = 20_000
    draws = sampled(model, prompt.expand(n, -1), 1, generator=seeded(), **settings)
    observed = draws[:, 0].bincount(minlength=13) / n
    error = (expected * (1 - expected) / n).sqrt()
    assert ((observed - expected).abs() <= 5 * error + 1e-9).all()


def test_bfloat16_weights_choose_as_float32_does(make_model, family):
    """Up to rounding: no token has a clearly larger logit in float32, also beyond the context."""
    model = make_model(**family)
    rounded = copy.deepcopy(model).bfloat16()
    prompt = torch.randint(13, (2, 4), generator=seeded(5))
    chosen = sampled(rounded, prompt, 20, temperature=0.0)
    tokens = torch.cat((prompt, chosen), dim=1)
    for n in range(4, tokens.shape[1]):
        logits = model(tokens[:, window_start(n, model.config.context_length) : n])[:, -1]
        lost = logits.amax(-1) - logits.gather(-1, tokens[:, n : n + 1])[:, 0]
        assert (lost <= 0.2 * logits.std()).all()


def test_it_streams_and_does_not_change_the_callers_state(make_model):
    model = make_model(dropout=0.5).train()
    prompt = torch.randint(13, (2, 4), generator=seeded(4))
    stream = generate(model, prompt, 5, temperature=0.0)
    first = next(stream)
    assert first.shape == (2,)
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
    stream.close()
    assert model.training
    without_dropout = sampled(model, prompt, 5, temperature=0.0)
    assert torch.equal(without_dropout, sampled(model.eval(), prompt, 5, temperature=0.0))
    model.train()
    assert len(list(generate(model, prompt, 5))) == 5 and model.training
    assert torch.equal(prompt, torch.randint(13, (2, 4), generator=seeded(4)))
    model(prompt).sum().backward()
    assert list(generate(model, prompt, 0)) == []


@pytest.mark.parametrize(
    "bad",
    [
        {"prompt": torch.zeros(1, 0, dtype=torch.long)},
        {"prompt": torch.tensor([[13]])},
        {"max_new_tokens": -1},
        {"temperature": math.nan},
        {"top_k": 0},
        {"top_p": 1.5},
    ],
)
def test_an_argument_out_of_range_raises_immediately(make_model, bad):
    arguments = {"prompt": torch.tensor([[1, 2]]), "max_new_tokens": 3, **bad}
    with pytest.raises(ValueError, match=f"^{next(iter(bad))}: "):
        generate(make_model(), **arguments)


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


def test_a_sample_ends_at_any_of_the_ends(make_model):
    model = make_model(257, context_length=64)
    (tokens,) = sampled(model, torch.tensor([[START, *b"Once"]]), 40, temperature=0.0).tolist()
    for place in (0, 5, 20):
        length = next(n for n, token in enumerate(tokens) if token in (tokens[place], 7))
        ended = tokenizer(bos_id=START, eos_ids=(tokens[place], 7))
        writer = Writer(model, ended)
        pieces = [piece for (piece,) in writer.stream(settings("Once"))]
        assert "".join(pieces) == ended.decode(tokens[:length])
        assert len(pieces) == length + 1  # nothing is generated after it


def test_each_sample_ends_by_itself(make_model):
    model = make_model(257, context_length=64)
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


@pytest.mark.parametrize(
    ("end", "written", "text"),
    [
        (None, [*b"a\xf0\x9f", ord("n"), *b"b"], "a\ufffd"),  # of a character that is cut
        ("\n\n", b"One.\n\nTwo.\n\n", "One."),  # "n" ended documents of another corpus
        ("\n\n", b"One.\nStill one.\n\nTwo.", "One.\nStill one."),
        ("\n\n", b"One.\n", "One.\n"),
        ("\n\n", b"", ""),
    ],
)
def test_a_sample_ends_with_its_document(
    end: str | None, written: Sequence[int], text: str
) -> None:
    row = Row(tokenizer(eos_ids=(ord("n"),), document_end=end))
    assert "".join(map(row.feed, written)) + row.flush() == text
