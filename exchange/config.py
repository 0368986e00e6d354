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
    "rope_scaling": (None,),
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
}
# Other names that transformers knows for the keys of GPT-2, and prefers.
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
DERIVED = ("n_kv_heads", "d_head", "d_mlp")  # from the other sizes, if they are null
# What transformers takes for keys that are missing.
DEFAULTS: dict[str, dict[str, Any]] = {
    "gpt2": {
        **{"n_layer": 12, "n_head": 12, "n_embd": 768, "n_inner": None, "n_positions": 1024},
        **{"layer_norm_epsilon": 1e-5, "vocab_size": 50257, "tie_word_embeddings": True},
        **{"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1},
    },
    "llama": {
        **{"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": None},
        **{"hidden_size": 4096, "head_dim": None, "intermediate_size": 11008},
        **{"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "vocab_size": 32000},
        **{"tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False},
        "rope_theta": 10_000.0,
    },
}
DEFAULTS["qwen3"] = DEFAULTS["llama"] | {
    **{"num_key_value_heads": 32, "head_dim": 128, "intermediate_size": 22016},
    **{"max_position_embeddings": 32768, "vocab_size": 151936},
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
    kind_only = {"mlp_bias": config.bias} if kind == "llama" else {"use_sliding_window": False}
    return metadata | kind_only


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

    Keys that are missing have the defaults of transformers. Raises ValueError, naming the key, for
    what our models cannot represent exactly.
    """
    kind: Any = values.get("model_type")
    if kind not in [*ARCHITECTURES]:
        raise ValueError(
            f"model_type: {kind!r:.80} cannot be converted"
            f"{' (its query, key and value have biases)' if kind == 'qwen2' else ''}; choose a "
            f"model of type {', '.join(ARCHITECTURES)}"
        )
    for key, allowed in ONLY[kind].items():
        value = values.get(key, allowed[0])
        if not any(value == known and type(value) is type(known) for known in allowed):
            raise ValueError(
                f"{key}: {value!r:.80} cannot be represented; choose a model "
                f"where it is {allowed[0]!r}"
            )
    aliases = ALIASES if kind == "gpt2" else {}
    renamed = {key: values[alias] for alias, key in aliases.items() if alias in values}
    values = {**DEFAULTS[kind], **values, **renamed}
    vocab_size = _typed(values, "vocab_size", int)
    check_range("vocab_size", vocab_size, 1, MAX_SIZE)
    sizes = {
        name: _typed(values, key, float if name == "norm_eps" else int)
        for name, key in SIZES[kind].items()
        if name not in DERIVED or values[key] is not None
    }
    sizes = dict.fromkeys(DERIVED) | sizes
    tied = _typed(values, "tie_word_embeddings", bool)
    design = _gpt2(values) if kind == "gpt2" else _llama(values, kind)
    try:
        return ModelConfig(**sizes, **design, tied_embeddings=tied), vocab_size
    except ValueError as error:
        ours = rf"\b({'|'.join(SIZES[kind])})\b"
        raise ValueError(re.sub(ours, lambda found: SIZES[kind][found[0]], str(error))) from error


def _gpt2(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are no sizes."""
    resid, embd, attn = (_typed(values, f"{n}_pdrop", float) for n in ("resid", "embd", "attn"))
    # One probability stands for both: the smaller, as it is the safer choice for a finetuning.
    dropout = min(resid, embd)
    return {
        **{"norm": "layernorm", "position": "learned", "mlp": "gelu", "qk_norm": False},
        **{"bias": True, "rope_theta": 10_000.0, "dropout": dropout},
        "attention_dropout": None if attn == dropout else attn,
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
        **{"bias": bias, "rope_theta": _rope_theta(values), "dropout": 0.0},
    }


def _rope_theta(values: Mapping[str, Any]) -> float:
    """The base of the rotary frequencies, from `rope_parameters` or, older, `rope_theta`."""
    is_set = values.get("rope_parameters") is not None
    rope = _typed(values, "rope_parameters", dict) if is_set else {}
    known = {"rope_type": "default", "type": "default", "partial_rotary_factor": 1.0}
    if any(known.get(key) != value for key, value in rope.items() if key != "rope_theta"):
        raise ValueError(
            f"rope_parameters: {rope!r:.80} cannot be represented; choose a model without rope "
            "scaling"
        )
    return _typed({**values, **rope}, "rope_theta", float)


def _typed(values: Mapping[str, Any], key: str, kind: Callable[[Any], Any]) -> Any:
    """A value of this type; of a float, also an integer that it can represent."""
    value = values[key]
    if type(value) is kind or (type(value) is int and kind is float and abs(value) < 1e300):
        return kind(value)
    raise ValueError(f"{key}: {value!r:.80} has the wrong type; choose another model")
