"""Tales are well formed, and the generator reports their exact information."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from data import tales_grammar
from data.floor import floor_of
from data.tales import Grammar, Tale, Tales, read_rules, tale, tales_rules
from data.tokenizer import fixed_tokenizer
from launch.schema import preset
from tests.conftest import ROOT, begin, finish

GRAMMAR = tales_rules()


def sample(n: int, seed: int, grammar: Grammar = GRAMMAR) -> list[Tale]:
    rng = random.Random(seed)
    return [tale(rng, grammar) for _ in range(n)]


# Information


@pytest.mark.parametrize("n", [80, pytest.param(5_000, marks=pytest.mark.long)])
def test_no_other_choices_give_the_text_of_a_tale(n: int) -> None:
    """The perfect reader adds up the probabilities of all choices that do."""
    tokenizer = fixed_tokenizer("byte").of_text((), "\n\n")
    for drawn in sample(n, seed=11):
        floor = floor_of(f"{drawn.text}\n\n".encode(), tokenizer, after=["\n\n"])
        assert floor.nats.sum() / math.log(2) == pytest.approx(drawn.bits, abs=1e-9)


def test_probabilities_of_a_small_grammar_by_hand():
    grammar = read_rules(
        {
            "story": [
                "{hero} saw {a animal.one}, {a animal.two} and {a animal.three}.",
                "{A animal} met {hero}.*3",
            ],
            "hero": ["Ida", "Tom*4"],
            "animal": ["owl", "cat", "dog*2", "emu"],
        }
    )
    expected = {  # 1/4 or 3/4, times the name, times the animals, drawn without replacement
        "Ida saw an owl, an emu and a cat.": (1 / 4) * (1 / 5) * (1 / 5) * (1 / 4) * (1 / 3),
        "Ida saw a dog, an owl and a cat.": (1 / 4) * (1 / 5) * (2 / 5) * (1 / 3) * (1 / 2),
        "Tom saw a cat, an owl and a dog.": (1 / 4) * (4 / 5) * (1 / 5) * (1 / 4) * (2 / 3),
        "A dog met Tom.": (3 / 4) * (2 / 5) * (4 / 5),
        "An owl met Ida.": (3 / 4) * (1 / 5) * (1 / 5),
    }
    n = 20_000
    drawn = sample(n, seed=4, grammar=grammar)
    found, counts = {each.text: 2**-each.bits for each in drawn}, Counter(e.text for e in drawn)
    assert len(found) == 2 * (4 * 3 * 2 + 4)
    assert sum(found.values()) == pytest.approx(1, abs=1e-12)
    for text, probability in expected.items():
        assert found[text] == pytest.approx(probability, rel=1e-12)
    for text, p in found.items():
        assert counts[text] == pytest.approx(n * p, abs=5 * math.sqrt(n * p * (1 - p)))


def test_mentions_are_the_words_of_slots_without_pronouns() -> None:
    rules = {"story": ["{A animal} met {hero}. {He hero} saw {Up animal}, and {animal} {hero}."]}
    grammar = read_rules({**rules, "hero": ["Ida"], "animal": ["owl"]})
    (drawn,) = sample(1, seed=0, grammar=grammar)
    assert drawn.text == "An owl met Ida. She saw Owl, and owl Ida."
    places = [("animal", 3), ("hero", 11), ("animal", 24), ("animal", 33), ("hero", 37)]
    assert [*drawn.mentions] == [(name, place, place + 3) for name, place in places]


# The corpus


def test_splits_share_no_tale_and_have_the_requested_sizes():
    corpus = Tales(preset("data", "tales", n_bytes=40_000, seed=5, val_fraction=0.25))
    val, train = ("".join(corpus.pieces(split)) for split in ("val", "train"))
    *every, last = (val + train).split("\n\n")
    assert len(set(every)) == len(every) and val.endswith("\n\n") and last == ""
    longest = max(map(len, every)) + 2
    assert 0 <= len(val) - 10_000 < longest
    assert 0 <= len(val) + len(train) - 40_000 < longest


def test_same_bytes_in_every_process_and_on_every_platform():
    program = (
        "import hashlib; from data.tales import Tales, TalesConfig; "
        "config = TalesConfig('tales', n_bytes=30_000, seed=7, val_fraction=0.1); "
        "text = ''.join(Tales(config).pieces('train')); "
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    digests = {
        finish(begin("-c", program, cwd=ROOT, PYTHONHASHSEED=seed)).strip() for seed in ("0", "1")
    }
    # It detects differences between platforms and Python versions, and a change of the grammar.
    assert digests == {"22006f6319fa184fd629c5c7e821da32a8dd213d0aa76e5e1f48ba04e8883ac6"}


@pytest.mark.parametrize("most_kept", [0, 20_000])
def test_pieces_are_the_same_each_time_they_are_read(monkeypatch, most_kept):
    monkeypatch.setattr("data.tales.MAX_KEPT", most_kept)
    corpus = Tales(preset("data", "tales", n_bytes=20_000, val_fraction=0.2))
    expected = {
        split: [drawn.text + "\n\n" for drawn in corpus.tales(split)] for split in ("train", "val")
    }
    for _ in range(3):
        next(corpus.pieces("train"))  # by a reader that stops early
        for split in ("train", "val", "val", "train", "train", "val"):
            assert list(corpus.pieces(split)) == expected[split]
        assert corpus.document_bits() == [drawn.bits for drawn in corpus.tales("val")]


def test_fingerprint_depends_on_settings_and_source(monkeypatch, tmp_path):
    first = Tales(preset("data", "tales")).fingerprint()
    assert Tales(preset("data", "tales")).fingerprint() == first
    assert Tales(preset("data", "tales", seed=1)).fingerprint() != first
    changed = tmp_path / "tales_grammar.py"
    changed.write_bytes(Path(tales_grammar.__file__).read_bytes() + b"\n# changed\n")
    monkeypatch.setattr(tales_grammar, "__file__", str(changed))
    assert Tales(preset("data", "tales")).fingerprint() != first


@pytest.mark.parametrize(("setting", "value"), [("n_bytes", 9_999), ("val_fraction", math.nan)])
def test_settings_out_of_range_are_named(setting, value):
    with pytest.raises(ValueError, match=rf"^{setting}: .*; give"):
        preset("data", "tales", **{setting: value})


# Surface form


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [drawn.text for drawn in sample(3000, seed=21)]


NEVER = [
    r"\s\s|\n|\t|^\s|\s$|[{}*_<>\[\]]",  # it is one paragraph
    r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]",
    # The article depends on the first sound. In these words, it does not match the first letter.
    r"\b[Aa]n? (hono|hour|heir|uni|use|usu|one|eu|ewe)",
    r"\b[Aa]n? (two|three|four|five|six|seven|eight|nine|ten|eleven)\b",
    # Sentences begin with a capital letter and end with a full stop.
    r"^[^A-Z]|\. [^A-Z\"]|[^.]$|\"[^A-Z ,.]*[a-z][^\"]*\"$",
    r"[a-z] (The|Then|So|He|She|They|His|Her|One|On|Late|Early|Now) ",
    r" [,.!?]|,,|\.\.|[,.!?][A-Za-z]",
    # A quotation that ends in a comma is followed by its speaker, not by a new sentence.
    r",\" [A-Z]\w+ (the|was|had|got)\b",
]


@pytest.mark.parametrize("pattern", NEVER)
def test_no_tale_has(texts, pattern):
    assert not [text for text in texts if re.search(pattern, text)]


def test_tales_are_of_plain_ascii_and_moderate_length(texts):
    for text in texts:
        assert text.isascii()
        assert 200 < len(text) < 1000
        assert 5 <= len(re.findall(r"[.!?]\"?(?= |$)", text)) <= 20


def test_quotations_are_balanced_capitalised_and_punctuated(texts):
    for text in texts:
        assert text.count('"') % 2 == 0
        for said in text.split('"')[1::2]:
            assert re.fullmatch(r"[A-Z].*[,.!?]", said), said
        for before in text.split('"')[0:-1:2]:
            assert before == "" or before.endswith(" ")


GIRLS, BOYS = frozenset(tales_grammar.GIRLS), frozenset(tales_grammar.BOYS)


def test_pronouns_agree_with_the_names(texts):
    seen = set()
    for text in texts:
        # There are two names: the hero's comes first, then the friend's.
        names = list(dict.fromkeys(w for w in re.findall(r"[A-Z]\w+", text) if w in GIRLS | BOYS))
        assert len(names) == 2, text
        seen |= set(names)
        hero, friend = names
        wrong = "He|he|His|his|him|himself|boy" if hero in GIRLS else "She|she|Her|girl"
        alone = text[: text.index(friend)]
        assert not re.search(rf"\b({wrong})\b", alone), text
        # A sentence that begins with a pronoun is about the hero.
        assert not re.search(rf"(^|[.!?\"] )({wrong.replace('he|', '')})\b", text), text
        both = {name in GIRLS for name in names}
        if both == {True}:
            assert not re.search(r"\b([Hh]e|[Hh]is|him|boy)\b", text), text
        if both == {False}:
            assert not re.search(r"\b([Ss]he|[Hh]er|girl)\b", text), text
    assert seen == GIRLS | BOYS


def test_every_tale_has_a_cumulative_song(texts):
    """Each verse puts a new word before those of the verse before."""
    lengths: Counter[int] = Counter()
    for text in texts:
        (song,) = re.findall(r' sang: "Oh, ([^"]*)!"', text)
        verses = [verse.split(" ") for verse in song.split(", ")]
        words = verses[-1]
        assert len(set(words)) == len(words) and set(words) <= set(tales_grammar.WORDS["creature"])
        assert verses == [words[len(words) - n :] for n in range(1, len(words) + 1)]
        lengths[len(verses)] += 1
    assert set(lengths) == {3, 4, 5, 6} and min(lengths.values()) > 0.2 * len(texts)
    share = sum(len(match) for text in texts for match in re.findall(r'\S+ sang: ".*?" ', text))
    assert 0.08 < share / sum(map(len, texts)) < 0.16
