"""MB/s and peak memory of encoding text into token files, against tiktoken's own threads.

    python benchmarks/tokenizing.py [--megabytes 20 200]

The text is tales, written once more for every few MB. Ours is everything that `data=text` does with
a new file and a trained tokenizer: check, hash, cut, encode, write, sync. tiktoken's side encodes
the same text, already in memory and cut, with one thread a core. Each side runs in a process of its
own, in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from data import TalesConfig, TextConfig, Tokenizer, open_corpus, prepare
from data.tokenizer import train_bpe
from data.tokens import cut

MB = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[20, 200])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tales = "".join(open_corpus(TalesConfig(n_bytes=4 * MB)).pieces("train"))
        train_bpe(cut([tales]), 2048).save(folder)
        for megabytes in arguments.megabytes:
            text = folder / f"{megabytes}.txt"
            with text.open("w", encoding="utf-8", newline="\n") as file:
                while file.tell() < megabytes * MB:
                    file.write(tales)
            compare(folder, text, arguments.rounds)


def compare(folder: Path, text: Path, rounds: int) -> None:
    size = text.stat().st_size / MB
    found: dict[str, list[dict[str, float]]] = {"glassgpt": [], "tiktoken": []}
    for number in range(rounds):
        for side, results in found.items():
            child = [sys.executable, __file__, "--child", side, str(folder), str(text), str(number)]
            results.append(json.loads(subprocess.check_output(child)))
    rates = {
        side: size / statistics.median(each["seconds"] for each in results)
        for side, results in found.items()
    }
    peak = max(each["peak"] for each in found["glassgpt"])
    print(
        f"{size:.0f} MB: glassgpt {rates['glassgpt']:.1f} MB/s, peak memory {peak:.0f} MB; "
        f"tiktoken {rates['tiktoken']:.1f} MB/s; {rates['glassgpt'] / rates['tiktoken']:.2f} x",
        flush=True,
    )


def child(side: str, folder: Path, text: Path, number: str) -> dict[str, float]:
    tokenizer = Tokenizer.load(folder)
    if side == "glassgpt":
        began = time.perf_counter()
        prepare(
            open_corpus(TextConfig(path=str(text))), tokenizer, folder / f"{text.stem}-{number}", 64
        )
    else:
        pieces = list(cut([text.read_text(encoding="utf-8")]))
        began = time.perf_counter()
        tokenizer._encoding.encode_ordinary_batch(pieces, num_threads=os.cpu_count() or 1)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB
    return {"seconds": seconds, "peak": peak}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        side, folder, text, number = sys.argv[2:]
        print(json.dumps(child(side, Path(folder), Path(text), number)))
    else:
        main()
