"""Equality with Hugging Face transformers for both families, with every parameter copied."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3Config, Qwen3ForCausalLM

from model import GPT, KVCache

VOCAB = 29


def load(reference: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy `weights` into the reference, and fail unless they cover all of its parameters."""
    parameters = dict(reference.named_parameters())
    assert parameters.keys() == weights.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            assert parameter.shape == weights[name].shape, name
            parameter.copy_(weights[name])


def assert_same_logits(model: GPT, reference: nn.Module) -> None:
    tokens = torch.randint(VOCAB, (3, 12), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        expected = reference(tokens).logits
        close = partial(
            torch.testing.assert_close, rtol=1e-5, atol=1e-5 * float(expected.abs().max())
        )
        close(model(tokens), expected)
        cache = KVCache(model.config, batch=3)
        pieces = [model(piece, cache) for piece in tokens.split([7, 1, 4], dim=1)]
        close(torch.cat(pieces, 1), expected)
    assert expected.std() > 0.1, "the logits must not be almost constant"


@pytest.mark.parametrize("tied", [True, False])
def test_gpt2(make_model, tied):
    model = make_model(
        VOCAB,
        n_layers=3,
        context_length=12,
        norm="layernorm",
        position="learned",
        mlp="gelu",
        qk_norm=False,
        bias=True,
        tied_embeddings=tied,
    )
    reference = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB,
            n_layer=3,
            n_head=4,
            n_embd=16,
            n_positions=12,
            tie_word_embeddings=tied,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).eval()
    weights = {
        "transformer.wte.weight": model.token_embedding.weight,
        "transformer.wpe.weight": model.position.weight,
        "transformer.ln_f.weight": model.final_norm.weight,
        "transformer.ln_f.bias": model.final_norm.bias,
    }
    if not tied:
        weights["lm_head.weight"] = model.unembedding.weight
    for index, block in enumerate(model.blocks):
        qkv = (block.attention.query, block.attention.key, block.attention.value)
        layer = f"transformer.h.{index}"
        # GPT-2 stores its linear layers transposed, and query, key and value as one matrix.
        for name, linears in (
            ("attn.c_attn", qkv),
            ("attn.c_proj", (block.attention.output,)),
            ("mlp.c_fc", (block.mlp.up,)),
            ("mlp.c_proj", (block.mlp.down,)),
        ):
            weights[f"{layer}.{name}.weight"] = torch.cat([part.weight for part in linears]).T
            weights[f"{layer}.{name}.bias"] = torch.cat([part.bias for part in linears])
        for name, norm in (("ln_1", block.attention_norm), ("ln_2", block.mlp_norm)):
            weights[f"{layer}.{name}.weight"] = norm.weight
            weights[f"{layer}.{name}.bias"] = norm.bias
    load(reference, weights)
    assert_same_logits(model, reference)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n_kv_heads", "d_head"), [(4, 4), (2, 6), (1, 10)])
def test_qwen3(make_model, tied, bias, n_kv_heads, d_head):
    model = make_model(
        VOCAB,
        n_layers=3,
        context_length=12,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        d_mlp=24,
        rope_theta=1000.0,
        norm_eps=1e-6,
        bias=bias,
        tied_embeddings=tied,
    )
    reference = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCAB,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=n_kv_heads,
            head_dim=d_head,
            rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
            attention_bias=bias,
            tie_word_embeddings=tied,
        )
    ).eval()
    weights = {
        "model.embed_tokens.weight": model.token_embedding.weight,
        "model.norm.weight": model.final_norm.weight,
    }
    if not tied:
        weights["lm_head.weight"] = model.unembedding.weight
    for index, block in enumerate(model.blocks):
        attention, mlp = block.attention, block.mlp
        for name, module in (
            ("self_attn.q_proj", attention.query),
            ("self_attn.k_proj", attention.key),
            ("self_attn.v_proj", attention.value),
            ("self_attn.o_proj", attention.output),
            ("self_attn.q_norm", attention.query_norm),
            ("self_attn.k_norm", attention.key_norm),
            ("mlp.gate_proj", mlp.gate),
            ("mlp.up_proj", mlp.up),
            ("mlp.down_proj", mlp.down),
            ("input_layernorm", block.attention_norm),
            ("post_attention_layernorm", block.mlp_norm),
        ):
            for kind, parameter in module.named_parameters():
                if kind == "bias" and name.startswith("mlp"):
                    with torch.no_grad():
                        parameter.zero_()  # Qwen3's MLP has no biases
                else:
                    weights[f"model.layers.{index}.{name}.{kind}"] = parameter
    load(reference, weights)
    assert_same_logits(model, reference)
