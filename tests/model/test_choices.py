"""The settings of a model, and what blocks are built of: invalid ones are named, and what other
implementations do not know is refused; squared ReLU, windows, soft-capped logits, dropout and
RMSNorm, against explicit formulas."""

from __future__ import annotations

import math
import warnings
from dataclasses import MISSING, fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exchange.families import family as family_of
from model import KVCache, ModelConfig, record_attention
from model.layers import Dropout, RMSNorm
from tests.conftest import small_config

TOKENS = torch.randint(13, (3, 8), generator=torch.Generator().manual_seed(1))


def test_relu2_is_the_square_of_what_is_positive(make_model):
    mlp = make_model(mlp="relu2", bias=True).blocks[0].mlp
    x = torch.randn(2, 3, 16)
    hidden = x @ mlp.up.weight.T + mlp.up.bias
    expected = torch.where(hidden > 0, hidden**2, 0.0) @ mlp.down.weight.T + mlp.down.bias
    torch.testing.assert_close(mlp(x), expected)
    assert mlp.up.out_features == 4 * 16


@pytest.mark.parametrize("window", [1, 3, 8, 100])
def test_a_window_limits_what_is_attended_to(make_model, window):
    """Recorded maps are zero outside, and inside a softmax over what is left of the scores."""
    model = make_model(window=window)
    with record_attention(model) as plain, record_attention(model, keep="steps") as steps:
        logits = model(TOKENS)
    assert not plain, "only the innermost recording is filled"
    for layer in steps:
        for query in range(8):
            seen = torch.tensor([query - window < key <= query for key in range(8)])
            scores = layer.scaled[:, :, query].masked_fill(~seen, -torch.inf)
            torch.testing.assert_close(layer.weights[:, :, query], scores.softmax(-1))
    # The fused kernels, and a cache that is filled in pieces.
    torch.testing.assert_close(model(TOKENS), logits, rtol=1e-4, atol=1e-5)
    cache = KVCache(model.config, batch=3)
    pieces = [model(piece, cache) for piece in TOKENS.split([3, 1, 1, 3], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), logits, rtol=1e-4, atol=1e-5)


def test_capped_logits(make_model):
    plain, capped = make_model()(TOKENS), make_model(logit_softcap=2.0)(TOKENS)
    torch.testing.assert_close(capped, 2 * torch.tanh(plain / 2))
    assert capped.abs().max() < 2 < plain.abs().max()


OTHERS = {"norm": "new", "position": "new", "mlp": "relu2", "window": 4, "logit_softcap": 30.0}


@pytest.mark.parametrize("name", [field.name for field in fields(ModelConfig)])
def test_what_others_do_not_know_is_refused(name):
    """Every field: its values are known, or another one than those that are known is refused."""
    config = small_config(1, 2, 8, 4)
    if name not in OTHERS:
        defaults = {field.name for field in fields(ModelConfig) if field.default is not MISSING}
        assert name not in defaults - {"attention_dropout"}
        assert family_of(config) == "qwen3"
        return
    object.__setattr__(config, name, OTHERS[name])
    with pytest.raises(ValueError, match=rf"^model\.{name}: {OTHERS[name]} is unknown to other"):
        family_of(config)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_layers", 0),
        ("n_heads", 3),
        ("n_kv_heads", 3),
        ("d_head", 5),
        ("dropout", 1.0),
        ("dropout", math.nan),
        ("norm", "batchnorm"),
        ("rope_theta", math.inf),
        ("window", 0),
        ("logit_softcap", 0.0),
        ("n_layers", 2.0),
        ("qk_norm", "false"),
        ("norm", None),
    ],
)
def test_a_value_out_of_range_is_named(make_config, field, value):
    with pytest.raises(ValueError, match=rf"^{field}: .*; ") as caught:  # what to do comes last
        make_config(**{field: value})
    assert "\n" not in str(caught.value)


def test_default_sizes(make_config):
    config = make_config(d_model=48, mlp="gelu")
    assert (config.n_kv_heads, config.d_head, config.d_mlp) == (4, 12, 192)
    assert make_config(d_model=48, mlp="swiglu").d_mlp == 128
    assert make_config(d_model=64, mlp="swiglu").d_mlp == 192  # 170.7, rounded up
    chosen = make_config(n_kv_heads=2, d_head=6, d_mlp=7)
    assert (chosen.n_kv_heads, chosen.d_head, chosen.d_mlp) == (2, 6, 7)


@given(
    shape=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    p=st.floats(0.01, 0.99),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    seed=st.integers(0, 2**32),
)
def test_elements_and_gradients_are_dropped_or_scaled(
    shape: list[int], p: float, dtype: torch.dtype, seed: int
) -> None:
    torch.manual_seed(seed)
    x = torch.rand(shape, dtype=dtype).add_(0.5).requires_grad_()
    dropout = Dropout(p)
    y = dropout(x)
    y.sum().backward()
    assert y.dtype == dtype and y.shape == x.shape and x.grad is not None
    kept = y != 0
    scale = kept / (1 - p)
    # The probability has 16 bits: the scale differs by at most 2^-17 / (1 - p) of itself.
    tolerance = 2**-17 / (1 - p) + torch.finfo(dtype).eps
    torch.testing.assert_close(y.double(), x.double() * scale, rtol=2 * tolerance, atol=0)
    torch.testing.assert_close(x.grad.double(), scale.double(), rtol=2 * tolerance, atol=0)
    torch.manual_seed(seed)
    torch.rand(shape, dtype=dtype)
    assert torch.equal(dropout(x), y), "depends only on torch's seed"
    assert torch.equal(dropout.eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)


@pytest.mark.parametrize("p", [1e-9, 1 - 1e-9, 1.0])
def test_extreme_probabilities_are_those_of_pytorch(p: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(1000)
    assert torch.equal(Dropout(p)(x), x if p < 0.5 else torch.zeros(1000))


@pytest.mark.parametrize("p", [0.001, 0.1, 0.2, 0.5, 0.9])
def test_the_share_is_the_probability_and_neighbours_are_independent(p: float) -> None:
    torch.manual_seed(0)
    dropped = Dropout(p)(torch.ones(1 << 20)) == 0

    def check(events: torch.Tensor, probability: float) -> None:
        error = math.sqrt(probability * (1 - probability) / len(events))
        assert abs(events.double().mean().item() - probability) < 5 * error

    check(dropped, p)
    for first in range(4):  # of the four elements that one random number decides on
        check(dropped[first::4], p)
    for distance in (1, 2, 3, 4):
        both = dropped[:-distance] & dropped[distance:]
        for first in range(4):
            check(both[first::4], p * p)


def test_bfloat16_activations_with_a_float32_gain() -> None:
    """As under autocast; without the warning of PyTorch's own module."""
    torch.manual_seed(0)
    x = torch.randn(3, 50, 24).bfloat16().requires_grad_()
    norm = RMSNorm(24, eps=0.5)
    with torch.no_grad():
        norm.weight.normal_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = norm(x)
    slope = torch.randn(found.shape).bfloat16()
    found.backward(slope)

    exact = x.detach().double().requires_grad_()
    gain = norm.weight.detach().bfloat16().double()
    expected = exact / (exact.square().mean(-1, keepdim=True) + 0.5).sqrt() * gain
    expected.backward(slope.double())
    assert found.dtype == torch.bfloat16 and x.grad is not None and exact.grad is not None
    assert norm.weight.grad is not None and norm.weight.grad.dtype == torch.float32
    # bfloat16 has 8 bits.
    torch.testing.assert_close(found.double(), expected, rtol=2**-7, atol=0)
    torch.testing.assert_close(x.grad.double(), exact.grad, rtol=2**-7, atol=2**-7)
