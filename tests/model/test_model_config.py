"""ModelConfig accepts valid settings and names invalid ones."""

from __future__ import annotations

import math

import pytest


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_layers", 0),
        ("n_heads", 3),
        ("d_model", 18),
        ("n_kv_heads", 3),
        ("d_head", 5),
        ("dropout", 1.0),
        ("dropout", math.nan),
        ("norm", "batchnorm"),
        ("mlp", "relu"),
        ("rope_theta", math.inf),
        ("window", 0),
        ("logit_softcap", 0.0),
        ("n_layers", 2.0),
        ("window", 2.5),
        ("qk_norm", "false"),
        ("norm", None),
    ],
)
def test_a_value_out_of_range_is_named(make_config, field, value):
    with pytest.raises(ValueError) as caught:
        make_config(**{field: value})
    message = str(caught.value)
    named = "n_heads" if (field, value) == ("d_model", 18) else field
    assert message.startswith(f"{named}: ") and "\n" not in message
    assert ";" in message, "the suggested fix follows the semicolon"


def test_default_sizes(make_config):
    config = make_config(d_model=48, mlp="gelu")
    assert (config.n_kv_heads, config.d_head, config.d_mlp) == (4, 12, 192)
    assert make_config(d_model=48, mlp="swiglu").d_mlp == 128
    assert make_config(d_model=64, mlp="swiglu").d_mlp == 192  # 170.7, rounded up
    chosen = make_config(n_kv_heads=2, d_head=6, d_mlp=7)
    assert (chosen.n_kv_heads, chosen.d_head, chosen.d_mlp) == (2, 6, 7)
