"""The tokens of a corpus, from the cache or encoded into it, as arrays that are read from disk.

The name of a folder in the cache depends on the text and the tokenizer. It is complete if it
exists, and may be deleted at any time. Knows nothing of batches or models.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt

from common.errors import UserError, pluralize, print_note
from common.files import clean, remove
from data.cache import CacheError, publish
from data.corpus import SPLITS, Corpus
from data.encoding import Dataset, read_tokens, separator, write_tokens
from data.pieces import BPE, cut
from data.tokenizer import Tokenizer, TokenizerConfig, fixed_tokenizer, train_bpe

Say = Callable[[str], object]

FORMAT = 6  # part of every key in the cache; increment it when the files change
# Where generation can start, best first: after a line, a sentence, any character.
PLACES = (
    rb"[\r\n]+",
    rb"(?:[.!?]|%s)[\"')\]]*" % "|".join("。！？…।؟።။").encode(),  # noqa: RUF001
    rb"[^\x80-\xbf][\x80-\xbf]*",
)
SEARCHED, OFTEN = 1 << 16, 1e-3  # tokens that are searched for a place, and its share of them
BEFORE = 16  # tokens that end with a place: few windows of a training begin with the place alone


def prepare(
    corpus: Corpus,
    tokenizer: TokenizerConfig | Tokenizer,
    cache_dir: str | Path,
    context_length: int,
    splits: tuple[str, ...] = SPLITS,
    say: Say = lambda _line: None,
) -> Dataset:
    """Encode `corpus`, or find it encoded in `cache_dir`.

    tokenizer: a config (bpe is trained once, on the training split), or a tokenizer.
    splits: those that must have at least `context_length` + 1 tokens.
    say: is called before what can take long, with what it is.

    Raises UserError if one has fewer, or if the tokenizer or the cache folder is not available;
    nothing new is then left on disk.
    """
    cache, new = Path(cache_dir).expanduser(), list[Path]()
    clean(cache)
    missing = [folder for folder in (cache, *cache.parents) if not folder.exists()]
    try:
        tokenizer = _find_tokenizer(corpus, tokenizer, cache, new, say)
        dataset = _find_tokens(corpus, tokenizer, cache, new, say)
        check_length(dataset, context_length, splits)
        if new:
            say(f"its tokens stay in {cache}")
    except UserError:
        for folder in new:
            remove(folder)
        for folder in missing:
            with suppress(OSError):  # it has other entries
                folder.rmdir()
        raise
    return dataset


def _key(*parts: str) -> str:
    """A name in the cache folder for what depends on `parts` alone."""
    return hashlib.sha256(json.dumps([FORMAT, *parts]).encode()).hexdigest()[:32]


def _find_tokens(
    corpus: Corpus, tokenizer: Tokenizer, cache: Path, new: list[Path], say: Say
) -> Dataset:
    """The tokens of a corpus; adds their folder in the cache to `new` if they had to be encoded."""
    ending = [*map(str, separator(corpus, tokenizer)), corpus.document_end or ""]
    folder = cache / f"tokens-{_key(corpus.fingerprint(), tokenizer.digest, *ending)}"
    if found := read_tokens(folder, tokenizer, corpus):
        return found
    if folder.exists():
        print_note(f"warning: {folder} is damaged; encoding the text again")
    new.append(folder)
    say("encoding the text, once")
    write_tokens(corpus, tokenizer, folder)
    if found := read_tokens(folder, tokenizer, corpus):
        return found
    raise CacheError(f"{folder} was deleted or damaged meanwhile; run the command again")


def _find_tokenizer(
    corpus: Corpus,
    tokenizer: TokenizerConfig | Tokenizer,
    cache: Path,
    new: list[Path],
    say: Say,
) -> Tokenizer:
    """The tokenizer of a corpus, with a token that ends documents if they are marked; adds its
    folder in the cache to `new` if it had to be trained."""
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    if tokenizer.name != "bpe":
        found = fixed_tokenizer(tokenizer.name)
        return found.with_eos() if corpus.adds_eos else found
    size = tokenizer.vocab_size or corpus.vocab_size or default_vocab_size(corpus.n_bytes)
    folder = cache / f"bpe-{_key(corpus.fingerprint(), str(size), BPE)}"
    if not folder.exists():
        new.append(folder)
    with suppress(UserError):
        return Tokenizer.load(folder)
    with publish(folder) as temporary:
        say("training a tokenizer on the text")
        found = train_bpe(cut(corpus.training_text()), size - corpus.adds_eos)
        found = found.with_eos() if corpus.adds_eos else found
        found.save(temporary)
    return found


def default_vocab_size(n_bytes: int) -> int:
    """How many tokens suit a text: of the powers of two from 1024 to 4096, the nearest to 4/3 of
    the square root of its bytes; 4096 if that number is not known. A larger vocabulary learns a
    text in fewer steps, and memorizes a small one sooner (benchmarks/NOTES.md)."""
    if n_bytes == 0:
        return 4096
    return min(max(2 ** round(math.log2(4 / 3 * math.sqrt(n_bytes))), 1024), 4096)


def ending_ids(
    tokens: UInt[np.ndarray, " token"],
    starts: Int64[np.ndarray, " document"],
    tokenizer: Tokenizer,
    document_end: str,
) -> tuple[int, ...]:
    """The tokens that spell `document_end` most often before documents that begin at `starts`;
    empty if there is one document. They can be others than those of the mark alone: o200k_base
    joins a full stop and line ends."""
    ends = np.cumsum(tokenizer.token_bytes[tokens[:SEARCHED]])
    starts = starts[1 : np.searchsorted(starts, SEARCHED)]
    first = np.searchsorted(ends, ends[starts - 1] - len(document_end.encode()), side="right")
    found = Counter(tuple(tokens[i:end].tolist()) for i, end in zip(first, starts, strict=True))
    return found.most_common(1)[0][0] if found else ()


def start_ids(tokens: UInt[np.ndarray, " token"], tokenizer: Tokenizer) -> tuple[int, ...]:
    """The tokens with which to begin a text of a model that was trained on `tokens`, a text that is
    not divided: `BEFORE` tokens of the text up to the end of a line; of a text in which lines are
    rare, of a sentence; of one without sentences, of any character. Empty if there are none."""
    tokens = tokens[:SEARCHED]
    ends = np.cumsum(tokenizer.token_bytes[tokens])
    text = tokenizer.decode_bytes(tokens.tolist())
    for place in PLACES:
        spans = np.array([match.span() for match in re.finditer(place, text)], int).reshape(-1, 2)
        first, last = np.searchsorted(ends, spans - [0, 1], side="right").T
        whole = ends[last] == spans[:, 1]  # no token goes on after the place
        pairs = zip(first[whole], last[whole] + 1, strict=True)
        rows = [(tuple(tokens[begin:end].tolist()), int(end)) for begin, end in pairs]
        for ids, count in Counter(ids for ids, _ in rows).most_common(1):
            if count >= OFTEN * len(tokens) or place == PLACES[-1]:
                end = max(end for other, end in rows if other == ids)
                return tuple(tokens[max(end - max(len(ids), BEFORE), 0) : end].tolist())
    return ()


def check_length(dataset: Dataset, context_length: int, splits: Sequence[str]) -> None:
    """Raise UserError if one of `splits` has less than a window and its targets."""
    needed = context_length + 1
    total = len(dataset.train) + len(dataset.val)
    if not total:
        raise UserError("data: contains no text; choose other files, or another field")
    for split in splits:
        if (count := len(getattr(dataset, split))) >= needed:
            continue
        if len(splits) == 1:  # to evaluate
            name = f"{split} split" if count < total else "text"
            raise UserError(
                f"data: the {name} has {pluralize(count, 'token')}, but needs {needed}; "
                "give more text"
            )
        raise UserError(
            f"data: the {split} split has {count:,} of {pluralize(total, 'token')}, but "
            f"model.context_length={context_length} needs {needed}; give more text, change "
            "data.val_fraction, or lower model.context_length"
        )
