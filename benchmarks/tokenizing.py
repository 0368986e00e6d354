"""MB/s and peak memory of encoding text into token files, compared with tiktoken's own threads.

    python benchmarks/tokenizing.py [--megabytes 20]

The text is tales, repeated to reach the size. Our side is everything
that `data=text` does with a new file and a trained tokenizer (check, hash, cut, encode, write,
sync); a second variant also trains the tokenizer. tiktoken's sides encode the same text, already in
memory and cut, with one thread per core: to lists with `encode_ordinary_batch`, and to arrays with
`encode_to_numpy` in a pool of threads. The sides run in turn, each in its own process.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness import in_child, in_turn, make_parser, print_table, spread, start
from data.corpora import open_corpus
from data.patterns import cut
from data.tales import TalesConfig
from data.text import TextConfig
from data.tokenizer import Tokenizer, TokenizerConfig, train_bpe
from data.tokens import prepare

MB = 1_000_000
VOCABULARY = 2048
SIDES = {
    "glassgpt": "glassgpt",
    "lists": "tiktoken, lists (`encode_ordinary_batch`)",
    "arrays": "tiktoken, arrays (`encode_to_numpy`)",
    "glassgpt, training": "glassgpt, training the tokenizer too",
}


def main() -> None:
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--megabytes", type=int, default=20, help="at least")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tales = open_corpus(TalesConfig("tales", 4 * MB, seed=0, val_fraction=0.1))
        piece = "".join(tales.training_text())
        train_bpe(cut([piece]), VOCABULARY).save(folder)
        text = folder / "text.txt"
        with text.open("w", encoding="utf-8", newline="\n") as file:
            while file.tell() < arguments.megabytes * MB:
                file.write(piece)
        size = text.stat().st_size / MB
        results = in_turn(
            SIDES,
            range(arguments.rounds),
            lambda side, number: in_child(__file__, side, folder, text, number),
        )
    ours = median(seconds for seconds, _ in results["glassgpt"])
    print(f"{size:.0f} MB of tales:")
    rows = []
    for side, found in results.items():
        seconds, peaks = zip(*found, strict=True)
        ratio = "" if side.startswith("glassgpt") else f"{median(seconds) / ours:.2f} times as fast"
        speed = spread([size / duration for duration in seconds], ".1f", " MB/s")
        rows.append((SIDES[side], speed, ratio, f"{max(peaks):.0f} MB"))
    print_table(("", "speed", "glassgpt is", "peak memory"), rows)


def child(side: str, folder: str, text: str, number: int) -> tuple[float, float]:
    """Seconds of encoding the file `text`, and the peak memory of the process in MB."""
    tokenizer = Tokenizer.load(Path(folder))
    if side.startswith("glassgpt"):
        trained = tokenizer if side == "glassgpt" else TokenizerConfig("bpe", VOCABULARY)
        cache = Path(folder) / f"{side}-{number}"
        began = time.perf_counter()
        prepare(open_corpus(TextConfig("text", text, None, 0.1)), trained, cache, 64)
    else:
        pieces = list(cut([Path(text).read_text(encoding="utf-8")]))
        encoding, threads = tokenizer.encoding, os.cpu_count() or 1
        began = time.perf_counter()
        if side == "lists":
            encoding.encode_ordinary_batch(pieces, num_threads=threads)
        else:
            with ThreadPoolExecutor(threads) as pool:
                for _ in pool.map(encoding.encode_to_numpy, pieces):
                    pass
    seconds = time.perf_counter() - began
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB


if __name__ == "__main__":
    start(main, child)
