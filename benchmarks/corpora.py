"""How fast documents become tokens on disk, and in how much memory, by format and size.

    python benchmarks/corpora.py --megabytes 20 200 2000 [--shakespeare input.txt]

Each file is half tales and half Shakespeare (without a copy of it, only tales); both are repeated,
numbered, so that no two documents are equal. Each size is encoded by prepare.py in a new process,
decompression included, in turn with tiktoken's own `encode_ordinary_batch` on a thread per core
over the same documents in memory, a part of them at a time, since its lists of integers take more
memory than the text. The bytes per second of both are those of the text; prepare.py's are without
the start of the interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count, cycle, islice
from pathlib import Path

import pyarrow
import pyarrow.parquet

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import ROOT
from configs.schema import preset
from data import open_corpus
from data.corpus import text_of
from data.shards import THREADS
from data.tokenizer import Tiktoken, Tokenizer, fixed_tokenizer

FORMATS = ("jsonl.zst", "parquet")
AT_ONCE = 20_000  # documents
ENOUGH = 200e6


def documents(shakespeare: Path | None) -> Iterator[str]:
    """Documents without end, no two of them equal."""
    tales = open_corpus(preset("data", "tales", n_bytes=5_000_000))
    texts = "".join(text_of(tales, "train")).split("\n\n")
    if shakespeare:
        plays = cycle(re.findall(r"(?s).{1,2000}\n\n", shakespeare.read_text()))
        texts = [each for tale in texts for each in (tale, next(plays))]
    for number in count():
        for text in texts:
            yield f"{number} {text}"


def write(path: Path, megabytes: int, shakespeare: Path | None) -> float:
    """Write a file with so much text; returns the bytes of text."""
    written, texts = 0, documents(shakespeare)
    with pyarrow.OSFile(str(path), "wb") as file:
        if path.suffix == ".zst":
            stream = pyarrow.CompressedOutputStream(file, "zstd")
        else:
            schema = pyarrow.schema({"text": pyarrow.string()})
            stream = pyarrow.parquet.ParquetWriter(file, schema, compression="zstd")
        with stream:
            while written < megabytes * 1e6:
                some = list(islice(texts, 1000))
                written += sum(len(each.encode()) for each in some)
                if path.suffix == ".zst":
                    stream.write("".join(json.dumps({"text": t}) + "\n" for t in some).encode())
                else:
                    stream.write_table(pyarrow.table({"text": some}))
    return written


def batch_seconds(tokenizer: Tokenizer, n_bytes: float, shakespeare: Path | None) -> float:
    """How long `encode_ordinary_batch` takes for as much text; measured on at most ENOUGH bytes."""
    assert isinstance(tokenizer.engine, Tiktoken)
    texts, seconds, done = documents(shakespeare), 0.0, 0
    while done < min(n_bytes, ENOUGH):
        some = list(islice(texts, AT_ONCE))
        done += sum(len(each.encode()) for each in some)
        began = time.perf_counter()
        tokenizer.engine.encoding.encode_ordinary_batch(some, num_threads=THREADS)
        seconds += time.perf_counter() - began
    return seconds * n_bytes / done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[20, 200])
    parser.add_argument("--shakespeare", type=Path)
    parser.add_argument("--tokenizer", default="gpt2")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    tokenizer = fixed_tokenizer(options.tokenizer)
    print("format, MB of text, MB stored, MB/s, of encode_ordinary_batch, peak MB")
    with tempfile.TemporaryDirectory() as folder:
        for megabytes in options.megabytes:
            for kind in FORMATS * options.rounds:
                measure(Path(folder), kind, megabytes, tokenizer, options)


def measure(
    folder: Path, kind: str, megabytes: int, tokenizer: Tokenizer, options: argparse.Namespace
) -> None:
    path, shards = folder / f"corpus.{kind}", folder / "shards"
    n_bytes = write(path, megabytes, options.shakespeare)
    command = [sys.executable, str(ROOT / "prepare.py"), f"to={shards}", f"data.path={path}"]
    script = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"
    )
    output = subprocess.run(
        [sys.executable, "-c", script, *command, f"tokenizer={options.tokenizer}"],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ,
    ).stdout
    speed = float(output.partition("(")[2].partition(" MB/s")[0])
    peak = int(output.split()[-1])
    seconds = batch_seconds(tokenizer, n_bytes, options.shakespeare)
    other = n_bytes / 1e6 / seconds
    stored = path.stat().st_size / 1e6
    print(
        f"{kind}, {n_bytes / 1e6:.0f}, {stored:.0f}, {speed:.1f}, {speed / other:.2f} "
        f"({other:.1f} MB/s), {peak / 1e6:.0f}",
        flush=True,
    )
    path.unlink()
    shutil.rmtree(shards)


if __name__ == "__main__":
    main()
