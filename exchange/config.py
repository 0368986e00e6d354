"""config.json of Hugging Face transformers, from and to the settings of a model.

Promises: what is translated is the same function; what our models cannot represent exactly is an
error that names the key, never an approximation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from errors import check_range
from files import read_json
from model import ModelConfig
from model.config import MAX_SIZE
from model.hugging_face import ARCHITECTURES, family

# Keys of config.json with one value that our models can represent, which is also their default.
ONLY: dict[str, dict[str, tuple[Any, ...]]] = {
    "gpt2": {
        "is_causal": (True,),
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    },
    "llama": {
        "is_causal": (True,),
        "hidden_act": ("silu", "swish"),
        "rope_scaling": (None,),
    },
    "qwen3": {
        "is_causal": (True,),
        "hidden_act": ("silu", "swish"),
        "rope_scaling": (None,),
        "attention_bias": (False,),
        "use_sliding_window": (False,),
    },
}


# Other names that transformers knows for the keys of GPT-2.
ALIASES = {
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
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
SIZES["qwen3"] = SIZES["llama"]


def to_config(config: ModelConfig, vocab_size: int) -> dict[str, Any]:
    """config.json of the model. Raises as `family` does."""
    kind = family(config)
    about = {
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
        return about | {
            "resid_pdrop": config.dropout,
            "embd_pdrop": config.dropout,
            "attn_pdrop": config.dropout if attention is None else attention,
            "activation_function": "gelu_new",
        }
    about |= {
        "hidden_act": "silu",
        "attention_bias": config.bias,
        "attention_dropout": 0.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "rope_theta": config.rope_theta,  # where version 4 and other programs look for it
    }
    return about | ({"mlp_bias": config.bias} if kind == "llama" else {"use_sliding_window": False})


def read_config(folder: Path) -> tuple[ModelConfig, int]:
    """The model that config.json in a folder describes, and the size of its vocabulary. Raises
    ValueError if the file is damaged or the model cannot be represented."""
    try:
        values = read_json(folder / "config.json")
        if not isinstance(values, dict):
            raise ValueError("is not an object; choose another folder")
        return from_config(values)
    except OSError as error:
        raise ValueError(f"config.json: {error.strerror}; choose another folder") from error
    except ValueError as error:
        raise ValueError(f"config.json: {error}") from error


def from_config(values: Mapping[str, Any]) -> tuple[ModelConfig, int]:
    """The model that a config.json describes, and the size of its vocabulary.

    Keys that are missing have the defaults of transformers. Raises ValueError, naming the key, for
    what our models cannot represent exactly.
    """
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        raise ValueError(
            f"model_type: {kind!r:.80} cannot be converted"
            f"{' (its query, key and value have biases)' if kind == 'qwen2' else ''}; choose a "
            f"model of type {', '.join(ARCHITECTURES)}"
        )
    for key, allowed in ONLY[kind].items():
        if values.get(key, allowed[0]) not in allowed:
            raise ValueError(
                f"{key}: {values[key]!r:.80} cannot be represented; choose a model "
                f"where it is {allowed[0]!r}"
            )
    if values.get("quantization_config") is not None:
        raise ValueError(
            "quantization_config: quantized weights cannot be converted; choose the "
            "model before it was quantized"
        )
    read = _Reader(_without_aliases(values) if kind == "gpt2" else values)
    vocab_size = read.integer("vocab_size", {"gpt2": 50257, "llama": 32000, "qwen3": 151936}[kind])
    check_range("vocab_size", vocab_size, 1, MAX_SIZE)
    try:
        model = _gpt2(read) if kind == "gpt2" else _llama(read, kind)
    except ValueError as error:
        ours = rf"\b({'|'.join(SIZES[kind])})\b"
        raise ValueError(re.sub(ours, lambda found: SIZES[kind][found[0]], str(error))) from error
    return model, vocab_size


def _without_aliases(values: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in values.items() if key not in ALIASES}
    for alias, key in ALIASES.items():
        if alias in values and found.setdefault(key, values[alias]) != values[alias]:
            raise ValueError(f"{alias}: differs from {key}, which means the same; remove one")
    return found


def _gpt2(read: _Reader) -> ModelConfig:
    n_heads, d_model = read.integer("n_head", 12), read.integer("n_embd", 768)
    check_range("n_head", n_heads, 1, MAX_SIZE)
    if d_model % n_heads:
        raise ValueError(
            f"n_head: {n_heads} does not divide n_embd={d_model}; choose another model"
        )
    # One probability stands for both: the smaller, as it is the safer choice for a finetuning.
    dropout = min(read.number("resid_pdrop", 0.1), read.number("embd_pdrop", 0.1))
    attention_dropout = read.number("attn_pdrop", 0.1)
    return ModelConfig(
        n_layers=read.integer("n_layer", 12),
        n_heads=n_heads,
        d_model=d_model,
        context_length=read.integer("n_positions", 1024),
        n_kv_heads=n_heads,
        d_head=d_model // n_heads,
        d_mlp=read.integer("n_inner", 4 * d_model),
        dropout=dropout,
        attention_dropout=None if attention_dropout == dropout else attention_dropout,
        norm="layernorm",
        position="learned",
        mlp="gelu",
        qk_norm=False,
        bias=True,
        tied_embeddings=read.boolean("tie_word_embeddings", True),
        rope_theta=10_000.0,
        norm_eps=read.number("layer_norm_epsilon", 1e-5),
    )


def _llama(read: _Reader, kind: str) -> ModelConfig:
    is_llama = kind == "llama"
    n_heads = read.integer("num_attention_heads", 32)
    d_model = read.integer("hidden_size", 4096)
    bias = read.boolean("attention_bias", False)
    if is_llama and read.boolean("mlp_bias", False) != bias:
        raise ValueError(
            "mlp_bias: differs from attention_bias, which cannot be represented; "
            "choose another model"
        )
    _check_layers(read.values)
    # Of Qwen3, a key that is missing does not mean what null means.
    is_given = is_llama or "num_key_value_heads" in read.values
    return ModelConfig(
        n_layers=read.integer("num_hidden_layers", 32),
        n_heads=n_heads,
        d_model=d_model,
        context_length=read.integer("max_position_embeddings", 2048 if is_llama else 32768),
        n_kv_heads=read.integer("num_key_value_heads", n_heads if is_given else 32),
        d_head=read.integer("head_dim", None if is_llama else 128),
        d_mlp=read.integer("intermediate_size", 11008 if is_llama else 22016),
        dropout=0.0,
        norm="rmsnorm",
        position="rotary",
        mlp="swiglu",
        qk_norm=not is_llama,
        bias=bias,
        tied_embeddings=read.boolean("tie_word_embeddings", False),
        rope_theta=_rope_theta(read),
        norm_eps=read.number("rms_norm_eps", 1e-6),
    )


def _check_layers(values: Mapping[str, Any]) -> None:
    kinds = values.get("layer_types")
    if kinds is not None and not (
        isinstance(kinds, list) and all(kind == "full_attention" for kind in kinds)
    ):
        raise ValueError(
            "layer_types: has layers without full attention (such as sliding windows),"
            " which cannot be represented; choose another model"
        )


def _rope_theta(read: _Reader) -> float:
    """The base of the rotary frequencies, from `rope_parameters` or, older, `rope_theta`."""
    rope = read.values.get("rope_parameters")
    if rope is None:
        check_choice_of_rope = read.values.get("partial_rotary_factor", 1.0)
        if check_choice_of_rope != 1.0:
            raise ValueError("partial_rotary_factor: cannot be represented; choose another model")
        return read.number("rope_theta", 10_000.0)
    if not isinstance(rope, dict):
        raise ValueError("rope_parameters: is not an object; choose another model")
    if (kind := rope.get("rope_type", "default")) != "default":
        raise ValueError(
            f"rope_parameters: rope scaling ({kind!r:.40}) cannot be represented; choose a model "
            "without it"
        )
    if rope.get("partial_rotary_factor", 1.0) != 1.0 or not rope.keys() <= {
        *("rope_type", "rope_theta", "partial_rotary_factor", "type"),
    }:
        raise ValueError(
            "rope_parameters: has values that cannot be represented; choose a model "
            "without rope scaling"
        )
    return _Reader(rope).number("rope_theta", read.number("rope_theta", 10_000.0))


class _Reader:
    """Values of config.json by their type. A key that is missing or null has the default."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def integer(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        if value is not None and type(value) is not int:
            raise ValueError(f"{key}: {value!r:.80} is not an integer; choose another model")
        return default if value is None else value

    def number(self, key: str, default: float) -> float:
        value = self.values.get(key)
        if value is not None and type(value) not in (int, float):
            raise ValueError(f"{key}: {value!r:.80} is not a number; choose another model")
        try:
            return float(default if value is None else value)
        except OverflowError:
            raise ValueError(f"{key}: is too large; choose another model") from None

    def boolean(self, key: str, default: bool) -> bool:
        value = self.values.get(key)
        if value is not None and type(value) is not bool:
            raise ValueError(
                f"{key}: {value!r:.80} is neither true nor false; choose another model"
            )
        return default if value is None else value
