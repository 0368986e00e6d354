"""The default corpus: children's tales with exactly known information content.

The grammar in `data/tales_grammar.py` generates each tale by a sequence of choices with known
probabilities, and no two sequences produce the same text. The sum of -log2 p over the choices is
therefore -log2 P(text), the information of a tale in bits, whose mean no model can beat in
expectation.

Promises: the same seed gives the same bytes on every platform and Python version, because a choice
depends only on `random.Random(seed).random()`, whose sequence Python guarantees, and on integer
weights.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import data.tales_grammar as tales_grammar
from common.errors import UserError, check_range
from data.corpus import SPLITS, Corpus, CorpusConfig, Document

MAX_BYTES = 10**9  # that are generated without the user's own word
MAX_KEPT = 32 * 10**6  # bytes of tales in memory
_SLOT = re.compile(r"\{(?:(\w+) )?((\w+)[\w.]*)(?::([\w.]+))?\}")


class Slot(NamedTuple):
    """A hole in a template: `{name}`, `{form name}` or `{name:other}` (see `tales_grammar`)."""

    name: str  # a rule, and after a dot a tag: two tags of one rule are two choices
    rule: str
    form: str | None  # how the word is written here, a key of `tales_grammar.FORMS`
    other: str | None  # the slot whose word's kind decides between the rules `rule:kind`

    def chosen_rule(self, words: Mapping[str, str]) -> str:
        """The name of the rule, given the words of the slots."""
        return f"{self.rule}:{tales_grammar.KIND[words[self.other]]}" if self.other else self.rule

    def write(self, word: str) -> str:
        return tales_grammar.FORMS[self.form](word) if self.form else word


STORY = Slot("story", "story", None, None)  # a whole tale


class Mention(NamedTuple):
    """The position of a slot's word in a tale: `text[start:end]`; all characters are ASCII."""

    name: str
    start: int
    end: int


class Option(NamedTuple):
    """One way to fill a slot. A single string is a word, which the slot remembers."""

    parts: tuple[str | Slot, ...]
    weight: int

    @property
    def word(self) -> str | None:
        """The word, or None if the option is a template."""
        (first, *rest) = self.parts
        return first if isinstance(first, str) and not rest else None


class Rule:
    """The options of a slot, of which some words may be excluded."""

    def __init__(self, options: Sequence[Option]) -> None:
        self.options = tuple(options)
        self._ends = list(accumulate(option.weight for option in options))
        self._places = {option.word: place for place, option in enumerate(options) if option.word}
        self._words = self._places.keys()

    def draw(self, rng: random.Random, held: Set[str]) -> tuple[Option, float]:
        """Draw an option that is none of the words `held`, and its information in bits."""
        total = self._ends[-1]
        excluded = sorted(map(self._places.__getitem__, held & self._words))
        for place in excluded:
            total -= self.options[place].weight
        left = int(rng.random() * total)
        for place in excluded:  # skip it, if the draw is not before it
            weight = self.options[place].weight
            if self._ends[place] - weight <= left:
                left += weight
        option = self.options[bisect_right(self._ends, left)]
        return option, math.log2(total / option.weight)

    def probabilities(self, held: Set[str]) -> Iterator[tuple[Option, float]]:
        """Every option that `draw` may return, and its probability."""
        possible = [option for option in self.options if option.word not in held]
        total = sum(option.weight for option in possible)
        return ((option, option.weight / total) for option in possible)


class Grammar(NamedTuple):
    """Rules by name. Words of the rules `unique` are chosen once in a tale, all others once in a
    sentence."""

    rules: Mapping[str, Rule]
    unique: Set[str] = frozenset()


def read_rules(rules: Mapping[str, Sequence[str]], unique: Set[str] = frozenset()) -> Grammar:
    """The grammar given by rules with templates such as `"{He hero} had {a object}.*3"`."""
    return Grammar(
        {rule: Rule([*map(_read, templates)]) for rule, templates in rules.items()}, unique
    )


def _read(template: str) -> Option:
    text, _, weight = template.partition("*")
    parts: list[str | Slot] = []
    end = 0
    for match in _SLOT.finditer(text):
        form, name, rule, other = match.groups()
        parts += [text[end : match.start()], Slot(name, rule, form, other)]
        end = match.end()
    parts.append(text[end:])
    return Option(tuple(part for part in parts if part), int(weight or 1))


@lru_cache
def tales_rules() -> Grammar:
    """The grammar of the tales."""
    return read_rules(tales_grammar.RULES, tales_grammar.UNIQUE)


@dataclass(frozen=True)
class Tale:
    """A tale and its information, -log2 P(text), in bits. `mentions` are the words from slots, in
    order: later mentions of a slot repeat the word of the first."""

    text: str
    bits: float
    mentions: tuple[Mention, ...] = ()


@cache
def ends_sentence(text: str) -> bool:
    """Whether a sentence ends in this part of a template."""
    return any(mark in text for mark in ".!?")


def tale(rng: random.Random, grammar: Grammar) -> Tale:
    """Draw one tale."""
    bits, length = 0.0, 0
    texts: list[str] = []
    mentions: list[Mention] = []
    words: dict[str, str] = {}  # by slot
    once: set[str] = set()  # words that are not chosen again
    held: set[str] = set()  # nor are these, in this sentence
    left: list[str | Slot] = [STORY]  # to write, the next one last
    while left:
        part = left.pop()
        if isinstance(part, str):
            texts.append(part)
            length += len(part)
            if ends_sentence(part):
                held = set(once)
            continue
        word = words.get(part.name)
        if word is None:
            option, information = grammar.rules[part.chosen_rule(words)].draw(rng, held)
            bits += information
            word = option.word
            if word is None:
                left += option.parts[::-1]
                continue
            words[part.name] = word
            held.add(word)
            if part.rule in grammar.unique:
                once.add(word)
        written = part.write(word)
        texts.append(written)
        length += len(written)
        if written[1 - len(word) :] == word[1:]:  # not a pronoun; it may be capitalised
            mentions.append(Mention(part.name, length - len(word), length))
    return Tale("".join(texts), bits, tuple(mentions))


@dataclass
class TalesConfig(CorpusConfig):
    """How much to generate: at least `n_bytes` over both splits, which end with a whole tale."""

    n_bytes: int
    seed: int
    val_fraction: float

    def __post_init__(self) -> None:
        check_range("n_bytes", self.n_bytes, 10_000, 10**12)
        check_range("seed", self.seed, least=0)
        check_range("val_fraction", self.val_fraction, above=0, below=1)

    def without_trust(self) -> TalesConfig:
        if self.n_bytes > MAX_BYTES:
            raise UserError(
                f"data.n_bytes: the run asks for {self.n_bytes:,} bytes of tales; confirm with "
                f"data=tales data.n_bytes={self.n_bytes}"
            )
        return self


class Tales(Corpus):
    """The corpus: independent samples of `tale`, split into "train" and "val"."""

    document_end = "\n\n"

    def __init__(self, config: TalesConfig) -> None:
        self.config = config
        self._grammar = tales_rules()
        self._kept: list[tuple[str, str, float]] = []
        self.n_bytes = config.n_bytes
        self.vocab_size = 2048

    def fingerprint(self) -> str:
        """A hash of settings and source code, so that a changed grammar is a different corpus."""
        digest = hashlib.sha256(json.dumps(asdict(self.config), sort_keys=True).encode())
        for source in (__file__, tales_grammar.__file__):
            digest.update(Path(source).read_bytes())
        return digest.hexdigest()

    def pieces(self, split: str) -> Iterator[str]:
        """The text of `split` ("train" or "val"); each piece is a tale and its `document_end`."""
        return (piece for piece, _ in self._pieces(split))

    def documents(self) -> Iterator[Document]:
        """Two, one for each split: the mark between tales is a part of the text."""
        return (Document(split, self.pieces(split)) for split in SPLITS)

    def document_bits(self) -> list[float]:
        """The information of each validation tale in bits (the separators have none)."""
        return [bits for _, bits in self._pieces("val")]

    def _pieces(self, split: str) -> Iterator[tuple[str, float]]:
        """The pieces of `split`, and their information. Reading the training split of a corpus that
        is not large keeps both for the next call: bpe reads them twice, and the validation tales
        are drawn first."""
        every = (
            (part, drawn.text + self.document_end, drawn.bits) for part, drawn in self._draw(split)
        )
        if split == "train" and not self._kept and self.n_bytes <= MAX_KEPT:
            self._kept = [*every]
        return ((piece, bits) for part, piece, bits in self._kept or every if part == split)

    def tales(self, split: str) -> Iterator[Tale]:
        """The tales of `split` ("train" or "val"), all different, generated at each call.

        Validation tales come first, so that they can be read without generating the training split.
        A repeated tale is skipped. This does not change the floor measurably: two samples agree
        with a probability of at most 2^-b, where b, the fewest bits of a tale, is above 100, so the
        probability of a repetition among n tales is below n^2 / 2^101.
        """
        return (drawn for part, drawn in self._draw(split) if part == split)

    def _draw(self, last: str) -> Iterator[tuple[str, Tale]]:
        """The tales of all splits up to `last`, each with its split."""
        rng = random.Random(self.config.seed)
        val_bytes = self.config.n_bytes * self.config.val_fraction
        seen: set[bytes] = set()
        written = 0
        while written < (val_bytes if last == "val" else self.config.n_bytes):
            drawn = tale(rng, self._grammar)
            # Digests, because the tales of a large corpus would fill the memory.
            digest = hashlib.blake2b(drawn.text.encode(), digest_size=16).digest()
            if digest in seen:
                continue
            seen.add(digest)
            yield "val" if written < val_bytes else "train", drawn
            written += len(drawn.text) + len(self.document_end)
