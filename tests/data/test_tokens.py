"""Token files hold the tokens of the whole text, and are written once, completely or not at all."""

from __future__ import annotations

import itertools
import json
import os
import random
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from common.errors import UserError
from common.files import HOST
from data.corpora import open_corpus
from data.corpus import Corpus, Document
from data.pieces import cut
from data.tokenizer import Tokenizer, TokenizerConfig, fixed_tokenizer, train_bpe
from data.tokens import BEFORE, default_vocab_size, ending_ids, prepare, start_ids
from launch.schema import preset
from tests.conftest import ROOT, begin, finish
from tests.data.strings import NASTY, PATTERNED
from tests.exchange.fast import imported

STORY = "Once there was a fox.\nShe said: 'it's 1234 miles!'\n\nÜber 中文 😀  \t end\r\n" * 40


class StubCorpus(Corpus):
    """A corpus with a given text, which counts how often it is read."""

    def __init__(self, train: str = STORY, val: str = STORY[:500], bits: list[float] | None = None):
        self.texts = {"train": train, "val": val}
        self.bits = bits
        self.reads = 0

    def fingerprint(self) -> str:
        return repr(self.texts)

    def documents(self) -> Iterator[Document]:
        self.reads += 1
        for split, text in self.texts.items():
            if text:
                yield Document(split, (text[i : i + 7] for i in range(0, len(text), 7)))

    def document_bits(self) -> list[float] | None:
        self.reads += 1
        return self.bits


NORMALIZING = imported(train_bpe([NASTY * 20], 400), normalizer=normalizers.NFC())


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(8, 11),
    joint=st.sampled_from(["a b", "1 !", "! 中", "a\nb", "!\n1", "/\n'", "中\n\u0301"]),
)
@settings(max_examples=200)
def test_pieces_encode_to_the_tokens_of_the_whole_text(seed: int, size: int, joint: str) -> None:
    rng = random.Random(seed)
    blocks = ["".join(rng.choices(NASTY, k=rng.randint(0, 5))) for _ in range(60)]
    text = joint.join(blocks)  # so that the next place to cut is at most 8 characters away
    pieces = list(cut([text], size))
    assert "".join(pieces) == text
    assert len(pieces) >= len(text) // (2 * size)
    for name, tokenizer in PATTERNED.items():
        joined = [token for piece in pieces for token in tokenizer.encode(piece)]
        assert joined == tokenizer.encode(text), name


@pytest.mark.parametrize("run", [" ", "中"])
def test_a_long_run_of_one_kind_has_the_tokens_of_a_corpus(run: str, tmp_path: Path) -> None:
    """Matching a pattern on all of it at once would exhaust the stack."""
    tokenizer = train_bpe([STORY], 300)
    text = "a" + run * (1_000_000 // len(run)) + "b"
    corpus = prepare(StubCorpus(text, "val"), tokenizer, tmp_path, 1)
    assert tokenizer.encode(text) == corpus.train[:].tolist()


@given(texts=st.lists(st.text("ab \n\u0301\u0323e\u1161\u1112\u0958", max_size=40), max_size=9))
def test_pieces_are_normalized_as_the_whole_text_is(texts: list[str]) -> None:
    """Marks are moved and composed only within a word; a line can begin with some."""
    text = "x y\n\u0301z ".join(texts)
    joined = [token for piece in cut([text], 8) for token in NORMALIZING.encode(piece)]
    if max(map(len, texts), default=0) < 6:  # and two characters around them
        assert joined == NORMALIZING.encode(text)


def test_the_bytes_of_a_normalized_text_are_counted(tmp_path: Path) -> None:
    """Its normal form can be longer."""
    text = "\u0958 e\u0301 \n" * 50
    dataset = prepare(StubCorpus(text, text), NORMALIZING, tmp_path, 8)
    normal = unicodedata.normalize("NFC", text)
    assert dataset.tokenizer.decode(dataset.val[:].tolist()) == normal
    (folder,) = tmp_path.glob("tokens-*")
    assert json.loads((folder / "meta.json").read_text())["bytes"] == 2 * len(normal.encode())


def test_the_token_files_hold_the_encoded_text(tmp_path: Path) -> None:
    """Every text and tokenizer has its own entry."""
    for vocab_size, bits in itertools.product((None, 300, 305), ([1234.5, 0.1], None)):
        config = TokenizerConfig("bpe" if vocab_size else "byte", vocab_size)
        corpus = StubCorpus(STORY if bits else STORY.upper(), bits=bits)
        dataset = prepare(corpus, config, tmp_path, context_length=8)
        for split, tokens in (("train", dataset.train), ("val", dataset.val)):
            assert tokens.dtype == np.uint16
            assert tokens[:].tolist() == dataset.tokenizer.encode(corpus.texts[split])
        found = dataset.val_bits
        assert (None if found is None else found.tolist()) == bits
        if vocab_size:
            own = train_bpe([corpus.texts["train"]], vocab_size)
            assert dataset.tokenizer.digest == own.digest and own.vocab_size == vocab_size


def test_a_vocabulary_over_65536_uses_four_bytes_per_token(tmp_path: Path) -> None:
    byte_ranks = {bytes([byte]): byte for byte in range(256)}
    pairs = {b"%c%c" % (i >> 8, i & 255): 256 + i for i in range(65536)}
    encoding = tiktoken.Encoding(
        "wide", pat_str=r"(?s:.{1,2})", mergeable_ranks=byte_ranks | pairs, special_tokens={}
    )
    dataset = prepare(StubCorpus(), Tokenizer(encoding), tmp_path, context_length=8)
    assert dataset.train.dtype == np.uint32
    assert dataset.tokenizer.decode(dataset.train[:].tolist()) == STORY


def test_the_default_vocabulary_is_that_of_its_text_or_grows_with_it(tmp_path: Path) -> None:
    sizes = [default_vocab_size(n) for n in (0, 1000, 1_100_000, 3_000_000, 10**7, 10**9)]
    assert sizes == [4096, 1024, 1024, 2048, 4096, 4096]
    corpus = StubCorpus(STORY * 50)
    corpus.vocab_size = 300
    chosen = prepare(corpus, TokenizerConfig("bpe", None), tmp_path, 8).tokenizer
    given = prepare(corpus, TokenizerConfig("bpe", 300), tmp_path, 8).tokenizer
    assert chosen.vocab_size <= 300 and chosen.digest == given.digest


def test_a_warm_cache_reads_no_text(tmp_path: Path) -> None:
    config = TokenizerConfig("bpe", 300)
    said: list[str] = []
    first = prepare(StubCorpus(bits=[9.0]), config, tmp_path, context_length=8, say=said.append)
    assert [line.split()[0] for line in said] == ["training", "encoding", "its"]
    (tmp_path / f".glassgpt-{HOST}-{os.getpid()}-{'0' * 16}").mkdir()  # as a killed process leaves
    corpus = StubCorpus(bits=[9.0])
    second = prepare(corpus, config, tmp_path, context_length=8, say=said.append)
    assert len(said) == 3 and not any(tmp_path.glob(".*"))
    third = prepare(corpus, first.tokenizer, tmp_path, context_length=8)
    assert corpus.reads == 0
    for again in (second, third):
        assert (again.train[:] == first.train[:]).all()
        assert (again.val[:] == first.val[:]).all()
        assert again.val_bits is not None and again.val_bits.tolist() == [9.0]
        assert again.tokenizer.digest == first.tokenizer.digest


@pytest.mark.parametrize("moment", ["training", "encoding"])
@pytest.mark.parametrize(
    ("name", "settings"), [("text", {}), ("text", {"separator": "."}), ("dataset", {})]
)
def test_a_text_that_is_saved_while_it_is_read_is_not_cached(
    name: str, settings: dict[str, str], moment: str, tmp_path: Path
) -> None:
    """Also if the text from before is put back: what is stored under the checksum of a text was
    made of it."""
    file = tmp_path / "a.txt"
    file.write_text(STORY)
    config = preset("data", name, path=str(file), val_fraction=0.3, **settings)

    def read(cache: str, say: Callable[[str], object] = lambda line: None) -> str:
        bpe = TokenizerConfig("bpe", 300)
        return prepare(open_corpus(config), bpe, tmp_path / cache, 8, ("train",), say).sha256

    def save(line: str) -> None:
        """As an editor does, with another time."""
        if moment == "training" or line.startswith(moment):
            (tmp_path / "new").write_text(STORY.upper() if line.startswith(moment) else STORY)
            (tmp_path / "new").replace(file)

    expected = read("1")
    with pytest.raises(UserError, match=r"^data\.path: .* was changed while it was read"):
        read("2", save)
    assert not (tmp_path / "2").exists()
    file.write_text(STORY)
    assert read("2") == expected


@pytest.mark.parametrize(
    ("pattern", "content"),
    [
        ("*/train.bin", b"short"),
        ("*/val.bin", None),
        ("tokens-*/SHA256SUMS", b"\xff" * 100),
        ("*/tokenizer.json", b"[]"),
    ],
)
def test_a_damaged_entry_is_rebuilt(tmp_path: Path, pattern: str, content: bytes | None) -> None:
    config = TokenizerConfig("bpe", 300)
    prepare(StubCorpus(), config, tmp_path, context_length=8)
    (file,) = tmp_path.glob(pattern)
    whole = file.read_bytes()
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    dataset = prepare(StubCorpus(), config, tmp_path, context_length=8)
    assert file.read_bytes() == whole
    assert dataset.tokenizer.decode(dataset.train[:].tolist()) == STORY


PREPARE = """
from data.text import TextConfig, open_text
from data.tokenizer import TokenizerConfig
from data.tokens import prepare
corpus = open_text(TextConfig("text", "a.txt", None, 0.5))
dataset = prepare(corpus, TokenizerConfig("bpe", 300), "cache", context_length=8)
print(dataset.sha256, dataset.tokenizer.digest)
"""


def test_concurrent_processes_all_succeed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(STORY * 50)
    both = [begin("-c", PREPARE, cwd=tmp_path, PYTHONPATH=str(ROOT)) for _ in range(2)]
    assert len({*map(finish, both)}) == 1
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_tokens_that_another_process_deletes_end_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data.tokens.write_tokens", lambda *_: None)
    with pytest.raises(UserError, match=r"^cache_dir: .*tokens-\w+ was deleted .*; run the"):
        prepare(StubCorpus(), TokenizerConfig("byte", None), tmp_path, context_length=8)


def test_a_split_shorter_than_a_context_is_rejected_and_leaves_nothing(tmp_path: Path) -> None:
    config, corpus, said = TokenizerConfig("bpe", 257), StubCorpus("y" * 84, "y" * 80), list[str]()
    problem = r"^data: the val split has 40 of 82 tokens, but model.context_length=40 needs 41; .*$"
    with pytest.raises(UserError, match=problem):
        prepare(corpus, config, tmp_path / "new" / "cache", context_length=40, say=said.append)
    assert not any("stay in" in line for line in said) and not [*tmp_path.iterdir()]
    prepare(StubCorpus(), config, tmp_path, context_length=8)
    with pytest.raises(UserError, match=r"model\.context_length=5000 needs 5001"):
        prepare(StubCorpus(), config, tmp_path, context_length=5000)
    assert [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("between", "mark"),
    [("\n", "\n"), ("\r\n", "\r\n"), ("\n\n", "\n\n"), (" ", ".")],
)
def test_a_text_begins_where_its_own_lines_or_sentences_do(between: str, mark: str) -> None:
    """With tokens that the text has there, whichever the tokenizer joins, and some before them."""
    rng = random.Random(0)
    names = (f"{rng.choice(['Ada', 'Bo', 'Cy'])} met {rng.choice('DEF')}{i}." for i in range(500))
    text = between.join([*names, "A"])
    for name, tokenizer in {**PATTERNED, "byte": fixed_tokenizer("byte")}.items():
        tokens = tokenizer.encode(text)
        start = [*start_ids(np.array(tokens, np.uint16), tokenizer)]
        assert tokenizer.decode(start).endswith(mark), name
        assert len(start) == BEFORE, name
        places = range(len(tokens) - len(start))
        found = [place for place in places if tokens[place : place + len(start)] == start]
        follows = [tokenizer.decode(tokens[place + len(start) :])[:4] for place in found]
        assert {each.lstrip()[:1] for each in follows} <= {"A", "B", "C"} and found, name


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("Title\n" + "A cat sat. " * 2000, b"."),  # one line end is too few to learn from
        ("他卖了一个水壶。" * 500, "。".encode()),
        ("水水壶" * 500, "水".encode()),  # whole characters
        ("GATTTACA" * 500, b"A"),
    ],
)
def test_a_text_without_lines_begins_after_a_sentence_or_any_character(
    text: str, start: bytes
) -> None:
    tokens = np.array([*text.encode()], np.uint16)
    found = bytes(start_ids(tokens, fixed_tokenizer("byte")))
    assert found.endswith(start) and found in text.encode() and len(found) == BEFORE


def test_an_empty_document_changes_no_other(tmp_path: Path) -> None:
    class WithEmpty(StubCorpus):
        def documents(self) -> Iterator[Document]:
            yield Document("val", [])
            for document in super().documents():
                yield from (document, Document("train", [""]))

    byte = fixed_tokenizer("byte")
    plain, other = (
        prepare(corpus, byte, tmp_path / type(corpus).__name__, 8)
        for corpus in (StubCorpus(), WithEmpty())
    )
    for split in ("train", "val"):
        assert np.array_equal(getattr(plain, split)[:], getattr(other, split)[:])
    assert plain.sha256 == other.sha256


def test_a_file_in_place_of_the_folder_ends_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(UserError, match=r"^cache_dir: .*/cache/e: cannot be read or written.*$"):
        prepare(StubCorpus(), TokenizerConfig("bpe", 300), tmp_path / "cache" / "e", 8)


def test_the_checksum_of_tokens_stays_as_it_is(tmp_path: Path) -> None:
    """Runs store it: with another one, none could be resumed."""
    found = prepare(StubCorpus("a hen", "an ox"), fixed_tokenizer("byte"), tmp_path, 2).sha256
    assert found == "10840fb6060ae335a70a20b74d61d37723766983a0004f24cfbf87d1363f248d"


@pytest.mark.parametrize("mark", ["\n\n", " The end.\n\n"])
@pytest.mark.parametrize("name", sorted(PATTERNED))
def test_the_index_of_a_text_with_marks(
    name: str, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents start after the mark of another, wherever the text is cut to be encoded, unless
    the mark ends inside a token; and the tokens are those of the text without an index."""

    class Marked(StubCorpus):
        document_end = mark

    monkeypatch.setattr("data.encoding.cut", partial(cut, size=4))
    monkeypatch.setattr("data.encoding.PIECE", 1)
    tokenizer = PATTERNED[name]
    rng = random.Random(0)
    texts = [rng.choice(["Once a.", "\u00e9 b! c", "", "(c)", "\n d", "A a a"]) for _ in range(80)]
    for last in ("", "d"):  # a document may end without a mark
        texts[-1], whole = last, mark.join(texts)
        dataset = prepare(Marked(whole, whole), tokenizer, tmp_path / last / "1", 2)
        plain = prepare(StubCorpus(whole, whole), tokenizer, tmp_path / last / "2", 2)
        assert plain.train_starts is None
        # A run on these tokens can be resumed, whether or not its code had an index.
        assert dataset.sha256 == plain.sha256
        tokens = plain.train[:].tolist()
        ends = np.cumsum(tokenizer.token_bytes[tokens])
        wanted = np.cumsum([0, *(len((text + mark).encode()) for text in texts)])
        expected = [*np.flatnonzero(np.isin([0, *ends[:-1]], wanted))]
        starts = dataset.train_starts
        assert starts is not None and isinstance(starts.base, np.memmap)
        assert starts.tolist() == expected and dataset.train[:].tolist() == tokens
        assert dataset.val_starts is not None and dataset.val_starts.tolist() == expected
        ids = ending_ids(dataset.train, starts, tokenizer, mark)
        spelled = [tokenizer.decode([*ids[place:]]) for place in (0, 1)]
        assert [text.endswith(mark) for text in spelled] == [True, False]
        assert ids in {tuple(tokens[start - len(ids) : start]) for start in expected[1:]}
