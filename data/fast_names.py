"""Added tokens that are not special, in a stranger's `tokenizer.json`.

Promises: the names that are returned are found in a text here as `transformers` finds them there,
which with `split_special_tokens` does not find special ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from data.fast_parts import name_of, part, refuse, show
from data.names import odd_name

CONFIG = "tokenizer_config.json"
_FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")


def names_in_text(
    about: Mapping[str, Any], config: Mapping[str, Any], normalizer: str | None
) -> list[str]:
    """Their names, from the parts of `tokenizer.json` that `read_bpe` has accepted, and
    `tokenizer_config.json`. Raises ValueError for what is found in another way than here."""
    added = {each["content"]: each for each in about.get("added_tokens") or []}
    # transformers makes these special, whatever the flag says.
    roles = {name_of(value) for key, value in config.items() if key.endswith("_token")}
    _check_decoder(config, added, roles)
    found = {name: added[name] for name in _not_special(added) if name not in roles}
    for name in _special_in_some_classes(config) & found.keys():
        refuse(f"the added token {show(name)} is special in {CONFIG} only")
    for name, each in found.items():
        for flag in ("lstrip", "rstrip", "single_word"):
            if part(each, flag, bool, False):
                refuse(f"the added token {show(name)} is not special and has {flag}")
        if normalizer and part(each, "normalized", bool, False):
            refuse(f"the added token {show(name)} is found after the normalizer")
    if (odd := odd_name(found, added)) is not None:
        refuse(f"the added token {show(odd)} can overlap with others")
    if found:
        if len(added) < len(about["added_tokens"]):
            refuse("an added token occurs twice")
        _check_ids(about, added)
    return [*found]


def _not_special(added: Mapping[str, dict[str, Any]]) -> set[str]:
    return {name for name, each in added.items() if not part(each, "special", bool, False)}


def _special_in_some_classes(config: Mapping[str, Any]) -> set[str]:
    """The names that only some of the classes of `transformers` make special."""
    names = {"<|endoftext|>"}
    for key in ("extra_special_tokens", "additional_special_tokens"):
        values = config.get(key) or []
        values = [*values.values()] if isinstance(values, dict) else values
        if not isinstance(values, list):
            refuse(f"{key} is {show(values)}", CONFIG)
        names |= {*map(name_of, values)}
    return names


def _check_decoder(
    config: Mapping[str, Any], added: Mapping[str, dict[str, Any]], roles: set[str]
) -> None:
    """Refuse tokens that are special, or are found, in this file or in tokenizer.json only."""
    if (decoder := config.get("added_tokens_decoder")) is None:
        return
    if not isinstance(decoder, dict) or any(type(each) is not dict for each in decoder.values()):
        refuse(f"added_tokens_decoder is {show(decoder)}", CONFIG)
    others = {name_of(each): {**each, "id": token} for token, each in decoder.items()}
    for name in _not_special(added) | _not_special(others):
        keys = () if name in roles else _FLAGS
        first, second = (
            [str(each["id"]), *(each.get(key, False) for key in keys)] if each else None
            for each in (added.get(name), others.get(name))
        )
        if first is None or first != second:
            refuse(f"the added token {show(name)} is not the same in tokenizer.json", CONFIG)


def _check_ids(about: Mapping[str, Any], added: Mapping[str, dict[str, Any]]) -> None:
    """`tokenizers` numbers the tokens that are not in the vocabulary itself."""
    vocabulary = about["model"]["vocab"]
    following = len(vocabulary)
    for name, each in added.items():
        token = each["id"]
        if vocabulary.get(name, following) != token:
            refuse(f"the id {show(token)} of {show(name)} is not the next one ({following})")
        following = max(following, token + 1)
