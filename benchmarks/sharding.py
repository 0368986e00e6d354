"""What a rank of a sharded model needs in memory to load and save, and how far losses are apart.

Each rank loads a checkpoint of about 1.5 GB, model and AdamW, that another number of ranks wrote,
and saves it again. Peaks are above the memory of the process after `import torch`. Linux only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import ROOT, make_parser

if TYPE_CHECKING:
    from model import ModelConfig

MODEL = ("model=gpt2", "tokenizer=byte", "optimizer=adamw", "trainer.parallel=fsdp")
VOCABULARY = 50_257
CURVES = (
    *(
        "trainer.max_steps=20",
        "trainer.batch_size=8",
        "trainer.log_every=1",
        "trainer.eval_every=0",
    ),
    *("trainer.precision=fp32", "observe.attention.every=0", "observe.tensorboard=false"),
    *("optimizer=adamw", "optimizer.lr=1e-2", "optimizer.warmup_steps=0", "seed=1"),
)


def main() -> None:
    make_parser(__doc__ or "", rounds=1).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        memory(folder)
        curves(folder)


def torchrun(folder: Path, ranks: int, *arguments: str, nodes: int = 1) -> None:
    """Run a script on ranks, which must succeed."""
    meet = ("--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:29476", "--rdzv_id=1")
    command = (sys.executable, "-m", "torch.distributed.run", *meet, f"--nnodes={nodes}")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    agents = [
        subprocess.Popen(
            [*command, f"--nproc_per_node={ranks // nodes}", *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(nodes)
    ]
    assert {agent.wait() for agent in agents} == {0}, arguments


def memory(folder: Path) -> None:
    source = ""
    for ranks in (1, 2, 4):
        for kind in ("new", "saved", "background"):
            target, start = f"{ranks}-ranks-{kind}", "" if kind == "new" else source
            torchrun(folder, ranks, __file__, "--rank", start, target, kind)
            found = [json.loads((folder / target / str(rank)).read_text()) for rank in range(ranks)]
            most = {key: max(each[key] for each in found) for key in found[0]}
            state, allowed = most["state"], most["state"] / ranks + most["layer"] + 200e6
            print(
                f"{ranks} ranks, {kind}: state {state / 1e6:.0f} MB, allowed "
                f"{allowed / 1e6:.0f} MB, begin ({start or 'new'}) {most['load'] / 1e6:.0f} MB, "
                f"loaded {most['loaded'] / 1e6:.0f} MB, save {most['save'] / 1e6:.0f} MB",
                flush=True,
            )
            source = target


def rank(source: str, target: str, kind: str) -> None:
    """Load the checkpoint in `source`, or make one, and save it in `target`."""
    import openmp  # noqa: F401  # isort: skip
    import torch

    idle = _memory("VmRSS")
    import gc

    from hydra import compose, initialize_config_dir

    from configs.schema import TrainConfig, build, register
    from data.tokenizer import fixed_tokenizer
    from train import build_model
    from training.checkpoint import Checkpoints
    from training.device import keep_freed_memory
    from training.optimizer import Optimizer
    from training.progress import Progress
    from training.ranks import join_ranks
    from training.weights import load_optimizer

    register()
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        config = build(compose("train", [*MODEL]), TrainConfig)
    tokenizer = fixed_tokenizer("byte", vocab_size=VOCABULARY)
    keep_freed_memory()
    with join_ranks(torch.device("cpu")) as ranks:
        checkpoint = Checkpoints(Path(source)).find("last", "source") if source else None
        model, _ = build_model(config, tokenizer, checkpoint, ranks)
        optimizer = Optimizer(model, config.optimizer, 10)
        if checkpoint:
            load_optimizer(optimizer, checkpoint)
        else:
            for each in optimizer.state_tensors().values():
                each.fill_(1e-3)
        gc.collect()
        result = {"load": _memory("VmHWM") - idle, "loaded": _memory("VmRSS") - idle}
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak
        folder = Checkpoints(Path(target))
        in_background = kind == "background"
        folder.save(
            model,
            optimizer,
            Progress(step=1),
            is_best=True,
            keep=1,
            writes=ranks.is_main,
            in_background=in_background,
        ).result()
        result["save"] = _memory("VmHWM") - idle
        result |= _sizes(config.model)
        (Path(target) / str(ranks.rank)).write_text(json.dumps(result))


def _sizes(config: ModelConfig) -> dict[str, int]:
    """The bytes of the largest layer, and of the weights and the state of AdamW."""
    import torch

    from model import GPT

    with torch.device("meta"):
        full = GPT(config, VOCABULARY)
    blocks = [sum(each.nbytes for each in block.parameters()) for block in full.blocks]
    return {
        "layer": max(*blocks, full.token_embedding.weight.nbytes),
        "state": 3 * sum(each.nbytes for each in full.parameters()),
    }


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name))) * 1024


def curves(folder: Path) -> None:
    """The losses of 20 steps, against those of one rank."""
    runs = {"1 rank": (1, 1, "ddp")}
    runs |= {f"{n} ranks, {each}": (n, 1, each) for each in ("ddp", "fsdp") for n in (2, 4)}
    runs["2 x 2 ranks, hsdp"] = (4, 2, "hsdp")
    found = {}
    for name, (ranks, nodes, parallel) in runs.items():
        run = f"{ranks}-{parallel}"
        how = (f"trainer.parallel={parallel}", f"run_dir={run}")
        torchrun(folder, ranks, str(ROOT / "train.py"), *CURVES, *how, nodes=nodes)
        lines = (folder / run / "metrics.jsonl").read_text().splitlines()
        found[name] = [each["train_loss"] for each in map(json.loads, lines) if "lr" in each]
    alone = found["1 rank"]
    for name, losses in found.items():
        difference = max(abs(one - other) for one, other in zip(losses, alone, strict=True))
        print(f"{name}: {losses[0]:.6f} to {losses[-1]:.6f}, largest difference {difference:.1e}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank(*sys.argv[2:])
    else:
        main()
