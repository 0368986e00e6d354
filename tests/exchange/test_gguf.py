"""GGUF files, read back with the package gguf: every tensor, every key; and files that fail."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
import pytest
import tiktoken
import torch
from gguf import GGMLQuantizationType, GGUFReader, LlamaFileType, TokenType
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.convert_slow_tokenizer import bytes_to_unicode

from data.pieces import BPE
from data.tokenizer import Tokenizer, fixed_tokenizer
from exchange.gguf import write_gguf
from exchange.tokenizer import write_tokenizer
from model import GPT, ModelConfig
from tests.conftest import files
from tests.exchange.families import FAMILIES, bpe, configs, make_config, make_model, parameters

FILE_TYPES = {
    "float32": LlamaFileType.ALL_F32,
    "float16": LlamaFileType.MOSTLY_F16,
    "bfloat16": LlamaFileType.MOSTLY_BF16,
    "q8_0": LlamaFileType.MOSTLY_Q8_0,
}
LETTERS = bytes_to_unicode()


def write(
    file: Path,
    model: GPT,
    tokenizer: Tokenizer,
    dtype: str,
    end: int | None = None,
    first: int | None = None,
) -> int:
    weights, ids = parameters(model), {"first": first, "end": end}
    return write_gguf(file, model.config, tokenizer, weights, dtype, name="A hen", **ids)


def tensors(model: Any, family: str) -> dict[str, Tensor]:
    """Every tensor of the file under llama.cpp's name, module by module."""
    config = model.config
    found: dict[str, Tensor] = {"token_embd.weight": model.token_embedding.weight}
    if not config.tied_embeddings:
        found["output.weight"] = model.unembedding.weight

    def add(name: str, *modules: Any, is_norm: bool = False) -> None:
        weight = torch.cat([each.weight for each in modules])
        found[f"{name}.weight"] = weight
        if config.bias and not (is_norm and family != "gpt2"):
            found[f"{name}.bias"] = torch.cat([each.bias for each in modules])
        elif family == "gpt2":
            found[f"{name}.bias"] = torch.zeros(len(weight))

    add("output_norm", model.final_norm, is_norm=True)
    if family == "gpt2":
        found["position_embd.weight"] = model.position.weight
    for index, block in enumerate(model.blocks):
        attention, mlp, layer = block.attention, block.mlp, f"blk.{index}"
        add(f"{layer}.attn_norm", block.attention_norm, is_norm=True)
        add(f"{layer}.ffn_norm", block.mlp_norm, is_norm=True)
        add(f"{layer}.attn_output", attention.output)
        add(f"{layer}.ffn_up", mlp.up)
        add(f"{layer}.ffn_down", mlp.down)
        if family == "gpt2":
            add(f"{layer}.attn_qkv", attention.query, attention.key, attention.value)
            continue
        add(f"{layer}.ffn_gate", mlp.gate)
        add(f"{layer}.attn_q", attention.query)
        add(f"{layer}.attn_k", attention.key)
        add(f"{layer}.attn_v", attention.value)
        if family == "qwen3":
            found[f"{layer}.attn_q_norm.weight"] = attention.query_norm.weight
            found[f"{layer}.attn_k_norm.weight"] = attention.key_norm.weight
    if family == "llama":
        for name in found:
            if ".attn_q." in name or ".attn_k." in name:
                found[name] = neighbours(found[name], config.d_head)
    return {name: tensor.detach() for name, tensor in found.items()}


def neighbours(tensor: Tensor, d_head: int) -> Tensor:
    """Row by row: component i of a head's first half comes before component i of the second."""
    rows = []
    for head in range(0, len(tensor), d_head):
        for component in range(d_head // 2):
            rows += [tensor[head + component], tensor[head + component + d_head // 2]]
    return torch.stack(rows)


def is_matrix(stored: gguf.ReaderTensor) -> bool:
    return len(stored.shape) == 2 and stored.name != "position_embd.weight"


def assert_stored(stored: gguf.ReaderTensor, tensor: Tensor, dtype: str) -> None:
    """A tensor of the file has the type that llama.cpp expects, and the values of `tensor`."""
    assert stored.shape.tolist() == list(tensor.shape[::-1])
    kind = stored.tensor_type
    if not is_matrix(stored) or dtype == "float32" or (dtype == "q8_0" and tensor.shape[1] % 32):
        assert kind == GGMLQuantizationType.F32
        assert np.array_equal(stored.data, tensor.numpy())
    elif dtype == "float16":
        assert kind == GGMLQuantizationType.F16
        assert np.array_equal(stored.data, tensor.half().numpy())
    elif dtype == "bfloat16":
        assert kind == GGMLQuantizationType.BF16
        assert np.array_equal(stored.data.view(np.int16), tensor.bfloat16().view(torch.int16))
    else:
        assert kind == GGMLQuantizationType.Q8_0
        assert np.array_equal(stored.data, gguf.quantize(tensor.numpy(), kind))


def sizes(config: ModelConfig, arch: str, vocab_size: int) -> dict[str, Any]:
    values: dict[str, Any] = {
        "vocab_size": vocab_size,
        "context_length": config.context_length,
        "embedding_length": config.d_model,
        "block_count": config.n_layers,
        "feed_forward_length": config.d_mlp,
        "attention.head_count": config.n_heads,
        "attention.head_count_kv": config.n_kv_heads,
        "attention.key_length": config.d_head,
        "attention.value_length": config.d_head,
    }
    if arch == "gpt2":
        values["attention.layer_norm_epsilon"] = np.float32(config.norm_eps)
    else:
        values["attention.layer_norm_rms_epsilon"] = np.float32(config.norm_eps)
        values["rope.dimension_count"] = config.d_head
        values["rope.freq_base"] = config.rope_theta
    return {f"{arch}.{name}": value for name, value in values.items()}


def keys(reader: GGUFReader, prefix: str = "") -> dict[str, Any]:
    return {
        name: field.contents()
        for name, field in reader.fields.items()
        if name.startswith(prefix) and not name.startswith("GGUF.")
    }


@pytest.mark.parametrize("dtype", FILE_TYPES)
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=6)
@given(data=st.data())
def test_every_tensor_and_key(family: str, dtype: str, data: st.DataObject) -> None:
    config = data.draw(configs(family))
    model = make_model(config, 256)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "a hen.gguf"
        n_others = write(file, model, fixed_tokenizer("byte"), dtype)
        assert list(Path(folder).iterdir()) == [file]
        reader = GGUFReader(file)
        expected = tensors(model, family)
        assert {each.name for each in reader.tensors} == expected.keys()
        for stored in reader.tensors:
            assert_stored(stored, expected[stored.name], dtype)
        matrices = [stored for stored in reader.tensors if is_matrix(stored)]
        rounded = [each for each in matrices if each.tensor_type != GGMLQuantizationType.F32]
        assert n_others == (0 if dtype == "float32" else len(matrices) - len(rounded))
        spelled = [LETTERS[byte] for byte in range(256)]
        assert keys(reader) == {
            **sizes(config, family, 256),
            "general.architecture": family,
            "general.type": "model",
            "general.name": "A hen",
            "general.file_type": FILE_TYPES[dtype],
            "general.quantization_version": 2,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "qwen2",
            "tokenizer.ggml.tokens": spelled,
            "tokenizer.ggml.token_type": [TokenType.NORMAL] * 256,
            "tokenizer.ggml.merges": [f"{spelled[255]} {spelled[255]}"],
            "tokenizer.ggml.bos_token_id": ord("\n"),
            "tokenizer.ggml.eos_token_id": 255,
            "tokenizer.ggml.add_bos_token": False,
        }
        del reader


def test_tokenizer(tmp_path: Path) -> None:
    """Tokens in the alphabet of GPT-2, special and unused ones, and the merges of a folder."""
    ranks = {token: rank for rank, token in bpe().tokens.items()}
    encoding = tiktoken.Encoding(
        "bpe",
        pat_str=BPE,
        mergeable_ranks=ranks,
        special_tokens={"<|end of tale|>": len(ranks) + 3},
    )
    tokenizer = Tokenizer(encoding)
    end = len(ranks) + 3
    model = make_model(make_config("qwen3"), end + 1)
    write(tmp_path / "x", model, tokenizer, "float32", end)
    found = keys(GGUFReader(tmp_path / "x"), "tokenizer.ggml.")
    spelled = {rank: "".join(LETTERS[byte] for byte in token) for token, rank in ranks.items()}
    padding = [f"[PAD{each}]" for each in range(len(ranks), end)]
    assert found["tokenizer.ggml.tokens"] == [
        *(spelled[rank] for rank in range(len(ranks))),
        *padding,
        "<|end of tale|>",
    ]
    assert found["tokenizer.ggml.token_type"] == [
        *[TokenType.NORMAL] * len(ranks),
        *[TokenType.UNUSED] * 3,
        TokenType.CONTROL,
    ]
    assert found["tokenizer.ggml.bos_token_id"] == found["tokenizer.ggml.eos_token_id"] == end
    assert found["tokenizer.ggml.add_bos_token"] is False
    write(tmp_path / "y", model, tokenizer, "float32", end, first=5)
    begun = keys(GGUFReader(tmp_path / "y"), "tokenizer.ggml.")
    assert (
        begun["tokenizer.ggml.bos_token_id"] == 5 and begun["tokenizer.ggml.add_bos_token"] is True
    )
    write_tokenizer(tokenizer, tmp_path, 64)
    merges = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["merges"]
    assert found["tokenizer.ggml.merges"] == [" ".join(pair) for pair in merges]
    assert len(merges) == len(ranks) - 256


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float16", -70_000.0),
        ("bfloat16", 3.4e38),
        ("q8_0", 1e7),
        ("float32", float("inf")),
    ],
)
def test_a_number_that_does_not_fit_is_refused(dtype: str, value: float, tmp_path: Path) -> None:
    model = make_model(make_config("llama"), 256)
    with torch.no_grad():
        model.get_parameter("blocks.1.mlp.up.weight")[3, 2] = value
    (tmp_path / "x").write_text("what was here")
    with pytest.raises(
        ValueError, match=r"^dtype: blk\.1\.ffn_up\.weight has values that do not fit"
    ):
        write(tmp_path / "x", model, fixed_tokenizer("byte"), dtype)
    assert files(tmp_path) == {"x": b"what was here"}
