"""Everything that is measured on a GPU, in one command; the parts can be chosen.

    python benchmarks/gpu.py --nanogpt CHECKOUT --shakespeare input.txt
    python benchmarks/gpu.py --nanogpt CHECKOUT --shakespeare input.txt --parts smoke tests
    python benchmarks/gpu.py --nanogpt CHECKOUT --shakespeare input.txt --toy   # on a CPU

smoke: all scripts on the GPU; tests: the tests of devices; quality: nanoGPT's quick start for GPUs;
steps: GPT-2's training steps; sampling; watching: what observers cost. A command that fails does
not prevent the others. `--toy` tries all commands on a CPU, with sizes that mean nothing.
"""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks.harness import ROOT, TRAIN, make_parser

PARTS = ("smoke", "tests", "quality", "steps", "sampling", "watching")
TINY = (
    *("model.n_layers=1", "model.d_model=48", "model.context_length=32", "trainer.batch_size=4"),
    *("trainer.max_steps=80", "tokenizer.vocab_size=300", "model.n_heads=4"),
)
TINY_PEER = (
    "--device=cpu --compile=False --max_iters=20 --eval_interval=10 --eval_iters=2 --n_layer=1 "
    "--n_embd=48 --block_size=32"
)


def commands(
    folder: Path, nanogpt: Path, text: Path, rounds: int, toy: bool
) -> dict[str, list[list[str]]]:
    """The commands of each part."""

    def script(name: str, *arguments: str) -> list[str]:
        return [sys.executable, str(ROOT / f"{name}.py"), *arguments]

    def compare(name: str, *arguments: str) -> list[str]:
        how = [f"--nanogpt={nanogpt}", f"--rounds={rounds}"]
        return script(f"benchmarks/{name}", *how, *arguments)

    tiny, device = (TINY, "cpu") if toy else ((), "cuda")
    shakespeare = [f"data.path={text}", f"cache_dir={folder}/cache"]
    run, on_device = f"run={folder}/run", f"device={device}"
    longer = f"trainer.max_steps={100 if toy else 2100}"
    sizes = ["--tokens=20"] if toy else ["--shapes", "char", "gpt2"]
    with_text = [f"--shakespeare={text}", "--gpu", "--first-seed=11"]
    if toy:
        with_text.append(f"--peer-settings={TINY_PEER}")
    with_text += ["--settings", "observe.tensorboard=false", *tiny]  # nanoGPT writes no events
    return {
        "smoke": [
            [*TRAIN, f"run_dir={folder}/run", f"trainer.{on_device}", *tiny],
            [*TRAIN, f"resume={folder}/run", longer],
            script("sample", run, on_device, "num_samples=2"),
            script("evaluate", run, on_device),
            script("look", run, on_device, "text=Once there was a hen."),
            [*TRAIN, "experiment=shakespeare_fast", f"trainer.{on_device}", *shakespeare, *tiny],
        ],
        "tests": [[sys.executable, "-m", "pytest", "-k", device, "tests"]],
        "quality": [compare("time_to_quality", *with_text)],
        "steps": [
            compare("steps", "--shape=toy", "--steps=20", "--warm-up=3")
            if toy
            else compare("steps", "--shape=gpt2", "--device=cuda", "--steps=100")
        ],
        "sampling": [
            compare("sampling", f"--device={device}", "--batches", "1", "64", *sizes),
        ],
        "watching": [
            script(
                *("benchmarks/watching", f"--rounds={rounds}", "experiment=shakespeare_gpu"),
                *("observe.tensorboard=true", "observe.attention.every=250", *shakespeare, *tiny),
            )
        ],
    }


def main() -> None:
    parser = make_parser(__doc__, 3, "nanogpt", "shakespeare")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument("--toy", action="store_true", help="on a CPU, to try the commands")
    arguments = parser.parse_args()
    if not arguments.toy and not torch.cuda.is_available():
        parser.error("no GPU with CUDA was found; --toy tries the commands on a CPU")
    for file in (arguments.nanogpt / "train.py", arguments.shakespeare):
        if not file.is_file():
            parser.error(f"{file} is missing")
    if arguments.rounds < 1:
        parser.error(f"--rounds: {arguments.rounds} is too small; give at least 1")
    device = "CPU" if arguments.toy else torch.cuda.get_device_name()
    print(
        f"{device}, CUDA {torch.version.cuda}, PyTorch {torch.__version__}, {platform.platform()}"
    )
    with tempfile.TemporaryDirectory() as folder:
        nanogpt, text = arguments.nanogpt.resolve(), arguments.shakespeare.resolve()
        found = commands(Path(folder), nanogpt, text, arguments.rounds, arguments.toy)
        done = []
        for part in arguments.parts:
            for command in found[part]:
                print(f"== {part}: {shlex.join(command[1:])}", flush=True)
                began = time.perf_counter()
                status = subprocess.run(command, cwd=folder if part == "smoke" else ROOT).returncode
                name = " ".join([Path(command[1]).name, *command[2:4]])
                done.append((part, name, status, time.perf_counter() - began))
    for part, name, status, seconds in done:
        print(f"{part}: {name}: {f'FAILED ({status})' if status else 'done'} in {seconds:.0f} s")
    sys.exit(any(status for *_, status, _ in done))


if __name__ == "__main__":
    main()
