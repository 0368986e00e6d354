"""Tokens per second of sampling, compared with nanoGPT's `generate`, up to a full context.

    python benchmarks/sampling.py --nanogpt CHECKOUT
    python benchmarks/sampling.py --nanogpt CHECKOUT --device cuda --batches 1 64

All sides start from one token, have the shape of nanoGPT's character model (10.65 M parameters) and
random weights, and are measured in turn. nanoGPT
recomputes the whole window for every token. On a GPU both compute in bfloat16, nanoGPT by autocast
as its sample.py does, and are called once before they are measured. On a CPU both compute in
float32, and one sequence is also compared with llama.cpp, if it is installed (`make test-long`
does), with a GGUF file of our weights and the same number of threads.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import common.startup  # noqa: F401  # isort: skip

import torch
from torch import Tensor

from benchmarks.harness import (
    GPT2_BLOCK,
    Shape,
    configure,
    in_turn,
    make_parser,
    nanogpt,
    print_table,
    spread,
)
from data.tokenizer import fixed_tokenizer
from inference.generation import generate
from model import GPT

SHAPE = Shape(context_length=256, vocab_size=256, n_layers=6, n_heads=6, d_model=384)
N_NEW = SHAPE.context_length - 1  # tokens


def main() -> None:
    parser = make_parser(__doc__, 5)
    parser.add_argument("--nanogpt", type=Path, required=True, help="a checkout of nanoGPT")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16], help="sequences at once")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    device = arguments.device
    peer = nanogpt(arguments.nanogpt, SHAPE).to(device).eval()
    ours = GPT(configure(SHAPE, *GPT2_BLOCK).model, SHAPE.vocab_size).to(device)
    if on_gpu := device != "cpu":
        ours.bfloat16()
    rows = []
    for batch in arguments.batches:
        prompt = torch.zeros(batch, 1, dtype=torch.long, device=device)
        sides: dict[str, Callable[[], Any]] = {
            "nanoGPT": partial(sample_peer, peer, prompt),
            "glassgpt": partial(sample, ours, prompt),
        }
        if batch == 1 and not on_gpu:
            sides |= beside_llama_cpp(ours)
        rates = measure(sides, batch * N_NEW, arguments.rounds, on_gpu)
        shown = {side: spread(found, ",.0f") for side, found in rates.items()}
        ratio = median(rates["glassgpt"]) / median(rates["nanoGPT"])
        rows.append((str(batch), shown["nanoGPT"], shown["glassgpt"], f"{ratio:.1f}"))
        if "llama.cpp" in shown:
            print(f"llama.cpp, {batch} at once: {shown['llama.cpp']} tokens/s")
    print_table(("sequences at once", "nanoGPT", "glassgpt", "ratio"), rows)


def sample_peer(model: Any, prompt: Tensor) -> None:
    kind = prompt.device.type
    torch.backends.cuda.matmul.allow_tf32 = True  # as nanoGPT does
    with torch.no_grad(), torch.autocast(kind, torch.bfloat16, enabled=kind != "cpu"):
        model.generate(prompt, N_NEW, temperature=0.8)


def sample(model: GPT, prompt: Tensor) -> None:
    deque(generate(model, prompt, N_NEW, temperature=0.8), maxlen=0)


def beside_llama_cpp(model: GPT) -> dict[str, Callable[[], Any]]:
    """llama.cpp with the same weights, if it is installed."""
    from exchange.gguf import write_gguf

    try:
        llama_cpp = import_module("llama_cpp")
    except ImportError:
        print("llama.cpp is not installed: `make test-long` installs it")
        return {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.gguf"
        weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
        tokenizer = fixed_tokenizer("byte")
        write_gguf(file, model.config, tokenizer, weights, "float32", name="a model", end=None)
        threads = torch.get_num_threads()
        llama = llama_cpp.Llama(
            str(file), n_ctx=N_NEW + 1, n_threads=threads, use_mmap=False, verbose=False
        )
    return {"llama.cpp": lambda: [*islice(llama.generate([0], top_k=0, temp=0.8), N_NEW)]}


def measure(
    sides: dict[str, Callable[[], Any]], n_tokens: int, rounds: int, warms_up: bool
) -> dict[str, list[float]]:
    """Tokens per second of each side, by round."""

    def rate(side: str, number: int) -> float:
        began = time.perf_counter()
        sides[side]()
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return n_tokens / (time.perf_counter() - began)

    for side in sides if warms_up else ():
        rate(side, 0)
    return in_turn(sides, range(rounds), rate)


if __name__ == "__main__":
    main()
