"""What every head and neuron does over many texts: `evidence.json` in the folder of the event files
of a run, if there is one.

step       of the model
n_tokens   how many tokens were scored
where      the texts, in words
windows    what was read: for each window, the number of its tokens in `ids`
ids        the windows one after another, as places in `spelled`. An "at" is a place in `ids`.
spelled    what tokens spell
heads      by name, such as "L1H3":
    role      its name with a percentage, and the name of its pattern, or ""
    says      the headline
    details   how it was measured
    interest  from 0 to 1
    shares    by pattern: the share of attention, and over how many queries
    need      the rise of the loss without the head (its output replaced by its mean over the tokens
              that were scored) in nats per token, and in each of two halves
    kinds     by kind of token, its part of the need, and in each half
    passages  [at, rise of the loss of this token in nats without the head, [[place of a token that
              was attended to, weight], ...]], the largest rise first
neurons    of each layer:
    active    the share of tokens
    passages  [at, output], the largest in size first
    raises, lowers   the tokens whose logits it raises and lowers most in the first passage
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard_attention.beside import read_beside
from tensorboard_attention.header import fits
from tensorboard_attention.naming import HeadName, Names

NAME = "evidence.json"
NUMBER = float | int
FIELDS = {
    "step": int,
    "n_tokens": int,
    "where": str,
    "windows": [int],
    "ids": [int],
    "spelled": [str],
}
HEAD = {
    "role": (str, str),
    "says": str,
    "details": str,
    "interest": NUMBER,
    "shares": {str: (NUMBER, int)},
    "need": (NUMBER, NUMBER, NUMBER),
    "kinds": {str: (NUMBER, NUMBER, NUMBER)},
    "passages": [(int, NUMBER, [(int, NUMBER)])],
}
NEURON = {"active": NUMBER, "passages": [(int, NUMBER)], "raises": [str], "lowers": [str]}


def read_evidence(folder: Path) -> dict[str, Any]:
    """The file of a run. Raises OSError if there is none, or no file that can be one, and
    ValueError if it is not in the format."""
    found: dict[str, Any] = read_beside(folder, NAME, _check)
    return found


def names_of(evidence: Mapping[str, Any]) -> Names:
    """What each head is called, by layer and head, from the content of the file."""
    named: Names = []
    for name, head in sorted(evidence["heads"].items(), key=lambda item: _place(item[0])):
        layer, _ = _place(name)
        named += [[] for _ in range(layer + 1 - len(named))]
        fields = (*head["role"], head["says"], head["details"], head["interest"])
        named[layer].append(HeadName._make(fields))
    return named


def _place(name: str) -> tuple[int, int]:
    """The layer and the head that a name such as L1H3 names."""
    layer, head = name[1:].split("H")
    return int(layer), int(head)


def _check(found: dict[str, Any]) -> None:
    """Raises some exception if the file is not in the format."""
    heads = [*found["heads"].values()]
    neurons = [neuron for layer in found["neurons"] for neuron in layer]
    for parts, fields in (([found], FIELDS), (heads, HEAD), (neurons, NEURON)):
        if not all(fits(part[name], kind) for part in parts for name, kind in fields.items()):
            raise ValueError("a field has another type")
    if not all(re.fullmatch(r"L\d{1,4}H\d{1,4}", name) for name in found["heads"]):
        raise ValueError("a head has another name")
    ids, count = found["ids"], len(found["ids"])
    if min(found["windows"], default=1) < 1 or sum(found["windows"]) != count:
        raise ValueError("the windows are not the text")
    if any(not 0 <= id < len(found["spelled"]) for id in ids):
        raise ValueError("a token has no spelling")
    places = [at for part in (*heads, *neurons) for at, *_ in part["passages"]]
    places += [at for head in heads for _, _, keys in head["passages"] for at, _ in keys]
    if any(not 0 <= at < count for at in places):
        raise ValueError("a passage is not in the text")
