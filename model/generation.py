"""Writing tokens one by one with a model.

Promises: the same tokens with and without a cache; any prompt length; the same random generator
state gives the same tokens. Knows nothing of text or of tokenizers.

What is forgotten past the context length C: with n tokens so far, the model sees all of them while
n <= C, and after that only those from position `window_start(n, C)` on. Whenever the window is
full, its oldest half is dropped at once and the rest is read again. The window depends on n alone,
so a cache changes nothing but the time; rereading half a window every C/2 tokens costs about one
extra token per token.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from model.cache import KVCache
from model.gpt import GPT


def window_start(n_tokens: int, context_length: int) -> int:
    """The first position that the model still sees when it predicts token `n_tokens`.

    0 while all fit; then the smallest multiple of half the context length that makes them fit.
    """
    half = max(1, context_length // 2)
    return half * max(0, math.ceil((n_tokens - context_length) / half))


def generate(
    model: GPT,
    prompt: Int[Tensor, "batch prompt"],
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    use_cache: bool = True,
) -> Generator[Int[Tensor, " batch"], None, None]:
    """Yields the next token of every sequence, `max_new_tokens` times, as soon as it is chosen.

    Temperature 0 takes the likeliest token; otherwise see `sampling_probabilities`. `generator`
    must live on the model's device. The stream has a copy of a model on a CPU, made when the first
    token is asked for; on other devices the model is in eval mode until the stream ends.

    Raises ValueError, naming the argument, for an argument out of range.
    """
    if prompt.shape[1] == 0:
        raise ValueError("prompt: is empty; give at least one token")
    if not 0 <= prompt.min() <= prompt.max() < model.vocab_size:
        raise ValueError(
            f"prompt: ids run from {prompt.min()} to {prompt.max()}; "
            f"this vocabulary ends at {model.vocab_size - 1}"
        )
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens: {max_new_tokens} is negative; choose 0 or more")
    check_sampling(temperature, top_k, top_p)
    choose = partial(
        _choose, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator
    )
    return _stream(model, prompt, max_new_tokens, choose, use_cache)


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raises ValueError, naming the argument, unless `generate` can use all three."""
    if not (temperature == 0 or 1e-6 <= temperature < math.inf):
        raise ValueError(
            f"temperature: {temperature} is out of range; choose 0 (greedy), or about 0.5 to 1.5"
        )
    if top_k is not None and not 1 <= top_k < 2**31:
        raise ValueError(f"top_k: {top_k} is out of range; choose 1 or more, or null for all")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p: {top_p} is no probability above 0; choose up to 1, or null")


# As a decorator and not a `with` block: inference mode then ends at each yield instead of leaking
# into the caller's code between two tokens.
@torch.inference_mode()
def _stream(
    model: GPT,
    prompt: Int[Tensor, "batch prompt"],
    max_new_tokens: int,
    choose: Callable[[Tensor], Tensor],
    use_cache: bool,
) -> Generator[Int[Tensor, " batch"], None, None]:
    batch, n_prompt = prompt.shape
    tokens = torch.cat((prompt, prompt.new_zeros(batch, max_new_tokens)), dim=1)
    weight = model.unembedding.weight
    cache = KVCache(model.config, batch, weight.device, weight.dtype) if use_cache else None
    cached_from = 0
    if weight.device.type == "cpu":
        model = _laid_out_for_vectors(model)
    was_training = model.training
    model.eval()
    try:
        for n in range(n_prompt, n_prompt + max_new_tokens):
            start = unread = window_start(n, model.config.context_length)
            if cache is not None:
                if start != cached_from:
                    cache.clear()
                    cached_from = start
                unread = start + cache.length
            last = model.hidden(tokens[:, unread:n], cache)[:, -1]
            chosen = choose(model.unembedding(last))
            tokens[:, n] = chosen
            yield chosen
    finally:
        model.train(was_training)


def _laid_out_for_vectors(model: GPT) -> GPT:
    """A copy in which the longer axis of every linear layer's matrix is contiguous in memory.

    A CPU multiplies such a matrix with a single vector in about half the time. It is a copy because
    training is to go on with the original, whatever the layout does to the last bit.
    """
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.out_features > module.in_features:
            module.weight.data = module.weight.t().contiguous().t()
    return model


def _choose(
    logits: Float[Tensor, "batch vocab"],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    generator: torch.Generator | None,
) -> Int[Tensor, " batch"]:
    if temperature == 0:
        return logits.argmax(dim=-1)
    probabilities = sampling_probabilities(logits, temperature, top_k, top_p)
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(1)


def sampling_probabilities(
    logits: Float[Tensor, "batch vocab"],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Float[Tensor, "batch vocab"]:
    """The distribution to draw from: softmax(logits / temperature), then cut and renormalised.

    top_k keeps the k likeliest tokens (and ties with the last of them); then top_p keeps the
    smallest set of likeliest tokens whose probability reaches p (Holtzman et al. 2020).
    """
    # Shifted so that the likeliest is 0: a tiny temperature can then only underflow.
    logits = (logits - logits.amax(dim=-1, keepdim=True)) / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -math.inf)
    probabilities = logits.softmax(dim=-1)
    if top_p is not None and top_p < 1:
        ordered, order = probabilities.sort(dim=-1, descending=True)
        likelier = ordered.cumsum(dim=-1) - ordered
        kept = ordered.masked_fill(likelier >= top_p, 0.0)
        probabilities = torch.zeros_like(kept).scatter(-1, order, kept)
        probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    return probabilities
