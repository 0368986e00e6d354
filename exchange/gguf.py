"""GGUF, the format of llama.cpp: weights, sizes and tokenizer in one file.

Promises: given the ids of the tokens, llama.cpp computes the same function, up to the rounding of
`dtype` and of its own arithmetic; a setting that it does not know is an error. Text is another
matter: see `exchange.gguf_tokenizer`.

Names are those of llama.cpp's own package gguf; shapes are those that it reads in src/models/:
gpt2.cpp, llama.cpp, qwen3.cpp.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from common.errors import UserError, check_choice, installing, printable
from common.files import new_file
from data.tokenizer import Tokenizer
from exchange.families import family
from exchange.gguf_tokenizer import add_tokenizer
from exchange.weights import joined
from model import ModelConfig

if TYPE_CHECKING:
    from gguf import GGUFWriter

# By our name of a dtype: llama.cpp's names of the type and of a file of it.
DTYPES = {
    "float32": ("F32", "ALL_F32"),
    "float16": ("F16", "MOSTLY_F16"),
    "bfloat16": ("BF16", "MOSTLY_BF16"),
    "q8_0": ("Q8_0", "MOSTLY_Q8_0"),
}


def write_gguf(
    file: Path,
    config: ModelConfig,
    tokenizer: Tokenizer,
    weights: Mapping[str, Tensor],
    dtype: str,
    *,
    name: str,
    end: int | None,
    first: int | None = None,
) -> int:
    """Write a model and its tokenizer to a GGUF file, which appears whole or not at all. Returns
    how many of its matrices have rows that `dtype` cannot hold, and are float32.

    weights: by the names of GPT's parameters.
    dtype: float32, float16, bfloat16 or q8_0, of the matrices: norms, biases, learned positions,
        and for q8_0 matrices whose rows are not multiples of 32, are float32.
    name: the name of the model, which programs show.
    first, end: the token before every text, and the one that ends a document, or None.

    Raises ValueError for a model that llama.cpp does not know and for a number that `dtype` cannot
    represent, UserError if the package gguf is not installed, FileExistsError if the file exists at
    the end, and OSError if the disk refuses.
    """
    try:
        from gguf import GGUFWriter
    except ImportError as error:
        raise UserError(
            f"to: a GGUF file needs the package gguf; install it with {installing('convert')}"
        ) from error
    check_choice("dtype", dtype, DTYPES)
    arch = family(config)
    logging.getLogger("gguf").setLevel(logging.WARNING)
    tensors = gguf_tensors(config, weights)
    try:
        with new_file(file) as temporary, closing(GGUFWriter(temporary, arch)) as writer:
            _add_general(writer, name, dtype)
            _add_sizes(writer, config, tokenizer.vocab_size)
            add_tokenizer(writer, tokenizer, first, end)
            return _write_tensors(writer, tensors, dtype)
    except OSError as error:
        if error.errno is None and "written" in str(error):  # NumPy's, on a full disk
            full = errno.ENOSPC
            raise OSError(full, os.strerror(full), str(file)) from error
        raise


def gguf_tensors(config: ModelConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All tensors of the file by llama.cpp's names, which follow from those of transformers."""
    from gguf import MODEL_ARCH, get_tensor_name_map

    arch = family(config)
    names = get_tensor_name_map(MODEL_ARCH[arch.upper()], config.n_layers)
    found = {}
    for part, tensor in joined(config, weights):
        name = names.get_name(part.name, (".weight", ".bias"))
        assert name, f"gguf has no name for {part.name}"
        if arch == "llama" and (".attn_q." in name or ".attn_k." in name):
            tensor = _pair_up(tensor, config.d_head)
        found[name] = tensor
    return found


def _add_general(writer: GGUFWriter, name: str, dtype: str) -> None:
    from gguf import GGML_QUANT_VERSION, GGUFType, LlamaFileType

    writer.add_type(GGUFType.MODEL)
    writer.add_name(printable(name))
    writer.add_file_type(LlamaFileType[DTYPES[dtype][1]])
    writer.add_quantization_version(GGML_QUANT_VERSION)


def _add_sizes(writer: GGUFWriter, config: ModelConfig, vocab_size: int) -> None:
    writer.add_vocab_size(vocab_size)
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.d_model)
    writer.add_block_count(config.n_layers)
    writer.add_feed_forward_length(config.d_mlp)
    writer.add_head_count(config.n_heads)
    writer.add_head_count_kv(config.n_kv_heads)
    writer.add_key_length(config.d_head)
    writer.add_value_length(config.d_head)
    if config.norm == "layernorm":
        writer.add_layer_norm_eps(config.norm_eps)
    else:
        writer.add_layer_norm_rms_eps(config.norm_eps)
        writer.add_rope_dimension_count(config.d_head)
        writer.add_rope_freq_base(config.rope_theta)


def _write_tensors(writer: GGUFWriter, tensors: Mapping[str, Tensor], dtype: str) -> int:
    """Write everything: the keys that were added, and the tensors; returns how many matrices have
    another type than `dtype`. Raises ValueError for a number that does not fit.

    The types are those that llama.cpp's own converter chooses, except for rows that q8_0 cannot
    hold, which are float16 there and float32 here.
    """
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize, quantize

    wanted, n_others = GGMLQuantizationType[DTYPES[dtype][0]], 0
    for name, tensor in tensors.items():
        is_matrix = tensor.dim() == 2 and name != "position_embd.weight"
        fits = tensor.shape[-1] % GGML_QUANT_SIZES[wanted][0] == 0
        n_others += is_matrix and not fits
        kind = wanted if is_matrix and fits else GGMLQuantizationType.F32
        with np.errstate(all="ignore"):
            data = quantize(tensor.float().contiguous().numpy(), kind)
            if not np.isfinite(dequantize(data, kind)).all():
                raise ValueError(
                    f"dtype: {name} has values that do not fit in {kind.name}; choose another dtype"
                )
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    return n_others


def _pair_up(tensor: Tensor, d_head: int) -> Tensor:
    """Rows of queries or keys in the order of llama.cpp's llama, which rotates neighbours: those of
    a head are here a_0, a_1, ..., b_0, b_1, ..., and there a_0, b_0, a_1, b_1, ..."""
    heads = tensor.unflatten(0, (-1, 2, d_head // 2))
    return heads.transpose(1, 2).reshape(tensor.shape)
