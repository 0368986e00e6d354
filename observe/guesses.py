"""What a model says of every token of a tale, beside what a perfect reader says."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from data.floor import Floor
from data.tokenizer import Tokenizer
from tensorboard_attention import Guesses

# Of what can come next: how many tokens, by each of the two, and with what probability.
MAX_SAID, MIN_SAID = 5, 0.001


def guesses_of(
    logits: Float[Tensor, "token vocab"], tokens: Sequence[int], floor: Floor, tokenizer: Tokenizer
) -> Guesses:
    """logits: after each token. floor: of the same tokens."""
    logs = logits.detach().double().log_softmax(-1).cpu()
    nats = -logs[:-1].gather(1, torch.tensor(tokens)[1:, None])[:, 0]
    bits = torch.cat([torch.tensor([math.nan]), nats / math.log(2)])
    best = logs.topk(min(MAX_SAID, logs.shape[1])).indices.tolist()
    rows = []
    for place, (chances, ids) in enumerate(zip(logs.exp(), best, strict=True)):
        known = floor.next_tokens[place] if place < len(floor.next_tokens) else None
        likely = sorted(known or (), key=lambda id: -(known or {})[id])[:MAX_SAID]
        said = [
            (id, chances[id].item(), math.nan if known is None else known.get(id, 0.0))
            for id in dict.fromkeys((*ids, *likely))
        ]
        said.sort(key=lambda row: -row[1])
        worth = [row for row in said if row[1] >= MIN_SAID or row[2] >= MIN_SAID]
        rows.append([(tokenizer.decode_bytes([id]), p, q) for id, p, q in worth or said[:1]])
    return Guesses(bits.tolist(), (floor.nats / math.log(2)).tolist(), rows)
