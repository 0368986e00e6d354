"""ModelConfig accepts valid settings and names invalid ones."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest
from omegaconf import OmegaConf

from model import ModelConfig
from tests.conftest import small_config


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_layers", 0),
        ("n_heads", 0),
        ("n_heads", 3),
        ("n_heads", -4),
        ("d_model", 0),
        ("d_model", 18),
        ("context_length", 0),
        ("n_kv_heads", 0),
        ("n_kv_heads", 3),
        ("n_kv_heads", 8),
        ("d_head", 0),
        ("d_head", 5),
        ("d_mlp", 0),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("dropout", math.nan),
        ("norm", "batchnorm"),
        ("position", ""),
        ("mlp", "relu"),
        ("rope_theta", 0.0),
        ("rope_theta", math.inf),
        ("norm_eps", 0.0),
        ("norm_eps", math.nan),
        ("window", 0),
        ("logit_softcap", 0.0),
        ("logit_softcap", math.nan),
    ],
)
def test_a_value_out_of_range_is_named(make_config, field, value):
    with pytest.raises(ValueError) as caught:
        make_config(**{field: value})
    message = str(caught.value)
    named = "n_heads" if (field, value) == ("d_model", 18) else field
    assert message.startswith(f"{named}: ") and "\n" not in message
    assert ";" in message, "the suggested fix follows the semicolon"


def test_the_suggested_fixes_work(make_config):
    with pytest.raises(ValueError, match=r"choose 1, 2, 4, 8, 16, or set d_head"):
        make_config(n_heads=3)
    make_config(n_heads=3, d_head=4)
    make_config(d_head=5, position="learned")


def test_default_sizes(make_config):
    config = make_config(d_model=48, mlp="gelu")
    assert (config.n_kv_heads, config.d_head, config.d_mlp) == (4, 12, 192)
    assert make_config(d_model=48, mlp="swiglu").d_mlp == 128
    assert make_config(d_model=64, mlp="swiglu").d_mlp == 192  # 170.7, rounded up
    chosen = make_config(n_kv_heads=2, d_head=6, d_mlp=7)
    assert (chosen.n_kv_heads, chosen.d_head, chosen.d_mlp) == (2, 6, 7)


def test_it_is_a_structured_config():
    values = {**asdict(small_config(2, 4, 16, 8)), "d_mlp": None}
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(ModelConfig), values))
    assert config == small_config(2, 4, 16, 8)
