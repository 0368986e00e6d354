"""The texts of a page: one to begin with, and examples.

Promises: the model was not trained on any of them. Each begins where a document does, or in a text
that is not divided, a paragraph, a line or a sentence; and none begins or ends within a word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from jaxtyping import UInt

from data.corpus import Corpus
from data.floor import floor_of
from data.tales import Tale, Tales, TalesConfig
from data.tokenizer import Tokenizer

N_TEXTS = 100  # tales, or contexts of another corpus, in which texts are looked for
PER_TOKEN = 16  # characters at most, of what is encoded
SENTENCE = r"[.!?][\"'\u201d\u2019)]*\s+"
STARTS = (r"\n\s*\n", r"\n", SENTENCE, r"\s+")  # what is before a passage
ENDS = (rf"{SENTENCE}|\n", r"\s+")  # what is after a text that is cut
FEW = 3  # places to begin at; with fewer, a text is divided at smaller parts
WORD = re.compile(r"[^\W\d_]{2,}")
MIN_MENTIONS = 2  # of a name
MAX_WORDS = 300  # of a text, in which a repeated passage is looked for
MIN_CHANCE = 0.001  # of a token in the page


def spare_corpus() -> Tales:
    """Tales, for a model whose own text is not at hand."""
    return Tales(TalesConfig("tales", n_bytes=10_000, seed=2, val_fraction=0.5))


def spare_text(tokenizer: Tokenizer, context_length: int) -> str:
    """One of these tales, or its beginning, that fits the context."""
    tales = [tale.text for tale in islice(spare_corpus().tales("val"), N_TEXTS)]
    return _Finder(tokenizer, context_length).whole(tales)[-1]


def page_texts(
    corpus: Corpus | None,
    tokens: UInt[np.ndarray, " token"] | None,
    tokenizer: Tokenizer,
    context_length: int,
) -> dict[str, Any]:
    """What a page has of the text of a run, as plain values for JSON.

    corpus, tokens: of its validation split. None if they are not at hand: then the texts are tales.

    prompt: what the page begins with: at most half a context, of tales the shortest one up to a
        name that comes next, when two were mentioned twice or more.
    examples: by name, a document up to a repeated name, and one up to the end of a repeated
        passage.
    reader: what a perfect reader says of the prompt and the examples, if they are the run's tales.
    """
    found = _Finder(tokenizer, context_length)
    source = spare_corpus() if tokens is None else corpus
    prompts: list[str] = []
    if isinstance(source, Tales):  # whose names are known
        tales = [*islice(source.tales("val"), N_TEXTS)]
        texts = found.whole([tale.text for tale in tales])
        prompts = [text for tale in tales if found.fits(text := _before_name(tale))]
    else:
        assert tokens is not None
        texts = found.documents(tokens[: N_TEXTS * context_length])
    examples = found.examples(texts)
    prompt = min(filter(None, prompts), key=len, default="")
    prompt = prompt or found.prompt(examples.get("a repeated name", texts[0]))
    for kind, text in examples.items():
        _, place = KINDS[kind][0](text)
        examples[kind] = text[:place].rstrip()
    own = [prompt, *examples.values()] if isinstance(corpus, Tales) else []
    return {
        "prompt": prompt,
        "examples": examples,
        "reader": {text: said for text in own if (said := perfect_reader(text, tokenizer))},
    }


def perfect_reader(text: str, tokenizer: Tokenizer) -> list[Any]:
    """For each token of a tale, its information in nats, and the ids and probabilities of the
    tokens that can follow it, the most probable first, down to MIN_CHANCE. Empty if not known."""
    floor = floor_of(tokenizer.encode_document(text), tokenizer)
    said = []
    for nats, chances in zip(floor.nats.tolist(), floor.next_tokens, strict=False):
        likely = sorted((chance, id) for id, chance in chances.items() if chance >= MIN_CHANCE)
        said.append([round(nats, 4), [[id, round(chance, 4)] for chance, id in reversed(likely)]])
    return [] if floor.unknown else said


def _before_name(tale: Tale) -> str:
    named = [mention for mention in tale.mentions if mention.name in ("hero", "friend")]
    for place, mention in enumerate(named):
        known = [earlier.name for earlier in named[:place]]
        if min(known.count("hero"), known.count("friend")) > 1 and place > 4:
            return tale.text[: mention.start].rstrip()
    return ""


class _Finder:
    """Finds texts that fit the context of a model."""

    def __init__(self, tokenizer: Tokenizer, context_length: int) -> None:
        self.tokenizer, self.most = tokenizer, context_length

    def fits(self, text: str, most: int | None = None) -> bool:
        """Whether a text has at most so many tokens, by default half a context."""
        most = most or max(1, self.most // 2)
        return len(text) <= PER_TOKEN * most and len(self.tokenizer.encode_document(text)) <= most

    def beginning(self, text: str, most: int) -> str:
        """A text, or as many of its first sentences and lines, or else words, as fit."""
        text = text.strip()
        if self.fits(text, most):
            return text
        ids = self.tokenizer.encode(text[: PER_TOKEN * most])[:most]
        short = self.tokenizer.decode_bytes(ids).decode(errors="ignore")
        for end in ENDS:
            for match in reversed([*re.finditer(end, short)]):
                kept = short[: match.end()].strip()
                if kept and self.fits(kept, most):
                    return kept
        while not self.fits(short, most) and len(short) > 1:  # without spaces
            short = short[:-1]
        return short

    def whole(self, texts: Sequence[str]) -> list[str]:
        """The texts that fit a context; if they are fewer than two, the beginnings of all."""
        fitting = [text.strip() for text in texts if self.fits(text.strip(), self.most)]
        return fitting if len(fitting) > 1 else [self.beginning(text, self.most) for text in texts]

    def documents(self, tokens: UInt[np.ndarray, " token"]) -> list[str]:
        """The documents, or passages of a text that is not divided."""
        tokenizer = self.tokenizer
        ends = np.isin(tokens, tokenizer.eos_ids)
        parts = np.split(tokens[~ends], np.flatnonzero(ends) - np.arange(ends.sum()))
        texts = [tokenizer.decode_bytes(part.tolist()).decode(errors="ignore") for part in parts]
        if tokenizer.document_end:
            texts = [text for part in texts for text in part.split(tokenizer.document_end)]
        texts = [text for text in texts if text.strip()]
        if len(texts) > 1:
            return self.whole([_from_a_word(texts[0]), *texts[1:-1]])  # the last is cut
        passages = [*self._passages(texts[0])] if texts else [""]
        return passages[:-1] or passages

    def _passages(self, text: str) -> Iterator[str]:
        starts = [[match.end() for match in re.finditer(start, text)] for start in STARTS]
        places = next((some for some in starts if len(some) >= FEW), [0])
        at = 0
        for place in places:
            if at <= place < len(text):
                passage = self.beginning(text[place : place + 2 * PER_TOKEN * self.most], self.most)
                at = place + len(passage)
                yield passage

    def examples(self, texts: Sequence[str]) -> dict[str, str]:
        """The texts with a repeated name and with a repeated passage, if there are any."""
        found: dict[str, str] = {}
        for kind, (again, least, enough) in KINDS.items():
            others = [text for text in texts if text not in found.values()]
            ranked = [(min(enough, again(text)[0]), -len(text), text) for text in others]
            if ranked and max(ranked)[0] >= least:
                found[kind] = max(ranked)[2]
        return found

    def prompt(self, text: str) -> str:
        """A text up to a name that comes next, when it was mentioned twice or more; or else its
        beginning."""
        cut = [text[:place].rstrip() for place in _mentions(text)[MIN_MENTIONS:]]
        fitting = [*filter(self.fits, cut)]
        if fitting:
            return fitting[-1]
        return self.beginning(text, max(1, self.most // 2))


def _from_a_word(text: str) -> str:
    """The first document from its first whole word on: a long one is divided between the splits,
    which can be in a word."""
    return re.sub(r"^\S+\s+(?=\S)", "", text) if text[0].islower() else text


def _mentions(text: str) -> list[int]:
    """Where the name is that is mentioned most: a word with a capital within a sentence."""
    words = [*WORD.finditer(text)]
    known = {
        word[0]
        for word in words
        if word[0].istitle()
        and re.search(r"[^\W\d_A-Z],? $", text[max(0, word.start() - 3) : word.start()])
    }
    names = Counter(word[0] for word in words if word[0] in known).most_common(1)
    return [word.start() for word in words if names and word[0] == names[0][0]]


def _name_again(text: str) -> tuple[int, int]:
    """How often the name is mentioned that is mentioned most, and where the last time."""
    places = _mentions(text)
    return len(places), places[-1] if places else 0


def _passage_again(text: str) -> tuple[int, int]:
    """How many words the longest passage has that comes again after its end, and where the last one
    then is."""
    places = [*re.finditer(r"\w+", text)][:MAX_WORDS]
    words, found = [place[0] for place in places], (0, 0)
    for length in range(1, len(words)):
        first: dict[tuple[str, ...], int] = {}
        for at in range(len(words) - length + 1):
            if first.setdefault(tuple(words[at : at + length]), at) + length <= at:
                found = length, places[at + length - 1].start()
                break
        else:
            break
    return found


# By kind of example: what comes again; how much of it there has to be, and how much is enough: of
# texts with more, the shortest is taken.
KINDS = {
    "a repeated name": (_name_again, MIN_MENTIONS, 4),
    "a repeated passage": (_passage_again, 3, 5),
}
