"""Reading single tokens by kernels that are the same at every position, without the capture itself,
which needs a GPU (tests/test_devices.py)."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from inference import generation, graphs
from inference.generation import generate
from inference.graphs import TokenReader, is_capturable
from model import KVCache, ablate, record_attention


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[TokenReader]:
    """Those that `generate` makes from now on, also on a CPU."""
    made: list[TokenReader] = []

    class Reader(TokenReader):
        calls = 0

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

        def __call__(self, token: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return super().__call__(token)

    monkeypatch.setattr(generation, "GRAPHS", "cpu")
    monkeypatch.setattr(generation, "TokenReader", Reader)
    return made


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_hidden_states_are_those_of_a_full_pass(make_model, family):
    """At every position, also where the memory held NaN, and after it was cleared."""
    model = make_model(**family)
    cache = KVCache(model.config, 3)
    for layer in cache.layers:
        layer.key.fill_(math.nan)
        layer.value.fill_(math.nan)
    with torch.no_grad():
        for n_first in (1, 3):
            text = torch.randint(13, (3, 8), generator=seeded(n_first))
            cache.clear()
            model.hidden(text[:, :n_first], cache)
            reader = TokenReader(model, cache)
            for n in range(n_first, 8):
                found = reader(text[:, n : n + 1])
                assert_close(found, model.hidden(text[:, : n + 1])[:, -1], rtol=1e-4, atol=1e-4)
                assert cache.length == n + 1


@pytest.mark.long
@pytest.mark.parametrize("n_prompt", [1, 5, 12])
def test_generated_tokens_are_the_same(make_model, family, readers, n_prompt, monkeypatch):
    """The window of 8 tokens moves on several times; all samples share one prompt."""
    model = make_model(**family)
    prompt = torch.randint(13, (2, n_prompt), generator=seeded(1))
    found = []
    for device in ("cuda", "cpu"):
        monkeypatch.setattr(generation, "GRAPHS", device)
        settings: dict[str, Any] = {"num_samples": 2, "temperature": 1.5, "generator": seeded()}
        found.append(torch.stack(list(generate(model, prompt, 30, **settings)), dim=1))
    assert torch.equal(*found)
    (reader,) = readers
    assert 20 <= reader.calls < 30


def test_recording_and_ablation_see_every_token(make_model, readers):
    """Also if they begin or end between two tokens."""
    model = make_model(context_length=64)
    torch.nn.init.normal_(model.blocks[0].attention.output.weight, std=4.0)
    prompt = torch.randint(13, (1, 2), generator=seeded(1))
    plain = [*generate(model, prompt, 40, temperature=0.0)]
    for heads, mlps in (([(1, 2)], []), ([], [1])):
        with ablate(model, heads, "zero", mlps):
            assert not is_capturable(model)
    with torch.autocast("cpu", torch.bfloat16):  # which frees its copies of weights
        assert not is_capturable(model)
    with ablate(model, [(0, head) for head in range(4)], "zero"):
        ablated = [*generate(model, prompt, 40, temperature=0.0)]
    assert plain != ablated and len(readers) == 1
    assert readers.pop().calls == 39

    model = model.double()  # not copied by `generate`
    tokens = generate(model, prompt, 40, temperature=0.0)
    for _ in range(9):
        next(tokens)
    with record_attention(model) as maps:
        next(tokens)
        assert maps[0].shape[-2:] == (1, 11)
    assert [token.item() for token in tokens] == [token.item() for token in plain[10:]]
    assert readers[0].calls == 38


@pytest.mark.parametrize("n_tokens", [graphs.WORTHWHILE - 1, graphs.WORTHWHILE])
def test_short_texts_are_read_without_a_graph(make_model, readers, n_tokens):
    model = make_model(context_length=64)
    [*generate(model, torch.tensor([[1, 2]]), n_tokens)]
    assert len(readers) == (n_tokens == graphs.WORTHWHILE)


def test_documents_are_masked_without_a_graph(make_model, readers):
    model = make_model(context_length=64, document_mask=True, end=0)
    [*generate(model, torch.tensor([[1, 0, 2]]), 20)]
    assert not readers
