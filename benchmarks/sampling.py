"""Tokens per second of sampling, compared with nanoGPT's `generate`, up to a full context.

    python benchmarks/sampling.py --nanogpt CHECKOUT [--device cuda]

All sides start from one token, have the same shape (nanoGPT's character model of 10.65 M
parameters), float32 and random weights, and are measured in turn. nanoGPT recomputes the whole
window for every token. On a CPU, one sequence is also compared with the memory bandwidth: the
weights are read once per token, and cannot be read faster than a sum reads an array of their size;
and with llama.cpp, if it is installed (`make test-long` does), with a GGUF file of our weights and
the same number of threads.
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

import openmp  # noqa: F401  # isort: skip

import torch
from torch import Tensor

from benchmarks.common import GPT2_BLOCK, Shape, configure, in_turn, make_parser, nanogpt, spread
from data.tokenizer import fixed_tokenizer
from exchange.gguf import write_gguf
from inference import generate
from model import GPT

SHAPE = Shape(context_length=256, vocab_size=256, n_layers=6, n_heads=6, d_model=384)
N_NEW = SHAPE.context_length - 1


def main() -> None:
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--nanogpt", type=Path, required=True, help="a checkout of nanoGPT")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    peer = nanogpt(arguments.nanogpt, SHAPE).to(arguments.device).eval()
    ours = GPT(configure(SHAPE, *GPT2_BLOCK).model, SHAPE.vocab_size).to(arguments.device)
    on_cpu = arguments.device == "cpu"
    for batch in (1, 16):
        prompt = torch.zeros(batch, 1, dtype=torch.long, device=arguments.device)
        sides: dict[str, Callable[[], Any]] = {
            "nanoGPT": partial(peer.generate, prompt, N_NEW, temperature=0.8),
            "glassgpt": partial(sample, ours, prompt),
        }
        if batch == 1 and on_cpu:
            sides["reading the weights"] = reader(ours)
            sides |= beside_llama_cpp(ours)
        compare(sides, batch, arguments.rounds)


def sample(model: GPT, prompt: Tensor) -> None:
    deque(generate(model, prompt, N_NEW, temperature=0.8), maxlen=0)


def reader(model: GPT) -> Callable[[], Any]:
    """Reads as many bytes as the model has weights, once for each token."""
    array = torch.ones(model.n_parameters)
    return lambda: [array.sum() for _ in range(N_NEW)]


def beside_llama_cpp(model: GPT) -> dict[str, Callable[[], Any]]:
    """llama.cpp with the same weights, if it is installed."""
    try:
        llama_cpp = import_module("llama_cpp")
    except ImportError:
        print("llama.cpp is not installed: `make test-long` installs it")
        return {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.gguf"
        weights = {name: each.detach() for name, each in model.named_parameters()}
        tokenizer = fixed_tokenizer("byte")
        write_gguf(file, model.config, tokenizer, weights, "float32", name="a model", end=None)
        threads = torch.get_num_threads()
        llama = llama_cpp.Llama(
            str(file), n_ctx=N_NEW + 1, n_threads=threads, use_mmap=False, verbose=False
        )
    return {"llama.cpp": lambda: [*islice(llama.generate([0], top_k=0, temp=0.8), N_NEW)]}


def compare(sides: dict[str, Callable[[], Any]], batch: int, rounds: int) -> None:
    def rate(side: str, number: int) -> float:
        began = time.perf_counter()
        sides[side]()
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return batch * N_NEW / (time.perf_counter() - began)

    rates = in_turn(sides, range(rounds), rate)
    print(f"{batch} at once:")
    for side, found in rates.items():
        ratio = median(rates["glassgpt"]) / median(found)
        print(f"  {side} {spread(found, ',.0f', ' tokens/s')}: glassgpt {ratio:.2f} x", flush=True)


if __name__ == "__main__":
    main()
