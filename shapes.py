"""Walks one batch through a real attention layer and prints every tensor on the way.

Promises: each shape is read off a tensor that the model itself computed; the table is 100 columns
wide wherever it is printed. Knows nothing of the formulas' implementation, only their names.
"""

from __future__ import annotations

import openmp  # noqa: F401  # isort: skip

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Column, Table
from torch import Tensor, nn

from configs.cli import run_script
from configs.schema import ShapesConfig, build
from model import GPT, ModelConfig, causal_mask, explicit_attention
from model.attention import AttentionSteps, CausalSelfAttention
from model.block import Block
from model.position import Rotary

WIDTH = 100
TEXTS = (b"the cat sat down", b"a dog ran to her")
AXES = {
    "batch": "texts that are computed side by side",
    "token": "places in a text",
    "query": "the token that asks: whose next token is to be predicted",
    "key": "the token that is asked, and whose value is gathered",
    "d_model": "numbers that describe a token in the residual stream",
    "head": "independent searches, each with its own queries",
    "kv_head": "heads of keys and values, each shared by head / kv_head heads of queries",
    "d_head": "numbers that a head has for a token",
    "head*d_head": "all heads' numbers, one head after the other",
    "kv_head*d_head": "all numbers of the heads of keys or values, one head after the other",
}


class Step(NamedTuple):
    """One tensor of the walk; `axes` names its axes in order."""

    name: str
    formula: str
    axes: tuple[str, ...]
    tensor: Tensor


@torch.no_grad()
def walk(attention: CausalSelfAttention, x: Float[Tensor, "batch token d_model"]) -> list[Step]:
    """Runs `x` through the module and returns what arose on the way, first to last.

    The layers are watched by hooks and the formula by `attend`; both are put back.
    """
    seen: dict[str, tuple[Tensor, Tensor]] = {}  # by layer: what went in, what came out
    formula: list[tuple[Tensor, Tensor, Tensor, AttentionSteps]] = []

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        return lambda _layer, inputs, output: seen.update({name: (inputs[0], output)})

    def attend(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        mask = causal_mask(query.shape[2], key.shape[2], query.device)
        steps = explicit_attention(query, key, value, mask, dropout)
        formula.append((query, key, value, steps))
        return steps.context

    hooks = [layer.register_forward_hook(watch(name)) for name, layer in attention.named_children()]
    usual, attention.attend = attention.attend, attend
    try:
        output = attention(x)
    finally:
        attention.attend = usual
        for hook in hooks:
            hook.remove()
    ((query, key, value, steps),) = formula

    projected, kv_projected = (
        ("batch", "token", "head*d_head"),
        ("batch", "token", "kv_head*d_head"),
    )
    heads, kv_heads = ("batch", "head", "token", "d_head"), ("batch", "kv_head", "token", "d_head")
    pairs = ("batch", "head", "query", "key")
    bias = "" if attention.query.bias is None else " + b"
    rows = [
        Step("input", "x = norm(residual stream)", ("batch", "token", "d_model"), x),
        Step("queries", f"Q = x W_Q{bias}", projected, seen["query"][1]),
        Step("keys", f"K = x W_K{bias}", kv_projected, seen["key"][1]),
        Step("values", f"V = x W_V{bias}", kv_projected, seen["value"][1]),
        Step("queries by head", "Q_h = Q split into heads", heads, seen["query_norm"][0]),
        Step("keys by head", "K_h = K split into heads", kv_heads, seen["key_norm"][0]),
        Step("values by head", "V_h = V split into heads", kv_heads, value),
    ]
    if isinstance(attention.query_norm, nn.RMSNorm):
        rows += [
            Step("queries normed", "Q_h / rms(Q_h) * gain", heads, seen["query_norm"][1]),
            Step("keys normed", "K_h / rms(K_h) * gain", kv_heads, seen["key_norm"][1]),
        ]
    if isinstance(attention.position, Rotary):
        rows += [
            Step("queries rotated", "Q_h turned by position", heads, query),
            Step("keys rotated", "K_h turned by position", kv_heads, key),
        ]
    return [
        *rows,
        Step("scores", "Q_h K_h^T", pairs, steps.scores),
        Step("scaled", "scores / sqrt(d_head)", pairs, steps.scaled),
        Step("masked", "scaled, later keys -inf", pairs, steps.masked),
        Step("weights", "softmax(masked) over keys", pairs, steps.weights),
        Step("context", "weights V_h", ("batch", "head", "query", "d_head"), steps.context),
        Step("heads joined", "C = context, heads joined", projected, seen["output"][0]),
        Step("output", f"C W_O{bias}", ("batch", "token", "d_model"), output),
    ]


def print_walk(config: ModelConfig) -> None:
    """Prints the walk of two short texts, byte by byte, through a new model's first layer."""
    model = GPT(config, vocab_size=256).eval()
    tokens = torch.tensor([list(text) for text in TEXTS])[:, : config.context_length]
    block = model.blocks[0]
    assert isinstance(block, Block)
    x = model.position(model.token_embedding(tokens), 0)
    steps = walk(block.attention, block.attention_norm(x))

    table = full_width_table("step", "shape", "formula", "axes")
    for step in steps:
        table.add_row(step.name, str(tuple(step.tensor.shape)), step.formula, ", ".join(step.axes))

    legend = full_width_table("axis", "size", "meaning")
    sizes = {
        axis: str(size)
        for step in steps
        for axis, size in zip(step.axes, step.tensor.shape, strict=True)
    }
    for axis, meaning in AXES.items():
        legend.add_row(axis, sizes[axis], meaning)
    Console(width=WIDTH).print(table, legend)


def full_width_table(*columns: str) -> Table:
    """A table that folds what is too long instead of cutting it off."""
    return Table(*(Column(name, overflow="fold") for name in columns), width=WIDTH)


def main(cfg: DictConfig) -> None:
    print_walk(build(cfg, ShapesConfig).model)


if __name__ == "__main__":
    run_script("shapes", main)
