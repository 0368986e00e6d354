"""What look.py prints of a text: which parts of the model carry its next token, and what the model
says of each token beside what can be known."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import torch
from jaxtyping import Float
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column, Table
from torch import Tensor

from common.errors import UserError, as_mistake, print_note, printable, token_label
from data.cache import CacheError
from data.tokenizer import Tokenizer
from inference.opening import OpenRun
from model import Circuit, circuit
from model.circuit import MAX_PARTS, By, part_name, parts_of
from model.hooks import Part

WIDTH = 112
N_PAIRS = 3  # of each kind
MAX_SAID, MIN_SAID = 3, 0.005  # of what can come next: how many tokens, and with what probability


def print_circuit(
    opened: OpenRun, text: str, start: str, target: str | None, cache_dir: str | Path
) -> None:
    """Print the circuit of the token `target` after a text, by default of the most probable one; of
    a model with many parts, that of the parts that matter most when left out alone. Raises
    UserError for what has none."""
    by: By
    try:
        by, what = opened.means(cache_dir), "its mean over validation text"
    except CacheError:
        raise
    except UserError as error:
        print_note(f"note: parts that are off give zeros: {error}")
        by, what = "zero", "zeros"
    n_parts, parts = len(parts_of(opened.model)), None
    if n_parts > MAX_PARTS:
        parts = MAX_PARTS
        print_note(
            f"note: {n_parts} parts have 2^{n_parts} subsets; the {parts} that matter most "
            "when left out alone are switched, and the others stay on"
        )
    with as_mistake():
        wanted, tokens = _one_token(opened.tokenizer, target), opened.tokens(text, start)
        found = circuit(opened.model, tokens, by, wanted, parts=parts)
    token = printable(repr(opened.tokenizer.decode([found.target])))
    print(
        f"Next {token}: {percent(found.values[-1])} with all {len(found.parts)} parts, "
        f"{percent(found.values[0])} with none (each replaced by {what})"
    )
    print_tables(found)


def print_tables(found: Circuit) -> None:
    """Print what a circuit has: the best sets, what each part adds, and pairs of parts."""
    Console(highlight=False).print(_best(found), _parts(found))
    for kind, rows in _pairs(found).items():
        if rows:
            print(f"{kind}: {', '.join(rows)}")


def _one_token(tokenizer: Tokenizer, target: str | None) -> int | None:
    """The id of a token that is given as text."""
    if target is None:
        return None
    ids = tokenizer.encode(target)
    if len(ids) != 1:
        said = f"target: {target!r} is {len(ids)} tokens; give one, perhaps after a space"
        raise ValueError(printable(said))
    return ids[0]


def _best(found: Circuit) -> Table:
    table = Table("parts", "best set", title="The smallest part that answers", title_justify="left")
    table.add_column("probability", justify="right")
    for on, value in found.best():
        table.add_row(str(len(on)), set_name(on, found.parts), percent(value))
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
        table.add_row(found.names[i], signed(shapley[i]), signed(alone[i]))
    table.add_section()
    table.add_row("sum", signed(shapley.sum()), "")
    return table


def _pairs(found: Circuit) -> dict[str, list[str]]:
    """The pairs that do most for each other, and those that stand in for each other."""
    pairs: Float[Tensor, "part part"] = found.interactions()
    ranked = sorted(combinations(range(len(pairs)), 2), key=lambda pair: float(pairs[pair]))
    said = [f"{found.names[i]} and {found.names[j]} {signed(pairs[i, j])}" for i, j in ranked]
    n_below = sum(float(pairs[pair]) < 0 for pair in ranked)
    return {
        "Need each other": said[n_below:][::-1][:N_PAIRS],
        "Stand in for each other": said[:n_below][:N_PAIRS],
    }


def print_reader(opened: OpenRun, text: str, start: str) -> None:
    """Print what the model says of every token of a text, beside what can be known of it. Raises
    UserError if nothing is, and for a text that the model cannot read."""
    with as_mistake():
        reading = opened.read(text, start)
    floor, ids, tokenizer = reading.floor, reading.tokens.tolist(), opened.tokenizer
    begun = len(ids) - len(tokenizer.encode(text))  # tokens before those of the text
    known = torch.from_numpy(floor.nats)
    if not known[begun:].isfinite().any():
        raise UserError(f"{floor.unknown}; leave out reader=true")
    if not reading.logits.isfinite().all():
        raise UserError("run: its logits are not finite; give another checkpoint or run")
    logs = reading.logits.cpu().double().log_softmax(-1)
    first = torch.tensor([math.nan])  # nothing says the first token
    losses = torch.cat([first, -logs[:-1].gather(1, reading.tokens[1:, None].cpu())[:, 0]])
    names = ("model", "can be known", "avoidable")
    columns = [Column(name, justify="right") for name in names]
    said = (Column(f"next: {name}", overflow="fold") for name in ("the model", "a perfect reader"))
    table = Table("token", *columns, *said, box=SIMPLE)
    for place in range(begun, len(ids)):
        best = logs[place].exp().topk(min(MAX_SAID, logs.shape[1]))
        chances = dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        table.add_row(
            token_label(tokenizer.decode_bytes(ids[place : place + 1])),
            *(_or_unknown(values[place].neg().exp(), percent) for values in (losses, known)),
            _or_unknown(losses[place] - known[place], lambda nats: signed(nats, "+.3f")),
            _likeliest(tokenizer, chances),
            _likeliest(tokenizer, floor.next_tokens[place]),
        )
    Console(width=WIDTH, highlight=False, markup=False).print(table)
    of_both = losses.isfinite() & known.isfinite() & (torch.arange(len(ids)) >= begun)
    if of_both.any():
        loss, least = (float(values[of_both].mean()) for values in (losses, known))
        print(f"loss {loss:.4f} nats per token, floor {least:.4f}, avoidable {loss - least:+.4f}")
    if floor.unknown:
        print_note(f"note: {floor.unknown}")


def _or_unknown(value: Tensor, written: Callable[[float], str]) -> str:
    return "?" if value.isnan() else written(float(value))


def percent(share: float | Tensor) -> str:
    """As the live page says it: what is not 0 is not said to be."""
    return "<0.1%" if 0 < share < 5e-4 else f"{share:.1%}"


def signed(value: float | Tensor, form: str = "+.1%") -> str:
    """A number with its sign, which is + for one that rounds to 0."""
    text = f"{value:{form}}"
    return text if re.search("[1-9]", text) else text.replace("-", "+")


def _likeliest(tokenizer: Tokenizer, chances: Mapping[int, float]) -> str:
    """The most probable tokens, without those that have hardly a chance."""
    ranked = sorted(chances, key=lambda id: -chances[id])[:MAX_SAID]
    return "  ".join(
        f"{token_label(tokenizer.decode_bytes([id]))} {chances[id]:.0%}"
        for id in ranked
        if chances[id] >= MIN_SAID
    )
