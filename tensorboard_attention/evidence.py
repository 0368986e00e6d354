"""What every head and neuron does over many texts: `evidence.json` in the folder of the event files
of a run, if there is one.

step       of the model
n_tokens   how many tokens were scored
where      the texts, in words
windows    what was read: for each window, the number of its tokens in `ids`
ids        the windows one after another, as places in `spelled`. An "at" is a place in `ids`.
spelled    what tokens spell
heads      by name, such as "L1H3", layer by layer:
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
from itertools import chain
from pathlib import Path
from typing import Any

from tensorboard_attention.beside import read_beside
from tensorboard_attention.header import check_type
from tensorboard_attention.naming import HeadName, Names
from tensorboard_attention.strict import from_json

NAME = "evidence.json"
NUMBER = float | int
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
FIELDS = {
    "step": int,
    "n_tokens": int,
    "where": str,
    "windows": [int],
    "ids": [int],
    "spelled": [str],
    "heads": {str: HEAD},
    "neurons": [[NEURON]],
}


def read_evidence(folder: Path) -> dict[str, Any]:
    """The file of a run. Raises OSError if there is none, or no file that can be one, and
    ValueError if it is not in the format."""
    found: dict[str, Any] = from_json(read_beside(folder / NAME))
    check_type(found, FIELDS)
    if not all(re.fullmatch(r"L\d{1,4}H\d{1,4}", name) for name in found["heads"]):
        raise ValueError("it is not in the format: a head has another name")
    ids, heads = found["ids"], found["heads"].values()
    parts = (*heads, *chain.from_iterable(found["neurons"]))
    places = [at for part in parts for at, *_ in part["passages"]]
    places += [at for head in heads for *_, keys in head["passages"] for at, _ in keys]
    if (
        sum(found["windows"]) != len(ids)
        or not {*places} <= {*range(len(ids))}
        or not {*ids} <= {*range(len(found["spelled"]))}
    ):
        raise ValueError("it is not in the format: a passage is not in its text")
    return found


def names_of(evidence: Mapping[str, Any]) -> Names:
    """What each head is called, by layer and head, from the content of the file."""
    named: Names = []
    for name, head in evidence["heads"].items():
        layer = int(name[1:].partition("H")[0])
        named += [[] for _ in range(layer + 1 - len(named))]
        fields = (*head["role"], head["says"], head["details"], head["interest"])
        named[layer].append(HeadName._make(fields))
    return named
