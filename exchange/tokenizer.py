"""Tokenizers as the files `tokenizer.json` and `tokenizer_config.json` of Hugging Face.

What is written gives the same tokens for every text in `transformers` as here. Text that spells a
special token is text; an added token that is not special is found in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.files import read_json, read_text
from data.imported import tokenizers_library
from data.pieces import BYTE
from data.tokenizer import MAX_BYTES, METADATA, BytePairs, ImportedTokenizer, Limits, Tokenizer
from exchange.imported import first_token, import_tokenizer
from exchange.merges import merges_of, spell
from exchange.spellings import oniguruma

if TYPE_CHECKING:
    import tokenizers

CONFIG = "tokenizer_config.json"


def write_tokenizer(tokenizer: Tokenizer, folder: Path, context_length: int) -> int | None:
    """Write the two files into `folder`, and return `end_token`, which becomes a special token. A
    text gets the first token that it gets here; an imported tokenizer is written as it came."""
    first, end = tokenizer.first_id, end_token(tokenizer)
    is_text = tokenizer.document_end is not None
    last = filler(tokenizer) if end is None else end
    start = None if is_text else tokenizer.bos_id
    if start is None and (is_text or not tokenizer.eos_ids):
        start = last
    if isinstance(tokenizer, ImportedTokenizer):
        (folder / METADATA).write_text(tokenizer.content(), encoding="utf-8", newline="\n")
        library = tokenizer.library
        unknown = library.token_to_id(tokenizer.json["model"].get("unk_token") or "")
    else:
        library = _build(tokenizer.byte_pairs(), {start, end} - {None, filler(tokenizer)}, first)
        library.save(str(folder / METADATA))
        unknown = None
    roles = {
        "bos_token": start,
        "eos_token": last,
        "pad_token": last,
        "unk_token": last if unknown is None else unknown,  # CTranslate2 demands one
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_length,
        **{
            # A name makes a token special; config.json has the ids.
            role: None if token is None else library.id_to_token(token)
            for role, token in roles.items()
            if token is None or not _is_in_text(tokenizer, token)
        },
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": splits_names(tokenizer, end),
    }
    text = json.dumps(config, ensure_ascii=False, indent=2)
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8", newline="\n")
    return end


def filler(tokenizer: Tokenizer) -> int | None:
    """The token of the byte 0xFF, which no text contains. It stands where other programs demand a
    token that begins or ends a text, and the tokenizer has none."""
    return next((token for token, value in tokenizer.tokens.items() if value == b"\xff"), None)


def splits_names(tokenizer: Tokenizer, end: int | None) -> bool:
    """Whether the names of special tokens in a text are text, as they are here.

    Not if a text ends with a token of white space, whose name is no word: trl ends a text with the
    name of its last token.
    """
    return end is None or not tokenizer.tokens.get(end, b"x").isspace()


def _is_in_text(tokenizer: Tokenizer, token: int) -> bool:
    return isinstance(tokenizer, ImportedTokenizer) and token in tokenizer.in_text.values()


def end_token(tokenizer: Tokenizer) -> int | None:
    """The token that ends a document: that of the text `document_end`, or the first of
    `eos_ids`; None if a document does not end with one token."""
    if tokenizer.document_end is None:
        return next(iter(tokenizer.eos_ids), None)
    before, after = tokenizer.encode("."), tokenizer.encode("A")
    tokens = tokenizer.encode(f".{tokenizer.document_end}A")
    found = tokens[len(before) : len(tokens) - len(after)]
    return found[0] if len(found) == 1 and tokens == [*before, *found, *after] else None


def _build(pairs: BytePairs, ids: set[int | None], first: int | None) -> tokenizers.Tokenizer:
    """The tokenizer of the library. ids: those that begin or end a document, which become special.
    first: the id that is put before a text."""
    library = tokenizers_library("to")
    merges = merges_of(pairs.ranks)
    found = library.Tokenizer(
        library.models.BPE(
            {spell(token): pairs.ranks[token] for token, _ in merges} | {**pairs.special},
            [(spell(pair[0]), spell(pair[1])) for _, pair in merges if pair],
            # Some tokens are no merge of two others, and are found only as whole pieces.
            ignore_merges=any(len(token) > 1 and not pair for token, pair in merges),
        )
    )
    found.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if pairs.pattern != BYTE:
        regex = library.Regex(oniguruma(pairs.pattern))
        split = library.pre_tokenizers.Split(regex, "isolated")
        found.pre_tokenizer = library.pre_tokenizers.Sequence([split, found.pre_tokenizer])
    found.decoder = library.decoders.ByteLevel()
    special = {*pairs.special, *(found.id_to_token(token) for token in ids)}
    found.add_special_tokens(
        [library.AddedToken(name, normalized=False) for name in sorted(special)]
    )
    if first is not None:
        name = found.id_to_token(first)
        found.post_processor = library.processors.TemplateProcessing(
            f"{name} $A", f"{name} $A $B", [(name, first)]
        )
    return found


def read_tokenizer(folder: Path, vocab_size: int) -> Tokenizer:
    """The tokenizer of a model with `vocab_size` tokens, from the files in its folder.

    Raises ValueError if it cannot be used: "file: what is wrong; what to do".
    """
    try:
        content = read_text(folder / METADATA, MAX_BYTES)
    except FileNotFoundError:
        raise ValueError(
            f"{METADATA}: is missing; save it with "
            "AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        ) from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{METADATA}: cannot be read ({error}); give another model") from error
    found = import_tokenizer(content, Limits(vocab_size))
    known = {n: token for n, token in found.library.get_vocab().items() if token != filler(found)}
    ids = special_ids(folder, first_token(found), known)
    found.bos_id, found.adds_bos, found.eos_ids = ids
    return found


def special_ids(
    folder: Path, first: int | None, known: Mapping[str, int]
) -> tuple[int | None, bool, tuple[int, ...]]:
    """The token that begins a document, whether it is put before every text, and the tokens that
    end a document.

    `first` is the one that transformers puts before every text; one that it does not put there is
    used if it separates documents, as GPT-2's. Raises ValueError for a damaged file.
    """
    config, generation, model = (
        _read_object(folder / name) for name in (CONFIG, "generation_config.json", "config.json")
    )
    named = [known.get(_name_of(config.get(role))) for role in ("bos_token", "eos_token")]
    stored = (generation if "eos_token_id" in generation else model).get("eos_token_id")
    tokens = {*known.values()}
    eos_ids = [named[1], *(stored if isinstance(stored, list) else [stored])]
    eos_ids = [token for token in eos_ids if type(token) is int and token in tokens]
    bos = named[0] if "bos_token" in config else model.get("bos_token_id")
    bos = bos if type(bos) is int and bos in tokens else None
    adds_bos = first is not None or bos not in eos_ids
    return first if adds_bos else bos, adds_bos, tuple(dict.fromkeys(eos_ids))


def _name_of(token: object) -> str:
    """The name of a token in `tokenizer_config.json`: a string, or an object with its content."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def _read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if there is no file."""
    try:
        value = read_json(path, MAX_BYTES)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.name}: cannot be read ({error}); repair it") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path.name}: is not an object; repair it")
    return value
