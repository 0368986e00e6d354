"""Compare the packed products of one token with the model itself."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from torch import nn

from inference.packed import MAX_JOINED, Packed
from model import KVCache, ablate
from model.layers import RMSNorm


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


def test_settings_that_are_not_known_are_left_to_the_model(make_model):
    assert Packed(make_model().bfloat16()).layers is None
    model = make_model(logit_softcap=2.0).double()
    assert Packed(model).layers is None
    assert_equal(*both(model, torch.randint(13, (2, 8))))


def test_matrices_of_their_own_and_a_full_cache(make_model):
    model = make_model(tied_embeddings=False).double()
    assert_equal(*both(model, torch.randint(13, (2, 8))))
    with pytest.raises(ValueError, match="9 tokens exceed context_length=8"):
        both(model, torch.randint(13, (2, 9)))


@torch.inference_mode()
def test_a_cache_after_a_call_that_was_interrupted(make_model):
    model, tokens = make_model().double(), torch.randint(13, (1, 5))
    cache, packed = KVCache(model.config, 1, dtype=torch.float64), Packed(model)
    model.hidden(tokens[:, :4], cache)
    cache.layers[0].append(*torch.ones(2, 1, 4, 1, 4, dtype=torch.float64))
    assert_equal(packed.logits(tokens[:, 4:], cache), model(tokens)[:, -1])


@contextmanager
def hooked(register):
    handle = register(
        lambda module, inputs, output: 2 * output if isinstance(module, nn.Linear) else None
    )
    yield
    handle.remove()


ATTACHED = {
    "an edit": lambda model: ablate(model, [(0, 1)], "zero"),
    "an edit of an MLP": lambda model: ablate(model, [], "zero", mlps=[1]),
    "a hook": lambda model: hooked(model.blocks[1].mlp.down.register_forward_hook),
    "a hook of all modules": lambda model: hooked(nn.modules.module.register_module_forward_hook),
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
    """A part of a user."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return self.module(*inputs) / 2


class Linear(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


CHANGES = {
    "another MLP": lambda model: setattr(model.blocks[1], "mlp", Halved(model.blocks[1].mlp)),
    "another unembedding": lambda model: setattr(model, "unembedding", Halved(model.unembedding)),
    "one epsilon": lambda model: setattr(model.blocks[0].attention.key_norm, "eps", 1.0),
    "no epsilon": lambda model: setattr(model, "final_norm", RMSNorm(16)),
    "one bias less": lambda model: setattr(model.blocks[0].attention.key, "bias", None),
    "fewer layers": lambda model: setattr(model, "blocks", model.blocks[:1]),
    "a layer twice": lambda model: model.blocks.__setitem__(1, model.blocks[0]),
    "a method": lambda model: setattr(model.blocks[0].mlp, "forward", torch.zeros_like),
    "a method of the model": lambda model: setattr(model, "logits", lambda hidden: 2 * hidden),
    "a class of the same name": lambda model: setattr(model.blocks[0].mlp, "down", Linear(64, 16)),
    "a window": lambda model: setattr(model.blocks[0].attention, "window", 3),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_model_that_was_changed_is_asked_itself(make_model, name):
    model = make_model(bias=True).double()
    CHANGES[name](model)
    assert Packed(model.double()).layers is None
