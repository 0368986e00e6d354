"""Tokenizers: round trips, special tokens in plain text, saving, loading and streaming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
import tiktoken_ext.openai_public  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from common.files import write_sums
from data.pieces import BPE, BYTE, CL100K, GPT2, O200K
from data.tokenizer import (
    PRETRAINED,
    Limits,
    StreamDecoder,
    Tokenizer,
    TokenizerConfig,
    fixed_tokenizer,
)
from tests.data.strings import make

SPECIAL = "<|endoftext|>"


@pytest.fixture(scope="module", params=["bpe", "byte", "gpt2"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return make(request.param)


@given(text=st.text() | st.lists(st.sampled_from([SPECIAL, "<|", " ", "\n", "né"])).map("".join))
def test_any_text_round_trips(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(tokenizer.encode(f"{text}\ud800b")) == f"{text}\ufffdb"
    assert tokenizer.encode_array(text).tolist() == ids
    assert all(0 <= token < tokenizer.vocab_size for token in ids)
    assert tokenizer.token_bytes[np.array(ids, dtype=int)].sum() == len(text.encode())


@given(text=st.text(), seed=st.integers(0, 2**32 - 1))
def test_any_tokens_stream_to_the_text_they_decode_to(
    tokenizer: Tokenizer, text: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    for ids in (tokenizer.encode(text), rng.integers(0, tokenizer.vocab_size, 20).tolist()):
        stream = StreamDecoder(tokenizer)
        streamed = [stream.feed(token) for token in ids]
        assert "".join(streamed) + stream.flush() == tokenizer.decode(ids)


def test_a_character_split_across_tokens_waits_for_its_last_byte() -> None:
    stream = StreamDecoder(fixed_tokenizer("byte"))
    assert [stream.feed(byte) for byte in "a😀é".encode()] == ["a", "", "", "", "😀", "", "é"]
    assert stream.feed("中".encode()[0]) == ""
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""


def test_a_saved_tokenizer_loads_unchanged(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert (loaded.name, loaded.vocab_size) == (tokenizer.name, tokenizer.vocab_size)
    assert loaded.digest == tokenizer.digest
    assert (loaded.token_bytes == tokenizer.token_bytes).all()
    text = f"The hen's hat wasn't old.\n\n{SPECIAL} Zwölf 中文字 😀 1234567"
    assert loaded.encode(text) == tokenizer.encode(text)


def forge(folder: Path, name: str, old: str, new: str) -> None:
    """Change a file, and the checksums with it, as an attacker would."""
    (folder / name).write_text((folder / name).read_text().replace(old, new))
    write_sums(folder, ("tokenizer.json", "tokenizer.tiktoken"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "tokenizer.json").unlink(),
        lambda folder: (folder / "tokenizer.tiktoken").write_bytes(b"AA== 0\n"),  # other checksums
        lambda folder: (folder / "tokenizer.json").write_text("{"),
        lambda folder: forge(folder, "tokenizer.tiktoken", "/w== 255", "/w!== 255"),
        lambda folder: forge(folder, "tokenizer.json", "(?s:.", "(?=(a+)+$)b|(?s:."),  # slow
    ],
)
def test_a_damaged_file_is_rejected_in_one_line(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    fixed_tokenizer("byte").save(tmp_path)
    damage(tmp_path)
    with pytest.raises(UserError) as caught:
        Tokenizer.load(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}: its tokenizer")
    assert "\n" not in str(caught.value)


def odd(**more: Any) -> Tokenizer:
    """A tokenizer with gaps between its ids, and special tokens before the others."""
    ranks = {bytes([byte]): 3 + 2 * byte for byte in range(256)}
    special = {"<end>": 0, "<start>": 600}
    encoding = tiktoken.Encoding("odd", pat_str=GPT2, mergeable_ranks=ranks, special_tokens=special)
    return Tokenizer(encoding, Limits(**more))


def test_sizes_and_limits_are_stored(tmp_path: Path) -> None:
    saved = odd(vocab_size=1024, bos_id=600, adds_bos=False, eos_ids=(0, 3))
    saved.of_text((5, 7), "\n\n").save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert (loaded.start_ids, loaded.document_end) == ((5, 7), "\n\n")
    assert (loaded.vocab_size, loaded.bos_id, loaded.eos_ids) == (1024, 600, (0, 3))
    assert not loaded.adds_bos and loaded.digest == odd(vocab_size=1024).digest
    assert len(loaded.token_bytes) == 1024 and loaded.token_bytes.sum() == 256
    assert loaded.encode("e<end>") == [3 + 2 * byte for byte in b"e<end>"]
    assert loaded.decode([0, 600, 1023, *loaded.encode("a")]) == "a"


def test_the_digest_depends_on_what_changes_tokens() -> None:
    assert odd(bos_id=600, eos_ids=(0,)).digest == odd().digest
    assert odd(vocab_size=700).digest != odd().digest
    assert fixed_tokenizer("byte").digest != fixed_tokenizer("byte").with_eos().digest


@pytest.mark.parametrize("more", [{"vocab_size": 600}, {"eos_ids": (1,)}])
def test_sizes_and_limits_that_do_not_fit_are_rejected(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^(vocab_size|eos_ids): "):
        odd(**more)


def test_without_a_network_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        **{"HTTPS_PROXY": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1"},
        **{"NO_PROXY": "", "no_proxy": "", "TIKTOKEN_CACHE_DIR": str(tmp_path)},
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError) as caught:
        fixed_tokenizer("o200k_base")
    (line,) = str(caught.value).splitlines()
    assert line.startswith("tokenizer.name: the vocabulary of o200k_base could not be downloaded")
    assert "TIKTOKEN_CACHE_DIR" in line and "tokenizer=bpe" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "vocab_size", "field"),
    [("word", None, "name"), ("gpt2", 50257, "vocab_size"), ("bpe", 256, "vocab_size")],
)
def test_a_setting_out_of_range_is_rejected(name: str, vocab_size: int | None, field: str) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: .*(choose|give)"):
        TokenizerConfig(name, vocab_size)


def test_the_patterns_in_use_are_known() -> None:
    """With another version of tiktoken, a run must not write what it then refuses to read."""
    with pytest.MonkeyPatch.context() as patch:
        for loader in ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks"):
            patch.setattr(tiktoken_ext.openai_public, loader, lambda *_, **__: {})
        made = [tiktoken_ext.openai_public.ENCODING_CONSTRUCTORS[name]() for name in PRETRAINED]
    assert [each["pat_str"] for each in made] == [GPT2, CL100K, O200K]
    assert [make(name).byte_pairs().pattern for name in ("bpe", "byte")] == [BPE, BYTE]
