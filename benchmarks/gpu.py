"""Everything that is measured on a GPU, in one command; the parts can be chosen.

    python benchmarks/gpu.py --nanogpt CHECKOUT --shakespeare input.txt
    python benchmarks/gpu.py --nanogpt CHECKOUT --shakespeare input.txt --parts tests steps

tests: those of devices, which run all scripts; quality: nanoGPT's quick start for GPUs; steps:
GPT-2's training steps; sampling; watching: what observers cost. A command that fails does not
prevent the others.
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

from benchmarks.harness import ROOT, make_parser

PARTS = ("tests", "quality", "steps", "sampling", "watching")


def commands(folder: Path, nanogpt: Path, text: Path, rounds: int) -> dict[str, list[list[str]]]:
    """The commands of each part."""

    def script(name: str, *arguments: str) -> list[str]:
        return [sys.executable, str(ROOT / f"{name}.py"), *arguments]

    def compare(name: str, *arguments: str) -> list[str]:
        how = [f"--nanogpt={nanogpt}", f"--rounds={rounds}"]
        return script(f"benchmarks/{name}", *how, *arguments)

    shakespeare = [f"data.path={text}", f"cache_dir={folder}/cache"]
    return {
        "tests": [[sys.executable, "-m", "pytest", "-k", "cuda", "tests"]],
        "quality": [
            compare(
                *("time_to_quality", f"--shakespeare={text}", "--gpu", "--first-seed=11"),
                *("--settings", "observe.tensorboard=false"),  # nanoGPT writes no events
            )
        ],
        "steps": [compare("steps", "--shape=gpt2", "--device=cuda", "--steps=100")],
        "sampling": [compare("sampling", "--device=cuda", "--batches", "1", "64")],
        "watching": [
            script(
                *("benchmarks/watching", f"--rounds={rounds}", "experiment=shakespeare_gpu"),
                *("observe.tensorboard=true", "observe.attention.every=250", *shakespeare),
            )
        ],
    }


def main() -> None:
    parser = make_parser(__doc__, 3)
    parser.add_argument("--nanogpt", type=Path, required=True, help="a checkout of nanoGPT")
    parser.add_argument("--shakespeare", type=Path, required=True, help="its text")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("no GPU with CUDA was found")
    for file in (arguments.nanogpt / "train.py", arguments.shakespeare):
        if not file.is_file():
            parser.error(f"{file} is missing")
    print(
        f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, PyTorch {torch.__version__}, "
        f"{platform.platform()}"
    )
    with tempfile.TemporaryDirectory() as folder:
        nanogpt, text = arguments.nanogpt.resolve(), arguments.shakespeare.resolve()
        found = commands(Path(folder), nanogpt, text, arguments.rounds)
        done = []
        for part in arguments.parts:
            for command in found[part]:
                print(f"== {part}: {shlex.join(command[1:])}", flush=True)
                began = time.perf_counter()
                status = subprocess.run(command, cwd=ROOT).returncode
                name = " ".join([Path(command[1]).name, *command[2:4]])
                done.append((part, name, status, time.perf_counter() - began))
    for part, name, status, seconds in done:
        print(f"{part}: {name}: {f'FAILED ({status})' if status else 'done'} in {seconds:.0f} s")
    sys.exit(any(status for *_, status, _ in done))


if __name__ == "__main__":
    main()
