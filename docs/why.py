"""Ask runs on tales how they know which name comes next: the figures of docs/why.md.

python docs/why.py RUN [RUN ...]
python docs/why.py RUN --without L1H0 --step 50

The second trains the run again, from its checkpoint of that step on, without that head.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from common.errors import UserError  # noqa: E402
from common.settings import build  # noqa: E402
from data.corpora import load_dataset  # noqa: E402
from data.roles import AGAIN, TaleRoles, tale_roles  # noqa: E402
from inference.opening import OpenRun, each_checkpoint, open_run  # noqa: E402
from launch.mistakes import one_line_errors  # noqa: E402
from launch.schema import TrainConfig  # noqa: E402
from model import GPT, ablate, cross_entropy, mean_outputs, record_attention, wiring  # noqa: E402
from model.circuit import part_name as name  # noqa: E402
from model.explain import WAYS  # noqa: E402
from model.hooks import Part  # noqa: E402
from store.checkpoint import load_state  # noqa: E402
from store.settings import read_settings  # noqa: E402
from store.weights import load_weights  # noqa: E402
from training.config import training_data  # noqa: E402
from training.distributed import Ranks  # noqa: E402
from training.evaluation import Evaluation  # noqa: E402
from training.optimizer import Optimizer, load_optimizer  # noqa: E402
from training.precision import training_precision  # noqa: E402
from training.trainer import Trainer  # noqa: E402

N_TALES = 32
N_MEAN = 16  # batches of training text, over which the mean of a head is taken
Head = tuple[int, int]


class Names(NamedTuple):
    """Validation tales, and the tokens after which a name comes that they had before."""

    tales: TaleRoles
    before: np.ndarray  # (tale, token)

    @property
    def tokens(self) -> torch.Tensor:
        return torch.from_numpy(self.tales.inputs)

    def means(self, model: GPT) -> dict[Part, torch.Tensor]:
        """What replaces a part that is off: its mean over all tokens of the tales."""
        return mean_outputs(model, [(self.tokens, torch.from_numpy(self.tales.targets))])


def main(paths: Iterable[Path]) -> None:
    for path in paths:
        opened = open_run(path, "last")
        names = find_names(opened)
        print(f"{opened.run.path}, step {opened.step}")
        head = which(opened.model, names)
        what_feeds(opened.model, names, head)
        when(opened, names, head)
        print()


def train_without(path: Path, step: int, heads: Sequence[Head]) -> GPT:
    """Train a run again, from its checkpoint of a step on, with the output of some heads replaced
    by its mean over the next batches, as that checkpoint computes it. Print what the model then
    costs and does; return it."""
    opened = open_run(path, "last")
    model, names = opened.model, find_names(opened)
    if missing := [name(head) for head in heads if head not in name_copies(model, names)]:
        sys.exit(f"--without: {path} has no head {missing[0]}")
    config = build(TrainConfig, read_settings(opened.run.newest_settings_file))
    length = config.model.context_length
    _, dataset = load_dataset(
        config.data, opened.tokenizer, ".cache", length, trusted=False, say=print
    )
    data = training_data(dataset, config.trainer, config.model.context_length, config.seed)
    checkpoint = opened.run.checkpoints.folder / f"step-{step:06d}"
    state, ranks = load_state(checkpoint), Ranks()
    precision = training_precision(config.trainer.precision, model, state, ".cache", ranks)
    optimizer = Optimizer(model, config.optimizer, config.trainer.max_steps, precision.fast)
    load_weights(model, checkpoint)
    load_optimizer(optimizer, checkpoint)
    means = mean_outputs(model, (data.batches(step + i) for i in range(N_MEAN)))
    trainer = Trainer(
        replace(config.trainer, eval_every=0),
        model.train(),
        optimizer,
        data.batches,
        state,
        config.seed,
        ranks,
        callbacks=[Evaluation(data.validation, data.final_validation, data.token_bytes)],
        precision=precision,
    )
    with ablate(model, heads, means):
        summary = trainer.fit()
        assert summary
        print(f"{opened.run.path}, from step {step} on without {', '.join(map(name, heads))}")
        print(f"  at the end {summary.val_bpb:.4f} bits per byte")
        which(model.eval(), names)
    return model


def find_names(opened: OpenRun) -> Names:
    corpus, _ = opened.text()
    tales = tale_roles(corpus, opened.tokenizer, N_TALES, opened.config.model.context_length)
    if tales is None:
        raise UserError(f"run: {opened.run.path} has no tales with a floor; give one that has")
    return Names(tales, tales.roles == AGAIN)


def which(model: GPT, names: Names) -> Head:
    """Print what heads do for the names, and return the one that they need most."""
    bits, copied = name_bits(model, names), name_copies(model, names)
    floor = names.tales.floor[names.before].mean()
    print(
        f"  a name that occurs again costs {bits:.2f} bits (floor {floor:.2f}), in the mean of "
        f"{names.before.sum():,}"
    )
    without, means = {}, names.means(model)
    for head in copied:
        with ablate(model, [head], means):
            without[head] = name_bits(model, names)
    for head in sorted(without, key=lambda head: -without[head])[:3]:
        print(
            f"  without {name(head)} {without[head]:.2f} bits; it attends to earlier mentions of "
            f"the name with {copied[head]:.0%}"
        )
    first, second, *_ = sorted(without, key=lambda head: -without[head])
    with ablate(model, [first, second], means):
        print(f"  without {name(first)} and {name(second)} {name_bits(model, names):.2f} bits")
    return first


def what_feeds(model: GPT, names: Names, head: Head) -> None:
    """Print what the head reads, and how much it still copies without each earlier part."""
    layer, index = head
    found = [
        wiring(model, tokens, torch.from_numpy(before))[layer]
        for tokens, before in zip(names.tokens, names.before, strict=True)
        if before.any()
    ]
    parts = list(found[0])
    shares = torch.stack(
        [torch.stack([of_text[part][:, index] for part in parts]) for of_text in found]
    )
    mean, means = shares.nanmean(0), names.means(model)  # (part, way); by part
    for way, column in zip(WAYS, mean.T, strict=True):
        order = column.argsort(descending=True)[:3].tolist()
        read = ", ".join(f"{parts[i]} {column[i]:.0%}" for i in order)
        print(f"  its {'queries' if way == 'query' else way + 's'} read {read}")
    for part in parts:
        if part in ("embedding", "position", "biases"):
            continue
        heads, mlps = ([], [int(part[1:-4])]) if part.endswith("MLP") else ([read_head(part)], [])
        with ablate(model, heads, means, mlps):
            print(f"  without {part} it attends to them with {name_copies(model, names)[head]:.0%}")


def when(opened: OpenRun, names: Names, head: Head) -> None:
    """Print when the head formed, at the checkpoints that the run kept, and when the names were
    learned, as far as the run has logged it."""
    copied = {each.step: name_copies(each.model, names)[head] for each in each_checkpoint(opened)}
    formed = ", ".join(f"{share:.0%} at {step}" for step, share in copied.items())
    print(f"  its attention on them: {formed}")
    lines = map(json.loads, (opened.run.path / "metrics.jsonl").read_text().splitlines())
    tag = "roles/names again"
    excess = {line["step"]: line[tag] for line in lines if tag in line}
    shown = [step for step in excess if step in (100, 200, 300, 400, 600, 1000, max(excess))]
    learned = ", ".join(f"{excess[step]:.1f} at {step}" for step in shown)
    print(f"  {tag}, in bits per tale: {learned}")
    result = json.loads(opened.run.summary_file.read_text())
    above = result["val_bpb"] / result["floor_bpb"] - 1
    print(f"  at the end {result['val_bpb']:.4f} bits per byte, {above:.1%} above the floor")


@torch.no_grad()
def name_bits(model: GPT, names: Names) -> float:
    """The mean loss of a name that occurs again, in bits."""
    before = torch.from_numpy(names.before)
    targets = torch.from_numpy(names.tales.targets)[before]
    return float(cross_entropy(model(names.tokens)[before], targets)) / math.log(2)


@torch.no_grad()
def name_copies(model: GPT, names: Names) -> dict[Head, float]:
    """Of each head, the mean attention on earlier tokens that are the next one, where a name comes
    again."""
    with record_attention(model) as maps:
        model.hidden(names.tokens)
    targets = torch.from_numpy(names.tales.targets)
    same = names.tokens[:, None] == targets[..., None]  # (tale, query, key)
    before = torch.from_numpy(names.before)
    found: dict[Head, float] = {}
    for layer, weights in enumerate(maps):
        copied = (weights * same[:, None]).sum(-1).transpose(1, 2)[before]  # (name, head)
        found |= {(layer, head): share for head, share in enumerate(copied.mean(0).tolist())}
    return found


def read_head(text: str) -> Head:
    if not (match := re.fullmatch(r"L(\d+)H(\d+)", text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a head, such as L1H0")
    return int(match[1]), int(match[2])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How runs on tales know which name comes next.")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--without", type=read_head, help="a head: train the run without it")
    parser.add_argument("--step", type=int, help="the checkpoint from which it is trained")
    given = parser.parse_args()
    if (given.without is None) != (given.step is None):
        parser.error("--without and --step: give both, or neither")
    with one_line_errors():
        if given.without is None:
            main(given.runs)
        else:
            for run in given.runs:
                train_without(run, given.step, [given.without])
