"""Which parts of a model carry one prediction: every way to switch its heads and MLPs off is
computed, without approximation.

What is below a layer does not depend on what is off above it. So each layer is computed once for
every subset of the parts below it, and what it gives is continued with every subset of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from common.errors import check_range
from model.attention import apply_edits, join_heads
from model.gpt import GPT, blocks_of, check_tokens, eval_mode
from model.hooks import Part, ablate, edit, editing

MAX_PARTS = 16  # 65,536 subsets
MAX_VALUES = 2**24  # numbers of the widest tensor in memory
TOLERANCE = 128  # times the precision of the largest logit, of the value with all parts

By = str | Mapping[Part, Tensor] | Tensor


@dataclass(frozen=True)
class Circuit:
    """What a model says with every subset of its parts on, and the others replaced.

    parts: layer by layer, heads as (layer, head) and MLPs such as "mlp 1".
    values: bit i of the index of a subset says whether part i is on. Probabilities of the token
        `target`, or with `versus`, its logit less that of `versus`.
    """

    parts: tuple[Part, ...]
    values: Float[Tensor, " subset"]
    target: int
    versus: int | None = None

    @property
    def names(self) -> list[str]:
        """Of the parts: L1H3, L1 MLP."""
        return [part_name(part) for part in self.parts]

    def best(self) -> list[tuple[tuple[Part, ...], float]]:
        """For each number of parts from 0 on, the parts that give the largest value, and it."""
        values, on = self._by_part().flatten(), _subsets(len(self.parts))
        found = []
        for size in range(len(self.parts) + 1):
            place = values.where(on.sum(1) == size, -math.inf).argmax()
            some = [part for part, is_on in zip(self.parts, on[place], strict=True) if is_on]
            found.append((tuple(some), values[place].item()))
        return found

    def shapley(self) -> Float[Tensor, " part"]:
        """The Shapley value of each part (Shapley 1953, "A Value for n-Person Games"): what it adds
        to the value, averaged over all orders in which the parts can be switched on. They sum to
        the value with all parts less that with none."""
        n, values = len(self.parts), self._by_part()
        adds = (values.diff(dim=i).squeeze(i) for i in range(n))
        return torch.stack([(_weights(n - 1) * of_part).sum() for of_part in adds])

    def alone(self) -> Float[Tensor, " part"]:
        """How much the value falls when a part alone is switched off."""
        last, values = len(self.values) - 1, self.values.double()
        return torch.stack([values[last] - values[last - 2**i] for i in range(len(self.parts))])

    def interactions(self) -> Float[Tensor, "part part"]:
        """The Shapley interaction index of each pair (Grabisch and Roubens 1999, "An Axiomatic
        Approach to the Concept of Interaction Among Players in Cooperative Games"): how much more
        two parts add together than each of them without the other, averaged in the same way. Above
        0, they need each other; below 0, each stands in for the other. 0 on the diagonal."""
        n, values = len(self.parts), self._by_part()
        found = values.new_zeros(n, n)
        for i, j in combinations(range(n), 2):
            adds = values.diff(dim=i).diff(dim=j).squeeze((i, j))
            found[i, j] = found[j, i] = (_weights(n - 2) * adds).sum()
        return found

    def _by_part(self) -> Tensor:
        """The values in float64 with one axis for each part: off, on."""
        n = len(self.parts)
        return self.values.double().view([2] * n).permute(*reversed(range(n)))


def _subsets(n: int) -> Bool[Tensor, "subset part"]:
    """Which of n parts are on; the first part changes last."""
    return (torch.arange(2**n)[:, None] >> torch.arange(n).flip(0) & 1).bool()


def _weights(n: int) -> Tensor:
    """Of the subsets of n parts, with one axis for each: each size weighs the same in all."""
    by_size = [1 / ((n + 1) * math.comb(n, size)) for size in range(n + 1)]
    return torch.tensor(by_size, dtype=torch.float64)[_subsets(n).sum(1)].view([2] * n)


def part_name(part: Part) -> str:
    """Such as L1H3, L1 MLP."""
    return f"L{part[0]}H{part[1]}" if isinstance(part, tuple) else f"L{part[4:]} MLP"


def parts_of(model: GPT) -> list[Part]:
    """All heads and MLPs, layer by layer."""
    config = model.config
    layers = (_parts_in(layer, config.n_heads) for layer in range(config.n_layers))
    return [*chain.from_iterable(layers)]


def _parts_in(layer: int, n_heads: int) -> list[Part]:
    return [*((layer, head) for head in range(n_heads)), f"mlp {layer}"]


@torch.no_grad()
def circuit(
    model: GPT,
    tokens: Int[Tensor, " *token"],
    by: By,
    target: int | None = None,
    versus: int | None = None,
    parts: Sequence[Part] | int | None = None,
) -> Circuit:
    """What the model says after a text with every subset of its heads and MLPs on.

        found = circuit(model, tokens, by=means)
        found.best()[3]    # the three parts that give its answer the largest probability

    tokens: the ids of one text, of shape (token,).
    by: what replaces the output of a part that is off: "zero"; constants of all parts, as
        `mean_outputs` returns them; or what the part computes on another text, given as its tokens,
        as many as in `tokens`.
    target: the id of the next token whose probability is measured; by default the most probable
        one. With `versus`, its logit less that of `versus`.
    parts: those that are switched, by default all; the others stay on. A number: those that matter
        most when each is switched off alone.

    Computed with dropout off, and with the edits that are open.

    Raises ValueError for more than 16 parts, ids and parts that the model does not have, a text
    without tokens or with more than the context, another `by`, logits that are not finite, and
    hooks that change what is not a head or an MLP.
    """
    check_tokens(tokens, 1)
    tokens = tokens.to(model.token_embedding.weight.device)
    with eval_mode(model):
        logits = model(tokens[None])[:, -1]
        target = int(logits.argmax()) if target is None else target
        for name, token in (("target", target), ("versus", target if versus is None else versus)):
            check_range(name, token, 0, model.vocab_size - 1)
        if isinstance(parts, int):
            check_range("parts", parts, 1, MAX_PARTS)
            known = parts_of(model)
            single = {part: circuit(model, tokens, by, target, versus, [part]) for part in known}
            parts = sorted(known, key=lambda part: -abs(float(single[part].alone())))[:parts]
        chosen = _chosen(model, parts)
        off = _replacements(model, tokens, by)
        value = partial(_value, target=target, versus=versus)
        values = _values(model, chosen, off, value, 0, model.embed(tokens[None]))
    precision = torch.finfo(logits.dtype).eps * logits.abs().max()
    if (values[-1] - value(logits)).abs().max() > TOLERANCE * precision:
        raise ValueError("model: a hook changes what is no head and no MLP; remove it")
    return Circuit(tuple(chosen), values[:, 0].cpu(), target, versus)


def _value(logits: Float[Tensor, "row vocab"], target: int, versus: int | None) -> Tensor:
    if not logits.isfinite().all():
        raise ValueError("model, by: logits are not finite; give weights and values that are")
    logits = logits.float()
    if versus is None:
        return (logits[:, target] - logits.logsumexp(-1)).exp()
    return logits[:, target] - logits[:, versus]


def _chosen(model: GPT, parts: Sequence[Part] | None) -> list[Part]:
    """The parts that are switched, layer by layer."""
    known = parts_of(model)
    if unknown := [part for part in parts or () if part not in known]:
        raise ValueError(f"parts: the model has no {unknown[0]!r}; give (layer, head), or 'mlp 1'")
    chosen = known if parts is None else [part for part in known if part in parts]
    if not 0 < len(chosen) <= MAX_PARTS:
        raise ValueError(
            f"parts: {len(chosen)} heads and MLPs have 2^{len(chosen)} subsets; give 1 to "
            f"{MAX_PARTS} parts, or parts={MAX_PARTS} for those that matter most alone"
        )
    return chosen


def _replacements(model: GPT, tokens: Int[Tensor, " token"], by: By) -> Mapping[Part, Tensor]:
    """What each part computes for every token when it is off."""
    outputs: dict[Part, Tensor] = {}

    def keep(part: Part, output: Tensor) -> Tensor:
        outputs[part] = output[0]
        return output

    with ExitStack() as stack:
        if isinstance(by, Tensor):
            if by.shape != tokens.shape:
                raise ValueError(f"by: has {len(by)} tokens; give a text of {len(tokens)}")
            tokens = by.to(tokens)
        else:
            heads = [part for part in parts_of(model) if isinstance(part, tuple)]
            stack.enter_context(ablate(model, heads, by, range(model.config.n_layers)))
        stack.enter_context(edit(model, {part: partial(keep, part) for part in parts_of(model)}))
        model.hidden(tokens[None])
    return outputs


def _values(
    model: GPT,
    parts: Sequence[Part],
    off: Mapping[Part, Tensor],
    value: Callable[[Tensor], Tensor],
    layer: int,
    streams: Float[Tensor, "stream token d_model"],
) -> Float[Tensor, "subset stream"]:
    """The values with every subset of the parts from `layer` on, of each residual stream before
    it."""
    config, n_tokens = model.config, streams.shape[1]
    if layer == config.n_layers:
        hidden = model.final_norm(apply_edits(model.stream_edits, streams))
        return value(model.logits(hidden[:, -1]))[None]
    block, on = blocks_of(model)[layer], _ways(config.n_heads, layer, parts).to(streams.device)
    # Of the last layer, the last token is enough, unless an edit of its MLP sees all of them.
    is_enough = layer == config.n_layers - 1 and not block.mlp_edits
    last = slice(-1 if is_enough else 0, None)
    off_heads = torch.stack([off[layer, head] for head in range(config.n_heads)])[:, last]
    off_mlp = off[f"mlp {layer}"][last]
    widest = max(config.d_mlp * n_tokens, config.n_heads * n_tokens**2, model.vocab_size)
    contexts: list[Float[Tensor, "stream head token d_head"]] = []

    def keep(context: Tensor) -> Tensor:
        contexts.append(context)
        return context

    streams, of_streams = apply_edits(block.stream_edits, streams), []
    for stream in streams.split(1 if len(on) > 1 else len(streams)):
        with editing(block.attention.edits, keep):
            block.attention(block.attention_norm(stream))
        context, of_ways = contexts.pop()[:, :, last], []
        for ways in on.split(max(1, MAX_VALUES // widest)):
            some = torch.where(ways[:, :-1, None, None], context, off_heads)
            x = stream[:, last] + block.attention.output(join_heads(some))
            after = torch.where(ways[:, -1:, None], block.with_mlp(x), x + off_mlp)
            of_ways.append(_values(model, parts, off, value, layer + 1, after))
        of_streams.append(torch.cat(of_ways, 1).reshape(-1, len(stream)))
    return torch.cat(of_streams, 1)


def _ways(n_heads: int, layer: int, parts: Sequence[Part]) -> Bool[Tensor, "way part"]:
    """Which heads of a layer are on, and last, whether its MLP is: one row for each subset of those
    that are switched; the first changes first."""
    known = _parts_in(layer, n_heads)
    switched = [place for place, part in enumerate(known) if part in parts]
    on = torch.ones(2 ** len(switched), len(known), dtype=torch.bool)
    on[:, switched] = _subsets(len(switched)).flip(1)
    return on
