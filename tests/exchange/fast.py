"""Tokenizers of the library `tokenizers`, and folders that have them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from data.tokenizer import Tokenizer
from exchange.imported import import_tokenizer
from exchange.merges import spell
from exchange.tokenizer import write_tokenizer
from tests.data.strings import strings

LONG = 1 << 20
LETTERS = {spell(bytes([byte])): byte for byte in range(256)}
STRINGS = strings(1000)
MARKUP = ("<|endoftext|>", "<s>", "<think>")


def open_fast(folder: Path, model_type: str = "gpt2", **options: Any) -> Any:
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return transformers.AutoTokenizer.from_pretrained(folder, **options)


def bytes_alone(use_regex: bool) -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(spelling: str, behavior: str = "isolated") -> Any:
    regex = tokenizers.Regex(spelling)
    cut = pre_tokenizers.Split(regex, behavior, behavior == "removed")
    return pre_tokenizers.Sequence([cut, bytes_alone(False)])


def small(template: str = "") -> Any:
    """A tokenizer of few tokens, of which a template can put a special one around a text, $A."""
    vocabulary = {**LETTERS, "ab": 256, "Ġa": 257, "abc": 258}
    fast = tokenizers.Tokenizer(models.BPE(vocabulary, [("a", "b"), ("Ġ", "a"), ("ab", "c")]))
    fast.pre_tokenizer, fast.decoder = bytes_alone(True), decoders.ByteLevel()
    fast.add_special_tokens(["<|end|>"])
    if template:
        special = [("<|end|>", 259)]
        fast.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    return fast


def train(pre_tokenizer: Any, normalizer: Any = None, special: tuple[str, ...] = MARKUP) -> Any:
    """Byte-level BPE that `tokenizers` has trained on half of the strings."""
    fast = tokenizers.Tokenizer(models.BPE())
    fast.pre_tokenizer, fast.decoder = pre_tokenizer, decoders.ByteLevel()
    if normalizer:
        fast.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        special_tokens=[*special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    fast.train_from_iterator(STRINGS[1::2], trainer)
    fast.encode_special_tokens = True
    return fast


def sentence_piece() -> Any:
    """As Llama 2's: spaces are visible, and bytes stand for unknown characters."""
    fast = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    fast.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    space = decoders.Replace("\u2581", " ")
    fast.decoder = decoders.Sequence(
        [space, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False)
    fast.train_from_iterator(["a hen had a hat"] * 20 + STRINGS[1:40:2], trainer)
    metadata = json.loads(fast.to_str())
    metadata["added_tokens"] = metadata["added_tokens"][:3]  # bytes are ordinary tokens
    return tokenizers.Tokenizer.from_str(json.dumps(metadata))


def add_names(fast: Any, *names: str, **flags: bool) -> Any:
    """The tokenizer with tokens that it finds in a text by their names."""
    fast.add_tokens([tokenizers.AddedToken(name, normalized=False, **flags) for name in names])
    return fast


def imported(
    tokenizer: Tokenizer,
    special: Sequence[str] = (),
    in_text: Sequence[str] = (),
    normalizer: Any = None,
) -> Tokenizer:
    """The tokenizer as one that came with a model, with other tokens after its own."""
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(tokenizer, Path(folder), LONG)
        fast = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
    if normalizer:
        fast.normalizer = normalizer
    fast.add_special_tokens([tokenizers.AddedToken(name, normalized=False) for name in special])
    return import_tokenizer(add_names(fast, *in_text).to_str())
