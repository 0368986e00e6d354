"""Whatever the library `datasets` reads: jsonl, csv, parquet, arrow or lines of text, compressed or
not, on this machine or on the Hugging Face hub. Rows are documents, which are streamed.

The library finds the files of a folder and of the hub; `data.rows` reads one field of them.

Promises: memory does not grow with the dataset, but for a .json file that is one list, and nothing
of it is executed.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from common.errors import UserError, check_range, installing, pluralize, printable, reason
from common.files import read_json
from data.corpus import SAMPLE, Corpus, CorpusConfig, Document, Text, text_of
from data.decoding import not_utf8
from data.files import find_files, is_backup, is_hidden, is_local, local_path
from data.split import split_documents

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
Read = Callable[..., Iterator[str | None]]


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
    if a library is missing."""

    adds_eos = True

    def __init__(self, config: DatasetConfig) -> None:
        self.config = config
        splits, self._read = _open(config)
        self._files = {"split": _choose(splits, config, "split")}
        if config.val_split is not None:
            self._files["val_split"] = _choose(splits, config, "val_split")
            if not {*self._files["split"]}.isdisjoint(self._files["val_split"]):
                raise UserError(
                    "data.val_split: has files of data.split, which are trained on; choose another"
                )
        names = [name for files in self._files.values() for name in files]
        unread = _unread(local_path(config.path or ""), config.subset, splits, names)
        self.description = "; ".join([f"streaming {config.path}", *unread])
        self._names = [name.rpartition("::")[2] for name in names]  # of what is in an archive, its
        with _opening(config):
            self._stamps, self._remote = self._stamp(), [*map(_known, self._names)]

    def fingerprint(self) -> str:
        """Changes with the settings, the commit of the hub, and the times and sizes of files."""
        stamps = [stamp[:2] for stamp in self._stamps]  # without what a move changes
        known = [vars(self.config), self._files, stamps, self._remote]
        return f"dataset:{hashlib.sha256(json.dumps(known).encode()).hexdigest()}"

    def documents(self) -> Iterator[Document]:
        config, texts = self.config, self._texts("split")
        if config.val_split is None:
            # The size of the files is about that of the text which is still to come.
            n_bytes = 0 if config.n_documents else sum(size for size, *_ in self._stamps)
            texts = islice(texts, config.n_documents)
            sized = (Text(len(text.encode()), iter([text])) for text in texts)
            yield from split_documents(sized, config.val_fraction, n_bytes)
        else:
            yield from (Document("train", [text]) for text in islice(texts, config.n_documents))
            yield from (Document("val", [text]) for text in self._texts("val_split"))
        self._check_unchanged()

    def training_text(self) -> Iterator[str]:
        """The beginning of the training documents."""
        size = SAMPLE
        for text in text_of(self, "train"):
            yield text
            yield "\n"  # no word continues in the next document
            size -= len(text)
            if size < 0:
                break
        self._check_unchanged()

    def _stamp(self) -> list[tuple[int, ...]]:
        """Of each local file its size, its time, and what changes if it is replaced."""
        found = (Path(name).stat() for name in self._names if "://" not in name)
        return [(each.st_size, each.st_mtime_ns, each.st_ctime_ns, each.st_ino) for each in found]

    def _check_unchanged(self) -> None:
        """Raise UserError if a file was changed, or replaced, since the corpus was opened: whatever
        is made of the texts is stored under the fingerprint of the files."""
        if self._stamp() != self._stamps:
            raise UserError(
                f"data.path: {self.config.path} was changed while it was read; start again"
            )

    def _texts(self, setting: str) -> Iterator[str]:
        """The texts of a split that are not empty."""
        for name in self._files[setting]:
            try:
                yield from filter(None, self._read(name, self.config.field))
            except UserError:
                raise
            except UnicodeDecodeError as error:
                raise UserError(
                    f"data.path: {printable(name)} {not_utf8(error.object, error.start)}"
                ) from error
            except Exception as error:  # each format and file system has its own
                raise UserError(
                    f"data.path: {printable(name)} cannot be read ({reason(error)}); repair it, "
                    "or choose other files"
                ) from error


def _known(name: str) -> list[str]:
    """What changes with the content of a file at a URL; nothing if the name has a commit, or is
    that of a local file."""
    import fsspec

    if "://" not in name or (name.startswith("hf://") and "@" in name):
        return []
    files, path = fsspec.url_to_fs(name)
    info = files.info(path)
    return [str(info.get(key)) for key in ("size", "ETag", "etag", "mtime", "blob_id")]


def _open(config: DatasetConfig) -> tuple[Mapping[str, Sequence[str]], Read]:
    """The files of each split, and what reads one."""
    path, folder = config.path, local_path(config.path or "")
    if not path:
        raise UserError(
            "data.path: is not set; give a name on the Hugging Face hub, a folder, a file or a glob"
        )
    with _opening(config):
        import fsspec

        from data.rows import READERS

        options: dict[str, Any] = {}
        splits: Mapping[str, Sequence[str]] = _saved_splits(folder)
        is_named = "://" in path or is_local(path) or _suffix(path) in READERS
        if not splits and (folder.is_dir() or not is_named):
            splits, options = _find(str(folder) if is_local(path) else path, config.subset)
        elif config.subset is not None:
            raise UserError("data.subset: files have no subsets; leave it out")
        elif not splits and "://" not in path:
            splits = {"train": [str(file) for file in find_files(path)]}
        elif not splits:
            several = "*" in path
            names = [file.full_name for file in fsspec.open_files(path)] if several else [path]
            splits = {"train": names}
    splits = {split: [*filter(_is_data, names)] or names for split, names in splits.items()}
    suffixes = {_suffix(name) for names in splits.values() for name in names}
    readers = {READERS.get(suffix) for suffix in suffixes}
    read = readers.pop() if len(readers) == 1 else None
    if read is None:
        found = ", ".join(sorted(suffix or "no suffix" for suffix in suffixes))
        raise UserError(
            f"data.path: {printable(path)} has files of {found}; give files of one of "
            f"{', '.join(READERS)}"
        )
    return splits, partial(read, **options) if options else read


def _unread(
    folder: Path,
    subset: str | None,
    splits: Mapping[str, Sequence[str]],
    names: Collection[str],
) -> list[str]:
    """What is not among the files that are read, `names`: other splits; and of a folder, files of
    data that the library leaves out, since it takes one format, and if some files are named after
    splits, these alone."""
    from data.rows import READERS

    others = [split for split, files in splits.items() if not {*files} & {*names}]
    found = [f"other splits: {', '.join(others)}"] if others else []
    if not folder.is_dir() or subset is not None or _saved_splits(folder):
        return found
    known = {Path(name).resolve() for files in splits.values() for name in files}
    left = [
        file.relative_to(folder).as_posix()
        for file in sorted(folder.rglob("*"))
        if _is_data(file.name) and _suffix(file.name) in READERS and not is_hidden(file, folder)
        if file.is_file() and file.resolve() not in known
    ]
    if left:
        first = ", ".join(left[:5]) + ", ..." * (len(left) > 5)
        found.append(f"the library datasets leaves out {pluralize(len(left), 'file')}: {first}")
    return found


def _is_data(name: str) -> bool:
    """Whether neither `map` of the library nor an editor made a file of what is beside it."""
    path = PurePosixPath(name)
    return not path.name.startswith("cache-") and not is_backup(path)


def _saved_splits(folder: Path) -> dict[str, list[str]]:
    """The files of a folder that `save_to_disk` wrote; none for any other."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if (folder / "dataset_dict.json").is_file():
            splits = read_json(folder / "dataset_dict.json")["splits"]
            return {name: _saved_splits(folder / Path(name).name)["train"] for name in splits}
        files = read_json(folder / "state.json", 1 << 24)["_data_files"]
        return {"train": [str(folder / Path(file["filename"]).name) for file in files]}
    return {}


def _find(path: str, subset: str | None) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """The files that the library finds in a folder, or on the hub; options for what reads them."""
    import datasets
    import fsspec

    datasets.disable_progress_bars()
    for name in ("datasets", "huggingface_hub"):  # whose errors are raised, too
        logging.getLogger(name).setLevel(logging.CRITICAL)
    found = datasets.load_dataset_builder(path, subset).config
    splits = {}
    for split, names in found.data_files.items():
        splits[str(split)] = [name for name in names if not name.endswith(".zip")]
        for archive in {*names} - {*splits[str(split)]}:
            inner = fsspec.open_files(f"zip://**::{archive}")
            splits[str(split)] += [f"zip://{file.path}::{archive}" for file in inner]
    separator = getattr(found, "sep", None)
    return splits, {} if separator is None else {"separator": separator}


@contextmanager
def _opening(config: DatasetConfig) -> Iterator[None]:
    """Raise UserError for whatever goes wrong in the block: each place has its own errors."""
    try:
        yield
    except UserError:
        raise
    except ModuleNotFoundError as error:
        raise UserError(
            f"data: needs the library {error.name}; install it with {installing('datasets')}"
        ) from error
    except Exception as error:
        is_subset = isinstance(error, ValueError) and "onfig" in str(error)
        raise UserError(
            f"data.{'subset' if is_subset else 'path'}: {config.path} cannot be opened "
            f"({reason(error)}); give a name on the Hugging Face hub, a folder, a file or a glob"
            + (", and one of its subsets" if is_subset else "")
        ) from error


def _choose(splits: Mapping[str, Sequence[str]], config: DatasetConfig, setting: str) -> list[str]:
    """The files of the split that a setting names, of several (`train+test`), or of `all`."""
    chosen = getattr(config, setting)
    names = [*splits] if chosen == "all" else [name.strip() for name in chosen.split("+")]
    if not {*names} <= {*splits}:
        raise UserError(
            f"data.{setting}: {config.path} has no split {chosen!r}; choose one of {[*splits]}"
        )
    return [*dict.fromkeys(file for name in names for file in splits[name])]


def _suffix(name: str) -> str:
    """The suffix of the format of a file, whatever its compression."""
    if "://" in name:
        name = name.partition("::")[0].partition("?")[0]
    path = PurePosixPath(name.lower())
    return PurePosixPath(path.stem).suffix if path.suffix in COMPRESSED else path.suffix
