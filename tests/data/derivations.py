"""Every derivation of a text by exhaustive search: a slow reference for the generator of tales."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from data import tales_grammar
from data.tales import Grammar, Mention, Option, Slot, Tale


class Draft(NamedTuple):
    """A partial tale: the text up to its next choice, and what follows it."""

    text: str
    bits: float  # of the choices made so far
    slot: Slot | None  # the slot to fill next; None when the tale is complete
    rest: tuple | None  # the parts after it, as a linked list
    words: dict[str, str]  # by slot
    chosen: tuple[tuple[str, str, int], ...] = ()  # rule, word, and where the text was
    mentions: tuple[Mention, ...] = ()  # where words occur

    def options(self, grammar: Grammar) -> list[Option]:
        """The options of the slot's rule, without those that may not be chosen again."""
        assert self.slot is not None
        rule = self.slot.rule
        if self.slot.other:
            rule += ":" + tales_grammar.KIND[self.words[self.slot.other]]
        held = {
            word
            for source, word, place in self.chosen
            if source in grammar.unique or not re.search("[.!?]", self.text[place:])
        }
        return [option for option in grammar.rules[rule].options if option.parts[0] not in held]

    def take(self, option: Option, total: int) -> Draft:
        """The draft after choosing `option` from options whose weights add up to `total`."""
        slot, words, rest, chosen = self.slot, self.words, self.rest, self.chosen
        text, mentions = self.text, self.mentions
        assert slot is not None
        if len(option.parts) == 1 and isinstance(option.parts[0], str):
            words = {**words, slot.name: option.parts[0]}
            chosen += ((slot.rule, option.parts[0], len(text)),)
            rest = (slot, rest)
        else:
            for part in reversed(option.parts):
                rest = (part, rest)
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
        return Draft(text, bits, slot, rest, words, chosen, mentions)


def derivations(grammar: Grammar, text: str | None = None) -> Iterator[Tale]:
    """Every derivation of `text`, or of every tale of the grammar if None.

    A search for `text` drops a draft as soon as it is not a prefix of `text`.
    """
    drafts = [Draft("", 0.0, Slot("story", "story", None, None), None, {})]
    while drafts:
        draft = drafts.pop()
        if not draft.slot:
            if text in (None, draft.text):
                yield Tale(draft.text, draft.bits, draft.mentions)
            continue
        options = draft.options(grammar)
        total = sum(option.weight for option in options)
        for option in options:
            # Most options fail at their first word: skip them before building their drafts.
            head = "" if draft.slot.form else option.parts[0]
            if text and isinstance(head, str) and not text.startswith(head, len(draft.text)):
                continue
            longer = draft.take(option, total)
            if text is None or text.startswith(longer.text):
                drafts.append(longer)
