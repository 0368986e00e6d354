"""Tokenizers as the files `tokenizer.json` and `tokenizer_config.json` of Hugging Face.

Promises: what is written gives the same tokens for every text in `transformers` as here; what is
read gives the same tokens here as there, or is refused. Text that spells a special token is text,
both ways; an added token that is not special is found in it. Files may come from strangers: nothing
in them is executed, and their sizes are checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tiktoken

from data.fast_model import read_bpe
from data.fast_names import names_in_text
from data.fast_parts import (
    check_decoder,
    check_special,
    first_token,
    name_of,
    normalizer_of,
    pattern_of,
    read_object,
    refuse,
    show,
)
from data.merges import last_merge, spell
from data.names import odd_name
from data.patterns import BY_SPELLING, BYTE
from data.tokenizer import MOST_TOKENS, Tokenizer
from errors import check_range

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}


def write_fast(
    tokenizer: Tokenizer, folder: Path, context_length: int, document_end: str | None
) -> int | None:
    """Write the two files into `folder`, and return `end_token`, which becomes a special token. A
    text gets the first token that it gets here."""
    special = tokenizer._encoding._special_tokens
    names = {token: check_special(name) for name, token in special.items()}
    first, end = first_token_of(tokenizer, document_end), end_token(tokenizer, document_end)
    start = tokenizer.start if document_end is None else None
    if start is None and (document_end is not None or not tokenizer.ends):
        start = end
    for token in (start, end):
        if token is not None:
            names.setdefault(token, spell(tokenizer.decode_bytes([token])))
    if (odd := odd_name(tokenizer.in_text, names.values())) is not None:
        refuse(f"the special token {show(odd)} can overlap with another")
    about = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added(token, names[token], names[token] not in tokenizer.in_text)
            for token in sorted(names)
        ],
        "normalizer": {"type": tokenizer.normalizer} if tokenizer.normalizer else None,
        "pre_tokenizer": _pre_tokenizer(tokenizer._encoding._pat_str),
        "post_processor": _BYTE_LEVEL if first is None else _template(first, names[first]),
        "decoder": {**_BYTE_LEVEL, "use_regex": False},
        "model": _model(tokenizer._encoding._mergeable_ranks, special),
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_length,
        **{
            # It would make a token special. config.json has the ids.
            role: None if token is None else names[token]
            for role, token in (("bos_token", start), ("eos_token", end))
            if token is None or names[token] not in tokenizer.in_text
        },
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # their names in a text are text
    }
    for name, value in (("tokenizer.json", about), ("tokenizer_config.json", config)):
        text = json.dumps(value, ensure_ascii=False, indent=2)
        (folder / name).write_text(text + "\n", encoding="utf-8", newline="\n")
    return end


def first_token_of(tokenizer: Tokenizer, document_end: str | None) -> int | None:
    """The token that is put before every text, as sample.py does."""
    return tokenizer.start if document_end is None and tokenizer.adds_start else None


def end_token(tokenizer: Tokenizer, document_end: str | None) -> int | None:
    """The token that ends a document: that of the text `document_end`, or the first of
    `tokenizer.ends`; None if a document does not end with one token."""
    if document_end is None:
        return next(iter(tokenizer.ends), None)
    before, after = tokenizer.encode("."), tokenizer.encode("A")
    tokens = tokenizer.encode(f".{document_end}A")
    found = tokens[len(before) : len(tokens) - len(after)]
    return found[0] if len(found) == 1 and tokens == [*before, *found, *after] else None


def _added(token: int, name: str, special: bool) -> dict[str, Any]:
    flags = ("single_word", "lstrip", "rstrip", "normalized")
    return {"id": token, "content": name, **dict.fromkeys(flags, False), "special": special}


def _pre_tokenizer(pattern: str) -> dict[str, Any]:
    bytes_alone = {**_BYTE_LEVEL, "use_regex": False}
    if pattern == BYTE.tiktoken:
        return bytes_alone
    regex = BY_SPELLING[pattern].oniguruma
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, bytes_alone]}


def _template(token: int, name: str) -> dict[str, Any]:
    """A post-processor that puts `token` before a text."""
    first = {"SpecialToken": {"id": name, "type_id": 0}}
    one, two = ({"Sequence": {"id": each, "type_id": 0}} for each in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [first, one],
        "pair": [first, one, two],
        "special_tokens": {name: {"id": name, "ids": [token], "tokens": [name]}},
    }


def _model(ranks: Mapping[bytes, int], special: Mapping[str, int]) -> dict[str, Any]:
    tokens = sorted(ranks, key=ranks.__getitem__)
    merges = [(token, last_merge(token, ranks)) for token in tokens]
    vocabulary = {spell(token): ranks[token] for token in tokens}
    if both := vocabulary.keys() & special.keys():
        refuse(f"the special token {show(min(both))} is spelled like another token")
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        # Some tokens are no merge of two others, and are found only as whole pieces.
        "ignore_merges": any(len(token) > 1 and not pair for token, pair in merges),
        "vocab": {**vocabulary, **dict(sorted(special.items(), key=lambda each: each[1]))},
        "merges": [[spell(left) for left in pair] for _, pair in merges if pair],
    }


def read_fast(folder: Path, vocab_size: int) -> Tokenizer:
    """The tokenizer of a model with `vocab_size` tokens, from the files in its folder.

    `tokenizer_config.json`, `generation_config.json` and `config.json`, where they are present, say
    which tokens begin and end a document.

    Raises ValueError, "file: what is wrong; what to do", if it is anything but byte-level BPE that
    gives the same tokens here.
    """
    check_range("vocab_size", vocab_size, 1, MOST_TOKENS)
    about = read_object(folder / "tokenizer.json", needed=True)
    normalizer, pattern = normalizer_of(about), pattern_of(about)
    check_decoder(about)
    ranks, special = read_bpe(about, vocab_size)
    if pattern is BYTE and len(ranks) > 256:
        refuse("the pre_tokenizer has no pattern")
    config = read_object(folder / "tokenizer_config.json")
    in_text = names_in_text(about, config, normalizer)
    known = {spell(token): rank for token, rank in ranks.items()} | special
    start, adds_start, ends = limits(folder, first_token(about), known)
    encoding = tiktoken.Encoding(
        "imported", pat_str=pattern.tiktoken, mergeable_ranks=ranks, special_tokens=special
    )
    return Tokenizer(
        encoding,
        vocab_size=vocab_size,
        start=start,
        adds_start=adds_start,
        ends=ends,
        normalizer=normalizer,
        in_text=in_text,
    )


def limits(
    folder: Path, first: int | None, known: Mapping[str, int]
) -> tuple[int | None, bool, tuple[int, ...]]:
    """The token that begins a document, whether it is put before every text, and the tokens that
    end a document.

    `first` is the one that transformers puts before every text; one that it does not put there is
    used if it separates documents, as GPT-2's.
    """
    config, generation, model = (
        read_object(folder / name)
        for name in ("tokenizer_config.json", "generation_config.json", "config.json")
    )
    if config.get("add_prefix_space") or config.get("add_eos_token"):
        refuse("add_prefix_space or add_eos_token is set", "tokenizer_config.json")
    named = [known.get(name_of(config.get(role))) for role in ("bos_token", "eos_token")]
    stored = (generation if "eos_token_id" in generation else model).get("eos_token_id")
    tokens = {*known.values()}
    ends = [named[1], *(stored if isinstance(stored, list) else [stored])]
    ends = [each for each in ends if type(each) is int and each in tokens]
    bos = named[0] if "bos_token" in config else model.get("bos_token_id")
    bos = bos if type(bos) is int and bos in tokens else None
    if config.get("add_bos_token") and not (folder / "tokenizer.json").exists():
        first = bos  # otherwise transformers follows the post-processor alone
    if first is not None and first not in tokens:
        refuse(f"the post_processor adds the unknown id {show(first)}")
    adds_start = first is not None or bos not in ends
    return first if adds_start else bos, adds_start, tuple(dict.fromkeys(ends))
