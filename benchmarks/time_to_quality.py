r"""Seconds to nanoGPT's loss on tiny Shakespeare: nanoGPT's quick starts and our experiments.

    python benchmarks/time_to_quality.py --nanogpt CHECKOUT --shakespeare input.txt
    python benchmarks/time_to_quality.py --nanogpt CHECKOUT --shakespeare input.txt --gpu
    python benchmarks/time_to_quality.py --nanogpt CHECKOUT --shakespeare input.txt \
        --sides shakespeare_best default

All sides run in turn, as whole processes with cold caches. All are evaluated on the same bytes: the
whole validation split, which is the last tenth of the file, in windows that do not overlap, with
the checkpoint of the best validation loss. `default` is the default run, which is evaluated on its
own tales: only its time can be compared. Prints every run, then a table.

With `--gpu`, nanoGPT's time is measured until it has written its best checkpoint; that of its whole
run is also printed. Ours is always that of the whole run.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness import in_turn, make_parser, print_table, run, train

PEER = "nanoGPT"
DEFAULT = "default"  # the default run, on tales: only its time can be compared
CPU_SIDES = ("shakespeare_fast", "shakespeare_bytes", "shakespeare_best", DEFAULT)
GPU_QUICK_START = [sys.executable, "train.py", "config/train_shakespeare_char.py"]
CPU_QUICK_START = [
    *(*GPU_QUICK_START, "--device=cpu", "--compile=False"),
    *("--eval_iters=20", "--log_interval=1", "--block_size=64", "--batch_size=12", "--n_layer=4"),
    *("--n_head=4", "--n_embd=128", "--max_iters=2000", "--lr_decay_iters=2000", "--dropout=0.0"),
]
# Runs in nanoGPT's folder after training; it trusts that folder's own checkpoint.
MEASURE = """
import numpy as np, torch
from model import GPT, GPTConfig
saved = torch.load("out-shakespeare-char/ckpt.pt", map_location="cpu", weights_only=False)
model = GPT(GPTConfig(**saved["model_args"])).eval()
weights = saved["model"].items()  # torch.compile has prefixed their names
model.load_state_dict({name.removeprefix("_orig_mod."): tensor for name, tensor in weights})
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
    parser = make_parser(__doc__, 3)
    parser.add_argument("--nanogpt", type=Path, required=True, help="a checkout of nanoGPT")
    parser.add_argument("--shakespeare", type=Path, required=True, help="its text")
    parser.add_argument("--first-seed", type=int, default=1, help="of ours; each round adds one")
    parser.add_argument(
        "--sides", nargs="+", choices=CPU_SIDES, default=CPU_SIDES[:2], help="without --gpu"
    )
    parser.add_argument("--gpu", action="store_true", help="compare the quick start for GPUs")
    parser.add_argument("--settings", nargs="*", default=[], help="more settings for our runs")
    arguments = parser.parse_args()
    text = arguments.shakespeare.resolve()
    quick_start = GPU_QUICK_START if arguments.gpu else CPU_QUICK_START
    with tempfile.TemporaryDirectory() as folder:
        peer = Path(folder) / "nanoGPT"
        shutil.copytree(arguments.nanogpt, peer)
        shutil.copy(text, peer / "data/shakespeare_char/input.txt")
        run([sys.executable, "data/shakespeare_char/prepare.py"], peer)

        def measure(side: str, seed: int) -> tuple[float, float]:
            if side == PEER:
                seconds, bpb = measure_peer(quick_start, peer, arguments.gpu)
            else:
                which = () if side == DEFAULT else (f"experiment={side}", f"data.path={text}")
                seconds, summary = train(*which, f"seed={seed}", *arguments.settings)
                bpb = summary["val_bpb" if side == DEFAULT else "best_val_bpb"]
            print(f"{side}: {seconds:.1f} s, {bpb:.4f} bits per byte", flush=True)
            return seconds, bpb

        sides = ("shakespeare_gpu",) if arguments.gpu else arguments.sides
        seeds = range(arguments.first_seed, arguments.first_seed + arguments.rounds)
        print_results(in_turn((PEER, *sides), seeds, measure))


def print_results(results: dict[str, list[tuple[float, float]]]) -> None:
    rounds = [f"round {number + 1}" for number in range(len(results[PEER]))]
    peer_seconds = median(seconds for seconds, _ in results[PEER])
    rows = []
    for side, runs in results.items():
        times, losses = zip(*runs, strict=True)
        typical = median(times)
        cells = [f"{seconds:.1f} s" for seconds in (*times, typical)]
        bpb = ", ".join(f"{loss:.3f}" for loss in losses)
        rows.append([side, *cells, f"{peer_seconds / typical:.2f}", bpb])
    print_table(("", *rounds, "median", "ratio", "bits per byte"), rows)


def measure_peer(command: list[str], folder: Path, until_best: bool) -> tuple[float, float]:
    """Seconds of nanoGPT's process, or until its best checkpoint, and its bits per byte."""
    seconds, to_best = run_peer(command, folder)
    if until_best:
        print(f"nanoGPT's whole run: {seconds:.1f} s", flush=True)
        seconds = to_best
    output = subprocess.check_output([sys.executable, "-c", MEASURE], cwd=folder)
    return seconds, float(output.split()[-1]) / math.log(2)


def run_peer(command: list[str], folder: Path) -> tuple[float, float]:
    """Seconds of nanoGPT's whole process, and until it has written its last checkpoint, which is
    that of its best loss. It says that it saves just before it does."""
    began = time.perf_counter()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout
        saves, to_best = False, 0.0
        for line in process.stdout:
            if saves:  # the first line after the one that announces it
                to_best = time.perf_counter() - began
            saves = line.startswith("saving checkpoint")
    seconds = time.perf_counter() - began
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return seconds, seconds if saves else to_best


if __name__ == "__main__":
    main()
