"""GGUF files, read back with gguf and transformers: every tensor and key; and files that fail."""

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
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from data.pieces import BPE
from data.tokenizer import Tokenizer, fixed_tokenizer
from exchange.config import to_config
from exchange.gguf import write_gguf
from exchange.tokenizer import write_tokenizer
from exchange.weights import to_hugging_face
from model import GPT
from tests.conftest import files
from tests.data.strings import trained
from tests.exchange.families import FAMILIES, configs, make_config, make_model, parameters

TYPES = {
    "float32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "float16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "bfloat16": (GGMLQuantizationType.BF16, LlamaFileType.MOSTLY_BF16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}
LETTERS = bytes_to_unicode()


def write(
    file: Path, model: GPT, tokenizer: Tokenizer, dtype: str, end: int | None = None, **ids: Any
) -> int:
    metadata = {"name": "A hen", "end": end, **ids}
    return write_gguf(file, model.config, tokenizer, parameters(model), dtype, **metadata)


def assert_stored(
    stored: gguf.ReaderTensor, exact: gguf.ReaderTensor, wanted: GGMLQuantizationType
) -> bool:
    """A tensor of the file has the type that llama.cpp expects, and the values in the file of
    float32; returns whether it is a matrix whose rows the wanted type cannot hold."""
    is_matrix = len(exact.shape) == 2 and exact.name != "position_embd.weight"
    fits = exact.shape[0] % gguf.GGML_QUANT_SIZES[wanted][0] == 0
    kind = wanted if is_matrix and fits else GGMLQuantizationType.F32
    assert (stored.name, stored.tensor_type) == (exact.name, kind)
    assert np.array_equal(stored.data, gguf.quantize(exact.data, kind))
    return is_matrix and not fits


def keys(reader: GGUFReader) -> dict[str, Any]:
    names = (name for name in reader.fields if not name.startswith("GGUF."))
    return {name: reader.fields[name].contents() for name in names}


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=8)
@given(data=st.data())
def test_every_tensor_and_key(family: str, data: st.DataObject) -> None:
    """Transformers finds the tensors of the model in it; llama.cpp, the keys that it asks for."""
    config = data.draw(configs(family))
    model = make_model(config, 256)
    norm = "layer_norm_epsilon" if family == "gpt2" else "layer_norm_rms_epsilon"
    rope = {"rope.dimension_count": config.d_head, "rope.freq_base": config.rope_theta}
    sizes = {
        "vocab_size": 256,
        "context_length": config.context_length,
        "embedding_length": config.d_model,
        "block_count": config.n_layers,
        "feed_forward_length": config.d_mlp,
        "attention.head_count": config.n_heads,
        "attention.head_count_kv": config.n_kv_heads,
        "attention.key_length": config.d_head,
        "attention.value_length": config.d_head,
        f"attention.{norm}": np.float32(config.norm_eps),
        **(rope if family != "gpt2" else {}),
    }
    spelled = [LETTERS[byte] for byte in range(256)]
    expected_keys = {
        **{f"{family}.{name}": value for name, value in sizes.items()},
        "general.architecture": family,
        "general.type": "model",
        "general.name": "A hen",
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
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(**to_config(config, 256)))
    expected = to_hugging_face(config, parameters(model), None)
    with TemporaryDirectory() as folder:
        for dtype, (kind, file_type) in TYPES.items():
            n_others = write(Path(folder, dtype), model, fixed_tokenizer("byte"), dtype)
            reader, exact = GGUFReader(f"{folder}/{dtype}"), GGUFReader(f"{folder}/float32")
            assert keys(reader) == {**expected_keys, "general.file_type": file_type}
            assert len(reader.tensors) == len(expected)
            pairs = zip(reader.tensors, exact.tensors, strict=True)
            assert n_others == sum(assert_stored(*pair, kind) for pair in pairs)
        assert sorted(path.name for path in Path(folder).iterdir()) == sorted(TYPES)
        found = load_gguf_checkpoint(f"{folder}/float32", True, theirs)["tensors"]
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_tokenizer(tmp_path: Path) -> None:
    """Tokens in the alphabet of GPT-2, special and unused ones, and the merges of a folder."""
    ranks = {**trained().byte_pairs().ranks}
    n, end = len(ranks), len(ranks) + 3
    special = {"<|end of tale|>": end}
    tokenizer = Tokenizer(
        tiktoken.Encoding("bpe", pat_str=BPE, mergeable_ranks=ranks, special_tokens=special)
    )
    model = make_model(make_config("qwen3"), end + 1)
    write_tokenizer(tokenizer, tmp_path, 64)
    merges = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["merges"]
    assert len(merges) == n - 256
    spelled = ["".join(LETTERS[byte] for byte in token) for token in trained().tokens.values()]
    expected = {
        "model": "gpt2",
        "pre": "llama-bpe",
        "tokens": [*spelled, *(f"[PAD{each}]" for each in range(n, end)), *special],
        "token_type": [TokenType.NORMAL] * n + [TokenType.UNUSED] * 3 + [TokenType.CONTROL],
        "merges": [" ".join(pair) for pair in merges],
        "eos_token_id": end,
    }
    for first in (None, 5):
        write(tmp_path / f"{first}", model, tokenizer, "float32", end=end, first=first)
        begun = {"bos_token_id": first or end, "add_bos_token": first is not None}
        found = keys(GGUFReader(tmp_path / f"{first}"))
        for name, value in {**expected, **begun}.items():
            assert found[f"tokenizer.ggml.{name}"] == value, name


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("float16", -70_000.0), ("bfloat16", 3.4e38), ("q8_0", 1e7), ("float32", float("inf"))],
)
def test_a_number_that_does_not_fit_is_refused(dtype: str, value: float, tmp_path: Path) -> None:
    model = make_model(make_config("llama"), 256)
    with torch.no_grad():
        model.get_parameter("blocks.1.mlp.up.weight")[3, 2] = value
    (tmp_path / "x").write_text("what was here")
    with pytest.raises(ValueError, match=r"^dtype: blk\.1\.ffn_up\.weight has values"):
        write(tmp_path / "x", model, fixed_tokenizer("byte"), dtype)
    assert files(tmp_path) == {"x": b"what was here"}
