"""Seconds to nanoGPT's loss on tiny Shakespeare: its quick starts against our experiments.

    python benchmarks/time_to_quality.py --nanogpt CHECKOUT --shakespeare input.txt
    python benchmarks/time_to_quality.py --nanogpt CHECKOUT --shakespeare input.txt --gpu

All sides run in turn, whole process against whole process, with cold caches. All are measured on
the same bytes: the whole validation split, the last tenth of the file, in windows that do not
overlap, by the checkpoint of the best validation loss. Prints every run, then medians and ratios.

nanoGPT runs as its users start it, and on a CPU once more with OpenMP's threads spinning as briefly
as ours do (openmp.py), which matters where other programs run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GPU_QUICK_START = ["train.py", "config/train_shakespeare_char.py"]
CPU_QUICK_START = [
    *(*GPU_QUICK_START, "--device=cpu", "--compile=False"),
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
    parser.add_argument("--first-seed", type=int, default=1, help="of ours, one more each round")
    parser.add_argument("--gpu", action="store_true", help="the quick start for a GPU")
    parser.add_argument("--settings", nargs="*", default=[], help="more of ours: setting=value")
    arguments = parser.parse_args()
    text = arguments.shakespeare.resolve()
    experiments = (
        ["shakespeare_gpu"] if arguments.gpu else ["shakespeare_fast", "shakespeare_bytes"]
    )
    quick_start = GPU_QUICK_START if arguments.gpu else CPU_QUICK_START
    peers: dict[str, dict[str, str]] = {"nanoGPT": {}}
    if not arguments.gpu:
        peers["nanoGPT, brief spinning"] = {"GOMP_SPINCOUNT": "10000"}
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        peer = Path(folder) / "nanoGPT"
        shutil.copytree(arguments.nanogpt, peer)
        shutil.copy(text, peer / "data/shakespeare_char/input.txt")
        run([sys.executable, "data/shakespeare_char/prepare.py"], peer)
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.rounds):
            for name, variables in peers.items():
                seconds = run([sys.executable, *quick_start], peer, variables)
                told = subprocess.check_output([sys.executable, "-c", MEASURE], cwd=peer, text=True)
                tell(found, name, seconds, float(told.split()[-1]) / math.log(2))
            for name in experiments:
                ours = Path(folder) / f"{name}-{seed}"
                ours.mkdir()
                settings = [f"experiment={name}", f"data.path={text}", f"seed={seed}", "run_dir=r"]
                command = [sys.executable, str(ROOT / "train.py"), *settings, *arguments.settings]
                seconds = run(command, ours)
                summary = json.loads((ours / "r/summary.json").read_text())
                tell(found, name, seconds, summary["best_val_bpb"])
    peer_seconds = statistics.median(seconds for seconds, _ in found["nanoGPT"])
    for name, runs in found.items():
        seconds = statistics.median(seconds for seconds, _ in runs)
        bpb = [bpb for _, bpb in runs]
        print(
            f"{name}: median {seconds:.1f} s ({min(runs)[0]:.1f} to {max(runs)[0]:.1f}), "
            f"{peer_seconds / seconds:.1f} x; "
            f"bits per byte {min(bpb):.3f} to {max(bpb):.3f}"
        )


def run(command: list[str], folder: Path, variables: dict[str, str] | None = None) -> float:
    """Seconds of a whole process that must succeed."""
    environment = {**os.environ, **(variables or {})}
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - began


def tell(
    found: dict[str, list[tuple[float, float]]], name: str, seconds: float, bpb: float
) -> None:
    found.setdefault(name, []).append((seconds, bpb))
    print(f"{name}: {seconds:.1f} s, {bpb:.4f} bits per byte", flush=True)


if __name__ == "__main__":
    main()
