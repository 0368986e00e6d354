"""Which parts of a model carry the next token of a text, as tables in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import combinations

from jaxtyping import Float, Int
from rich.console import Console
from rich.table import Table
from torch import Tensor

from common.errors import UserError, printable
from data.tokenizer import Tokenizer
from inference.opening import OpenRun
from model import Circuit, circuit
from model.circuit import MAX_PARTS, By, part_name, parts_of
from model.hooks import Part

N_PAIRS = 3  # of each kind


def target_id(tokenizer: Tokenizer, target: str | None) -> int | None:
    """The id of a token given as text. Raises UserError for a text that is not one token."""
    if target is None:
        return None
    ids = tokenizer.encode(target)
    if len(ids) != 1:
        first = printable(repr(tokenizer.decode(ids[:1])))
        raise UserError(
            f"target: {printable(repr(target))} is {len(ids)} tokens; give one, such as {first}"
        )
    return ids[0]


def print_answer(
    opened: OpenRun,
    tokens: Int[Tensor, " token"],
    target: int | None,
    by: By,
    what: str,
) -> None:
    """Print the circuit of the token `target` after these, by default of the most probable one; of
    a model with many parts, that of the parts that matter most when left out alone. what: `by` in
    words. Raises ValueError as `circuit` does."""
    n_parts = len(parts_of(opened.model))
    if n_parts > MAX_PARTS:
        print(
            f"note: {n_parts} parts have 2^{n_parts} subsets; the {MAX_PARTS} that matter most "
            "when left out alone are switched, and the others stay on",
            file=sys.stderr,
        )
    parts = MAX_PARTS if n_parts > MAX_PARTS else None
    found = circuit(opened.model, tokens, by, target, parts=parts)
    token = printable(repr(opened.tokenizer.decode([found.target])))
    print(
        f"Next {token}: {found.values[-1]:.1%} with all {len(found.parts)} parts, "
        f"{found.values[0]:.1%} with none (each replaced by {what})"
    )
    console = Console(highlight=False)
    console.print(_best(found), _parts(found))
    for text, rows in _pairs(found).items():
        if rows:
            print(f"{text}: {', '.join(rows)}")


def _best(found: Circuit) -> Table:
    table = Table("parts", "best set", title="The smallest part that answers", title_justify="left")
    table.add_column("probability", justify="right")
    for on, value in found.best():
        table.add_row(str(len(on)), set_name(on, found.parts), f"{value:.1%}")
    return table


def set_name(on: Sequence[Part], parts: Sequence[Part]) -> str:
    """Some parts of all, in few words."""
    off = [part for part in parts if part not in on]
    if len(off) < len(on):
        return f"all but {', '.join(map(part_name, off))}" if off else "all"
    return ", ".join(map(part_name, on)) or "none"


def _parts(found: Circuit) -> Table:
    """The largest Shapley value first."""
    table = Table("part", title="What each part adds", title_justify="left")
    table.add_column("Shapley value", justify="right")
    table.add_column("left out alone", justify="right")
    shapley, alone = found.shapley(), found.alone()
    for i in shapley.argsort(descending=True).tolist():
        table.add_row(found.names[i], f"{shapley[i]:+.1%}", f"{alone[i]:+.1%}")
    table.add_section()
    table.add_row("sum", f"{shapley.sum():+.1%}", "")
    return table


def _pairs(found: Circuit) -> dict[str, list[str]]:
    """The pairs that do most for each other, and those that stand in for each other."""
    pairs: Float[Tensor, "part part"] = found.interactions()
    ranked = sorted(combinations(range(len(pairs)), 2), key=lambda pair: float(pairs[pair]))
    said = [f"{found.names[i]} and {found.names[j]} {pairs[i, j]:+.1%}" for i, j in ranked]
    n_below = sum(float(pairs[pair]) < 0 for pair in ranked)
    return {
        "Need each other": said[n_below:][::-1][:N_PAIRS],
        "Stand in for each other": said[:n_below][:N_PAIRS],
    }
