"""What several test modules use."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from data.encoding import Dataset
from data.tokenizer import TokenizerConfig

BYTE = TokenizerConfig("byte", None)
WORDS = ["hen", "fox", "owl", "ran", "sat", "sang", "to", "the", "hill", "née", "漢字", "a\nb"]


def draw_texts(count: int, seed: int = 0, longest: int = 40) -> list[str]:
    rng = random.Random(seed)
    return [
        f"{seed}.{i} " + " ".join(rng.choices(WORDS, k=rng.randint(1, longest)))
        for i in range(count)
    ]


def write_files(folder: Path, texts: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        (folder / f"{number:04}.txt").write_text(text)
    return folder


def documents(dataset: Dataset, split: str) -> list[str]:
    """The documents of a split, from its tokens and their index."""
    tokens, starts = getattr(dataset, split)[:], getattr(dataset, f"{split}_documents")
    (end,) = dataset.tokenizer.eos_ids
    assert [*starts, len(tokens)] == [0, *(np.flatnonzero(tokens == end) + 1)]
    return [dataset.tokenizer.decode(part[:-1].tolist()) for part in np.split(tokens, starts[1:])]
