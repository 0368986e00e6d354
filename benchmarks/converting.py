"""Seconds and memory of converting GPT-2 (124 M, random weights) with `convert.py`, both ways.

    python benchmarks/converting.py [--rounds 3]

Memory is the most that the process held: as a whole, and as a multiple of the weights above what a
process holds that fails right after its imports. The tokenizer is GPT-2's if TIKTOKEN_CACHE_DIR has
it, and otherwise bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import ROOT, in_child, in_turn, make_parser, spread, start

VOCABULARY = 50257
WAYS: dict[str, tuple[str, ...]] = {
    "a run to a folder": ("source=run", "to=folder"),
    "a folder to a run": ("source=folder", "to=again"),
    "a run to GGUF": ("source=run", "to=model.gguf"),
    "a run to GGUF, q8_0": ("source=run", "to=small.gguf", "dtype=q8_0"),
}


def main() -> None:
    rounds = make_parser(__doc__, rounds=3).parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = in_child(__file__, folder / "run")
        _, imports = convert(("source=nothing", "to=x"), folder, status=2)
        results = in_turn(WAYS, range(rounds), lambda way, _: convert(WAYS[way], folder))
    print(f"weights: {size / 1e6:.0f} MB; imports: {imports / 1e6:.0f} MB")
    for way, found in results.items():
        seconds, memory = zip(*found, strict=True)
        share = [(each - imports) / size for each in memory]
        print(
            f"{way}: {spread(seconds, '.1f', ' s')}, {max(memory) / 1e6:.0f} MB, "
            f"{max(share):.2f} times the weights above the imports"
        )


def child(run: str) -> int:
    """Make a run with random weights, in a process of its own: the memory of a process that starts
    another one counts as that of the other. Returns their bytes."""
    import torch

    from configs.schema import preset
    from data.tokenizer import fixed_tokenizer
    from exchange.run import write_run
    from exchange.weights import Entry
    from training.weights import parameter_shapes

    def entry(name: str, shape: tuple[int, ...]) -> Entry:
        return Entry(name, shape, "float32", lambda: torch.randn(shape) * 0.02)

    config = preset("model", "gpt2")
    name = "gpt2" if "TIKTOKEN_CACHE_DIR" in os.environ else "byte"
    entries = [entry(*each) for each in parameter_shapes(config, VOCABULARY).items()]
    write_run(Path(run), "random", config, fixed_tokenizer(name, VOCABULARY), entries)
    return sum(each.n_bytes for each in entries)


def convert(arguments: Sequence[str], folder: Path, status: int = 0) -> tuple[float, int]:
    """Seconds and peak memory in bytes of one conversion; what it writes replaces the last one."""
    target = folder / arguments[1].removeprefix("to=")
    shutil.rmtree(target, ignore_errors=True)
    target.unlink(missing_ok=True)
    command = [sys.executable, str(ROOT / "convert.py"), *arguments]
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, code, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(code)
    assert process.returncode == status, arguments
    scale = 1 if sys.platform == "darwin" else 1024
    return seconds, usage.ru_maxrss * scale


if __name__ == "__main__":
    start(main, child)
