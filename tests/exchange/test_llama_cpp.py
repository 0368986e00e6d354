"""llama.cpp opens the GGUF files and continues texts as we do: `make test-long` installs it."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data.corpora import open_corpus
from data.pieces import LLAMA3, QWEN2, SMOLLM
from data.tokenizer import Tokenizer, fixed_tokenizer, train_bpe
from exchange.gguf import write_gguf
from exchange.gguf_tokenizer import pre_tokenizer
from inference.generation import generate
from launch.schema import preset
from model import GPT
from tests.data.strings import gpt2
from tests.exchange.families import FAMILIES, make_config, make_model, parameters
from tests.exchange.fast import imported

pytestmark = pytest.mark.long
llama_cpp = pytest.importorskip(
    "llama_cpp", reason="llama-cpp-python is not installed; `make test-long` installs it"
)

MODELS: list[tuple[str, dict[str, Any]]] = [
    *((family, {}) for family in FAMILIES),
    *((family, {"tied_embeddings": False}) for family in FAMILIES),
    ("gpt2", {"bias": False, "n_heads": 3, "d_model": 33}),
    ("gpt2", {"n_layers": 5, "n_heads": 1, "d_mlp": 40, "norm_eps": 1e-3}),
    ("llama", {"bias": True, "n_kv_heads": 2, "d_head": 10, "d_model": 36}),
    ("llama", {"n_kv_heads": 1, "rope_theta": 500.0, "norm_eps": 1e-3}),
    ("qwen3", {"n_kv_heads": 2, "d_head": 6, "d_model": 31}),
    ("qwen3", {"n_heads": 6, "n_kv_heads": 3, "d_head": 12, "rope_theta": 1e6}),
]
PROMPT = "Once there was a hen"
# Of the tables of llama.cpp, which stores GELU as float16; other activations are exact.
TOLERANCE = {"gpt2": 5e-3, "llama": 2e-5, "qwen3": 2e-5}


def write(
    folder: Path, model: GPT, tokenizer: Tokenizer, dtype: str = "float32", end: int | None = None
) -> Any:
    """The model as llama.cpp opens it, with a cache in float32 and the exact attention."""
    file = folder / "model.gguf"
    write_gguf(file, model.config, tokenizer, parameters(model), dtype, name="a model", end=end)
    return llama_cpp.Llama(
        str(file),
        n_ctx=model.config.context_length,
        n_threads=1,
        n_gpu_layers=0,
        logits_all=True,
        type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32,
        flash_attn=False,
        verbose=False,
    )


def text_ids(llama: Any, text: str) -> list[int]:
    return llama.tokenize(text.encode(), add_bos=True, special=False)


@pytest.mark.parametrize(("family", "choices"), MODELS)
def test_the_same_function(family: str, choices: dict[str, Any], tmp_path: Path) -> None:
    model = make_model(make_config(family, **choices), 256, seed=1)
    llama = write(tmp_path, model, fixed_tokenizer("byte"))
    ids = list(PROMPT.encode())
    assert text_ids(llama, PROMPT) == ids
    with torch.no_grad():
        ours = model(torch.tensor([ids]))[0].numpy()
    llama.reset()
    llama.eval(ids)
    error = np.abs(np.array(llama.scores[: len(ids)]) - ours).max()
    assert error <= TOLERANCE[family] * ours.std()
    theirs = islice(llama.generate(ids, temp=0.0, repeat_penalty=1.0), 30)
    stream = generate(model, torch.tensor([ids]), 30, temperature=0.0)
    assert [*theirs] == torch.cat([*stream]).tolist()


TALES = preset("data", "tales", n_bytes=100_000)
RANKS = {**train_bpe(open_corpus(TALES).training_text(), 700).byte_pairs().ranks}


def with_pattern(pattern: str) -> Tokenizer:
    return Tokenizer(
        tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=RANKS, special_tokens={})
    )


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "byte": lambda: fixed_tokenizer("byte"),
    "gpt2": gpt2,
    "llama 3": lambda: with_pattern(LLAMA3),
    "qwen2": lambda: with_pattern(QWEN2),
    "smollm": lambda: with_pattern(SMOLLM),
}
# Characters of this Python's Unicode, which llama.cpp's tables contain.
CHARACTERS = st.characters(exclude_categories=["Cs", "Cn"])
PIECES = [
    *("'s", "'S", "it's", " 12345", "\n\n", "   ", "\t", "!\n", "hen", " Hen", "\r\n"),
    *("é", "日本"),
]


@pytest.fixture(scope="module", params=TOKENIZERS)
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, Any]:
    tokenizer = TOKENIZERS[request.param]()
    model = make_model(make_config("llama", d_model=8, n_layers=1), tokenizer.vocab_size)
    return tokenizer, write(tmp_path_factory.mktemp("gguf"), model, tokenizer)


@settings(max_examples=500, deadline=None)
@given(pieces=st.lists(st.sampled_from(PIECES) | st.text(CHARACTERS, max_size=6), max_size=12))
def test_the_same_tokens(opened: tuple[Tokenizer, Any], pieces: list[str]) -> None:
    tokenizer, llama = opened
    text = "".join(pieces)
    assert pre_tokenizer(tokenizer).is_same
    assert text_ids(llama, text) == tokenizer.encode(text)


def test_names_of_tokens_are_found_in_text(tmp_path: Path) -> None:
    names = ["<|im_end|>", "<think>", "</think>", "<tool_call>", "<\uff5cUser\uff5c>"]
    tokenizer = imported(with_pattern(QWEN2), names[:1], names[1:])
    model = make_model(make_config("qwen3"), tokenizer.vocab_size)
    llama = write(tmp_path, model, tokenizer, end=tokenizer.special_tokens["<|im_end|>"])
    rng = random.Random(5)
    scraps = [*names, *names, "<think", "think>", "<", ">", " ", "\n", "a hen", "\u0301", "7"]
    for _ in range(1000):
        text = "".join(rng.choices(scraps, k=rng.randrange(1, 12)))
        ids = tokenizer.encode(text)
        assert text_ids(llama, text) == ids, text
        assert llama.detokenize(ids).decode() == text
