"""Random models of the three families that other programs know, and their config.json."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from launch.schema import preset
from model import GPT, ModelConfig

GPT2 = {"norm": "layernorm", "position": "learned", "mlp": "gelu"}
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {**GPT2, "qk_norm": False, "bias": True},
    "llama": {"qk_norm": False},
    "qwen3": {"qk_norm": True, "bias": False},
}
# config.json of small models, as transformers writes it.
JSON: dict[str, dict[str, Any]] = {
    "llama": {
        **{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4},
        **{"hidden_size": 24, "intermediate_size": 40, "max_position_embeddings": 32},
        **{"rms_norm_eps": 1e-6, "vocab_size": 50},
    },
    "gpt2": {
        **{"model_type": "gpt2", "n_layer": 2, "n_head": 3, "n_embd": 27, "n_positions": 32},
        **{"layer_norm_epsilon": 1e-5, "vocab_size": 50},
    },
}


def make_config(family: str, **settings: Any) -> ModelConfig:
    sizes = {"n_layers": 2, "n_heads": 4, "d_model": 32, "context_length": 64}
    return preset("model", "nano", **{**sizes, **FAMILIES[family], **settings})


def make_model(config: ModelConfig, vocab_size: int, seed: int = 0, std: float = 0.4) -> GPT:
    """A model in which every parameter is random, including biases and norms."""
    torch.manual_seed(seed)
    model = GPT(config, vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(mean=1.0 if parameter.dim() == 1 else 0.0, std=std)
    return model.eval()


def parameters(model: GPT) -> dict[str, Tensor]:
    """The weights of a model by name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@st.composite
def configs(draw: st.DrawFn, family: str) -> ModelConfig:
    """Sizes of all kinds: odd widths, and rows of 32 and 64, which q8_0 can hold."""
    n_heads = draw(st.integers(1, 6))
    settings: dict[str, Any] = {
        "n_layers": draw(st.integers(1, 3)),
        "n_heads": n_heads,
        "context_length": draw(st.integers(5, 64)),
        "d_mlp": draw(st.sampled_from([7, 24, 32, 64])),
        "tied_embeddings": draw(st.booleans()),
        "norm_eps": draw(st.sampled_from([1e-5, 1e-6])),
    }
    if family != "qwen3":
        settings["bias"] = draw(st.booleans())
    if family == "gpt2":
        settings["d_model"] = n_heads * draw(st.sampled_from([3, 5, 8, 32]))
        settings["dropout"] = draw(st.sampled_from([0.0, 0.1]))
        settings["attention_dropout"] = draw(st.sampled_from([None, 0.0, 0.3]))
    else:
        wide = [9, 31, 32, 64] if family == "qwen3" else [n_heads * each for each in (3, 5, 8, 32)]
        settings["d_model"] = draw(st.sampled_from(wide))
        settings["n_kv_heads"] = draw(
            st.sampled_from([each for each in range(1, n_heads + 1) if n_heads % each == 0])
        )
        settings["d_head"] = draw(st.sampled_from([2, 6, 10, 16]))
        settings["rope_theta"] = draw(st.sampled_from([500.0, 10_000.0, 1e6]))
    return make_config(family, **settings)
