"""Models go to the classes of Hugging Face transformers and come back, weight for weight."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from exchange.config import read_config, to_config
from exchange.weights import read_weights, to_hugging_face
from inference.generation import generate
from model import GPT
from store.weights import write_tensors
from tests.exchange.families import FAMILIES, JSON, configs, make_config, make_model, parameters

VOCAB = 50


def export(model: GPT, folder: Path, dtype: str | None = None) -> Path:
    """Write the model without a tokenizer, as transformers opens it."""
    folder.mkdir()
    tensors = to_hugging_face(model.config, parameters(model), dtype)
    write_tensors(folder / "model.safetensors", tensors)
    ids = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    (folder / "config.json").write_text(json.dumps(to_config(model.config, VOCAB) | ids))
    return folder


def load(folder: Path) -> tuple[GPT, dict[str, Tensor]]:
    """The model in a folder of transformers, and its parameters as they are stored in a run."""
    config, vocab_size = read_config(folder)
    stored = read_weights(folder, config, vocab_size, None)
    model = GPT(config, vocab_size)
    missing, unexpected = model.load_state_dict(stored, strict=False)
    assert not unexpected
    assert missing == (["unembedding.weight"] if config.tied_embeddings else [])
    return model.eval(), stored


def assert_same_logits(ours: nn.Module, theirs: nn.Module, length: int) -> None:
    tokens = torch.randint(VOCAB, (3, length), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():  # in float64: norms of a few components multiply what is rounded
        expected, found = (
            copy.deepcopy(theirs).double()(tokens).logits,
            copy.deepcopy(ours).double()(tokens),
        )
    torch.testing.assert_close(
        found, expected, rtol=0, atol=2e-5 * max(1.0, expected.abs().max().item())
    )
    assert expected.std() > 0.01, "the logits must not be almost constant"


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=10)
@given(data=st.data())
def test_transformers_computes_the_same_and_the_weights_come_back(
    family: str, data: st.DataObject
) -> None:
    config = data.draw(configs(family))
    model = make_model(config, VOCAB, seed=data.draw(st.integers(0, 1000)), std=0.2)
    with tempfile.TemporaryDirectory() as folder:
        there = export(model, Path(folder, "there"))
        theirs = AutoModelForCausalLM.from_pretrained(there)
        assert_same_logits(model, theirs, config.context_length)

        length = min(30, config.context_length - 2)
        prompt = torch.randint(VOCAB, (1, 2))
        written = list(generate(model, prompt, length, temperature=0.0))
        greedy = {"max_new_tokens": length, "do_sample": False}
        for use_cache in (True, False):
            tokens = theirs.generate(prompt, use_cache=use_cache, **greedy)
            assert tokens[0, 2:].tolist() == [int(each) for each in written]

        back, _ = load(there)
        again = export(back, Path(folder, "again"))
        name = "model.safetensors"
        assert (again / name).read_bytes() == (there / name).read_bytes()


LLAMA, GPT2 = JSON["llama"], JSON["gpt2"]
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 250.0}}
GROUPED = {**LLAMA, **ROPE, "num_key_value_heads": 2, "head_dim": 10}
THEIRS = {
    "gpt2": GPT2,
    "gpt2-untied": {**GPT2, "n_inner": 11, "tie_word_embeddings": False, "n_head": 1},
    "llama": LLAMA,
    "llama-bias": {**LLAMA, "attention_bias": True, "mlp_bias": True},
    "mistral": {**GROUPED, "model_type": "mistral", "sliding_window": None},
    "qwen3": {**GROUPED, "model_type": "qwen3", "tie_word_embeddings": True},
}


def make_theirs(name: str) -> Any:
    torch.manual_seed(1)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(**THEIRS[name])).eval()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, torch.float32) for name in THEIRS), ("qwen3", torch.bfloat16)],
)
def test_what_transformers_saved_opens_here(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    theirs = make_theirs(name).to(dtype)
    for parameter in theirs.parameters():
        parameter.data.add_(torch.randn(parameter.shape) * 0.2)
    theirs.save_pretrained(tmp_path / "theirs")
    ours, stored = load(tmp_path / "theirs")
    assert {each.dtype for each in stored.values()} == {dtype}
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "theirs", dtype=torch.float32)
    assert_same_logits(ours, theirs, 32)


def test_a_model_without_its_head_and_with_old_buffers_opens(tmp_path: Path) -> None:
    theirs = make_theirs("gpt2")
    theirs.transformer.save_pretrained(tmp_path / "theirs")
    file = tmp_path / "theirs/model.safetensors"
    tensors = safetensors.torch.load_file(file)
    assert "wte.weight" in tensors
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 32, 32).tril()
    tensors["h.1.attn.masked_bias"] = torch.tensor(-1e4)
    tensors["lm_head.weight"] = tensors["wte.weight"].clone()
    safetensors.torch.save_file(tensors, file)
    ours, _ = load(tmp_path / "theirs")
    assert_same_logits(ours, theirs, 32)
    tensors["lm_head.weight"][3, 2] += 1  # of a model that was not tied
    safetensors.torch.save_file(tensors, file)
    with pytest.raises(ValueError, match=r"^lm_head\.weight: is not the embedding, although"):
        load(tmp_path / "theirs")


def test_weights_in_several_files_open(tmp_path: Path) -> None:
    theirs = make_theirs("llama")
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size=7000)
    shards = sorted((tmp_path / "theirs").glob("model-*.safetensors"))
    assert len(shards) > 2
    ours, _ = load(tmp_path / "theirs")
    assert_same_logits(ours, theirs, 32)
    stale = tmp_path / "theirs/model-1-of-9.safetensors"  # of an earlier model
    stale.write_bytes(shards[0].read_bytes())
    with pytest.raises(ValueError, match="as another file has; remove one"):
        load(tmp_path / "theirs")
    stale.unlink()
    shards[0].rename(tmp_path / "theirs/another-of-1.safetensors")
    with pytest.raises(ValueError, match="is missing among the weights"):
        load(tmp_path / "theirs")


def test_weights_are_rounded_to_the_dtype_if_it_can_hold_them(tmp_path: Path) -> None:
    model = make_model(make_config("qwen3"), VOCAB)
    export(model, tmp_path / "there", "bfloat16")
    _, stored = load(tmp_path / "there")
    for name, parameter in model.named_parameters():
        assert torch.equal(stored[name], parameter.bfloat16())
    with torch.no_grad():
        model.get_parameter("final_norm.weight")[3] = 1e5
    with pytest.raises(ValueError, match=r"^dtype: model\.norm\.weight has values beyond"):
        export(model, tmp_path / "too large", "float16")
