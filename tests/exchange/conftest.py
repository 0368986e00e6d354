"""Models of all families that others know, and the checkpoints that hold them."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
import torch
from hypothesis import strategies as st

from configs.schema import preset
from model import GPT, ModelConfig
from tests.model.conftest import one_thread

__all__ = ["one_thread"]


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    """A model of GPT-2's, Llama's or Qwen3's family, of any sizes that it can have."""
    family = draw(st.sampled_from(["gpt2", "llama", "qwen3"]))
    n_heads = draw(st.integers(1, 6))
    common = {
        "n_layers": draw(st.integers(1, 3)),
        "n_heads": n_heads,
        "context_length": draw(st.integers(5, 64)),
        "tied_embeddings": draw(st.booleans()),
        "d_mlp": draw(st.integers(1, 40)),
        "norm_eps": draw(st.sampled_from([1e-6, 1e-5, 1e-3])),
    }
    if family == "gpt2":
        d_model = n_heads * draw(st.integers(3, 9))
        bias = draw(st.booleans())
        return preset("model", "nano_gpt2", **common, d_model=d_model, bias=bias)
    divisors = [n for n in range(1, n_heads + 1) if n_heads % n == 0]
    return preset(
        "model",
        "nano",
        **common,
        d_model=draw(st.integers(3, 40))
        if family == "qwen3"
        else n_heads * draw(st.integers(3, 9)),
        d_head=2 * draw(st.integers(1, 7)),
        n_kv_heads=draw(st.sampled_from(divisors)),
        rope_theta=draw(st.sampled_from([100.0, 500.0, 1e6])),
        qk_norm=family == "qwen3",
        bias=family == "llama" and draw(st.booleans()),
    )


def random_model(config: ModelConfig, vocab_size: int, seed: int = 0) -> GPT:
    """A model in which every parameter is random, including biases and norms."""
    torch.manual_seed(seed)
    model = GPT(config, vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(mean=1.0 if parameter.dim() == 1 else 0.0, std=0.2)
    return model.eval()


def store(model: GPT, file: Path) -> Path:
    """The parameters of a model as a checkpoint holds them."""
    safetensors.torch.save_file(
        {name: each.detach() for name, each in model.named_parameters()}, file
    )
    return file
