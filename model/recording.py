"""Looking at attention weights while a model runs.

Promises: inside `record_attention` the model computes the same context, by the explicit formula;
afterwards it is as it was, also after an exception. Knows nothing of what is done with the maps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jaxtyping import Float
from torch import Tensor, nn

from model.attention import CausalSelfAttention, causal_mask, explicit_attention

AttentionMap = Float[Tensor, "batch head query key"]


@contextmanager
def record_attention(model: nn.Module) -> Iterator[list[AttentionMap]]:
    """Yields a list that every forward pass fills anew: one map per layer, in layer order.

        with record_attention(model) as maps:
            model(tokens)
        maps[layer][0, head, query, key]

    Maps are detached, before dropout (rows sum to one), and stay in the list afterwards. With a
    cache, `query` counts the new tokens and `key` all of them. Nested recordings: the innermost
    fills its list. The switch acts on the model itself, so no other thread may run it meanwhile.
    Of a model wrapped by torch.compile, record the original: it runs eagerly, and the compiled
    code stays valid.
    """
    modules = [module for module in model.modules() if isinstance(module, CausalSelfAttention)]
    attends = [module.attend for module in modules]
    maps: list[AttentionMap] = []
    try:
        for layer, module in enumerate(modules):
            module.attend = _recorder(maps, layer)
        yield maps
    finally:
        for module, attend in zip(modules, attends, strict=True):
            module.attend = attend


def _recorder(
    maps: list[AttentionMap], layer: int
) -> Callable[[Tensor, Tensor, Tensor, float], Tensor]:
    def attend(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        mask = causal_mask(query.shape[2], key.shape[2], query.device)
        steps = explicit_attention(query, key, value, mask, dropout)
        del maps[layer:]  # what an earlier forward pass left
        maps.append(steps.weights.detach())
        return steps.context

    return attend
