"""Training tokens per second with plain AdamW, compared with nanoGPT's own model.

    python benchmarks/steps.py --nanogpt CHECKOUT
    python benchmarks/steps.py --nanogpt CHECKOUT --shape gpt2 --device cuda --peak-tflops 989

`quick_start` is the shape of nanoGPT's CPU quick start in float32; `gpt2` is GPT-2 with 124 M
parameters in bfloat16 with torch.compile, as in nanoGPT's bench.py. Both sides take batches from
memory, clip the gradients, step and read the loss; they run in turn, each in its own process. On
our side a step is the trainer's own, with GPT-2's block, as in nanoGPT, with the default block, and
as `train.py` would choose the precision, which on a CPU with bfloat16 instructions is not float32.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import common

PEER = "nanoGPT"
BLOCKS = {
    "glassgpt, GPT-2's block": common.GPT2_BLOCK,
    "glassgpt, default block": ("model=nano",),
    "glassgpt, default block and precision": ("model=nano", "trainer.precision=auto"),
}
# Shape, batch size, and whether with bfloat16 and torch.compile.
TASKS = {
    "quick_start": (common.Shape(64, 65, n_layers=4, n_heads=4, d_model=128), 12, False),
    # nanoGPT pads the vocabulary of 50,257 to a multiple of 64; so do both sides here.
    "gpt2": (common.Shape(1024, 50304, n_layers=12, n_heads=12, d_model=768), 16, True),
}


def main() -> None:
    parser = common.make_parser(__doc__, rounds=5)
    parser.add_argument("--nanogpt", type=Path, required=True, help="a checkout of nanoGPT")
    parser.add_argument("--shape", choices=TASKS, default="quick_start")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=300, help="default: %(default)s")
    parser.add_argument("--peak-tflops", type=float, help="peak of the device; adds utilisation")
    arguments = parser.parse_args()
    shape, batch_size, _ = TASKS[arguments.shape]
    how = (arguments.shape, arguments.device, arguments.steps, arguments.nanogpt)

    def rate(side: str, number: int) -> float:
        return batch_size * shape.context_length / common.in_child(__file__, side, *how)

    rates = common.in_turn((PEER, *BLOCKS), range(arguments.rounds), rate)
    for side, found in rates.items():
        # By round, because the machine's speed changes from minute to minute.
        ratios = [ours / peer for ours, peer in zip(found, rates[PEER], strict=True)]
        results = [common.spread(found, ",.0f", " tokens/s"), common.spread(ratios, ".2f", " x")]
        if arguments.peak_tflops:
            from model import GPT

            config = common.configure(shape, *BLOCKS.get(side, common.GPT2_BLOCK))
            flops = median(found) * GPT(config.model, shape.vocab_size).flops_per_token
            results.append(f"{flops / 1e12 / arguments.peak_tflops:.1%} of the peak")
        print(f"{side}: {', '.join(results)}")


def child(side: str, task: str, device: str, n_steps: int, checkout: str) -> float:
    """Seconds of one step of a warm model: the median, because other programs disturb some."""
    vocab_size = TASKS[task][0].vocab_size
    tokens = np.random.default_rng(0).integers(0, vocab_size, 10**6).astype(np.uint16)
    if side == PEER:
        step = peer_step(task, tokens, device, Path(checkout))
    else:
        step = our_step(task, tokens, device, BLOCKS[side])
    for _ in range(20):
        step()
    ticks = [time.perf_counter()]
    for _ in range(n_steps):
        step()  # reads the loss at its end, which on a GPU waits for the step
        ticks.append(time.perf_counter())
    return median(np.diff(ticks).tolist())


def our_step(
    task: str, tokens: np.ndarray, device: str, block: tuple[str, ...]
) -> Callable[[], object]:
    import openmp  # noqa: F401  # isort: skip
    import torch

    from data.batches import Batches, Windows
    from model import GPT
    from training.checkpoint import Checkpoints
    from training.device import keep_freed_memory
    from training.optimizer import Optimizer
    from training.ranks import Ranks
    from training.trainer import Reports, Trainer, TrainingData

    keep_freed_memory()
    shape, batch_size, is_fast = TASKS[task]
    config = common.configure(
        shape,
        *(
            "optimizer=adamw",
            "optimizer.lr=1e-3",
            "optimizer.beta2=0.99",
            "optimizer.warmup_steps=0",
        ),
        *("trainer.max_steps=1_000_000_000", "trainer.log_every=1_000_000"),
        *("trainer.eval_every=0", "trainer.checkpoint_every=0"),
        *(f"trainer.batch_size={batch_size}", f"trainer.device={device}"),
        *(f"trainer.precision={'bf16' if is_fast else 'fp32'}", f"trainer.compile={is_fast}"),
        *block,
    )
    model = GPT(config.model, shape.vocab_size).to(device)
    optimizer = Optimizer(model, config.optimizer, config.trainer.max_steps)
    batches = Batches(tokens, batch_size, shape.context_length, seed=0)
    token_bytes = torch.ones(shape.vocab_size, dtype=torch.int64)
    unused = Windows(tokens, shape.context_length, batch_size)
    data = TrainingData(0, batches, unused, unused, token_bytes)
    reports, ranks = Reports(Checkpoints(Path("never-written"))), Ranks(torch.device(device))
    return Trainer(config.trainer, model, optimizer, data, reports, ranks=ranks).train_step


def peer_step(task: str, tokens: np.ndarray, device: str, checkout: Path) -> Callable[[], object]:
    import torch

    shape, batch_size, is_fast = TASKS[task]
    length = shape.context_length
    peer = common.nanogpt(checkout, shape).to(device)
    optimizer = peer.configure_optimizers(0.1, 1e-3, (0.9, 0.99), device)
    model: Any = torch.compile(peer) if is_fast else peer
    autocast = torch.autocast(device, torch.bfloat16, enabled=is_fast)

    def gather(starts: Any, shift: int) -> Any:
        rows = [tokens[start + shift : start + shift + length] for start in starts]
        batch = torch.stack([torch.from_numpy(row.astype(np.int64)) for row in rows])
        return batch.pin_memory().to(device, non_blocking=True) if device == "cuda" else batch

    def step() -> float:
        starts = torch.randint(len(tokens) - length, (batch_size,))
        with autocast:
            _, loss = model(gather(starts, 0), gather(starts, 1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


if __name__ == "__main__":
    common.start(main, child)
