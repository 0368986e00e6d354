"""The usual mistakes are answered with what to give instead; what can be shown is not refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, GptOssConfig, GptOssForCausalLM

from tensorboard_attention import encode

IDS = torch.tensor([[3, 1, 4, 1, 5, 9]])


def gpt2(attention: str = "eager") -> Any:
    ids: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0, "vocab_size": 20}
    config = GPT2Config(n_layer=2, n_head=2, n_embd=16, n_positions=32, **ids)
    return GPT2LMHeadModel._from_config(config, attn_implementation=attention).eval()


def refusal(maps: Any, tokens: str) -> str:
    with pytest.raises(ValueError, match="maps: ") as raised:
        encode(maps, tokens)
    return str(raised.value)


def test_a_fused_kernel_returns_nothing() -> None:
    outputs = gpt2("sdpa")(IDS, output_attentions=True)
    assert outputs.attentions == ()
    message = refusal(outputs.attentions, "abcdef")
    assert 'attn_implementation="eager"' in message and "output_attentions=True" in message
    assert refusal(gpt2()(IDS).attentions, "abcdef").startswith("maps: is None; load")


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_generate_returns_layers_for_every_token(attention: str) -> None:
    options = {"output_attentions": True, "return_dict_in_generate": True}
    outputs = gpt2(attention).generate(IDS, min_new_tokens=3, max_new_tokens=3, **options)
    message = refusal(outputs.attentions, "abcdefghi")
    assert "generate()" in message and "model(ids, output_attentions=True).attentions" in message
    with torch.no_grad():  # what it says
        maps = gpt2()(outputs.sequences, output_attentions=True).attentions
    assert json.loads(encode(maps, "abcdefghi")[0])["heads"] == [2, 2]


def test_scores_before_softmax_are_refused() -> None:
    scores = torch.randn(1, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    for given in (scores, 3 * scores.abs(), scores - scores.sum(-1, keepdim=True)):
        weights = torch.stack([scores.softmax(-1)[0], given[0]], 1).flatten(0, 1)[None]
        message = refusal([scores.softmax(-1), weights], "abcdef")
        assert "layer 1, head 1, query 0 sum to" in message
        assert "scores before softmax?" in message


def test_dropout_is_refused() -> None:
    maps = gpt2().train()(IDS, output_attentions=True).attentions
    assert all(name in refusal(maps, "abcdef") for name in ("dropout", "model.eval()"))


def test_a_sink_is_not_taken_for_dropout() -> None:
    """The model adds a learned logit to each softmax and leaves its weight out of the maps."""
    sizes = {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 16, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1, "vocab_size": 32}
    config = GptOssConfig(**sizes, **heads, **experts, attn_implementation="eager")
    with torch.no_grad():
        maps = GptOssForCausalLM(config).eval()(IDS % 32, output_attentions=True).attentions
    message = refusal(maps, "abcdef")
    assert "does a sink take the rest" in message and "dropout" not in message
    whole = [weights / weights.sum(-1, keepdim=True) for weights in maps]  # what it says
    assert json.loads(encode(whole, "abcdef")[0])["heads"] == [2]


@pytest.mark.parametrize("n", [2, 700])
def test_rounded_weights_are_not_refused(n: int) -> None:
    random = torch.randn(1, 2, n, n, generator=torch.Generator().manual_seed(n))
    for logits in (random, 9 * random, 0 * random):
        header = json.loads(encode([logits.softmax(-1).bfloat16()], ["x"] * n)[0])
        assert "outside" not in header["note"]


def test_a_head_without_any_weight_has_no_scores() -> None:
    header = json.loads(encode([np.zeros((1, 1, 3, 3))], "abc")[0])
    assert {each for layers in header["scores"].values() for each in layers[0]} == {None}
