"""Folders with a `tokenizer.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import transformers

from data.merges import spell

LONG = 1 << 20
BYTES = {bytes([byte]): byte for byte in range(256)}
LETTERS = {spell(token): rank for token, rank in BYTES.items()}


def open_fast(folder: Path, model_type: str = "gpt2") -> Any:
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return transformers.AutoTokenizer.from_pretrained(folder)


def save(folder: Path, about: object) -> None:
    (folder / "tokenizer.json").write_text(json.dumps(about))


def small() -> dict[str, Any]:
    """The content of a `tokenizer.json` that is read."""
    vocabulary = {**LETTERS, "ab": 256, "Ġa": 257, "abc": 258, "<|end|>": 259}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    return {
        "added_tokens": [added("<|end|>", 259)],
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "use_regex": True},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": vocabulary,
            "merges": [["a", "b"], ["Ġ", "a"], ["ab", "c"]],
        },
    }


def template(*names: str, ids: object = (259,)) -> dict[str, Any]:
    """A post-processor with these special tokens, and "A" for the text."""
    kinds = {"A": "Sequence", "B": "Sequence"}
    return {
        "type": "TemplateProcessing",
        "single": [{kinds.get(each, "SpecialToken"): {"id": each, "type_id": 0}} for each in names],
        "pair": [],
        "special_tokens": {
            each: {"id": each, "ids": ids, "tokens": [each]} for each in names if each not in kinds
        },
    }


def added(
    content: object, token: object = 260, special: object = True, **flags: object
) -> dict[str, Any]:
    names = ("single_word", "lstrip", "rstrip", "normalized")
    flags = {**dict.fromkeys(names, False), **flags}
    return {"id": token, "content": content, "special": special, **flags}
