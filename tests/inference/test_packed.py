"""Compare the packed products of one token with the model itself."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from torch import nn

from inference.packed import MAX_JOINED, Packed
from model import KVCache, ablate


@pytest.fixture(params=[1, 3])  # the 13 rows of an output matrix are no multiple of 3
def n_threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@torch.inference_mode()
def both(model, tokens, packed=None):
    """The logits of all tokens after the third, one by one, and those of the whole model, in
    float64."""
    packed = packed or Packed(model)
    cache = KVCache(model.config, len(tokens), dtype=torch.float64)
    model.hidden(tokens[:, :3], cache)
    logits = [packed.logits(token[:, None], cache) for token in tokens[:, 3:].T]
    return torch.stack(logits, dim=1), model(tokens)[:, 3:]


def assert_equal(logits, expected):
    torch.testing.assert_close(logits, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("most", [MAX_JOINED, 0], ids=["joined", "apart"])
def test_logits_are_those_of_the_model(make_model, family, n_threads, monkeypatch, batch, most):
    monkeypatch.setattr("inference.packed.MAX_JOINED", most)
    model = make_model(**family).double()
    packed = Packed(model)
    assert packed.layers is not None
    assert_equal(*both(model, torch.randint(13, (batch, 8)), packed))


@pytest.mark.parametrize(
    "settings",
    [{"window": 3}, {"logit_softcap": 2.0}, {"tied_embeddings": False}, {"mlp": "relu2"}],
    ids=str,
)
def test_other_settings(make_model, n_threads, settings):
    model = make_model(**settings).double()
    packed = Packed(model)
    assert packed.layers is not None
    assert_equal(*both(model, torch.randint(13, (2, 8)), packed))


@contextmanager
def hooked(module):
    handle = module.register_forward_hook(lambda module, inputs, output: 2 * output)
    yield
    handle.remove()


@contextmanager
def parametrized(model):
    nn.utils.parametrize.register_parametrization(
        model.blocks[0].mlp.up, "weight", nn.Softplus(), unsafe=True
    )
    yield


ATTACHED = {
    "an edit": lambda model: ablate(model, [(0, 1)], "zero"),
    "an edit of an MLP": lambda model: ablate(model, [], "zero", mlps=[1]),
    "a hook": lambda model: hooked(model.blocks[1].mlp.down),
}


@pytest.mark.parametrize("name", ATTACHED)
def test_what_is_attached_later_takes_effect(make_model, name):
    model = make_model().double()
    tokens = torch.randint(13, (1, 8))
    packed = Packed(model)
    before = both(model, tokens, packed)[1]
    with ATTACHED[name](model):
        logits, expected = both(model, tokens, packed)
        assert_equal(logits, expected)
        assert not torch.allclose(before, expected)
    assert_equal(both(model, tokens, packed)[0], before)


class Halved(nn.Module):
    """An MLP of a user."""

    def __init__(self, width):
        super().__init__()
        self.matrix = nn.Linear(width, width)

    def forward(self, x):
        return self.matrix(x) / 2


def test_modules_of_another_kind_are_called(make_model):
    model = make_model().double()
    model.blocks[1].mlp = Halved(16).double()
    assert_equal(*both(model, torch.randint(13, (1, 8))))
    model = make_model().double()
    with parametrized(model):
        assert_equal(*both(model, torch.randint(13, (1, 8))))
    half = make_model().bfloat16()
    cache = KVCache(half.config, 1, dtype=torch.bfloat16)
    with torch.inference_mode():
        logits = Packed(half).logits(torch.tensor([[1]]), cache)
        assert torch.equal(logits, half(torch.tensor([[1]]))[:, -1])
