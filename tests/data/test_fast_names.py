"""Added tokens that are not special: transformers finds them in a text, and so do we."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import transformers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, pre_tokenizers

from data.fast_tokenizer import read_fast, write_fast
from data.nfc import nfc
from data.patterns import QWEN2
from data.tokenizer import StreamDecoder, Tokenizer
from tests.data.fast import BYTES, LONG, added, open_fast, save, small
from tests.data.strings import SCRAPS
from tests.data.test_fast_tokenizer import STRINGS, parts_of, split, train

# Those of Qwen3.
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_pad|>"]
FOUND = [
    *("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|repo_name|>"),
    *("<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
]
OTHERS = ["<\uff5cUser\uff5c>", "[K]"]  # DeepSeek's; "\u212a]" becomes "K]" in NFC
PARTS = [
    *("<", ">", "</", "|>", "<|", "[", "]", "<think", "think>", "/think>", "<<think>", "tool_call"),
    *("<|im_start|><think>", "<|im_<think>", "[\u212a]", "<\u0338", ">\u0338", "\u0338", "\u0301"),
    *("<THINK>", "< think>", "<think >", "\n", " ", "  ", "\t", "\u00a0", "a", "hen", "e\u0301"),
]
texts = st.lists(
    st.one_of(
        st.sampled_from([*SPECIAL, *FOUND, *OTHERS]),
        st.sampled_from(PARTS),
        st.sampled_from(SCRAPS),
        st.text(max_size=5),
    ),
    max_size=12,
).map("".join)


def saved(folder: Path, normalized: bool, names: list[str]) -> None:
    """A tokenizer that transformers saves: Qwen's with NFC, or one in which the names are found in
    normalized text, as by default, which is the text itself."""
    base: Any
    if normalized:
        fast = train(pre_tokenizers.ByteLevel(add_prefix_space=False), special=("<|endoftext|>",))
        base = transformers.PreTrainedTokenizerFast(tokenizer_object=fast)
    else:
        vocabulary, merges = parts_of(train(split(QWEN2.oniguruma), special=("<|endoftext|>",)))
        base = transformers.Qwen2Tokenizer(vocab=vocabulary, merges=merges)
    special = [AddedToken(each, special=True, normalized=False) for each in SPECIAL]
    base.add_tokens(special, special_tokens=True)
    base.add_tokens([AddedToken(each, special=False, normalized=normalized) for each in names])
    base.save_pretrained(folder)


@pytest.fixture(scope="module", params=[False, True], ids=["qwen", "normalized"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """transformers' tokenizer, and what we read from the same folder."""
    folder = tmp_path_factory.mktemp("names")
    saved(folder, request.param, [*FOUND, *OTHERS])
    fast = transformers.AutoTokenizer.from_pretrained(folder, split_special_tokens=True)
    return fast, read_fast(folder, 3000)


@settings(max_examples=1000, deadline=None)
@example(text="<think>\u0338")
@example(text="[\u212a]")
@example(text="<|im_start|><think>\n\n</think>")
@given(text=texts)
def test_the_tokens_are_those_of_transformers(pair: Any, text: str) -> None:
    fast, tokenizer = pair
    ids = tokenizer.encode(text)
    assert ids == fast(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.encode_array(text).tolist() == ids
    decoded = tokenizer.decode(ids)
    assert decoded == fast.decode(ids, skip_special_tokens=True)
    parts = re.split("|".join(map(re.escape, [*FOUND, *OTHERS])), text)
    names = re.findall("|".join(map(re.escape, [*FOUND, *OTHERS])), text)
    if tokenizer.normalizer:
        parts = [*map(nfc, parts)]
    assert decoded == "".join(part + name for part, name in zip(parts, [*names, ""], strict=True))
    stream = StreamDecoder(tokenizer)
    assert "".join(map(stream.feed, ids)) + stream.flush() == decoded
    assert tokenizer.token_bytes[ids].sum() == len(decoded.encode())


def test_any_text_has_the_tokens_of_transformers(pair: Any) -> None:
    fast, tokenizer = pair
    for text, ids in zip(STRINGS, fast(STRINGS)["input_ids"], strict=True):
        assert tokenizer.encode(text) == ids == tokenizer.encode_array(text).tolist(), ascii(text)


def test_special_tokens_remain_text(pair: Any) -> None:
    fast, tokenizer = pair
    assert {*tokenizer.in_text} == {*FOUND, *OTHERS}
    for name in SPECIAL:
        assert tokenizer.decode([fast.convert_tokens_to_ids(name)]) == ""
        assert len(tokenizer.encode(name)) > 1
    for name in FOUND:
        assert tokenizer.encode(name) == [fast.convert_tokens_to_ids(name)]


def test_they_are_written_stored_and_read_again(pair: Any, tmp_path: Path) -> None:
    _, tokenizer = pair
    text = "".join(f"A {name}\u0338hen\n{name}" for name in [*SPECIAL, *FOUND, *OTHERS])
    write_fast(tokenizer, tmp_path, LONG, None)
    fast = open_fast(tmp_path, "qwen3")
    assert fast(text)["input_ids"] == tokenizer.encode(text)
    assert fast.decode(tokenizer.encode("<think>"), skip_special_tokens=True) == "<think>"
    again = read_fast(tmp_path, 3000)
    (tmp_path / "again").mkdir()
    again.save(tmp_path / "again")
    loaded = Tokenizer.load(tmp_path / "again")
    for each in (again, loaded, loaded.with_limits(None, True, ())):
        assert each.digest == tokenizer.digest and each.in_text == tokenizer.in_text
        assert each.encode(text) == tokenizer.encode(text)
    write_fast(again, tmp_path / "again", LONG, None)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / file).read_bytes()


def found_in_text() -> Tokenizer:
    """With a name in text, and a token that ends with the character that begins it."""
    ranks = {**BYTES, b"!<": 256, b"\n\n": 257}
    special = {"<think>": 258, "<|end|>": 259}
    encoding = tiktoken.Encoding(
        "any", pat_str=QWEN2.tiktoken, mergeable_ranks=ranks, special_tokens=special
    )
    return Tokenizer(encoding, in_text=["<think>"], ends=(258,), start=258)


@pytest.mark.parametrize("document_end", [None, "<think>", "\n\n"])
def test_a_name_that_ends_documents_is_found_in_text(
    document_end: str | None, tmp_path: Path
) -> None:
    """transformers makes a token special that tokenizer_config.json names for the end."""
    tokenizer = found_in_text()
    end = write_fast(tokenizer, tmp_path, LONG, document_end)
    assert end == (257 if document_end == "\n\n" else 258)
    fast = open_fast(tmp_path)
    text = "A<think>!<<think>\n\n<|end|>"
    assert fast(text, add_special_tokens=False)["input_ids"] == tokenizer.encode(text)
    (tmp_path / "config.json").write_text(f'{{"eos_token_id": {end}, "bos_token_id": {end}}}')
    again = read_fast(tmp_path, tokenizer.vocab_size)
    assert (again.start, again.ends, again.in_text) == (end, (end,), {"<think>": 258})


def test_a_document_end_that_hides_names_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'!<' can overlap"):
        write_fast(found_in_text(), tmp_path, LONG, "!<")
    assert list(tmp_path.iterdir()) == []


CLASSES = ["PreTrainedTokenizerFast", "GPT2Tokenizer", "Qwen2Tokenizer", "TokenizersBackend"]
THINK = added("<think>", special=False)
END = added("<|end|>", 259)


def decoder(*tokens: dict[str, Any]) -> dict[str, Any]:
    """`added_tokens_decoder` of these tokens."""
    return {str(each["id"]): {key: each[key] for key in {*each} - {"id"}} for each in tokens}


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize(
    ("tokens", "config", "words"),
    [
        ([THINK], {}, None),
        ([{**THINK, "normalized": True}], {}, None),
        ([THINK, added("</think>", 261, special=False)], {}, None),
        ([added("<a b>"), {**THINK, "id": 261}], {}, None),  # a special one with white space
        ([added("abc", 258), THINK], {}, None),  # a special one that is also text
        # A name in the configuration makes it special.
        ([THINK], {"eos_token": "<think>"}, None),
        ([THINK], {"pad_token": {"content": "<think>", "__type": "AddedToken"}}, None),
        ([THINK], {"image_token": "<think>"}, None),
        ([THINK], {"added_tokens_decoder": decoder(END, THINK)}, None),
        ([THINK], {"eos_token": "<think>", "added_tokens_decoder": decoder(END, THINK)}, None),
        (
            [THINK],
            {
                "pad_token": "<think>",
                "added_tokens_decoder": decoder(END, {**THINK, "special": True}),
            },
            None,
        ),
        ([THINK], {"image_token": "<think>", "added_tokens_decoder": decoder(END, THINK)}, None),
        ([], {"added_tokens_decoder": decoder(END)}, None),
        # Some classes follow one file, some the other.
        ([THINK], {"added_tokens_decoder": decoder(END)}, "not the same in tokenizer.json"),
        ([THINK], {"pad_token": "<think>", "added_tokens_decoder": decoder(END)}, "not the same"),
        ([added("<think>")], {"added_tokens_decoder": decoder(END, THINK)}, "not the same"),
        ([THINK], {"added_tokens_decoder": decoder(END, {**THINK, "special": True})}, "the same"),
        ([THINK], {"added_tokens_decoder": decoder(END, {**THINK, "lstrip": True})}, "the same"),
        ([THINK], {"added_tokens_decoder": decoder(END, {**THINK, "id": 261})}, "the same"),
        ([], {"added_tokens_decoder": decoder(END, THINK)}, "'<think>' is not the same"),
        ([THINK], {"extra_special_tokens": ["<think>"]}, "special in tokenizer_config.json only"),
        ([THINK], {"additional_special_tokens": ["<think>"]}, "tokenizer_config.json only"),
        ([added("<|endoftext|>", special=False)], {}, "tokenizer_config.json only"),
        ([added("<|endoftext|>", special=False)], {"eos_token": "<|endoftext|>"}, None),
        ([THINK], {"extra_special_tokens": 7}, "extra_special_tokens is 7"),
        ([THINK], {"extra_special_tokens": [7, ["<think>"]]}, None),
        ([THINK], {"added_tokens_decoder": []}, "added_tokens_decoder is a list"),
        ([THINK], {"added_tokens_decoder": {"260": 7}}, "added_tokens_decoder is an object"),
        # What is found in other places.
        ([{**THINK, "lstrip": True}], {}, "is not special and has lstrip"),
        ([{**THINK, "rstrip": True}], {}, "is not special and has rstrip"),
        ([{**THINK, "single_word": True}], {}, "is not special and has single_word"),
        ([added("<a b>", special=False)], {}, "'<a b>' can overlap"),
        ([added("||x||", special=False)], {}, "'||x||' can overlap"),
        ([added("<a<b>", special=False)], {}, "'<a<b>' can overlap"),
        ([THINK, added("|><thi|", 261)], {}, "'|><thi|' can overlap"),
        ([THINK, {**THINK, "special": True}, THINK], {}, "an added token occurs twice"),
        ([{**THINK, "id": 270}], {}, "the id 270 of '<think>' is not the next one (260)"),
        ([{**THINK, "id": 261}, added("<x>", 260)], {}, "the id 261"),
        ([added("<y>", 280), {**THINK, "id": 281}], {}, "the id 280 of '<y>'"),
    ],
)
def test_they_are_found_as_in_transformers_or_refused(
    kind: str,
    tokens: list[dict[str, Any]],
    config: dict[str, Any],
    words: str | None,
    tmp_path: Path,
) -> None:
    about = small()
    about["added_tokens"] += tokens
    about = {**about, "version": "1.0", "truncation": None, "padding": None}
    save(tmp_path, about)
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": kind, "split_special_tokens": True, **config})
    )
    if words is not None:
        with pytest.raises(ValueError) as caught:
            read_fast(tmp_path, 300)
        message = str(caught.value)
        assert message.startswith("tokenizer") and words in message and message.isprintable()
        return
    tokenizer = read_fast(tmp_path, 300)
    try:
        fast = open_fast(tmp_path, "qwen3" if kind == "Qwen2Tokenizer" else "gpt2")
    except TypeError:
        assert config == {"extra_special_tokens": [7, ["<think>"]]}
        return
    for text in ("a<think>b", "<a b>x", "<think>\n</think><|endoftext|>", "abc<|end|><think>>"):
        ids = tokenizer.encode(text)
        assert fast(text, add_special_tokens=False)["input_ids"] == ids
        assert fast.decode(ids, skip_special_tokens=True) == tokenizer.decode(ids).replace(
            "abc", "" if "abc" in fast.added_tokens_encoder else "abc"
        )


def test_names_in_normalized_text_are_refused(tmp_path: Path) -> None:
    about = {**small(), "normalizer": {"type": "NFC"}}
    about["added_tokens"].append(added("<think>", special=False))
    save(tmp_path, about)
    assert read_fast(tmp_path, 300).in_text == {"<think>": 260}
    about["added_tokens"][1]["normalized"] = True
    save(tmp_path, about)
    with pytest.raises(ValueError, match=r"'<think>' is found after the normalizer"):
        read_fast(tmp_path, 300)
