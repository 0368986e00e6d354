"""Which model of Hugging Face transformers ours is, and the names of its weights there.

Promises: the two are the same function, weight for weight; a model that is not exactly one of the
three families is an error that names the setting.

    gpt2   GPT2LMHeadModel    layernorm, learned positions, gelu
    llama  LlamaForCausalLM   rmsnorm, rotary positions, swiglu
    qwen3  Qwen3ForCausalLM   the same with qk_norm
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from model import ModelConfig

ARCHITECTURES = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
PREFIXES = {"gpt2": "transformer.", "llama": "model.", "qwen3": "model."}

# Buffers that older versions stored among the weights: the causal mask, and rotary frequencies.
BUFFERS = re.compile(r"(.*\.)?(h\.\d+\.attn\.(masked_)?bias|rotary_emb\.inv_freq)")


class Part(NamedTuple):
    """A tensor of transformers: `parameters` of ours, one below the other, and then transposed if
    `transposed` (GPT-2 stores its matrices so, and query, key and value as one)."""

    name: str
    parameters: tuple[str, ...]
    transposed: bool = False


def family(config: ModelConfig) -> str:
    """gpt2, llama or qwen3. Raises ValueError, naming a setting, if the model is none of them."""
    config.check_known("other programs")
    is_gpt2 = config.norm == "layernorm"
    wanted: dict[str, Any] = {"position": "rotary", "mlp": "swiglu"}
    if is_gpt2:
        wanted = {
            **{"position": "learned", "mlp": "gelu", "qk_norm": False},
            **{"n_kv_heads": config.n_heads},
        }
        if config.d_head * config.n_heads != config.d_model:
            raise ValueError(
                f"model.d_head: {config.d_head} times n_heads={config.n_heads} is not "
                f"d_model={config.d_model}, as it is in GPT-2; the model cannot be converted"
            )
    elif config.qk_norm:
        wanted["bias"] = False
    elif config.d_model % config.n_heads:
        raise ValueError(
            f"model.d_model: {config.d_model} is not a multiple of n_heads={config.n_heads}, as "
            "transformers demands of Llama; the model cannot be converted"
        )
    for name, value in wanted.items():
        if getattr(config, name) != value:
            others = "layernorm" if is_gpt2 else "rmsnorm" + " and qk_norm" * config.qk_norm
            raise ValueError(
                f"model.{name}: {getattr(config, name)} together with {others} is neither GPT-2 "
                f"nor Llama nor Qwen3, where it is {value}; the model cannot be converted"
            )
    return "gpt2" if is_gpt2 else "qwen3" if config.qk_norm else "llama"


def parts(config: ModelConfig) -> Iterator[Part]:
    """Every tensor that transformers stores for the model, with the parameters of ours in it.

    A model of GPT-2's kind without biases has no such parameter: there the bias is zero.
    """
    kind = family(config)
    prefix = PREFIXES[kind]
    is_gpt2 = kind == "gpt2"
    kinds = ("weight", "bias") if is_gpt2 or config.bias else ("weight",)
    embedding, final = ("wte", "ln_f") if is_gpt2 else ("embed_tokens", "norm")
    yield Part(f"{prefix}{embedding}.weight", ("token_embedding.weight",))
    if is_gpt2:
        yield Part(f"{prefix}wpe.weight", ("position.weight",))
    for index in range(config.n_layers):
        theirs, ours = (f"{prefix}{'h' if is_gpt2 else 'layers'}.{index}", f"blocks.{index}")
        for name, modules in (GPT2_LINEARS if is_gpt2 else LLAMA_LINEARS).items():
            for suffix in kinds:
                parameters = tuple(f"{ours}.{module}.{suffix}" for module in modules)
                yield Part(f"{theirs}.{name}.{suffix}", parameters, is_gpt2 and suffix == "weight")
        for name, module in (GPT2_NORMS if is_gpt2 else LLAMA_NORMS).items():
            for suffix in kinds if is_gpt2 else ("weight",):
                yield Part(f"{theirs}.{name}.{suffix}", (f"{ours}.{module}.{suffix}",))
        for name in ("query", "key") if config.qk_norm else ():
            norm = f"{ours}.attention.{name}_norm.weight"
            yield Part(f"{theirs}.self_attn.{name[0]}_norm.weight", (norm,))
    for suffix in kinds if is_gpt2 else ("weight",):
        yield Part(f"{prefix}{final}.{suffix}", (f"final_norm.{suffix}",))
    if not config.tied_embeddings:
        yield Part("lm_head.weight", ("unembedding.weight",))


GPT2_LINEARS = {
    "attn.c_attn": ("attention.query", "attention.key", "attention.value"),
    "attn.c_proj": ("attention.output",),
    "mlp.c_fc": ("mlp.up",),
    "mlp.c_proj": ("mlp.down",),
}
GPT2_NORMS = {"ln_1": "attention_norm", "ln_2": "mlp_norm"}
LLAMA_LINEARS = {
    "self_attn.q_proj": ("attention.query",),
    "self_attn.k_proj": ("attention.key",),
    "self_attn.v_proj": ("attention.value",),
    "self_attn.o_proj": ("attention.output",),
    "mlp.gate_proj": ("mlp.gate",),
    "mlp.up_proj": ("mlp.up",),
    "mlp.down_proj": ("mlp.down",),
}
LLAMA_NORMS = {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm"}
