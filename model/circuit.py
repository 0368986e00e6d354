"""Which parts of a model carry one prediction: every way to switch its heads and MLPs off is
computed, without approximation.

What is below a layer does not depend on what is off above it. So each layer is computed once for
every subset of the parts below it, and what it gives is continued with every subset of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from common.errors import check_range
from model.attention import join_heads
from model.gpt import GPT, blocks_of, check_tokens, eval_mode
from model.hooks import Part, edit, editing

MAX_PARTS = 16  # 65,536 subsets
MAX_VALUES = 2**24  # numbers of the widest tensor in memory
TOLERANCE = 128  # times the precision of the largest logit, where a hook changes nothing

By = str | Mapping[Part, Tensor] | Tensor
Value = Callable[[Tensor], Tensor]


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
        values, on = self._subsets()
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
        n, (values, on) = len(self.parts), self._subsets()
        weights = values.new_tensor([1 / (n * math.comb(n - 1, size)) for size in range(n)])
        adds = (weights[on[~has].sum(1)] * (values[has] - values[~has]) for has in on.T)
        return torch.stack([found.sum() for found in adds])

    def alone(self) -> Float[Tensor, " part"]:
        """How much the value falls when a part alone is switched off."""
        last, values = len(self.values) - 1, self.values.double()
        return torch.stack([values[last] - values[last - 2**i] for i in range(len(self.parts))])

    def interactions(self) -> Float[Tensor, "part part"]:
        """The Shapley interaction index of each pair (Grabisch and Roubens 1999, "An Axiomatic
        Approach to the Concept of Interaction Among Players in Cooperative Games"): how much more
        two parts add together than each of them without the other, averaged in the same way. Above
        0, they need each other; below 0, each stands in for the other. 0 on the diagonal."""
        n, (values, on) = len(self.parts), self._subsets()
        by_size = [1 / ((n - 1) * math.comb(n - 2, size)) for size in range(n - 1)]
        found, weights = values.new_zeros(n, n), values.new_tensor(by_size)
        for i in range(n):
            without, adds = on[~on[:, i]], values[on[:, i]] - values[~on[:, i]]
            for j in range(i):
                has = without[:, j]
                both = weights[without[~has].sum(1)] * (adds[has] - adds[~has])
                found[i, j] = found[j, i] = both.sum()
        return found

    def _subsets(self) -> tuple[Float[Tensor, " subset"], Bool[Tensor, "subset part"]]:
        """The values in float64, and which parts are on; without the first part first."""
        bits = torch.arange(len(self.parts))
        on = torch.arange(len(self.values))[:, None] >> bits.flip(0) & 1
        return self.values.double()[(on << bits).sum(1)], on.bool()


def part_name(part: Part) -> str:
    """Such as L1H3, L1 MLP."""
    return f"L{part[0]}H{part[1]}" if isinstance(part, tuple) else f"L{part[4:]} MLP"


def parts_of(model: GPT) -> list[Part]:
    """All heads and MLPs, layer by layer."""
    found: list[Part] = []
    for layer in range(model.config.n_layers):
        found += [*((layer, head) for head in range(model.config.n_heads)), f"mlp {layer}"]
    return found


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

    Computed with dropout off, and with the edits of heads and MLPs that are open.

    Raises ValueError for more than 16 parts, ids and parts that the model does not have, a text
    without tokens or with more than the context, another `by`, logits that are not finite, and
    hooks that change what is not a head or an MLP.
    """
    check_tokens(tokens, 1)
    tokens = tokens.to(model.token_embedding.weight.device)
    with eval_mode(model):
        logits = model(tokens[None])[0, -1].float()
        if not logits.isfinite().all():
            raise ValueError("model: its logits are not finite; give one whose weights are")
        target = int(logits.argmax()) if target is None else target
        for name, token in (("target", target), ("versus", target if versus is None else versus)):
            check_range(name, token, 0, model.vocab_size - 1)
        value = partial(_value, target=target, versus=versus)
        replacements = _replacements(model, tokens, by)
        chosen = _chosen(model, tokens, replacements, parts, value)
        embedded = model.embed(tokens[None])
        values = _Subsets(model, chosen, replacements, value).after(0, embedded)
        same = _Subsets(model, [], replacements, torch.Tensor.float).after(0, embedded)[0, 0]
    if not values.isfinite().all():
        raise ValueError("by: with parts replaced by it, logits are not finite; give other values")
    precision = torch.finfo(model.token_embedding.weight.dtype).eps
    if (same - logits).abs().max() > TOLERANCE * precision * logits.abs().max():
        raise ValueError("model: a hook or edit changes what is no head and no MLP; remove it")
    return Circuit(tuple(chosen), values[:, 0].cpu(), target, versus)


def _value(logits: Float[Tensor, "*axes vocab"], target: int, versus: int | None) -> Tensor:
    logits = logits.float()
    if versus is None:
        return logits.softmax(-1)[..., target]
    return logits[..., target] - logits[..., versus]


def _chosen(
    model: GPT,
    tokens: Int[Tensor, " token"],
    replacements: Mapping[Part, Tensor],
    parts: Sequence[Part] | int | None,
    value: Value,
) -> list[Part]:
    """The parts that are switched, layer by layer."""
    known = parts_of(model)
    if isinstance(parts, int):
        check_range("parts", parts, 1, MAX_PARTS)

        def with_edits(changes: Mapping[Part, Callable[[Tensor], Tensor]]) -> float:
            with edit(model, changes):
                return float(value(model(tokens[None])[0, -1]))

        constants = {part: partial(_constant, replacements[part]) for part in known}
        whole = with_edits({})
        falls = {part: abs(whole - with_edits({part: constants[part]})) for part in known}
        parts = sorted(known, key=lambda part: -falls[part])[:parts]
    elif parts is None:
        parts = known
    if unknown := [part for part in parts if part not in known]:
        raise ValueError(f"parts: the model has no {unknown[0]!r}; give (layer, head), or 'mlp 1'")
    if not 0 < len({*parts}) <= MAX_PARTS:
        raise ValueError(
            f"parts: {len({*parts})} heads and MLPs have 2^{len({*parts})} subsets; give 1 to "
            f"{MAX_PARTS} parts, or parts={MAX_PARTS} for those that matter most alone"
        )
    return [part for part in known if part in parts]


def _constant(value: Tensor, output: Tensor) -> Tensor:
    return value.to(output).expand_as(output)


def _replacements(model: GPT, tokens: Int[Tensor, " token"], by: By) -> Mapping[Part, Tensor]:
    """What each part computes when it is off: for every token, or for each one."""
    config = model.config
    if isinstance(by, Tensor):
        if by.shape != tokens.shape:
            raise ValueError(f"by: has {len(by)} tokens; give a text of {len(tokens)}")
        return _outputs(model, by.to(tokens.device))
    sizes = {
        part: config.d_head if isinstance(part, tuple) else config.d_model
        for part in parts_of(model)
    }
    if isinstance(by, Mapping):
        for part, size in sizes.items():
            if part not in by or by[part].shape != (size,):
                raise ValueError(f"by: has no constant of {part!r} with {size} numbers; give one")
        return by
    if by != "zero":
        raise ValueError(f"by: {by!r} is unknown; give 'zero', means, or tokens of another text")
    return {part: torch.zeros(size) for part, size in sizes.items()}


def _outputs(model: GPT, tokens: Int[Tensor, " token"]) -> dict[Part, Tensor]:
    """What each part computes for every token of a text."""
    outputs: dict[Part, Tensor] = {}

    def keep(part: Part, output: Tensor) -> Tensor:
        outputs[part] = output[0]
        return output

    with edit(model, {part: partial(keep, part) for part in parts_of(model)}):
        model.hidden(tokens[None])
    return outputs


class _Subsets:
    """The values with every subset of the parts of some layers on."""

    def __init__(
        self, model: GPT, parts: Sequence[Part], off: Mapping[Part, Tensor], value: Value
    ) -> None:
        self.model, self.parts, self.off, self.value = model, parts, off, value
        self.blocks = blocks_of(model)

    def after(
        self, layer: int, streams: Float[Tensor, "stream token d_model"]
    ) -> Float[Tensor, "subset stream *value"]:
        """Of the parts from `layer` on, given the residual stream before it."""
        if layer == len(self.blocks):
            hidden = self.model.final_norm(streams[:, -1])
            return self.value(self.model.logits(hidden))[None]
        heads = [part[1] for part in self.parts if isinstance(part, tuple) and part[0] == layer]
        ways = torch.ones(2 ** len(heads), self.model.config.n_heads, dtype=torch.bool)
        ways[:, heads] = (torch.arange(len(ways))[:, None] >> torch.arange(len(heads)) & 1).bool()
        config = self.model.config
        n_tokens = streams.shape[1]
        widest = max(config.d_mlp, config.n_heads * n_tokens) * n_tokens
        n_rows = max(1, MAX_VALUES // max(widest, self.model.vocab_size))
        found = []
        for some in streams.split(max(1, n_rows // len(ways))):
            of_ways = [self._of_ways(layer, some, part) for part in ways.split(n_rows)]
            found.append(torch.cat(of_ways, 2).flatten(0, 2))
        return torch.cat(found, 1)

    def _of_ways(
        self, layer: int, streams: Float[Tensor, "stream token d_model"], ways: Tensor
    ) -> Float[Tensor, "above mlp way stream *value"]:
        """With these heads on: Bool[Tensor, "way head"]."""
        block, is_last = self.blocks[layer], layer == len(self.blocks) - 1
        # Of the last layer, the last token is enough, unless what changes its MLP sees all of them.
        has_edits = block.mlp_edits or block.mlp._forward_hooks or block.mlp._forward_pre_hooks
        tokens = slice(-1, None) if is_last and not has_edits else slice(None)
        off = torch.stack(
            [self.off[layer, head].expand(streams.shape[1], -1) for head in range(ways.shape[1])]
        ).to(streams)

        contexts: list[Float[Tensor, "stream head token d_head"]] = []

        def keep(context: Tensor) -> Tensor:
            contexts.append(context)
            return context

        with editing(block.attention.edits, keep):
            block.attention(block.attention_norm(streams))
        on = ways.to(streams.device)[:, None, :, None, None]
        context = torch.where(on, contexts[0][None, :, :, tokens], off[:, tokens]).flatten(0, 1)
        added = block.attention.output(join_heads(context))
        x = streams[:, tokens].repeat(len(ways), 1, 1) + added
        after = [block.with_mlp(x)]
        if f"mlp {layer}" in self.parts:
            mlp = self.off[f"mlp {layer}"].expand(streams.shape[1], -1)
            after.insert(0, x + mlp[tokens].to(x))
        values = self.after(layer + 1, torch.cat(after))
        return values.unflatten(1, (len(after), len(ways), len(streams)))
