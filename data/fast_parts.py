"""The parts of a stranger's `tokenizer.json`: read, checked, and refused by name.

Promises: every mistake is a ValueError of one line, "file: what is wrong; what to do"; the memory
that is taken is a few times the size of the file.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from data.patterns import BY_SPELLING, BYTE, GPT2, SMOLLM, Pattern
from errors import printable
from files import read_text

MOST = 1 << 25  # bytes of a file; the tokenizer.json of o200k_base has 28 MB
_MOST_ITEMS = 2_000_000  # in lists and objects; it has half of it


def refuse(what: str, file: str = "tokenizer.json") -> NoReturn:
    """Raise ValueError."""
    raise ValueError(f"{file}: {what}; give a model whose tokenizer is plain byte-level BPE")


def show(value: object) -> str:
    """A short printable form of any value."""
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "an object"
    return printable(repr(value) if len(str(value)) <= 60 else f"{str(value)[:60]!r}...")


def read_object(path: Path, needed: bool = False) -> dict[str, Any]:
    """The object in a JSON file; an empty one if the file is missing, unless it is `needed`."""
    try:
        text = read_text(path, MOST)
        if text.count(",") > _MOST_ITEMS:
            raise ValueError(f"more than {_MOST_ITEMS} values")
        value = json.loads(text)
    except FileNotFoundError:
        if needed:
            refuse("is missing", path.name)
        return {}
    except RecursionError:
        refuse("is nested too deeply", path.name)
    except (OSError, ValueError) as error:
        refuse(f"cannot be read ({getattr(error, 'strerror', None) or error})", path.name)
    if not isinstance(value, dict):
        refuse("is not an object", path.name)
    return value


def part(parent: dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """A part of an object, of the type `kind`, or `default` if it is null or missing."""
    value = parent.get(name)
    if value is None:
        value = default
    if type(value) is not kind:
        refuse(f"{name} is {show(value)}")
    return value


def _flat(value: object, name: str, parts: str) -> Iterator[dict[str, Any]]:
    """The members of a sequence, or the only one; none for null."""
    pending = deque([value])
    while pending:
        value = pending.popleft()
        if value is None:
            continue
        if not isinstance(value, dict):
            refuse(f"{name} is {show(value)}")
        if value.get("type") == "Sequence":
            pending.extendleft(reversed(part(value, parts, list)))
        else:
            yield value


def normalizer_of(about: dict[str, Any]) -> str | None:
    """ "NFC" or None."""
    kinds = [
        each.get("type") for each in _flat(about.get("normalizer"), "normalizer", "normalizers")
    ]
    for kind in kinds:
        if kind != "NFC":
            refuse(f"the normalizer {show(kind)} is not supported")
    return "NFC" if kinds else None


def check_decoder(about: dict[str, Any]) -> None:
    kinds = [each.get("type") for each in _flat(about.get("decoder"), "decoder", "decoders")]
    if kinds != ["ByteLevel"]:
        refuse(f"the decoder {show(kinds[0] if kinds else None)} is not ByteLevel")


def pattern_of(about: dict[str, Any]) -> Pattern:
    """The pattern that cuts a text as the pre-tokenizer does."""
    steps = list(_flat(about.get("pre_tokenizer"), "pre_tokenizer", "pretokenizers"))
    kinds = [each.get("type") for each in steps]
    if not steps or kinds[-1] != "ByteLevel":
        refuse(f"the pre_tokenizer {show(kinds[-1] if kinds else None)} is not ByteLevel")
    if steps[-1].get("add_prefix_space") is not False:
        refuse("the pre_tokenizer adds a space before the text (add_prefix_space)")
    use_regex = part(steps[-1], "use_regex", bool, True)
    if kinds == ["ByteLevel"]:
        return GPT2 if use_regex else BYTE
    if kinds == ["Digits", "ByteLevel"] and use_regex and steps[0].get("individual_digits") is True:
        return SMOLLM
    if kinds == ["Split", "ByteLevel"] and not use_regex:
        # No pattern leaves a gap between two matches.
        how = (steps[0].get("behavior"), steps[0].get("invert"))
        spelling = part(steps[0], "pattern", dict).get("Regex")
        if how not in (("Isolated", False), ("Removed", True)):
            refuse(f"the pre_tokenizer splits in an unknown way ({show(how[0])})")
        if not isinstance(spelling, str) or spelling not in BY_SPELLING:
            refuse(f"the pattern {show(spelling)} of the pre_tokenizer is unknown")
        return BY_SPELLING[spelling]
    return refuse(f"the pre_tokenizer {', '.join(map(show, kinds))[:60]} is unknown")


def first_token(about: dict[str, Any]) -> int | None:
    """The id that the post-processor puts before every text, if any."""
    first = None
    for step in _flat(about.get("post_processor"), "post_processor", "processors"):
        kind = step.get("type")
        if kind == "ByteLevel":  # changes offsets only
            continue
        if kind != "TemplateProcessing" or first is not None:
            refuse(f"the post_processor {show(kind)} is not supported")
        first = _first_of_template(step)
    return first


def _first_of_template(template: dict[str, Any]) -> int | None:
    items = part(template, "single", list)
    names = [next(iter(each), None) if isinstance(each, dict) else None for each in items]
    if names not in (["Sequence"], ["SpecialToken", "Sequence"]):
        refuse("the post_processor adds more than one token before the text")
    if names == ["Sequence"]:
        return None
    name = part(items[0], "SpecialToken", dict).get("id")
    ids = part(template, "special_tokens", dict).get(name) if isinstance(name, str) else None
    ids = ids.get("ids") if isinstance(ids, dict) else None
    if not isinstance(ids, list) or len(ids) != 1 or type(ids[0]) is not int:
        refuse(f"the post_processor adds the token {show(name)}, which has no single id")
    return ids[0]


def check_special(name: object) -> str:
    """The name of a special token, which must be markup: no pattern cuts a piece that equals it,
    and words are never lost."""
    if not isinstance(name, str) or len(name) < 3:
        refuse(f"the added token {show(name)} is ordinary text")
    ends, inside = name[0] + name[-1], name[1:-1]
    if any(each.isalnum() or each.isspace() for each in ends) or not any(map(str.isalnum, inside)):
        refuse(f"the added token {show(name)} is ordinary text")
    try:
        name.encode()
    except UnicodeEncodeError:
        refuse(f"the added token {show(name)} is not text")
    return name


def name_of(token: object) -> str:
    """A token in `tokenizer_config.json`: a string, or an object with its content."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""
