"""Ask runs on tales which parts know whose name comes next: the figures of docs/circuit.md.

python docs/circuit.py RUN [RUN ...]
"""

from __future__ import annotations

import argparse
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from common.errors import UserError  # noqa: E402
from data.batches import UNSCORED  # noqa: E402
from data.roles import AGAIN, ROLES, TaleRoles, tale_roles  # noqa: E402
from inference.opening import OpenRun, open_run  # noqa: E402
from launch.mistakes import one_line_errors  # noqa: E402
from model import Circuit, circuit  # noqa: E402
from model.circuit import part_name  # noqa: E402
from model.hooks import Part  # noqa: E402

N_TALES, N_NAMES = 64, 64
ENOUGH = 0.9  # of the probability with all parts


def main(path: str) -> None:
    opened = open_run(path, "last")
    corpus, _ = opened.text()
    tales = tale_roles(corpus, opened.tokenizer, N_TALES, opened.config.model.context_length)
    if tales is None:
        raise UserError(f"run: {path} was not trained on tales; give one that was")
    print(path)
    found = names_circuits(opened, tales)
    sizes = sorted(len(enough(each)[0]) for each in found)
    low, median, high = (sizes[len(sizes) * quarter // 4] for quarter in (1, 2, 3))
    print(f"  of each place alone, {low} to {high} parts are enough, {median} in the median")
    print_circuit(Circuit(found[0].parts, torch.stack([each.values for each in found]).mean(0), 0))
    print_unknown(opened, tales)


def names_circuits(opened: OpenRun, tales: TaleRoles) -> list[Circuit]:
    """The circuits of the first token of a name that occurs again, at `N_NAMES` places."""
    model, means = opened.model, opened.means()
    places = np.argwhere(tales.roles == AGAIN)
    return [
        circuit(
            model,
            torch.from_numpy(tales.inputs[tale, : place + 1]),
            means,
            int(tales.targets[tale, place]),
        )
        for tale, place in places[np.linspace(0, len(places) - 1, N_NAMES).astype(int)]
    ]


def enough(found: Circuit) -> tuple[tuple[Part, ...], float]:
    """The smallest set of parts that gives `ENOUGH` of the probability."""
    return next(each for each in found.best() if each[1] >= ENOUGH * found.values[-1])


def print_circuit(found: Circuit) -> None:
    """Of the mean over all places."""
    print(f"  with all parts {found.values[-1]:.3f}, with none {found.values[0]:.3f}")
    for on, value in found.best()[1 : len(enough(found)[0]) + 1]:
        print(f"  {len(on)} parts: {value:.3f}  {', '.join(map(part_name, on))}")
    shapley, alone = found.shapley(), found.alone()
    for i in shapley.argsort(descending=True).tolist():
        print(f"  {found.names[i]:7} Shapley {shapley[i]:6.3f}   left out alone {alone[i]:6.3f}")
    pairs = found.interactions()
    ranked = sorted(combinations(range(len(pairs)), 2), key=lambda pair: float(pairs[pair]))
    for text, some in (("stand in", ranked[:3]), ("need", ranked[:-4:-1])):
        for i, j in some:
            print(f"  {text}: {found.names[i]} and {found.names[j]} {pairs[i, j]:.3f}")


@torch.no_grad()
def print_unknown(opened: OpenRun, tales: TaleRoles) -> None:
    """By role, the loss of a token above its floor, in bits."""
    targets = torch.from_numpy(tales.targets)
    logits = opened.model(torch.from_numpy(tales.inputs))
    losses = F.cross_entropy(logits.mT, targets, reduction="none", ignore_index=UNSCORED).numpy()
    avoidable = losses / np.log(2) - tales.floor
    scored = tales.targets >= 0
    print(f"  avoidable, of all {avoidable[scored].mean():.4f} bits per token, of it")
    for role, name in enumerate(ROLES):
        of_role = avoidable[tales.roles == role]
        part = of_role.sum() / scored.sum()
        each = of_role.sum() / max(1, len(of_role))
        print(f"    {name:24} {part:.4f}; {each:.4f} of each of {len(of_role):,}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="RUN")
    given = parser.parse_args()
    with one_line_errors():
        for run in given.runs:
            main(run)
