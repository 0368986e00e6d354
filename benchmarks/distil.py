"""The lowest loss on tiny Shakespeare: two models are trained, and a wider one learns from both.

    python benchmarks/distil.py --shakespeare input.txt --rounds 3

Knowledge distillation (Hinton et al. 2015, "Distilling the Knowledge in a Neural Network", section
2, at temperature 1): the student's loss is the cross-entropy with the text plus the cross-entropy
with the mean of the teachers' probabilities. A small text is read many times, and a teacher says
more about a token than the one that followed it.

In each round, the teachers are runs of train.py with the seeds S and S + 100. The student has the
seed S, and takes the steps of train.py with another loss. Prints the validation loss of all three.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import common.startup  # noqa: F401  # isort: skip
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks import harness
from common.device import choose_device, keep_freed_memory
from data.corpora import load_dataset
from inference.opening import open_run
from model import GPT
from store.checkpoint import TrainState
from training.config import training_data
from training.distributed import Ranks
from training.evaluation import Evaluation
from training.optimizer import Optimizer
from training.precision import training_precision
from training.trainer import Loss, Trainer

FIRST_SEED = 64
TEACHER = (
    *("experiment=shakespeare_best", "model.n_layers=6", "model.context_length=256"),
    *("model.dropout=0.15", "optimizer.lr=8e-3", "optimizer.weight_decay=0.3"),
    *("optimizer.momentum=0.95", "optimizer.adamw_lr=2e-2"),
    *("trainer.max_steps=4000", "trainer.batch_size=4"),
)
STUDENT = (
    *(*TEACHER, "model.n_heads=6", "model.d_model=192", "model.dropout=0.05"),
    "trainer.max_steps=8000",
)


def main() -> None:
    parser = harness.make_parser(__doc__, 1, "shakespeare", "settings")
    arguments = parser.parse_args()
    text = f"data.path={arguments.shakespeare.resolve()}"
    print(f"{platform.platform()}, {torch.get_num_threads()} threads", flush=True)
    for seed in range(FIRST_SEED, FIRST_SEED + arguments.rounds):
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            shared = (text, f"cache_dir={folder}/cache", *arguments.settings)
            teachers = [Path(folder, str(number)) for number in (seed, seed + 100)]
            for run in teachers:
                how = (*TEACHER, *shared, f"seed={run.name}", f"run_dir={run}")
                harness.run([*harness.TRAIN, *how, "optimizer.warmup_steps=100"], Path(folder))
                bpb = json.loads((run / "summary.json").read_text())["val_bpb"]
                print(f"teacher, seed {run.name}: {bpb:.4f} bpb", flush=True)
            bpb = train_student(teachers, *STUDENT, *shared, f"seed={seed}")
        seconds = time.perf_counter() - began
        print(f"student, seed {seed}: {bpb:.4f} bpb, with its teachers {seconds:.0f} s", flush=True)


def train_student(teachers: list[Path], *settings: str) -> float:
    """The validation loss in bits per byte of a model that learns from the runs `teachers`."""
    keep_freed_memory()
    config = harness.compose(*settings)
    ranks = Ranks(choose_device(config.trainer.device))
    opened = [open_run(run, "last", ranks.device) for run in teachers]
    length = config.model.context_length
    _, dataset = load_dataset(config.data, opened[0].tokenizer, config.cache_dir, length)
    torch.manual_seed(config.seed)
    model = GPT(config.model, dataset.tokenizer.vocab_size).to(ranks.device)
    data, state = (
        training_data(dataset, config.trainer, config.model.context_length, config.seed),
        TrainState(),
    )
    precision = training_precision(config.trainer.precision, model, state, config.cache_dir, ranks)
    trainer = Trainer(
        config.trainer,
        model,
        Optimizer(model, config.optimizer, config.trainer.max_steps, precision.fast),
        data.batches,
        state,
        config.seed,
        ranks,
        [Evaluation(data.validation, data.final_validation, data.token_bytes)],
        distillation([teacher.model for teacher in opened]),
        precision,
    )
    summary = trainer.fit()
    assert summary is not None
    return summary.val_bpb


def distillation(teachers: list[GPT]) -> Loss:
    """The loss of a student: a function of a model, inputs and targets."""

    def loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        with torch.no_grad():
            predicted = [teacher(inputs).float().softmax(-1) for teacher in teachers]
        logits, soft = model(inputs).flatten(0, 1).float(), torch.stack(predicted).mean(0)
        scored = targets.flatten() != -100
        losses = cross_entropy(logits, soft.flatten(0, 1), reduction="none")
        return cross_entropy(logits, targets.flatten(), reduction="sum") + losses[scored].sum()

    return loss


if __name__ == "__main__":
    main()
