"""The vocabulary and the merges of a stranger's `tokenizer.json`.

Promises: the ranks that are returned give the same tokens for every piece of text as the merges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from data.fast_parts import check_special, part, refuse, show
from data.merges import last_merge, spell, unspell
from data.tokenizer import MOST_SPECIAL

_MOST_WORK = 1 << 28  # the squares of the lengths of all tokens; those of o200k_base need a tenth


def read_bpe(about: dict[str, Any], vocab_size: int) -> tuple[dict[bytes, int], dict[str, int]]:
    """The ids of ordinary tokens and of special ones. Raises ValueError."""
    model = part(about, "model", dict)
    _check_model(model)
    vocabulary = _vocabulary(model, vocab_size)
    merges = _merges(model, vocabulary)
    special = _special(about, vocabulary, {left + right for left, right in merges}, vocab_size)
    ranks = _ranks(vocabulary, special)
    _check_merges(ranks, merges, part(model, "ignore_merges", bool, False))
    return ranks, special


def _check_model(model: dict[str, Any]) -> None:
    if model.get("type", "BPE") != "BPE":
        refuse(f"the model {show(model['type'])} is not BPE")
    if part(model, "byte_fallback", bool, False):
        refuse("its BPE is that of sentencepiece (byte_fallback)")
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name) not in (None, ""):
            refuse(f"{name} is {show(model[name])}")
    if model.get("dropout") not in (None, 0):
        refuse(f"its merges are random (dropout {show(model['dropout'])})")


def _check_id(token: object, name: object, vocab_size: int) -> int:
    if type(token) is not int or not 0 <= token < vocab_size:
        refuse(f"the id {show(token)} of {show(name)} is not one of the model's {vocab_size}")
    return token


def _vocabulary(model: dict[str, Any], vocab_size: int) -> dict[str, int]:
    vocabulary = part(model, "vocab", dict)
    for name, token in vocabulary.items():
        _check_id(token, name, vocab_size)
    if len(set(vocabulary.values())) < len(vocabulary):
        refuse("two tokens have the same id")
    if sum(len(name) ** 2 for name in vocabulary) > _MOST_WORK:
        refuse("its tokens are too long")
    return vocabulary


def _merges(model: dict[str, Any], vocabulary: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """The place of each merge in the list; older files have "a b" in place of ["a", "b"]."""
    merges = {}
    for place, merge in enumerate(part(model, "merges", list)):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(type(e) is str for e in pair):
            refuse(f"merge {place} is not a pair of tokens")
        left, right = pair
        if not (left in vocabulary and right in vocabulary and left + right in vocabulary):
            refuse(f"merge {place}, {show(left)} and {show(right)}, is not in the vocabulary")
        merges[left, right] = place
    return merges


def _special(
    about: dict[str, Any], vocabulary: Mapping[str, int], merged: set[str], vocab_size: int
) -> dict[str, int]:
    """The added tokens, except for those that the merges make too."""
    special: dict[str, int] = {}
    for each in part(about, "added_tokens", list, []):
        if not isinstance(each, dict):
            refuse(f"an added token is {show(each)}")
        name, token = (
            each.get("content"),
            _check_id(each.get("id"), each.get("content"), vocab_size),
        )
        if type(name) is str and (name in merged or (name in vocabulary and len(name) == 1)):
            if vocabulary[name] == token and each.get("special") is True:
                continue
            refuse(f"the added token {show(name)} is ordinary text")
        name = check_special(name)
        if special.setdefault(name, token) != token or vocabulary.get(name, token) != token:
            refuse(f"the added token {show(name)} has two ids")
    others = {token for name, token in vocabulary.items() if name not in special}
    if len({*special.values()} - others) < len(special):
        refuse("two tokens have the same id")
    if sum(map(len, special)) > MOST_SPECIAL:
        refuse("its special tokens are too many or too long")
    return special


def _ranks(vocabulary: Mapping[str, int], special: Mapping[str, int]) -> dict[bytes, int]:
    ranks = {}
    for name, token in vocabulary.items():
        if name not in special:
            try:
                ranks[unspell(name)] = token
            except ValueError:
                refuse(f"the token {show(name)} does not stand for bytes")
    if any(bytes([byte]) not in ranks for byte in range(256)):
        refuse("a single byte is missing in the vocabulary")
    if b"" in ranks:
        refuse("a token is empty")
    return ranks


def _check_merges(
    ranks: dict[bytes, int], merges: Mapping[tuple[str, str], int], ignore_merges: bool
) -> None:
    """Refuse merges that give other tokens for some text than the ranks alone."""
    places = {(unspell(left), unspell(right)): place for (left, right), place in merges.items()}
    last = -1
    for token in sorted(ranks, key=ranks.__getitem__):
        pair = last_merge(token, ranks)
        place = -1 if pair is None else places.get(pair)
        if len(token) == 1 or (pair is None and ignore_merges):
            continue
        if pair is None or place is None:
            refuse(f"the token {show(spell(token))} does not follow from the merges")
        if place < last:
            refuse(f"the merges are not in the order of the ids ({show(spell(token))})")
        last = place
