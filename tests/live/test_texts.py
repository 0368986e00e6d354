"""The texts of a page: whole documents of the validation split, or passages that begin with one."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from data.corpus import text_of
from data.floor import floor_of
from data.tales import Tales, TalesConfig
from data.tales_grammar import BOYS, GIRLS
from live.texts import N_TEXTS, page_texts
from tests.data.strings import trained

LENGTH = 1000


def repeats(words: Sequence[str]) -> int:
    """The length of the longest run of words that comes again after its end."""
    n = len(words)
    return max(
        size
        for one in range(n)
        for two in range(one + 1, n)
        for size in range(min(two - one, n - two) + 1)
        if words[one : one + size] == words[two : two + size]
    )


def test_examples_are_tales_up_to_a_name_and_the_end_of_a_passage_that_come_again() -> None:
    corpus = Tales(TalesConfig("tales", n_bytes=60_000, seed=3, val_fraction=0.3))
    held_out = "".join(text_of(corpus, "val")).strip().split("\n\n")[:N_TEXTS]
    found = page_texts(corpus, np.zeros(1, np.uint16), trained(), LENGTH)
    named, repeating = found["examples"].values()
    assert [*found["examples"]] == ["a repeated name", "a repeated passage"]
    names = {*GIRLS, *BOYS}

    def following(text: str) -> str:
        """The word that comes next in the tale that begins with a text."""
        (tale,) = (tale for tale in held_out if tale.startswith(f"{text} "))
        return re.findall(r"\w+", tale[len(text) :])[0]

    assert following(named) in names
    assert len(re.findall(rf"\b{following(named)}\b", named)) >= 3
    words = re.findall(r"\w+", repeating)
    assert repeats([*words, following(repeating)]) > repeats(words) >= 4
    assert len(re.findall(following(found["prompt"]), found["prompt"])) >= 2


def test_what_a_perfect_reader_says_of_these_texts() -> None:
    """Each token, and what can come after it: of a run on tales, and of no other."""
    corpus = Tales(TalesConfig("tales", n_bytes=60_000, seed=3, val_fraction=0.3))
    tokenizer = trained().of_text((), "\n\n")
    found = page_texts(corpus, np.zeros(1, np.uint16), tokenizer, LENGTH)
    assert [*found["reader"]] == [found["prompt"], *found["examples"].values()]
    for text, places in found["reader"].items():
        floor = floor_of(tokenizer.encode_document(text), tokenizer)
        assert [nats for nats, _ in places] == pytest.approx(floor.nats.tolist(), abs=1e-4)
        for (_, shown), chances in zip(places, floor.next_tokens, strict=True):
            likely = {token: chance for token, chance in chances.items() if chance >= 0.001}
            assert dict(shown) == pytest.approx(likely, abs=1e-4)
            assert [p for _, p in shown] == sorted((p for _, p in shown), reverse=True)
    assert page_texts(None, None, tokenizer, LENGTH)["reader"] == {}


LINES = "of a verse, in which Anna and the old boatman Karl met the other Anna again, {i} times;\n"
PROSE = "On day {i} they saw Anna, and then Anna again. Was it she? On the hill Anna slept. "


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("ne is cut.\n\n" + (LINES * 3 + "\n") * 20, "\n\n"),
        ("ne is cut.\n" + LINES * 90, "\n"),
        ("ntence is cut. " + PROSE * 90, r"[.?] "),
        ("rd is cut " + "and Anna met Anna and " * 90, " "),
    ],
)
def test_passages_of_a_text_begin_with_a_part_of_it(text: str, before: str) -> None:
    numbers = iter(range(1000))
    text = re.sub(re.escape("{i}"), lambda _: str(next(numbers)), text)
    tokenizer = trained()
    tokenizer.document_end = None
    tokens = np.array(tokenizer.encode(text), np.uint16)
    found = page_texts(None, tokens, tokenizer, 120)
    for part in (found["prompt"], *found["examples"].values()):
        starts = [match.end() for match in re.finditer(before, text)]
        places = [at for at in starts if text.startswith(part, at)]
        assert part and places, part
        after = text[places[0] + len(part)]
        assert not (part[-1].isalnum() and after.isalnum()), "it ends with a word"
        assert len(tokenizer.encode(part)) <= 120
    assert "Anna" in found["examples"]["a repeated name"]
    assert len(tokenizer.encode(found["prompt"])) <= 60


def test_documents_are_cut_at_their_ends_alone() -> None:
    tokenizer = trained().with_eos()
    tokenizer.document_end = None
    (end,) = tokenizer.eos_ids
    documents = [f"Document {i} is about Anna{', and about Anna' * i}." for i in range(9)]
    tokens = [id for text in documents for id in (*tokenizer.encode(text), end)]
    found = page_texts(None, np.array(tokens[:-9], np.uint16), tokenizer, 90)
    for text in (*found["examples"].values(), found["prompt"]):
        following = rf"{re.escape(text)} (Anna|and|about)\b"
        assert any(re.match(following, each) for each in documents)


def test_the_first_document_begins_with_its_first_whole_word() -> None:
    """The split can begin in the middle of one."""
    tokenizer = trained().with_eos()
    tokenizer.document_end = None
    parts = ["rd … Anna saw the boat.\n"] * 3
    tokens = [id for part in parts for id in (*tokenizer.encode(part), *tokenizer.eos_ids)]
    found = page_texts(None, np.array(tokens, np.uint16), tokenizer, 200)
    assert found["prompt"] == "… Anna saw the boat."
