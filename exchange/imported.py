"""The tokenizer of a model of Hugging Face: what other programs need to merge as it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from data.imported import steps_of, unspell
from data.pieces import BYTE, GPT2, SMOLLM
from data.tokenizer import NO_LIMITS, ImportedTokenizer, Limits, Merging
from exchange.merges import merges_of, spell
from exchange.spellings import BY_SPELLING


def import_tokenizer(content: str, limits: Limits = NO_LIMITS) -> ImportedTokenizer:
    """The tokenizer in the content of a `tokenizer.json`. Raises as `ImportedTokenizer` does."""
    found = ImportedTokenizer(content, limits)
    found.merging = merging_of(found)
    return found


def first_token(tokenizer: ImportedTokenizer) -> int | None:
    """The token that is put before every text. Raises ValueError if others are added."""
    library = tokenizer.library
    plain, whole = (library.encode("a", add_special_tokens=add).ids for add in (False, True))
    before = whole[: len(whole) - len(plain)]
    if len(before) > 1 or whole != before + plain:
        raise ValueError(
            "tokenizer.json: its post_processor adds more than one token before a text, or tokens "
            "after it; give another model"
        )
    return before[0] if before else None


def merging_of(tokenizer: ImportedTokenizer) -> Merging:
    """Whether it is byte-level BPE with a known pattern, in which each token has the merge that its
    rank alone would give it."""
    model, merging = tokenizer.json["model"], Merging()
    try:
        ranks, merging = _pieces_of(tokenizer)
        _check_merges(ranks, model)
    except ValueError as error:
        return merging._replace(problem=str(error))
    return merging


def _pieces_of(tokenizer: ImportedTokenizer) -> tuple[dict[bytes, int], Merging]:
    """The ranks of the tokens, and how a text is cut, whatever the merges are. Raises ValueError
    for anything but byte-level BPE with a known pattern."""
    json, model = tokenizer.json, tokenizer.json["model"]
    odd = ("dropout", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix")
    if model["type"] != "BPE" or any(model[key] for key in odd):
        raise ValueError("the tokenizer is not byte-level BPE")
    normalizer = (json["normalizer"] or {"type": None})["type"]
    added = [entry for entry in json["added_tokens"] if entry["content"] in tokenizer.in_text]
    flags = ("lstrip", "rstrip", "single_word", *(["normalized"] if normalizer else []))
    if normalizer not in (None, "NFC") or any(entry[flag] for entry in added for flag in flags):
        raise ValueError("the tokenizer changes a text before it encodes it")
    names = {*tokenizer.special_tokens, *tokenizer.in_text}
    ranks = {unspell(name): n for name, n in model["vocab"].items() if name not in names}
    if any(bytes([byte]) not in ranks for byte in range(256)):
        raise ValueError("the tokenizer does not know all bytes")
    pattern = _pattern_of(json["pre_tokenizer"])
    if pattern is None or (pattern == BYTE and model["merges"]):
        raise ValueError("the tokenizer cuts a text with a pattern that is not known here")
    return ranks, Merging(pattern, normalizer == "NFC", None)


def _pattern_of(pre_tokenizer: dict[str, Any] | None) -> str | None:
    """The pattern that cuts a text as a pre-tokenizer does, if it is known."""
    steps = list(steps_of(pre_tokenizer, "pretokenizers"))
    if not steps or steps[-1]["type"] != "ByteLevel" or steps[-1]["add_prefix_space"]:
        return None
    match [step["type"] for step in steps], steps[-1]["use_regex"], steps[0]:
        case ["ByteLevel"], uses_pattern, _:
            return GPT2 if uses_pattern else BYTE
        case ["Digits", "ByteLevel"], True, {"individual_digits": True}:
            return SMOLLM
        # No pattern leaves a gap between two matches.
        case ["Split", "ByteLevel"], False, {"pattern": {"Regex": spelling}, **how}:
            if (how["behavior"], how["invert"]) in (("Isolated", False), ("Removed", True)):
                return BY_SPELLING.get(spelling)
    return None


def _check_merges(ranks: Mapping[bytes, int], model: Mapping[str, Any]) -> None:
    """Raises ValueError for merges that give other tokens for some text than the ranks alone."""
    places = {(left, right): place for place, (left, right) in enumerate(model["merges"])}
    last = -1
    for token, pair in merges_of(ranks):
        if len(token) == 1 or (pair is None and model["ignore_merges"]):
            continue
        place = -1 if pair is None else places.get((spell(pair[0]), spell(pair[1])), -1)
        if place < last or place < 0:
            raise ValueError(
                "the merges of the tokenizer do not follow from the order of its tokens"
            )
        last = place
