"""Drawn models of every kind, their weights as the page has them, and texts for them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from live.models import values_of
from live.pack import pack
from model import GPT, ModelConfig, ablate, mean_outputs
from model.config import KNOWN
from tests.conftest import small_config

Off = dict[str, Any]  # what is switched off, as the page says it


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    """Odd sizes, and any combination of the choices."""
    flags = {name: st.booleans() for name in ("qk_norm", "bias", "tied_embeddings")}
    kinds = {name: st.sampled_from(KNOWN[name]) for name in ("norm", "position", "mlp")}
    choices: dict[str, Any] = draw(st.fixed_dictionaries({**kinds, **flags}))
    shared = draw(st.integers(1, 3))
    halves = draw(st.integers(1, 7))
    d_head = 2 * halves if choices["position"] == "rotary" else draw(st.integers(1, 13))
    return small_config(
        draw(st.integers(1, 3)),
        shared * draw(st.integers(1, 3)),
        draw(st.integers(4, 41)),  # a norm of two or three numbers enlarges what rounding does
        draw(st.integers(2, 40)),
        n_kv_heads=shared,
        d_head=d_head,
        d_mlp=draw(st.integers(1, 50)),
        rope_theta=draw(st.sampled_from([500.0, 10_000.0])),
        norm_eps=draw(st.sampled_from([1e-5, 1e-6])),
        **choices,
    )


def build(config: ModelConfig, vocab_size: int, seed: int) -> GPT:
    """A model in which every parameter is random, including biases and norms."""
    generator = torch.Generator().manual_seed(seed)
    model = GPT(config, vocab_size).eval().requires_grad_(False)
    for parameter in model.parameters():
        mean, std = (1.0, 0.2) if parameter.dim() == 1 else (0.0, min(0.4, config.d_model**-0.5))
        parameter.normal_(mean, std, generator=generator)
    return model


models = st.builds(build, configs(), st.integers(2, 97), st.integers(0, 10**6))


def packed(model: GPT, ids: list[int] | None = None) -> dict[str, Any]:
    """The model as a page has it, with its float32 weights; means are over the text."""
    values = values_of(model, means_over(model, ids or [0]))
    data = {
        "config": {**asdict(model.config), "vocab_size": model.vocab_size},
        "steps": [0],
        "weights": "float32",
        "parameters": [[name, list(each.shape)] for name, each in values.items()],
    }
    return {"data": data, "text": pack(values, "float32")}


def means_over(model: GPT, ids: list[int]) -> dict[Any, Tensor]:
    tokens = torch.tensor([ids])
    return mean_outputs(model, [(tokens, tokens)])


class Case(NamedTuple):
    """A model and a text that fills some of its context."""

    model: GPT
    ids: list[int]


@st.composite
def cases(draw: st.DrawFn, least: int = 1) -> Case:
    model = draw(models)
    length = draw(st.integers(least, max(least, model.config.context_length)))
    return Case(model, ids_for(model, length, draw(st.integers(0, 10**6))))


def ids_for(model: GPT, length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.vocab_size, (length,), generator=generator).tolist()


@st.composite
def switches(draw: st.DrawFn, config: ModelConfig) -> Off:
    """Heads, whole layers and MLPs that are switched off."""
    every = [(layer, head) for layer in range(config.n_layers) for head in range(config.n_heads)]
    layer = st.integers(0, config.n_layers - 1)
    heads = set(draw(st.lists(st.sampled_from(every), unique=True)))
    whole = draw(st.lists(layer))
    heads |= {(layer, head) for layer, head in every if layer in whole}
    mlps = draw(st.lists(layer, min_size=not heads, unique=True))
    by = draw(st.sampled_from(["zero", "mean"]))
    return {"by": by, "heads": [list(each) for each in sorted(heads)], "mlps": mlps}


def triangle(map_: Tensor) -> list[float]:
    """The causal part of a map, row by row."""
    return [each for i, row in enumerate(map_.tolist()) for each in row[: i + 1]]


def switched_off(model: GPT, ids: list[int], off: Off | None) -> AbstractContextManager[None]:
    """Inside, parts are off in PyTorch, too; means are over the text."""
    if off is None:
        return nullcontext()
    by = means_over(model, ids) if off["by"] == "mean" else off["by"]
    return ablate(model, [(layer, head) for layer, head in off["heads"]], by, off["mlps"])
