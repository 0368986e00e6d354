"""Generating tokens one by one.

Promises: the tokens that full passes over the window would give; any prompt length; the same state
of the random generator gives the same tokens.

Beyond the context length C: with n tokens so far, the model sees all of them while n <= C, and
after that only those from position `window_start(n, C)` on. Whenever the window is full, its oldest
half is dropped and the rest is read again. The window depends on n alone, so a cache changes only
the time; reading half a window every C/2 tokens is one extra token read per generated token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from common.errors import check_range
from common.settings import check_types
from inference.packed import Packed
from model import GPT, KVCache, eval_mode

MAX_NEW_TOKENS = 10**6


@dataclass
class SamplingConfig:
    """How text is sampled. An empty prompt starts a new document, or continues a place in a
    text without documents.

    Raises `ValueError("field: what is wrong; what to do")` for a value of another type or out of
    range.
    """

    prompt: str
    max_new_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    seed: int

    def __post_init__(self) -> None:
        check_types(self)
        check_range("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        check_range("seed", self.seed, 0, 2**63 - 1)
        check_sampling(self.temperature, self.top_k, self.top_p)


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raise ValueError, naming the argument, unless `generate` can use all three."""
    if not (temperature == 0 or 1e-6 <= temperature < math.inf):  # logits would overflow
        raise ValueError(
            f"temperature: {temperature} is out of range; give 0 for the likeliest token, or at "
            "least 1e-06"
        )
    if top_k is not None:
        check_range("top_k", top_k, 1, 2**31 - 1)
    if top_p is not None:
        check_range("top_p", top_p, least=1e-30, most=1)  # float32 rounds 1e-46 to 0


def window_start(n_tokens: int, context_length: int) -> int:
    """The first position that the model sees when it predicts token `n_tokens`.

    0 while all tokens fit; then the smallest multiple of half the context length that makes them
    fit.
    """
    half = max(1, context_length // 2)
    return half * max(0, math.ceil((n_tokens - context_length) / half))


def generate(
    model: GPT,
    prompt: Int[Tensor, "batch prompt"],
    max_new_tokens: int,
    *,
    num_samples: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Generator[Int[Tensor, " sample"], None, None]:
    """Yield the next token of every sample, `max_new_tokens` times, as soon as it is chosen.

    Each sequence of `prompt` is read once and continued `num_samples` times: there are
    batch * num_samples samples, grouped by sequence. Temperature 0 takes the most likely
    token; otherwise see `sampling_probabilities`. `generator` must be on the model's device. The
    model is in eval mode from the first token on until the generator is exhausted or closed; its
    weights must stay as they are meanwhile.

    Raises ValueError, naming the argument, for an argument out of range.
    """
    if prompt.shape[1] == 0:
        raise ValueError("prompt: is empty; give at least one token")
    if not 0 <= prompt.min() <= prompt.max() < model.vocab_size:
        raise ValueError(
            f"prompt: ids run from {prompt.min()} to {prompt.max()}; "
            f"the vocabulary has ids 0 to {model.vocab_size - 1}"
        )
    check_range("max_new_tokens", max_new_tokens, least=0)
    check_range("num_samples", num_samples, least=1)
    check_sampling(temperature, top_k, top_p)

    def choose(logits: Float[Tensor, "sample vocab"]) -> Int[Tensor, " sample"]:
        if temperature == 0:
            return logits.argmax(dim=-1)
        probabilities = sampling_probabilities(logits, temperature, top_k, top_p)
        return torch.multinomial(probabilities, 1, generator=generator).squeeze(1)

    # A decorator and not a `with` block: the mode then ends at each yield and does not leak into
    # the caller's code between two tokens.
    return torch.inference_mode()(_stream)(model, prompt, max_new_tokens, num_samples, choose)


def _stream(
    model: GPT,
    prompt: Int[Tensor, "batch prompt"],
    max_new_tokens: int,
    num_samples: int,
    choose: Callable[[Tensor], Tensor],
) -> Generator[Int[Tensor, " sample"], None, None]:
    n_prompt, context_length = prompt.shape[1], model.config.context_length
    tokens = prompt.repeat_interleave(num_samples, 0)
    tokens = torch.cat((tokens, tokens.new_zeros(len(tokens), max_new_tokens)), dim=1)
    weight = next(model.parameters())
    cached_from = window_start(n_prompt, context_length)
    cache = KVCache(model.config, len(prompt), weight.device, weight.dtype)
    packed = None
    with eval_mode(model):
        # The samples of one prompt share its keys and values.
        last = model.hidden(prompt[:, cached_from:], cache)[:, -1]
        logits = model.logits(last).repeat_interleave(num_samples, 0)
        cache.repeat(num_samples)
        for n in range(n_prompt, n_prompt + max_new_tokens):
            start = window_start(n, context_length)
            if start != cached_from:
                cache.clear()
                cached_from = start
            new = n - start - cache.length
            if new == 1:
                packed = packed or Packed(model)
                logits = packed.logits(tokens[:, n - 1 : n], cache)
            elif new:
                logits = model.logits(model.hidden(tokens[:, n - new : n], cache)[:, -1])
            tokens[:, n] = choose(logits.float())
            yield tokens[:, n]


def sampling_probabilities(
    logits: Float[Tensor, "batch vocab"],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Float[Tensor, "batch vocab"]:
    """The distribution to sample from: softmax(logits / temperature), truncated and renormalised.

    top_k keeps the k most likely tokens (and ties with the last of them); then top_p keeps the
    smallest set of most likely tokens whose probability reaches p (Holtzman et al. 2020).
    """
    # Shifted so that the largest logit is 0: a tiny temperature can then only underflow.
    logits = (logits - logits.amax(dim=-1, keepdim=True)) / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -math.inf)
    probabilities = logits.softmax(dim=-1)
    if top_p is not None and top_p < 1:
        ordered, order = probabilities.sort(dim=-1, descending=True)
        before = ordered.cumsum(dim=-1) - ordered
        kept = ordered.masked_fill(before >= top_p, 0.0)
        probabilities = torch.zeros_like(kept).scatter(-1, order, kept)
        probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    return probabilities
