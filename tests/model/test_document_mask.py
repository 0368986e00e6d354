"""Attention that does not cross documents, compared with each document alone in a plain model."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from inference import generate
from inference.generation import window_start
from model import (
    GPT,
    KVCache,
    cross_entropy,
    document_mask,
    explicit_attention,
    fused_attention,
    record_attention,
)

END = 12
TOKENS = 8
assert_close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)
# Where documents end: anywhere, also twice in a row, at the first token or the last, or nowhere.
ends = st.lists(st.booleans(), min_size=TOKENS, max_size=TOKENS)
rows = st.lists(ends, min_size=2, max_size=2)


@pytest.fixture(
    scope="module",
    params=[
        {"position": position, "n_kv_heads": n_kv_heads}
        for position in ("learned", "rotary")
        for n_kv_heads in (None, 2)
    ],
    ids=lambda family: "-".join(map(str, family.values())),
)
def models(make_model, request):
    """A model with masked attention, and a plain one with the same weights."""
    family = request.param
    return make_model(**family, document_mask=True, end=END), make_model(**family)


def with_ends(marks: list[list[bool]]) -> Tensor:
    torch.manual_seed(0)
    return torch.randint(END, (len(marks), TOKENS)).masked_fill(torch.tensor(marks), END)


def documents(row: Tensor) -> list[tuple[int, int]]:
    """From where to where each document of a window reaches."""
    stops = [place + 1 for place, token in enumerate(row.tolist()) if token == END]
    borders = [0, *stops, len(row)]
    return [(a, b) for a, b in pairwise(borders) if a < b]


def alone(plain: GPT, document: Tensor, start: int) -> Tensor:
    """The logits of a document that a plain model reads alone, at its positions in a window."""
    x = plain.embed(document[None], start)
    for block in plain.blocks:
        x = block(x)
    return plain.unembedding(plain.final_norm(x))[0]


@given(ends=rows, n_query=st.integers(1, TOKENS))
def test_the_mask_against_a_loop(ends, n_query):
    mask = document_mask(torch.tensor(ends), n_query)
    assert mask.shape == (2, 1, n_query, TOKENS)
    for row, marks in enumerate(ends):
        for index in range(n_query):
            query = TOKENS - n_query + index
            for key in range(TOKENS):
                is_open = key <= query and not any(marks[key:query])
                assert mask[row, 0, index, key] == is_open


@given(ends=rows)
@settings(max_examples=25)
@torch.no_grad()
def test_each_document_is_read_as_if_it_were_alone(models, ends):
    masked, plain = models
    tokens = with_ends(ends)
    logits = masked(tokens)
    for row, mine in zip(tokens, logits, strict=True):
        for start, stop in documents(row):
            assert_close(mine[start:stop], alone(plain, row[start:stop], start))


@given(ends=rows, pieces=st.sampled_from([[8], [1] * 8, [5, 1, 2], [1, 4, 3]]))
@settings(max_examples=25)
@torch.no_grad()
def test_the_cache_changes_nothing(models, ends, pieces):
    masked, _ = models
    tokens = with_ends(ends)
    expected = masked(tokens)
    cache = KVCache(masked.config, batch=2)
    for _ in range(2):  # the second time with what a cleared cache has left
        logits = [masked(piece, cache) for piece in tokens.split(pieces, dim=1)]
        assert_close(torch.cat(logits, dim=1), expected)
        cache.clear()


@given(ends=rows)
@settings(max_examples=10)
def test_gradients_are_those_of_the_documents_alone(models, ends):
    masked, plain = models
    tokens = with_ends(ends)
    targets = torch.randint(END, tokens.shape)

    def gradients(model: GPT, logits: Tensor) -> list[Tensor]:
        loss = cross_entropy(logits, targets)
        return list(torch.autograd.grad(loss, [*model.parameters()]))

    fused = gradients(masked, masked(tokens))
    with record_attention(masked):
        explicit = gradients(masked, masked(tokens))
    parts = [
        torch.cat([alone(plain, row[start:stop], start) for start, stop in documents(row)])
        for row in tokens
    ]
    for mine, other, separate in zip(
        fused, explicit, gradients(plain, torch.stack(parts)), strict=True
    ):
        assert_close(mine, other)
        assert_close(mine, separate)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernels_with_a_mask(dtype):
    """In bfloat16 with gradients, another kernel is used."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, heads, 16, 8, dtype=dtype) for heads in (4, 2, 2))
    value.requires_grad_()
    mask = document_mask(torch.rand(2, 16) < 0.3, 16)
    explicit = explicit_attention(query.float(), key.float(), value.float(), mask).context
    fused = fused_attention(query, key, value, mask=mask)
    torch.testing.assert_close(fused.float(), explicit, rtol=3e-2, atol=3e-2)
    if dtype == torch.float32:
        assert_close(fused, explicit)


def test_generated_text_attends_to_its_own_document_only(make_model):
    masked, plain = make_model(document_mask=True, end=END), make_model()
    torch.manual_seed(1)
    first, second = torch.randint(END, (2, 3))
    prompt = torch.cat([first, torch.tensor([END]), second])[None]
    tokens = prompt[0].tolist()
    for step in generate(masked, prompt, 20, num_samples=2, temperature=0.0):
        seen = torch.tensor(tokens[window_start(len(tokens), TOKENS) :])
        begin, _ = documents(seen)[-1]
        expected = plain(seen[None, begin:])[0, -1].argmax().item()
        assert step.tolist() == [expected] * 2
        tokens.append(expected)


def test_without_a_mask_the_kernel_is_called_as_before(make_model, monkeypatch):
    calls = []
    fused = F.scaled_dot_product_attention

    def spy(*tensors, **options):
        calls.append((options["attn_mask"], options["is_causal"]))
        return fused(*tensors, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    make_model()(torch.tensor([[1, END, 2]]))
    assert calls == [(None, True)] * 2


def test_a_model_without_an_end_is_rejected(make_config):
    with pytest.raises(ValueError, match="document_mask: the tokenizer has no token that ends"):
        GPT(make_config(document_mask=True), vocab_size=13)
