"""Whatever the library `datasets` reads: jsonl, csv, parquet, arrow or lines of text, compressed or
not, on this machine or on the Hugging Face hub. Rows are documents, which are streamed.

Promises: memory does not grow with the dataset, and nothing of it is executed.
"""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from common.errors import UserError, check_range, installing, printable
from data.corpus import Corpus, CorpusConfig, Document, Text, sample_of, text_of
from data.files import find_files, is_local, local_path
from data.split import split_documents

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
# The readers of `datasets`, by the suffix of a file.
READERS = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv",
           ".parquet": "parquet", ".arrow": "arrow", ".txt": "text"}  # fmt: skip
ROWS = 1000  # that are read at a time


@dataclass
class DatasetConfig(CorpusConfig):
    """Which dataset, and which documents of it: see configs/data/dataset.yaml."""

    path: str | None
    subset: str | None
    split: str
    field: str
    n_documents: int | None
    val_split: str | None
    val_fraction: float

    def __post_init__(self) -> None:
        check_range("val_fraction", self.val_fraction, above=0, most=1)
        if self.n_documents is not None:
            check_range("n_documents", self.n_documents, least=1)
        if self.val_split == self.split:
            raise ValueError("val_split: is the split that is trained on; choose another")

    def undivided(self) -> DatasetConfig:
        return replace(self, val_fraction=1.0, val_split=None)

    def without_trust(self) -> DatasetConfig:
        confirm = f"confirm with data=dataset data.path={self.path}"
        if not self.path or not is_local(self.path):
            raise UserError(
                f"data.path: the run names {self.path}, which is not on this machine; {confirm}"
            )
        for name in ("README.md", ".huggingface.yaml"):
            if (local_path(self.path) / name).is_file():
                raise UserError(
                    f"data.path: the run names {self.path}, whose {name} can name files elsewhere; "
                    f"{confirm}"
                )
        return self


class Streamed(Corpus):
    """The rows of a dataset. Raises UserError, naming a setting, for one that cannot be read, and
    if the library is missing."""

    adds_eos = True

    def __init__(self, config: DatasetConfig) -> None:
        self.config = config
        self._builder = _open(config)
        self._files = self._stat()
        self.description = f"streaming {config.path}"

    def fingerprint(self) -> str:
        """Changes with the settings, the commit of the hub, and the times and sizes of local
        files."""
        known: list[Any] = [vars(self.config)]
        data_files = self._builder.config.data_files
        for split in sorted(data_files, key=str):
            files = data_files[split]
            known.append([str(split), *files, *files.origin_metadata])
        known += [(file.st_mtime_ns, file.st_size) for file in self._files]
        return f"dataset:{hashlib.sha256(json.dumps(known).encode()).hexdigest()}"

    def documents(self) -> Iterator[Document]:
        config = self.config
        texts = islice(self._texts("split"), config.n_documents)
        if config.val_split is None:
            sized = (Text(len(text.encode()), iter([text])) for text in texts)
            yield from split_documents(sized, config.val_fraction)
        else:
            yield from (Document("train", [text]) for text in texts)
            yield from (Document("val", [text]) for text in self._texts("val_split"))
        self._check_unchanged()

    def training_text(self) -> Iterator[str]:
        yield from sample_of(text_of(self, "train"))
        self._check_unchanged()

    def _stat(self) -> list[os.stat_result]:
        """Of the local files."""
        data_files = self._builder.config.data_files
        files = [file for split in sorted(data_files, key=str) for file in data_files[split]]
        return [Path(file).stat() for file in files if "://" not in file]

    def _check_unchanged(self) -> None:
        """Raise UserError if a file was changed, or replaced, since the corpus was opened: whatever
        is made of the texts is stored under the fingerprint of the files."""
        kinds = ("st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
        for old, new in zip(self._files, self._stat(), strict=True):
            if any(getattr(old, kind) != getattr(new, kind) for kind in kinds):
                raise UserError(
                    f"data.path: {self.config.path} was changed while it was read; start again"
                )

    def _texts(self, setting: str) -> Iterator[str]:
        """The texts of a split that are not empty."""
        config, split = self.config, getattr(self.config, setting)
        try:
            rows = self._builder.as_streaming_dataset(split=split)
            # As Arrow, nothing is decoded, such as an image at an address.
            for table in rows.with_format("arrow").iter(batch_size=ROWS):
                if config.field not in table.column_names:
                    raise UserError(
                        f"data.field: {config.path} has no field {config.field!r}; choose one of "
                        f"{', '.join(table.column_names)[:200]}"
                    )
                for text in table[config.field].to_pylist():
                    if not isinstance(text, str | None):
                        raise UserError(
                            f"data.field: {config.field!r} of {config.path} is not text; choose "
                            f"one of {', '.join(table.column_names)[:200]}"
                        )
                    if text:
                        yield text
        except UserError:
            raise
        except Exception as error:  # each format and file system has its own
            if str(error).startswith("Bad split"):
                raise UserError(
                    f"data.{setting}: {config.path} has no split {split!r} ({_reason(error)}); "
                    "choose another"
                ) from error
            raise UserError(
                f"data.path: {config.path} cannot be read ({_reason(error)}); repair it, or choose "
                "other files"
            ) from error


def _open(config: DatasetConfig) -> Any:
    """The `DatasetBuilder` of a dataset."""
    if not config.path:
        raise UserError(
            "data.path: is not set; give a name on the Hugging Face hub, a folder, a file or a glob"
        )
    what = _files_of(config.path)
    if config.subset is not None and "data_files" in what:
        raise UserError("data.subset: files have no subsets; leave it out")
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"data: needs the library datasets; install it with {installing('datasets')}"
        ) from error
    datasets.disable_progress_bars()
    for name in ("datasets", "huggingface_hub"):  # whose errors are raised, too
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        builder = datasets.load_dataset_builder(name=config.subset, **what)
    except Exception as error:  # each place has its own
        is_subset = isinstance(error, ValueError) and "onfig" in str(error)
        raise UserError(
            f"data.{'subset' if is_subset else 'path'}: {config.path} cannot be opened "
            f"({_reason(error)}); give a name on the Hugging Face hub, a folder, a file or a glob"
            + (", and one of its subsets" if is_subset else "")
        ) from error
    reader = type(builder).__module__.rpartition(".")[2]
    if reader not in READERS.values():
        raise UserError(
            f"data.path: {config.path} has files that are read as {reader}, and not as text; "
            f"choose files of {', '.join(READERS)}"
        )
    return builder


def _files_of(path: str) -> dict[str, Any]:
    """What `load_dataset_builder` is given. Raises UserError, naming `data.path`, for files that
    are missing or of several formats."""
    if "://" in path:
        files = [path.partition("?")[0]]
    elif local_path(path).is_dir() or not (is_local(path) or _suffix(path) in READERS):
        return {"path": str(local_path(path)) if is_local(path) else path}
    else:
        files = [str(file) for file in find_files(path)]
    suffixes = {_suffix(file) for file in files}
    if len(readers := {READERS.get(suffix) for suffix in suffixes}) > 1 or None in readers:
        found = ", ".join(sorted(suffix or "no suffix" for suffix in suffixes))
        raise UserError(
            f"data.path: {printable(path)} has files of {found}; give files of one of "
            f"{', '.join(READERS)}"
        )
    (reader,) = readers
    # The library takes names for patterns.
    names = [path] if "://" in path else [glob.escape(file) for file in files]
    # Of csv: words such as NA and null are texts.
    options = {"keep_default_na": False} if reader == "csv" else {}
    return {"path": reader, "data_files": names, **options}


def _suffix(name: str) -> str:
    """The suffix of the format of a file, whatever its compression."""
    path = PurePosixPath(name)
    return Path(path.stem if path.suffix.lower() in COMPRESSED else path).suffix.lower()


def _reason(error: BaseException) -> str:
    """What a library says, in one line."""
    return printable(re.sub(r"\s+", " ", str(error))[:200]) or type(error).__name__
