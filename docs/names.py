"""Ask runs on tales how they know which name comes next: the figures of docs/why.md and
docs/circuit.md.

python docs/names.py RUN [RUN ...]
python docs/names.py RUN --without L1H0 --step 50

The second trains the run again, from its checkpoint of that step on, without that part.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from common.errors import UserError  # noqa: E402
from common.settings import build  # noqa: E402
from data.batches import UNSCORED  # noqa: E402
from data.corpora import load_dataset  # noqa: E402
from data.roles import AGAIN, ROLES, TaleRoles, tale_roles  # noqa: E402
from inference.opening import OpenRun, each_checkpoint, open_run  # noqa: E402
from inference.tables import print_tables  # noqa: E402
from launch.mistakes import one_line_errors  # noqa: E402
from launch.schema import TrainConfig  # noqa: E402
from model import GPT, Circuit, circuit, mean_outputs, patch, record_attention, wiring  # noqa: E402
from model.circuit import part_name as name  # noqa: E402
from model.circuit import parts_of  # noqa: E402
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

N_TALES = {"why.md": 32, "circuit.md": 64}
N_PLACES = 64  # where a circuit is computed
N_MEAN = 16  # batches of training text, over which the mean of a part is taken
ENOUGH = 0.9  # of the probability with all parts
Head = tuple[int, int]


class Names(NamedTuple):
    """Validation tales, and the tokens after which a name comes that they had before."""

    tales: TaleRoles
    before: np.ndarray  # (tale, token)

    @property
    def tokens(self) -> torch.Tensor:
        return torch.from_numpy(self.tales.inputs)

    @property
    def targets(self) -> torch.Tensor:
        return torch.from_numpy(self.tales.targets)

    def means(self, model: GPT) -> dict[Part, torch.Tensor]:
        """What replaces a part that is off: its mean over all tokens of the tales."""
        return mean_outputs(model, [(self.tokens, self.targets)])


def find_names(opened: OpenRun, page: str) -> Names:
    """Those that a page of the docs is about."""
    corpus, _ = opened.text()
    length = opened.config.model.context_length
    tales = tale_roles(corpus, opened.tokenizer, N_TALES[page], length)
    if tales is None:
        raise UserError(f"run: {opened.run.path} has no tales with a floor; give one that has")
    return Names(tales, tales.roles == AGAIN)


def main(path: Path) -> None:
    opened = open_run(path, "last")
    names = find_names(opened, "why.md")
    print(f"{opened.run.path}, step {opened.step}")
    head = which(opened.model, names)
    what_feeds(opened.model, names, head)
    copied = {each.step: name_copies(each.model, names)[head] for each in each_checkpoint(opened)}
    formed = ", ".join(f"{share:.0%} at {step}" for step, share in copied.items())
    print(f"  its attention on them: {formed}")
    names = find_names(opened, "circuit.md")
    which_parts(opened, names)
    what_is_unknown(opened.model, names)
    print()


def train_without(path: Path, step: int, parts: Sequence[str]) -> GPT:
    """Train a run again, from its checkpoint of a step on, with the output of some parts replaced
    by its mean over the next batches, as that checkpoint computes it. Print what the model then
    costs and does; return it."""
    opened = open_run(path, "last")
    model, names = opened.model, find_names(opened, "why.md")
    known = {name(part): part for part in parts_of(model)}
    if missing := {*parts} - {*known}:
        raise UserError(f"--without: {path} has no part {min(missing)}; it has {', '.join(known)}")
    config = build(TrainConfig, read_settings(opened.run.newest_settings_file))
    length = config.model.context_length
    _, dataset = load_dataset(
        config.data, opened.tokenizer, ".cache", length, trusted=False, say=print
    )
    data = training_data(dataset, config.trainer, length, config.seed)
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
    with patch(model, {known[part]: means[known[part]] for part in parts}):
        summary = trainer.fit()
        assert summary
        print(f"{opened.run.path}, from step {step} on without {', '.join(parts)}")
        print(f"  at the end {summary.val_bpb:.4f} bits per byte")
        which(model.eval(), names)
    return model


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
        with patch(model, {head: means[head]}):
            without[head] = name_bits(model, names)
    order = sorted(without, key=lambda head: -without[head])
    for head in order[:3]:
        print(
            f"  without {name(head)} {without[head]:.2f} bits; it attends to earlier mentions of "
            f"the name with {copied[head]:.0%}"
        )
    with patch(model, {head: means[head] for head in order[:2]}):
        print(f"  without {' and '.join(map(name, order[:2]))} {name_bits(model, names):.2f} bits")
    return order[0]


def what_feeds(model: GPT, names: Names, head: Head) -> None:
    """Print what the head reads, and how much it still copies without each earlier part."""
    layer, index = head
    found = [
        wiring(model, tokens, torch.from_numpy(before))[layer]
        for tokens, before in zip(names.tokens, names.before, strict=True)
        if before.any()
    ]
    writers = list(found[0])
    shares = torch.stack(
        [torch.stack([of_text[writer][:, index] for writer in writers]) for of_text in found]
    )
    mean, means = shares.nanmean(0), names.means(model)  # (writer, way); by part
    for way, column in zip(WAYS, mean.T, strict=True):
        order = column.argsort(descending=True)[:3].tolist()
        read = ", ".join(f"{writers[i]} {column[i]:.0%}" for i in order)
        print(f"  its {'queries' if way == 'query' else way + 's'} read {read}")
    for part in parts_of(model):
        if name(part) in writers:
            with patch(model, {part: means[part]}):
                copied = name_copies(model, names)[head]
            print(f"  without {name(part)} it attends to them with {copied:.0%}")


@torch.no_grad()
def name_bits(model: GPT, names: Names) -> float:
    """The mean loss of a name that occurs again, in bits."""
    before = torch.from_numpy(names.before)
    loss = F.cross_entropy(model(names.tokens)[before], names.targets[before])
    return float(loss) / math.log(2)


@torch.no_grad()
def name_copies(model: GPT, names: Names) -> dict[Head, float]:
    """Of each head, the mean attention on earlier tokens that are the next one, where a name comes
    again."""
    with record_attention(model) as maps:
        model.hidden(names.tokens)
    same = names.tokens[:, None] == names.targets[..., None]  # (tale, query, key)
    before = torch.from_numpy(names.before)
    found: dict[Head, float] = {}
    for layer, weights in enumerate(maps):
        copied = (weights * same[:, None]).sum(-1).transpose(1, 2)[before]  # (name, head)
        found |= {(layer, head): share for head, share in enumerate(copied.mean(0).tolist())}
    return found


def which_parts(opened: OpenRun, names: Names) -> None:
    """Print the circuits of the first token of a name that occurs again, at some places: how many
    parts are enough at each, and what is so in the mean over all."""
    means, places = opened.means(), np.argwhere(names.before)
    found = [
        circuit(
            opened.model, names.tokens[tale, : place + 1], means, int(names.targets[tale, place])
        )
        for tale, place in places[np.linspace(0, len(places) - 1, N_PLACES).astype(int)]
    ]
    mean = Circuit(found[0].parts, torch.stack([each.values for each in found]).mean(0), 0)
    median = sorted(map(enough, found))[N_PLACES // 2]
    print(f"  enough: at one place {median} parts in the median, at all places {enough(mean)}")
    print(f"  with all parts {mean.values[-1]:.3f}, with none {mean.values[0]:.3f}")
    print_tables(mean)


def enough(found: Circuit) -> int:
    """The smallest number of parts that gives `ENOUGH` of the probability."""
    return next(len(on) for on, value in found.best() if value >= ENOUGH * found.values[-1])


@torch.no_grad()
def what_is_unknown(model: GPT, names: Names) -> None:
    """Print by role the loss of a token above its floor, in bits."""
    tales, targets, logits = names.tales, names.targets, model(names.tokens)
    losses = F.cross_entropy(logits.mT, targets, reduction="none", ignore_index=UNSCORED).numpy()
    avoidable = losses / np.log(2) - tales.floor
    scored = tales.targets >= 0
    print(f"  avoidable, of all {avoidable[scored].mean():.4f} bits per token, of it")
    for role, title in enumerate(ROLES):
        of_role = avoidable[tales.roles == role]
        part = of_role.sum() / scored.sum()
        each = of_role.sum() / max(1, len(of_role))
        print(f"    {title:24} {part:.4f}; {each:.4f} of each of {len(of_role):,}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How runs on tales know which name comes next.")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--without", help="a head or an MLP: train the run without it")
    parser.add_argument("--step", type=int, help="the checkpoint from which it is trained")
    given = parser.parse_args()
    if (given.without is None) != (given.step is None):
        parser.error("--without and --step: give both, or neither")
    with one_line_errors():
        for run in given.runs:
            if given.without is None:
                main(run)
            else:
                train_without(run, given.step, [given.without])
