"""All shards as one dataset: which of their documents are read, in which order.

Promises: depends only on the documents, the settings and the order of the shards; memory holds a
sixteenth of the hashes at a time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int64
from rich.filesize import decimal

from data.arrays import TokenArray
from data.cache import publish
from data.pieces import SPLITS
from data.shards import Part
from data.text import TextConfig
from errors import counted, printable
from files import find_damage, read_json, write_sums

FILES = ("meta.json", *(f"{split}.npy" for split in SPLITS))
_RANGES = 16  # of hashes


class Joined(NamedTuple):
    """The tokens of both splits, and what can be said of them."""

    arrays: dict[str, TokenArray]
    report: str


def content_of(parts: Sequence[Part], config: TextConfig) -> str:
    """Equal exactly if `join` gives the same tokens."""
    known = json.dumps([*(each.sha256 for each in parts), config.deduplicate, config.val_fraction])
    return hashlib.sha256(known.encode()).hexdigest()


def join(parts: Sequence[Part], config: TextConfig, folder: Path) -> Joined:
    """The dataset of all parts, found in `folder` of the cache or written there."""
    about = _read(folder)
    if about is None:
        with publish(folder) as temporary:
            about = _write(temporary, parts, config)
    spans = {split: np.load(folder / f"{split}.npy") for split in SPLITS}
    if config.val_fraction == 1:  # also of shards that were prepared with another fraction
        spans = {"train": spans["train"][:0], "val": np.concatenate([*spans.values()])}
    files = [part.folder / f"{split}.bin" for part in parts for split in SPLITS]
    arrays = {split: TokenArray(files, spans[split], parts[0].about["dtype"]) for split in SPLITS}
    return Joined(arrays, about["report"])


def _read(folder: Path) -> Any:
    if find_damage(folder, FILES):
        return None
    with suppress(OSError, ValueError):
        return read_json(folder / "meta.json")
    return None


def _write(folder: Path, parts: Sequence[Part], config: TextConfig) -> dict[str, str]:
    kept = {
        split: [np.ones(len(part.documents(split)), bool) for part in parts] for split in SPLITS
    }
    counts = {split: sum(map(len, kept[split])) for split in SPLITS}
    duplicates = sum(_mark_duplicates(parts, split, kept[split]) for split in SPLITS)
    if not config.deduplicate:
        kept = {split: [np.ones_like(each) for each in kept[split]] for split in SPLITS}
    moved = _fill_empty_split(parts, kept) if config.val_fraction < 1 else None
    for number, split in enumerate(SPLITS):
        spans = [
            _spans(parts[i], split, kept[split][i], len(SPLITS) * i + number)
            for i in range(len(parts))
        ]
        if moved and moved[0] != split:
            spans.append(moved[1])
        np.save(folder / f"{split}.npy", np.concatenate(spans))
    report = "\n".join(_sentences(parts, counts, duplicates, config, moved))
    (folder / "meta.json").write_text(json.dumps({"report": report}) + "\n", encoding="utf-8")
    write_sums(folder, FILES)
    return {"report": report}


def _mark_duplicates(
    parts: Sequence[Part], split: str, kept: Sequence[Bool[np.ndarray, " _"]]
) -> int:
    """Clear `kept` for documents that are equal to an earlier one, and return their number."""
    starts = np.cumsum([0, *map(len, kept)])
    everything = np.ones(starts[-1], bool)
    for number in range(_RANGES):
        hashes, places = [], []
        for part, start in zip(parts, starts, strict=False):
            documents = part.documents(split)[:, 0]
            chosen = np.flatnonzero(documents >> np.uint64(60) == number)
            hashes.append(documents[chosen])
            places.append(chosen + start)
        _, first = np.unique(np.concatenate(hashes), return_index=True)
        everywhere = np.concatenate(places)
        everything[everywhere] = False
        everything[everywhere[first]] = True
    for mask, start in zip(kept, starts, strict=False):
        mask[:] = everything[start : start + len(mask)]
    return int(len(everything) - everything.sum())


def _spans(
    part: Part, split: str, kept: Bool[np.ndarray, " document"], file: int
) -> Int64[np.ndarray, "span 3"]:
    """The stretches of tokens of the documents that are kept; neighbours are one stretch."""
    ends = np.cumsum(part.documents(split)[:, 1].astype(np.int64))
    edges = np.flatnonzero(np.diff(kept.astype(np.int8), prepend=0, append=0))
    places = np.append(0, ends)[edges].reshape(-1, 2)
    return np.column_stack([np.full(len(places), file), places]).astype(np.int64)


def _fill_empty_split(
    parts: Sequence[Part], kept: dict[str, list[Bool[np.ndarray, " _"]]]
) -> tuple[str, Int64[np.ndarray, "1 3"]] | None:
    """If all documents fell into one split, and there are several, the one whose hash is nearest to
    the limit goes to the other: where it comes from, and its stretch of tokens."""
    sizes = {split: sum(int(each.sum()) for each in kept[split]) for split in SPLITS}
    full = next((each for each in SPLITS if sizes[each] == sum(sizes.values()) > 1), None)
    if full is None:
        return None
    extreme = np.argmin if full == "train" else np.argmax
    found = []
    for n, part in enumerate(parts):
        chosen = np.flatnonzero(kept[full][n])
        if len(chosen):
            hashes = part.documents(full)[chosen, 0]
            found.append((int(hashes[extreme(hashes)]), n, int(chosen[extreme(hashes)])))
    _, n, i = min(found) if full == "train" else max(found)
    kept[full][n][i] = False
    only = np.zeros_like(kept[full][n])
    only[i] = True
    return full, _spans(parts[n], full, only, len(SPLITS) * n + SPLITS.index(full))


def _sentences(
    parts: Sequence[Part],
    counts: dict[str, int],
    duplicates: int,
    config: TextConfig,
    moved: object,
) -> Iterator[str]:
    n_bytes = sum(part.about["bytes"] for part in parts)
    total = sum(counts.values())
    yield (
        f"{counted(total, 'document')}, {decimal(n_bytes)} of text; "
        f"{counted(counts['val'], 'document')} for validation"
    )
    if moved:
        yield "all documents fell into one split, so one of them was moved to the other"
    if duplicates:
        what = "left out" if config.deduplicate else "kept (data.deduplicate=true drops them)"
        yield f"exact duplicates of earlier documents: {duplicates:,}, {what}"
    skipped = {name: why for part in parts for name, why in part.about["skipped"].items()}
    if skipped:
        names = [printable(each) for each in sorted(skipped)]
        more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
        files = counted(len(names), "file")
        yield f"skipped {files} (not UTF-8 text): {', '.join(names[:10])}{more}"
