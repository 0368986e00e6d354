"""The next token of a model with a cache, from fewer and larger products, on CPUs.

Promises: what `GPT.logits(GPT.hidden(tokens, cache))` returns in eval mode for one token more, to
float tolerance. A model that was changed is asked itself: by hooks, edits or recordings, also
later; by other modules than `GPT` builds from its config; or by another method of a module. So are
models with settings that are not in `KNOWN` of model/config.py, in half precision, and on other
devices.

A product of a matrix and one vector takes as long as reading the matrix, which one core cannot do
as fast as several; a small one, and any other operation on one token, takes as long as its call. So
the matrices of queries, keys and values are joined, and those of SwiGLU, each thread multiplies its
share of their rows, and a norm is five calls, about half of PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.modules import module as all_modules

from model import GPT, KVCache
from model.attention import LayerCache, fused_attention
from model.gpt import Block, blocks_of
from model.layers import PlainMLP, RMSNorm, SwiGLU

MAX_JOINED = 1 << 21  # elements of matrices that are joined; a call takes little beside larger ones
METHODS = {"forward", "hidden", "logits", "embed"}

Norm = Callable[[Tensor], Tensor]


class Packed:
    """A model that continues its cache by one token.

    Joined matrices and gains are copies, and others are not: make another one when weights have
    changed.
    """

    def __init__(self, model: GPT) -> None:
        self.model = model
        self.layers: list[_PackedBlock] | None = None
        if not _is_own(model):
            return
        modules, blocks = [*model.modules()], blocks_of(model)
        self.attends = [block.attention.attends for block in blocks]
        self.attached = [
            *(all_modules._global_forward_hooks, all_modules._global_forward_pre_hooks),
            *(module._forward_hooks for module in modules),
            *(module._forward_pre_hooks for module in modules),
            *(block.attention.edits for block in blocks),
            *(block.mlp_edits for block in blocks),
            *(module.stream_edits for module in (*blocks, model)),
        ]
        if self._is_plain():
            self.layers = [_PackedBlock(block) for block in blocks]
            self.final_norm = _norm(model.final_norm)
            self.unembedding = _Product(model.unembedding)

    def logits(
        self, tokens: Int[Tensor, "batch 1"], cache: KVCache
    ) -> Float[Tensor, "batch vocab"]:
        """The logits after one token more of each sequence, which is added to the cache. Raises as
        `GPT.hidden` does."""
        model = self.model
        start = cache.begin(len(model.blocks))
        is_full = start >= model.config.context_length
        if self.layers is None or is_full or not self._is_plain():
            return model.logits(model.hidden(tokens, cache)[:, -1])
        x = model.embed(tokens, start)[:, -1]
        for layer, layer_cache in zip(self.layers, cache.layers, strict=True):
            x = layer(x, layer_cache)
        return self.unembedding(self.final_norm(x))

    def _is_plain(self) -> bool:
        """Whether nothing is attached to the model."""
        return not any(self.attached) and all(each == [fused_attention] for each in self.attends)


def _is_own(model: GPT) -> bool:
    """Whether all of a model is as `GPT` builds it, by settings that are known here, in full
    precision on a CPU."""
    if type(model) is not GPT or type(model.unembedding) is not nn.Linear:
        return False
    try:
        model.config.check_known("the packed products")
    except ValueError:
        return False
    with torch.random.fork_rng(devices=[]):
        built = Block(model.config)
    # A text of a module has the sizes, biases and epsilons of all that is in it.
    blocks, parameters = blocks_of(model), [*model.parameters()]
    return (
        len(blocks) == len(model.blocks) == model.config.n_layers
        and {*map(repr, blocks)} == {repr(built)}
        and all([*map(type, each.modules())] == [*map(type, built.modules())] for each in blocks)
        and all(each.attention.window is None for each in blocks)
        and repr(model.final_norm) == repr(built.mlp_norm)
        and type(model.final_norm) is type(built.mlp_norm)
        and not any(METHODS & {*vars(each)} for each in model.modules())
        and all(each.device.type == "cpu" for each in parameters)
        and {each.dtype for each in parameters} in ({torch.float32}, {torch.float64})
    )


class _PackedBlock:
    """A `Block`, of one token of each sequence."""

    def __init__(self, block: Block) -> None:
        attention, mlp = block.attention, block.mlp
        self.d_head, self.position = attention.d_head, attention.position
        self.n_query = attention.query.out_features // attention.d_head
        self.n_key = attention.key.out_features // attention.d_head
        self.norms = (_norm(block.attention_norm), _norm(block.mlp_norm))
        self.head_norm: Norm = nn.Identity()
        if isinstance(attention.query_norm, RMSNorm):
            norms = (attention.query_norm, attention.key_norm)
            gains = torch.stack([norm.get_parameter("weight") for norm in norms])
            gains = gains.repeat_interleave(torch.tensor([self.n_query, self.n_key]), dim=0)
            self.head_norm = _norm(attention.query_norm, gains[:, None])
        self.query_key_value = _Product(attention.query, attention.key, attention.value)
        self.output = _Product(attention.output)
        self.activation: Callable[[Tensor], Tensor] | None = None  # of SwiGLU, there is a gate
        if isinstance(mlp, SwiGLU):
            self.up = _Product(mlp.gate, mlp.up)
        else:
            assert isinstance(mlp, PlainMLP)
            self.up, self.activation = _Product(mlp.up), mlp.activation
        self.down = _Product(mlp.down)

    def __call__(
        self, x: Float[Tensor, "batch d_model"], cache: LayerCache
    ) -> Float[Tensor, "batch d_model"]:
        attention_norm, mlp_norm = self.norms
        x = self.output(self.attention(attention_norm(x), cache), x)
        return self.down(self.mlp(mlp_norm(x)), x)

    def attention(
        self, x: Float[Tensor, "batch d_model"], cache: LayerCache
    ) -> Float[Tensor, "batch width"]:
        """The heads, joined."""
        heads = self.query_key_value(x).view(x.shape[0], -1, 1, self.d_head)
        rotated, value = heads.split((self.n_query + self.n_key, self.n_key), dim=1)
        rotated = self.position(self.head_norm(rotated), cache.length)
        query, key = rotated.split((self.n_query, self.n_key), dim=1)
        key, value = cache.append(key, value)
        return fused_attention(query, key, value).flatten(1)

    def mlp(self, x: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch d_mlp"]:
        """The neurons."""
        up = self.up(x)
        if self.activation is not None:
            return self.activation(up)
        gate, up = up.chunk(2, dim=-1)
        return F.silu(gate) * up


class _Product:
    """What one or more linear layers return, side by side."""

    def __init__(self, *linears: nn.Linear) -> None:
        weights = [linear.weight.detach() for linear in linears]
        if len(weights) > 1 and sum(weight.numel() for weight in weights) <= MAX_JOINED:
            weights = [torch.cat(weights)]
        self.parts = [part for weight in weights for part in _divide(weight)]
        biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
        self.bias = torch.cat(biases) if biases else None

    def __call__(
        self, x: Float[Tensor, "batch width"], added: Float[Tensor, "batch out"] | None = None
    ) -> Float[Tensor, "batch out"]:
        """Of `x`; with `added`, plus that."""
        # PyTorch multiplies one vector on one thread, but a batch of matrices on all of them.
        if x.shape[0] == len(self.parts) == 1 and self.bias is None:
            (part,) = self.parts
            x = x.expand(part.shape[0], -1, -1)
            if added is None:
                return torch.bmm(x, part).view(1, -1)
            return torch.baddbmm(added.view(part.shape[0], 1, -1), x, part).view(1, -1)
        products = [torch.bmm(x.expand(part.shape[0], -1, -1), part) for part in self.parts]
        rows = [each.transpose(0, 1).flatten(1) for each in products]
        product = rows[0] if len(rows) == 1 else torch.cat(rows, dim=-1)
        product = product if self.bias is None else product + self.bias
        return product if added is None else product + added


def _divide(weight: Float[Tensor, "out width"]) -> list[Float[Tensor, "thread width rows"]]:
    """The rows of a matrix as one share for each thread, and those that are left over as another,
    both transposed."""
    n = torch.get_num_threads()
    rows = len(weight) // n * n
    parts = [weight[:rows].view(n, -1, weight.shape[1]), weight[None, rows:]]
    return [part.mT for part in parts if part.numel()]


def _norm(module: nn.Module, gain: Float[Tensor, "*axes width"] | None = None) -> Norm:
    """A norm of the model: RMSNorm as `_rms_norm`, perhaps with a gain of several heads."""
    if type(module) is not RMSNorm:
        return module
    gain = module.weight if gain is None else gain
    return partial(_rms_norm, gain.detach(), gain.new_tensor([module.eps]))


def _rms_norm(
    gain: Float[Tensor, "*heads width"], eps: Float[Tensor, " 1"], x: Float[Tensor, "*axes width"]
) -> Float[Tensor, "*axes width"]:
    size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    mean_of_squares = torch.addcmul(eps, size, size, value=1 / x.shape[-1])
    return x * mean_of_squares.rsqrt_() * gain
