"""The default corpus: children's tales with exactly known information content.

The grammar in `data/tales_grammar.py` generates each tale by a sequence of choices with known
probabilities, and no two sequences produce the same text. The sum of -log2 p over the choices is
therefore -log2 P(text), the information of a tale in bits, whose mean no model can beat in
expectation.

Promises: the same seed gives the same bytes on every platform and Python version, because a choice
depends only on `random.Random(seed).random()`, whose sequence Python guarantees, and on integer
weights. Knows nothing of tokens, files or caches.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from data import tales_grammar
from errors import check_choice, check_range

_SLOT = re.compile(r"\{(?:(\w+) )?((\w+)[\w.]*)(?::([\w.]+))?\}")


class Slot(NamedTuple):
    """A hole in a template: `{name}`, `{form name}` or `{name:other}` (see `tales_grammar`)."""

    name: str  # a rule, and after a dot a tag: two tags of one rule are two choices
    rule: str
    form: str | None  # how the word is written here, a key of `tales_grammar.FORMS`
    other: str | None  # the slot whose word's kind decides between the rules `rule:kind`


class Mention(NamedTuple):
    """The position of a slot's word in a tale: `text[start:end]`; all characters are ASCII."""

    name: str
    start: int
    end: int


class Option(NamedTuple):
    """One way to fill a slot. A single string is a word, which the slot remembers."""

    parts: tuple[str | Slot, ...]
    weight: int


Grammar = Mapping[str, Sequence[Option]]


def read_rules(rules: Mapping[str, Sequence[str]]) -> Grammar:
    """The grammar given by rules with templates such as `"{He hero} had {a object}.*3"`."""
    return {rule: tuple(map(_read_template, templates)) for rule, templates in rules.items()}


def _read_template(template: str) -> Option:
    text, _, weight = template.partition("*")
    parts: list[str | Slot] = []
    end = 0
    for match in _SLOT.finditer(text):
        form, name, rule, other = match.groups()
        parts += [text[end : match.start()], Slot(name, rule, form, other)]
        end = match.end()
    parts.append(text[end:])
    return Option(tuple(part for part in parts if part), int(weight or 1))


GRAMMAR = read_rules(tales_grammar.RULES)


class Draft(NamedTuple):
    """A partial tale: the text up to its next choice, and what follows it."""

    text: str
    bits: float  # of the choices made so far
    slot: Slot | None  # the slot to fill next; None when the tale is complete
    rest: tuple | None  # the parts after it, as a linked list
    words: dict[str, str]  # by slot
    mentions: tuple[Mention, ...] = ()  # where they occur

    @classmethod
    def start(cls) -> Draft:
        """The empty tale, before its first choice."""
        return cls("", 0.0, Slot("story", "story", None, None), None, {})

    def options(self, grammar: Grammar) -> list[Option]:
        """The options of the slot's rule, without words that the tale already contains."""
        assert self.slot is not None
        rule = self.slot.rule
        if self.slot.other:
            rule += ":" + tales_grammar.KIND[self.words[self.slot.other]]
        held = set(self.words.values())
        return [option for option in grammar[rule] if option.parts[0] not in held]

    def take(self, option: Option, total: int) -> Draft:
        """The draft after choosing `option` from options whose weights add up to `total`."""
        slot, words, rest, mentions = self.slot, self.words, self.rest, self.mentions
        assert slot is not None
        if len(option.parts) == 1 and isinstance(option.parts[0], str):
            words = {**words, slot.name: option.parts[0]}
            rest = (slot, rest)
        else:
            for part in reversed(option.parts):
                rest = (part, rest)
        text = self.text
        slot = None
        while rest:
            part, rest = rest
            if isinstance(part, str):
                text += part
            elif part.name in words:
                word = words[part.name]
                text += tales_grammar.FORMS[part.form](word) if part.form else word
                if text[-len(word) + 1 :] == word[1:]:  # not a pronoun; it may be capitalised
                    mentions += (Mention(part.name, len(text) - len(word), len(text)),)
            else:
                slot = part
                break
        bits = self.bits + math.log2(total / option.weight)
        return Draft(text, bits, slot, rest, words, mentions)


@dataclass(frozen=True)
class Tale:
    """A tale and its information, -log2 P(text), in bits. `mentions` are the words from slots, in
    order: later mentions of a slot repeat the word of the first."""

    text: str
    bits: float
    mentions: tuple[Mention, ...] = ()


def tale(rng: random.Random, grammar: Grammar = GRAMMAR) -> Tale:
    """Draw one tale."""
    draft = Draft.start()
    while draft.slot:
        options = draft.options(grammar)
        total = sum(option.weight for option in options)
        left = int(rng.random() * total)
        for option in options:
            left -= option.weight
            if left < 0:
                break
        draft = draft.take(option, total)
    return Tale(draft.text, draft.bits, draft.mentions)


@dataclass
class TalesConfig:
    """How much to generate: at least `n_bytes` over both splits, which end with a whole tale."""

    document_end: ClassVar[str] = "\n\n"  # ends every tale

    name: str
    n_bytes: int
    seed: int
    val_fraction: float

    def __post_init__(self) -> None:
        check_range("n_bytes", self.n_bytes, 10_000, 10**12)
        check_range("seed", self.seed, least=0)
        check_range("val_fraction", self.val_fraction, above=0, below=1)


class Tales:
    """The corpus: independent samples of `tale`, split into "train" and "val"."""

    description = None

    def __init__(self, config: TalesConfig) -> None:
        self.config = config

    def fingerprint(self) -> str:
        """A hash of settings and source code, so that a changed grammar is a different corpus."""
        digest = hashlib.sha256(json.dumps(asdict(self.config), sort_keys=True).encode())
        for source in (__file__, tales_grammar.__file__):
            digest.update(Path(source).read_bytes())
        return digest.hexdigest()

    def pieces(self, split: str) -> Iterator[str]:
        """The text of `split` ("train" or "val"); each piece is a tale and its `document_end`."""
        return (tale.text + self.config.document_end for tale in self.tales(split))

    def floor_bits(self, split: str) -> float:
        """The information of the whole split in bits (the separators have none)."""
        return math.fsum(tale.bits for tale in self.tales(split))

    def tales(self, split: str) -> Iterator[Tale]:
        """The tales of `split` ("train" or "val"), all different, generated at each call.

        Validation tales come first, so that they can be read without generating the training split.
        A repeated tale is skipped. This does not change the floor measurably: two samples agree
        with a probability of at most 2^-b, where b, the fewest bits of a tale, is above 100, so the
        probability of a repetition among n tales is below n^2 / 2^101.

        Raises ValueError for any other split.
        """
        check_choice("split", split, ("train", "val"))
        rng = random.Random(self.config.seed)
        val_bytes = self.config.n_bytes * self.config.val_fraction
        seen: set[bytes] = set()
        written = 0
        while written < (val_bytes if split == "val" else self.config.n_bytes):
            drawn = tale(rng)
            # Digests, because the tales of a large corpus would fill the memory.
            digest = hashlib.blake2b(drawn.text.encode(), digest_size=16).digest()
            if digest in seen:
                continue
            seen.add(digest)
            if split == "val" or written >= val_bytes:
                yield drawn
            written += len(drawn.text) + len(self.config.document_end)
