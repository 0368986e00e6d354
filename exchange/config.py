"""config.json of Hugging Face transformers, from and to the settings of a model.

Promises: what is translated is the same function; what our models cannot represent exactly is an
error that names the key, never an approximation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from common.errors import check_range
from common.files import read_json
from exchange.families import ARCHITECTURES, family
from model import ModelConfig
from model.config import MAX_SIZE

# Keys of config.json with the values that our models can represent, first the default.
LLAMA_ONLY: dict[str, tuple[Any, ...]] = {
    "is_causal": (True,),
    "hidden_act": ("silu", "swish"),
    "partial_rotary_factor": (1.0,),
    "quantization_config": (None,),
}
ONLY: dict[str, dict[str, tuple[Any, ...]]] = {
    "gpt2": {
        "is_causal": (True,),
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
        "quantization_config": (None,),
    },
    "llama": LLAMA_ONLY,
    "qwen3": {**LLAMA_ONLY, "attention_bias": (False,), "use_sliding_window": (False,)},
    # Without its window, a Llama without biases.
    "mistral": {
        **LLAMA_ONLY,
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "sliding_window": (None,),
    },
}
# Our names of the sizes, and the keys of config.json.
SIZES = {
    "gpt2": {
        "n_layers": "n_layer",
        "n_heads": "n_head",
        "d_model": "n_embd",
        "d_mlp": "n_inner",
        "context_length": "n_positions",
        "norm_eps": "layer_norm_epsilon",
    },
    "llama": {
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "n_kv_heads": "num_key_value_heads",
        "d_model": "hidden_size",
        "d_head": "head_dim",
        "d_mlp": "intermediate_size",
        "context_length": "max_position_embeddings",
        "norm_eps": "rms_norm_eps",
    },
}
SIZES["qwen3"] = SIZES["mistral"] = SIZES["llama"]
DERIVED = ("n_kv_heads", "d_head", "d_mlp")  # from the other sizes, if they are null
# What transformers takes for keys that its configs and those on the hub leave out.
LLAMA_DEFAULTS: dict[str, Any] = {
    **{"tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False},
    "rope_theta": 10_000.0,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_inner": None, "tie_word_embeddings": True},
    "llama": {**LLAMA_DEFAULTS, "num_key_value_heads": None, "head_dim": None},
    "qwen3": LLAMA_DEFAULTS,
    "mistral": {
        **LLAMA_DEFAULTS,
        **{"num_key_value_heads": 8, "head_dim": None, "sliding_window": 4096},
    },
}


def to_config(config: ModelConfig, vocab_size: int) -> dict[str, Any]:
    """config.json of the model. Raises as `family` does."""
    kind = family(config)
    metadata = {
        "architectures": [ARCHITECTURES[kind]],
        "model_type": kind,
        "vocab_size": vocab_size,
        "tie_word_embeddings": config.tied_embeddings,
        "initializer_range": 0.02,
        "use_cache": True,
        **{key: getattr(config, name) for name, key in SIZES[kind].items()},
    }
    if kind == "gpt2":
        attention = config.attention_dropout
        return metadata | {
            "resid_pdrop": config.dropout,
            "embd_pdrop": config.dropout,
            "attn_pdrop": config.dropout if attention is None else attention,
            "activation_function": "gelu_new",
        }
    metadata |= {
        "hidden_act": "silu",
        "attention_bias": config.bias,
        "attention_dropout": 0.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "rope_theta": config.rope_theta,  # where version 4 and other programs look for it
    }
    if kind == "llama":
        return metadata | {"mlp_bias": config.bias}
    # mistral.rs demands the last two.
    window = {"use_sliding_window": False, "sliding_window": None}
    return metadata | window | {"max_window_layers": config.n_layers}


def read_config(folder: Path) -> tuple[ModelConfig, int]:
    """The model that config.json in a folder describes, and the size of its vocabulary. Raises
    ValueError if the file is damaged or the model cannot be represented."""
    try:
        values = read_json(folder / "config.json")
        if not isinstance(values, dict):
            raise ValueError("is not an object; choose another folder")
        return from_config(values)
    except (OSError, ValueError) as error:
        raise ValueError(f"config.json: {error}") from error


def from_config(values: Mapping[str, Any]) -> tuple[ModelConfig, int]:
    """The model that a config.json describes, and the size of its vocabulary.

    Raises ValueError, naming the key, for what our models cannot represent exactly, and for a size
    that is missing.
    """
    kind: Any = values.get("model_type")
    if kind not in [*SIZES]:
        raise ValueError(
            f"model_type: {kind!r:.80} cannot be converted; choose a model of type "
            f"{', '.join(SIZES)}"
        )
    values = {**DEFAULTS[kind], **values}
    for key, allowed in ONLY[kind].items():
        value = values.get(key, allowed[0])
        if value not in allowed:
            raise ValueError(
                f"{key}: {value!r:.80} cannot be represented; choose a model "
                f"where it is {allowed[0]!r}"
            )
    vocab_size = _typed(values, "vocab_size", int)
    check_range("vocab_size", vocab_size, 1, MAX_SIZE)
    sizes = {
        name: _typed(values, key, float if name == "norm_eps" else int)
        for name, key in SIZES[kind].items()
        if name not in DERIVED or values.get(key, ...) is not None
    }
    sizes = dict.fromkeys(DERIVED) | sizes
    tied = _typed(values, "tie_word_embeddings", bool)
    design = GPT2 if kind == "gpt2" else _llama(values, kind)
    try:
        return ModelConfig(**sizes, **design, dropout=0.0, tied_embeddings=tied), vocab_size
    except ValueError as error:
        ours = rf"\b({'|'.join(SIZES[kind])})\b"
        raise ValueError(re.sub(ours, lambda found: SIZES[kind][found[0]], str(error))) from error


# The settings that are no sizes.
GPT2 = {
    **{"norm": "layernorm", "position": "learned", "mlp": "gelu", "qk_norm": False},
    **{"bias": True, "rope_theta": 10_000.0},
}


def _llama(values: Mapping[str, Any], kind: str) -> dict[str, Any]:
    bias, mlp_bias = (_typed(values, f"{part}_bias", bool) for part in ("attention", "mlp"))
    if kind == "llama" and mlp_bias != bias:
        raise ValueError(
            "mlp_bias: differs from attention_bias, which cannot be represented; "
            "choose another model"
        )
    layers = values.get("layer_types")
    layers = [] if layers is None else _typed(values, "layer_types", list)
    if any(layer != "full_attention" for layer in layers):
        raise ValueError(
            "layer_types: has layers without full attention (such as sliding windows),"
            " which cannot be represented; choose another model"
        )
    return {
        **{"norm": "rmsnorm", "position": "rotary", "mlp": "swiglu", "qk_norm": kind == "qwen3"},
        **{"bias": bias, "rope_theta": _rope_theta(values)},
    }


def _rope_theta(values: Mapping[str, Any]) -> float:
    """The base of the rotary frequencies, from `rope_scaling` (which goes before the others, as in
    transformers), `rope_parameters` or, older, `rope_theta`."""
    for key in ("rope_scaling", "rope_parameters"):
        rope = _typed(values, key, dict) if values.get(key) is not None else {}
        kind = rope.get("rope_type") or rope.get("type") or "default"
        factors = {name: value for name, value in rope.items() if name.endswith("factor")}
        known = {"rope_theta", "rope_type", "type", *factors}
        is_scaled = kind not in ("default", "linear") or any(n != 1.0 for n in factors.values())
        if is_scaled or not known.issuperset(rope):
            raise ValueError(
                f"{key}: {rope!r:.80} cannot be represented; choose a model without rope scaling"
            )
        if rope:
            break
    return _typed({**values, **rope}, "rope_theta", float)


def _typed(values: Mapping[str, Any], key: str, kind: Callable[[Any], Any]) -> Any:
    """A value of this type; of a float, also an integer that it can represent."""
    if key not in values:
        raise ValueError(f"{key}: is missing; choose another model")
    value = values[key]
    if type(value) is kind or (type(value) is int and kind is float and abs(value) < 1e300):
        return kind(value)
    raise ValueError(f"{key}: {value!r:.80} has the wrong type; choose another model")
