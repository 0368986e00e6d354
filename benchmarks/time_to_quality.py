"""Seconds to nanoGPT's loss on tiny Shakespeare: nanoGPT's CPU quick start against our experiments.

    python benchmarks/time_to_quality.py --nanogpt CHECKOUT --shakespeare input.txt

Both sides run in turn, whole process against whole process, with cold caches. Both are measured on
the same bytes: the whole validation split, the last tenth of the file, in windows that do not
overlap. Prints every run, then medians and ratios.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRAIN = Path(__file__).resolve().parent.parent / "train.py"
QUICK_START = [
    *("train.py", "config/train_shakespeare_char.py", "--device=cpu", "--compile=False"),
    *("--eval_iters=20", "--log_interval=1", "--block_size=64", "--batch_size=12", "--n_layer=4"),
    *("--n_head=4", "--n_embd=128", "--max_iters=2000", "--lr_decay_iters=2000", "--dropout=0.0"),
]
# Run in nanoGPT's folder after training; it trusts that folder's own checkpoint.
MEASURE = """
import numpy as np, torch
from model import GPT, GPTConfig
saved = torch.load("out-shakespeare-char/ckpt.pt", map_location="cpu", weights_only=False)
model = GPT(GPTConfig(**saved["model_args"])).eval()
model.load_state_dict(saved["model"])
tokens = torch.from_numpy(np.fromfile("data/shakespeare_char/val.bin", np.uint16).astype(np.int64))
nats, count, size = 0.0, 0, saved["model_args"]["block_size"]
with torch.no_grad():
    for start in range(0, len(tokens) - 1, size):
        y = tokens[start + 1 : start + 1 + size]
        nats += model(tokens[start : start + len(y)][None], y[None])[1].item() * len(y)
        count += len(y)
print(nats / count)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nanogpt", type=Path, required=True, help="a checkout of nanoGPT")
    parser.add_argument("--shakespeare", type=Path, required=True, help="tiny Shakespeare's text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--experiments", nargs="+", default=["shakespeare_fast", "shakespeare_bytes"]
    )
    arguments = parser.parse_args()
    text = arguments.shakespeare.resolve()
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        peer = Path(folder) / "nanoGPT"
        shutil.copytree(arguments.nanogpt, peer)
        shutil.copy(text, peer / "data/shakespeare_char/input.txt")
        run([sys.executable, "data/shakespeare_char/prepare.py"], peer)
        for seed in range(1, arguments.rounds + 1):
            seconds = run([sys.executable, *QUICK_START], peer)
            told = subprocess.check_output([sys.executable, "-c", MEASURE], cwd=peer, text=True)
            nats = float(told.split()[-1])
            tell(found, "nanoGPT", seconds, nats / math.log(2))
            for name in arguments.experiments:
                ours = Path(folder) / f"{name}-{seed}"
                ours.mkdir()
                settings = [f"experiment={name}", f"data.path={text}", f"seed={seed}", "run_dir=r"]
                seconds = run([sys.executable, str(TRAIN), *settings], ours)
                tell(
                    found,
                    name,
                    seconds,
                    json.loads((ours / "r/summary.json").read_text())["val_bpb"],
                )
    peer_seconds = statistics.median(seconds for seconds, _ in found["nanoGPT"])
    for name, runs in found.items():
        seconds = statistics.median(seconds for seconds, _ in runs)
        bpb = [bpb for _, bpb in runs]
        print(
            f"{name}: median {seconds:.1f} s, {peer_seconds / seconds:.1f} x; "
            f"bits per byte {min(bpb):.3f} to {max(bpb):.3f}"
        )


def run(command: list[str], folder: Path) -> float:
    """Seconds of a whole process that must succeed."""
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def tell(
    found: dict[str, list[tuple[float, float]]], name: str, seconds: float, bpb: float
) -> None:
    found.setdefault(name, []).append((seconds, bpb))
    print(f"{name}: {seconds:.1f} s, {bpb:.4f} bits per byte", flush=True)


if __name__ == "__main__":
    main()
