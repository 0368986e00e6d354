"""What a head attends to, as one number: small pure functions over attention maps.

A map holds weights over keys for every query, Float[Tensor, "batch head query key"], rows summing
to one; queries and keys are the same tokens. Each function averages over the batch and the queries
that it concerns, and gives one number a head: NaN where it concerns none.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Maps = Float[Tensor, "batch head query key"]
Scores = Float[Tensor, " head"]


def entropy(maps: Maps) -> Scores:
    """Mean entropy of a query's weights in bits (Shannon 1948): 0 for one key, log2 n for n equal
    ones."""
    return torch.special.entr(maps).sum(-1).mean((0, 2)) / torch.log(torch.tensor(2.0))


def mean_distance(maps: Maps) -> Scores:
    """Mean number of tokens between a query and what it attends to (Vig and Belinkov 2019,
    "Analyzing the Structure of Attention", section 4.2)."""
    places = torch.arange(maps.shape[-1], dtype=maps.dtype, device=maps.device)
    return (maps * (places[:, None] - places).abs()).sum(-1).mean((0, 2))


def previous_token(maps: Maps) -> Scores:
    """Share on the token right before (Clark et al. 2019, "What Does BERT Look At?", section 3.1).
    The first query has none and does not count."""
    return share(maps, _diagonal(maps, 1))


def first_token(maps: Maps) -> Scores:
    """Share on the first token, the attention sink (Xiao et al. 2023, "Efficient Streaming Language
    Models with Attention Sinks"). The first query cannot do otherwise and does not count."""
    targets = torch.zeros_like(_diagonal(maps, 0))
    targets[1:, 0] = True
    return share(maps, targets)


def same_token(maps: Maps) -> Scores:
    """Share on the query's own place (Clark et al. 2019, section 3.1)."""
    return share(maps, _diagonal(maps, 0))


def duplicate_token(maps: Maps, tokens: Int[Tensor, "batch key"]) -> Scores:
    """Share on earlier places that hold the query's token (Wang et al. 2022, "Interpretability in
    the Wild", section 3), over the queries whose token stood before."""
    return share(maps, _same(tokens).tril(-1))


def induction(maps: Maps, tokens: Int[Tensor, "batch key"]) -> Scores:
    """Share on places right after an earlier one that holds the query's token (Olsson et al. 2022,
    "In-context Learning and Induction Heads"), over the queries whose token stood before.

    Meant for a random sequence that is repeated, where nothing but copying explains it.
    """
    earlier = _same(tokens).tril(-1)
    after = torch.zeros_like(earlier)
    after[..., 1:] = earlier[..., :-1]
    return share(maps, after)


def share(maps: Maps, targets: Bool[Tensor, "*batch query key"]) -> Scores:
    """Mean total weight on the keys marked in `targets`, over the queries that have any."""
    targets = targets.expand(maps.shape[0], -1, -1)
    counted = targets.any(-1)
    totals = (maps * targets[:, None]).sum(-1)
    return (totals * counted[:, None]).sum((0, 2)) / counted.sum()


def _diagonal(maps: Maps, below: int) -> Bool[Tensor, "query key"]:
    """True where the key stands `below` places before the query."""
    n = maps.shape[-1]
    return torch.eye(n, dtype=torch.bool, device=maps.device).roll(-below, 1).tril(-below)


def _same(tokens: Int[Tensor, "batch key"]) -> Bool[Tensor, "batch key key"]:
    return tokens[:, :, None] == tokens[:, None, :]
