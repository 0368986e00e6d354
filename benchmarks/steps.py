"""Training tokens per second in plain AdamW steps, like for like, against nanoGPT's own model.

    python benchmarks/steps.py --nanogpt CHECKOUT
    python benchmarks/steps.py --nanogpt CHECKOUT --shape gpt2 --device cuda --peak-tflops 989

`quick_start` is the shape of nanoGPT's CPU quick start in float32; `gpt2` is GPT-2 of 124 M
parameters in bfloat16 with torch.compile, as nanoGPT's bench.py takes it. Both sides take batches
from memory, clip the gradients, step and read the loss; each in a process of its own, in turn. Ours
is the trainer's own step, told for GPT-2's block, which is nanoGPT's, and for the default one.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

GPT2_BLOCK = {"norm": "layernorm", "position": "learned", "mlp": "gelu", "qk_norm": False}
SIDES: dict[str, dict[str, Any] | None] = {
    "nanoGPT": None,
    "glassgpt, GPT-2's block": GPT2_BLOCK,
    "glassgpt, default block": {},
}


@dataclass(frozen=True)
class Shape:
    n_layers: int
    n_heads: int
    d_model: int
    context: int
    vocab_size: int
    batch: int
    precision: str
    compile: bool


SHAPES = {
    "quick_start": Shape(4, 4, 128, 64, 65, 12, "fp32", compile=False),
    # nanoGPT pads the vocabulary of 50,257 to a multiple of 64; so do both sides here.
    "gpt2": Shape(12, 12, 768, 1024, 50304, 16, "bf16", compile=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nanogpt", type=Path, required=True, help="a checkout of nanoGPT")
    parser.add_argument("--shape", choices=SHAPES, default="quick_start")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--peak-tflops", type=float, help="of the device, for its utilisation")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    if arguments.side:
        print(time_steps(arguments.side, arguments.nanogpt, shape, arguments))
        return
    rates: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(arguments.rounds):
        for name, found in rates.items():
            child = [sys.executable, __file__, *sys.argv[1:], "--side", name]
            seconds = float(subprocess.check_output(child, text=True).split()[-1])
            found.append(shape.batch * shape.context / seconds)
    for name, found in rates.items():
        rate = statistics.median(found)
        told = f"{name}: {rate:,.0f} tokens/s ({min(found):,.0f} to {max(found):,.0f})"
        # Round by round, since the machine's pace changes from minute to minute.
        ratios = [ours / peer for ours, peer in zip(found, rates["nanoGPT"], strict=True)]
        told += f", {statistics.median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f})"
        if arguments.peak_tflops:
            flops = rate * make_model(SIDES[name] or GPT2_BLOCK, shape).flops_per_token()
            told += f", {flops / 1e12 / arguments.peak_tflops:.1%} of the peak"
        print(told)


def time_steps(side: str, checkout: Path, shape: Shape, arguments: argparse.Namespace) -> float:
    """Seconds of one step of a warm model: the median of many, since others disturb some."""
    tokens = np.random.default_rng(0).integers(0, shape.vocab_size, 10**6).astype(np.uint16)
    block = SIDES[side]
    device = arguments.device
    step = (
        nanogpt(checkout, shape, tokens, device)
        if block is None
        else glassgpt(block, shape, tokens, device)
    )
    for _ in range(20):
        step()
    ticks = [time.perf_counter()]
    for _ in range(arguments.steps):
        step()  # ends with a look at the loss, which on a GPU waits for the step
        ticks.append(time.perf_counter())
    return statistics.median(np.diff(ticks))


def make_model(block: dict[str, Any], shape: Shape) -> Any:
    from model import GPT, ModelConfig

    config = ModelConfig(shape.n_layers, shape.n_heads, shape.d_model, shape.context, **block)
    return GPT(config, shape.vocab_size)


def glassgpt(
    block: dict[str, Any], shape: Shape, tokens: np.ndarray, device: str
) -> Callable[[], Any]:
    import openmp  # noqa: F401  # isort: skip
    import torch

    from data.batches import Batches
    from training.checkpoint import Checkpoints
    from training.config import TrainerConfig
    from training.device import keep_freed_memory
    from training.optimizer import Optimizer, OptimizerConfig
    from training.trainer import Trainer

    keep_freed_memory()
    model = make_model(block, shape).to(device)
    trainer = Trainer(
        TrainerConfig(
            max_steps=10**9,
            batch_size=shape.batch,
            eval_every=0,
            checkpoint_every=0,
            keep_checkpoints=1,
            log_every=10**6,
            grad_accumulation=1,
            max_grad_norm=1.0,
            max_bad_steps=10,
            device=device,
            precision=shape.precision,
            compile=shape.compile,
            parallel="ddp",
        ),
        model,
        Optimizer(model, OptimizerConfig("adamw", 1e-3, 0.1, 0.9, 0.99, 0, 0.0)),
        seed=0,
        device=torch.device(device),
        batch=Batches(tokens, shape.batch, shape.context, seed=0),
        validation=lambda: (),
        token_bytes=torch.ones(shape.vocab_size, dtype=torch.int64),
        floor_bpb=None,
        lr_scale=lambda step: 1.0,
        checkpoints=Checkpoints(Path("never-written")),
    )
    return trainer.train_step


def nanogpt(checkout: Path, shape: Shape, tokens: np.ndarray, device: str) -> Callable[[], Any]:
    import torch

    from benchmarks.peer import load_nanogpt

    module = load_nanogpt(checkout)
    length = shape.context
    model: Any = module.GPT(
        module.GPTConfig(
            block_size=length,
            vocab_size=shape.vocab_size,
            n_layer=shape.n_layers,
            n_head=shape.n_heads,
            n_embd=shape.d_model,
            dropout=0.0,
            bias=False,
        )
    ).to(device)
    optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), device)
    model = torch.compile(model) if shape.compile else model
    autocast = torch.autocast(device, torch.bfloat16, enabled=shape.precision == "bf16")

    def gather(starts: Any, shift: int) -> Any:
        rows = [tokens[start + shift : start + shift + length] for start in starts]
        batch = torch.stack([torch.from_numpy(row.astype(np.int64)) for row in rows])
        return batch.pin_memory().to(device, non_blocking=True) if device == "cuda" else batch

    def step() -> Any:
        starts = torch.randint(len(tokens) - length, (shape.batch,))
        with autocast:
            _, loss = model(gather(starts, 0), gather(starts, 1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


if __name__ == "__main__":
    main()
