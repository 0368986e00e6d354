"""MB/s and peak memory of encoding text into token files, against tiktoken's own threads.

    python benchmarks/tokenizing.py [--megabytes 20 200] [--text FILE]

The text is tales, or that of a file, as often as it takes. Ours is everything that `data=text` does
with a new file and a trained tokenizer (check, hash, cut, encode, write, sync), and last with one
to train as well. tiktoken's sides encode the same text, already in memory and cut, with a thread a
core: to lists by `encode_ordinary_batch`, and to arrays by `encode_to_numpy` in a pool of threads.
Each side runs in a process of its own, in turn.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from data import TalesConfig, TextConfig, Tokenizer, TokenizerConfig, open_corpus, prepare
from data.tokenizer import train_bpe
from data.tokens import cut

MB = 1_000_000
VOCABULARY = 2048
SIDES = ("glassgpt", "tiktoken, lists", "tiktoken, arrays", "glassgpt, training the tokenizer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[20, 200])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--text", type=Path, help="instead of tales")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        piece = (
            arguments.text.read_text(encoding="utf-8")
            if arguments.text
            else "".join(open_corpus(TalesConfig(n_bytes=4 * MB)).pieces("train"))
        )
        train_bpe(cut([piece]), VOCABULARY).save(folder)
        for megabytes in arguments.megabytes:
            text = folder / f"{megabytes}.txt"
            with text.open("w", encoding="utf-8", newline="\n") as file:
                while file.tell() < megabytes * MB:
                    file.write(piece)
            compare(folder, text, arguments.rounds)


def compare(folder: Path, text: Path, rounds: int) -> None:
    size = text.stat().st_size / MB
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for number in range(rounds):
        for side, results in found.items():
            child = [sys.executable, __file__, "--child", side, str(folder), str(text), str(number)]
            results.append(json.loads(subprocess.check_output(child)))
    rates = {
        side: size / statistics.median(each["seconds"] for each in results)
        for side, results in found.items()
    }
    for side, rate in rates.items():
        peak = max(each["peak"] for each in found[side])
        ratio = rates["glassgpt"] / rate
        print(
            f"{size:.0f} MB, {side}: {rate:.1f} MB/s, peak memory {peak:.0f} MB; "
            f"glassgpt is {ratio:.2f} x as fast",
            flush=True,
        )


def child(side: str, folder: Path, text: Path, number: str) -> dict[str, float]:
    tokenizer = Tokenizer.load(folder)
    if side.startswith("glassgpt"):
        is_trained = side == "glassgpt"
        began = time.perf_counter()
        prepare(
            open_corpus(TextConfig(path=str(text))),
            tokenizer if is_trained else TokenizerConfig("bpe", VOCABULARY),
            folder / f"{side}-{text.stem}-{number}",
            64,
        )
    else:
        pieces = list(cut([text.read_text(encoding="utf-8")]))
        encoding, threads = tokenizer._encoding, os.cpu_count() or 1
        began = time.perf_counter()
        if side == "tiktoken, lists":
            encoding.encode_ordinary_batch(pieces, num_threads=threads)
        else:
            with ThreadPoolExecutor(threads) as pool:
                for _ in pool.map(encoding.encode_to_numpy, pieces):
                    pass
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB
    return {"seconds": seconds, "peak": peak}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        side, folder, text, number = sys.argv[2:]
        print(json.dumps(child(side, Path(folder), Path(text), number)))
    else:
        main()
