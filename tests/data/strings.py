"""Strings, vocabularies and tokenizers that tell two ways of cutting a text apart."""

from __future__ import annotations

import os
import random
import sys
import unicodedata
from collections import defaultdict
from pathlib import Path

import pytest
import tiktoken

from data.pieces import BYTE, PATTERNS, SMOLLM
from data.tokenizer import Limits, Tokenizer, fixed_tokenizer, train_bpe

VOCABULARIES = Path(
    os.environ.get("TIKTOKEN_CACHE_DIR") or Path(__file__).parents[3] / "shared/tiktoken_cache"
)
NASTY = "     \n\naB1\r\t!/'sSltLd\u017fé中。😀\u0301\u00a0\u3000\x1c\x85\u200bK٣½_"
SCRAPS = [
    *("'LL", "'ll", "'\u017f", "'Re", "'VE", "'t", "''", "'", " ", "    ", " " * 70, "\t", "\n"),
    *("\n\n", "\r\n", " \n", "\x00", "\x1c", "\x85", "\u00a0", "\u3000", "\u200b", "\u2028"),
    *("\ufeff", "a", "hen", "Hen", "HEN", "ǅ", "ʰ", "é", "e\u0301", "e\u0323\u0301", "\u0344"),
    *("\u1112\u1161", "1", "22", "333", "4444", "٣", "½", "Ⅷ", "\uff11", "/", "!", "!!\n", "_"),
    *("...", "//\n", "中文", "。"),
    *("<|endoftext|>", "<|end|>", "<s>", "<think>", "ĊĊ", "Ġ", "Ċ", "[PAD]", "<|", "|>"),
    *("👩\u200d👩\u200d👧", "👍🏽", "🇩🇪", "☝\ufe0f", "1\ufe0f\u20e3", "😀", "\U000e0001", "\ufffd"),
    *("\u05b8\u05bc", "नि", "\U00010d24", "\u08d3", "\U00011935\U00011930", "Å", "豈"),
]


def strings(n: int) -> list[str]:
    """Random strings of all planes, scripts and categories, of nasty characters, and of scraps."""
    rng = random.Random(0)
    kinds = defaultdict(list)
    for code in range(sys.maxunicode + 1):
        if not 0xD800 <= code < 0xE000:
            kinds[unicodedata.category(chr(code))].append(chr(code))
    names, drawn = sorted(kinds), []
    for i in range(n):
        length = rng.randrange(1, 40)
        if i % 3 == 0:
            parts = [rng.choice(kinds[rng.choice(names)]) for _ in range(length)]
        else:
            parts = rng.choices(NASTY if i % 3 == 1 else SCRAPS, k=length)
        drawn.append("".join(parts))
    return drawn


def nasty_ranks() -> dict[bytes, int]:
    """Merges across all borders between nasty characters, so that only a pattern prevents them."""
    import rustbpe

    rng = random.Random(0)
    text = "".join(rng.choices(NASTY, k=30_000))
    trainer = rustbpe.Tokenizer()
    trainer.train_from_iterator(iter([text]), 3000, pattern=r"(?s:.{1,40})")
    return {bytes(token): rank for token, rank in trainer.get_mergeable_ranks()}


def gpt2() -> Tokenizer:
    """GPT-2's own tokenizer, where its vocabulary is on the disk."""
    if not VOCABULARIES.is_dir():
        pytest.skip(f"the GPT-2 vocabulary is not at {VOCABULARIES}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(VOCABULARIES))
        return fixed_tokenizer("gpt2")


def patterned() -> dict[str, Tokenizer]:
    """A tokenizer for each pattern: one with special tokens first, and some with more ids than
    tokens."""
    ranks = nasty_ranks()
    made = {}
    for i, pattern in enumerate(PATTERNS):
        if pattern is BYTE:
            continue
        shift = 17 if pattern is SMOLLM else 0
        n = len(ranks)
        ids = (3, 0) if shift else (n + 7, n + 2)
        encoding = tiktoken.Encoding(
            "nasty",
            pat_str=pattern,
            mergeable_ranks={token: rank + shift for token, rank in ranks.items()},
            special_tokens={"<|end|>": ids[0], "<s>": ids[1]},
        )
        size = 0 if i % 2 else 4000
        limits = Limits(size, bos_id=ids[i % 2], eos_ids=ids[:1]) if i > 2 else Limits(size)
        made[f"pattern {i}"] = Tokenizer(encoding, limits)
    return made


def trained() -> Tokenizer:
    story = "Once there was a hen who had a red hat.\n\nThe hen's hat wasn't old.\n\n"
    return train_bpe([story * 20], 400)


PATTERNED = patterned()
MADE = {"bpe": trained, "byte": lambda: fixed_tokenizer("byte"), "gpt2": gpt2}
NAMES = [*MADE, *PATTERNED]


def make(name: str) -> Tokenizer:
    return PATTERNED[name] if name in PATTERNED else MADE[name]()
