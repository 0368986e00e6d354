"""Training tokens per second with plain AdamW, compared with nanoGPT's own model.

    python benchmarks/steps.py                        # the devices of this machine
    python benchmarks/steps.py --nanogpt CHECKOUT
    python benchmarks/steps.py --nanogpt CHECKOUT --shape gpt2 --device cuda

`quick_start` is the shape of nanoGPT's CPU quick start in float32; `gpt2` is GPT-2 with 124 M
parameters in bfloat16 with torch.compile, with the step of nanoGPT's bench.py, which reads the loss
of every step. Both sides take batches from memory; they run in turn, each in its own process. On
our side a step is the trainer's own, which also clips the gradients, with GPT-2's block and
nanoGPT's exact GELU (GPT-2's has a tanh, which takes nearly twice as long on a CPU), with the
default block, and in the precision that `train.py` chooses: bfloat16 on CPUs that measure faster
with it. Without nanoGPT, the last is measured on every device, such as `cpu` and `mps`.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import harness

PEER = "nanoGPT"
ADAMW = ("optimizer=adamw", "optimizer.lr=1e-3", "optimizer.beta2=0.99", "optimizer.warmup_steps=0")
OURS = {
    "glassgpt, GPT-2's block": (*harness.GPT2_BLOCK, *ADAMW),
    "glassgpt, default block": ("model=nano", *ADAMW),
}
CHOSEN = "glassgpt, default block, precision as train.py chooses it"
AUTO = {CHOSEN: ("model=nano", "trainer.precision=auto", *ADAMW)}


class Task(NamedTuple):
    """What is compared. `is_fast`: in bfloat16, with torch.compile, and as in bench.py."""

    shape: harness.Shape
    batch_size: int
    is_fast: bool
    sides: dict[str, tuple[str, ...]]


TASKS = {
    "quick_start": Task(harness.Shape(64, 65, 4, 4, d_model=128), 12, False, OURS | AUTO),
    "gpt2": Task(harness.Shape(1024, 50304, 12, 12, d_model=768), 16, True, OURS),
}
BLOCK = 10  # steps between two looks at the clock on a GPU, which wait for it


def main() -> None:
    parser = harness.make_parser(__doc__, 5)
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT")
    parser.add_argument("--shape", choices=TASKS, default="quick_start")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=300, help="default: %(default)s")
    parser.add_argument("--warm-up", type=int, default=20, help="steps; default: %(default)s")
    arguments = parser.parse_args()
    if arguments.nanogpt is None:
        compare_devices(arguments.rounds, arguments.warm_up, arguments.steps)
        return
    task = TASKS[arguments.shape]
    tokens = task.batch_size * task.shape.context_length
    how = (task, arguments.device, arguments.warm_up, arguments.steps)

    def rate(side: str, number: int) -> float:
        seconds, _ = harness.in_child(measure, side, *how, arguments.nanogpt.resolve())
        return tokens / seconds

    rates = harness.in_turn((PEER, *task.sides), range(arguments.rounds), rate)
    rows = []
    for side, found in rates.items():
        by_round = [ours / theirs for ours, theirs in zip(found, rates[PEER], strict=True)]
        ratio = f"{median(by_round):.2f}"
        name = side if task.is_fast or side == PEER or side in AUTO else f"{side}, float32"
        rows.append([name, harness.spread(found, ",.0f"), ratio])
    harness.print_table(("", "tokens/s", "ratio"), rows)


def compare_devices(rounds: int, warm_up: int, n_steps: int) -> None:
    """Print the tokens per second of every device, and their ratio to the CPU."""
    import torch

    on_gpus = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    devices = ["cpu", *(device for device, is_available in on_gpus.items() if is_available)]
    task = TASKS["quick_start"]

    def rate(device: str, number: int) -> float:
        seconds, _ = harness.in_child(measure, CHOSEN, task, device, warm_up, n_steps)
        return task.batch_size * task.shape.context_length / seconds

    rates = harness.in_turn(devices, range(rounds), rate)
    rows = [
        (device, harness.spread(found, ",.0f"), f"{median(found) / median(rates['cpu']):.2f}")
        for device, found in rates.items()
    ]
    harness.print_table(("device", "tokens/s", "ratio"), rows)


def measure(
    side: str, task: Task, device: str, warm_up: int, n_steps: int, checkout: Path = Path()
) -> tuple[float, float]:
    """Seconds of one step of a warm model, the median, because other programs disturb some; and the
    most memory that the process had, in GB."""
    import common.startup  # noqa: F401  # isort: skip
    import torch

    tokens = np.random.default_rng(0).integers(0, task.shape.vocab_size, 10**6).astype(np.uint16)
    if side == PEER:
        step = peer_step(task, tokens, device, checkout)
    else:
        step = our_step(task, tokens, device, task.sides[side])
    for _ in range(warm_up):
        step()
    on_gpu = device != "cpu"
    block = BLOCK if on_gpu else 1
    ticks = []
    for number in range(n_steps + 1):
        if number % block == 0:
            if on_gpu:
                (torch.mps if device == "mps" else torch.cuda).synchronize()
            ticks.append(time.perf_counter())
        step()
    scale = 1e9 if sys.platform == "darwin" else 1e6  # bytes there, KiB elsewhere
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale
    return median(np.diff(ticks).tolist()) / block, memory


def our_step(
    task: Task, tokens: np.ndarray, device: str, settings: tuple[str, ...]
) -> Callable[[], object]:
    import torch
    from torch.nn.functional import gelu

    from common.device import keep_freed_memory
    from data.batches import Batches
    from model import GPT
    from model.layers import GeluMLP
    from store.checkpoint import TrainState
    from training.distributed import Ranks
    from training.optimizer import Optimizer
    from training.precision import training_precision
    from training.trainer import Trainer

    keep_freed_memory()
    shape, batch_size, is_fast = task[:3]
    config = harness.configure(
        shape,
        *("trainer.max_steps=1_000_000_000", "trainer.log_every=1_000_000"),
        *("trainer.eval_every=0", "trainer.checkpoint_every=0"),
        *(f"trainer.batch_size={batch_size}", f"trainer.device={device}"),
        *(f"trainer.precision={'bf16' if is_fast else 'fp32'}", f"trainer.compile={is_fast}"),
        *settings,
    )
    model = GPT(config.model, shape.vocab_size).to(device)
    for module in model.modules():
        if isinstance(module, GeluMLP):
            module.activation = gelu
    state, ranks = TrainState(), Ranks(torch.device(device))
    with tempfile.TemporaryDirectory() as folder:
        precision = training_precision(config.trainer.precision, model, state, folder, ranks)
    optimizer = Optimizer(model, config.optimizer, config.trainer.max_steps, precision.fast)
    batches = Batches(tokens, batch_size, shape.context_length, seed=0)
    trainer = Trainer(
        config.trainer, model, optimizer, batches, state, seed=0, ranks=ranks, precision=precision
    )
    return lambda: trainer.step(*batches(trainer.state.step))


def peer_step(task: Task, tokens: np.ndarray, device: str, checkout: Path) -> Callable[[], object]:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True  # as nanoGPT does
    shape, batch_size, is_fast = task[:3]
    length = shape.context_length
    peer = harness.nanogpt(checkout, shape).to(device)
    optimizer = peer.configure_optimizers(0.1, 1e-3, (0.9, 0.99), device)
    model: Any = torch.compile(peer) if is_fast else peer
    autocast = torch.autocast(device, torch.bfloat16, enabled=is_fast)

    def gather(starts: Any, shift: int) -> Any:
        rows = [tokens[start + shift : start + shift + length] for start in starts]
        batch = torch.stack([torch.from_numpy(row.astype(np.int64)) for row in rows])
        return batch.pin_memory().to(device, non_blocking=True) if device == "cuda" else batch

    def read_batch() -> list[Any]:
        starts = torch.randint(len(tokens) - length, (batch_size,))
        return [gather(starts, 0), gather(starts, 1)]

    ready = read_batch()

    def step() -> float:
        nonlocal ready
        with autocast:
            _, loss = model(*ready)
        ready = read_batch()  # while a GPU computes
        loss.backward()
        if not is_fast:  # bench.py does not clip
            torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


if __name__ == "__main__":
    main()
