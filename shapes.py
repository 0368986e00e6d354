"""Run one batch through an attention layer and print the shape of every intermediate tensor.

Promises: each shape is that of a tensor that the model itself computed; the table is 100 columns
wide in any terminal.

Prints the table to standard output. Exit status 0; 2 for a mistake in the settings.
"""

from __future__ import annotations

import common.startup  # noqa: F401  # isort: skip

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from rich.console import Console
from rich.table import Column, Table
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from common.device import check_memory
from common.errors import UserError
from common.settings import Values, build
from inference.opening import RunConfig
from launch.cli import run_script
from launch.quoting import overridden
from model import GPT, ModelConfig, record_attention
from model.attention import CausalSelfAttention
from model.gpt import Block
from model.layers import Rotary
from store.run import Run

WIDTH = 100
TEXTS = (b"the cat sat down", b"a dog ran to her")
AXES = {
    "batch": "texts that are processed in parallel",
    "token": "positions in a text",
    "query": "the token that attends; the model predicts the token after it",
    "key": "the token that is attended to, and whose value is gathered",
    "d_model": "numbers that represent a token in the residual stream",
    "head": "query heads, which attend independently of each other",
    "kv_head": "key and value heads, each shared by head / kv_head query heads",
    "d_head": "numbers that represent a token in one head",
    "head*d_head": "the numbers of all query heads, one head after the other",
    "kv_head*d_head": "the numbers of all key or value heads, one head after the other",
}


@dataclass
class ShapesConfig:
    """The settings of shapes.py."""

    run: str | None
    model: ModelConfig


class Step(NamedTuple):
    """One tensor; `axes` are the names of its axes in order."""

    name: str
    formula: str
    axes: tuple[str, ...]
    tensor: Tensor


@torch.no_grad()
def walk(attention: CausalSelfAttention, x: Float[Tensor, "batch token d_model"]) -> list[Step]:
    """Run `x` through the module and return every tensor, in the order of computation."""
    masked = "later keys" if attention.window is None else "later keys and those before the window"
    names = {layer: name for name, layer in attention.named_children()}
    seen: dict[str, tuple[Tensor, Tensor]] = {}  # the input and output of each layer

    def watch(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if layer in names:
            seen[names[layer]] = inputs[0], output

    with register_module_forward_hook(watch), record_attention(attention, "steps") as layers:
        output = attention(x)
    (steps,) = layers
    projected = ("batch", "token", "head*d_head")
    kv_projected = ("batch", "token", "kv_head*d_head")
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
        Step("values by head", "V_h = V split into heads", kv_heads, steps.value),
    ]
    if isinstance(attention.query_norm, nn.RMSNorm):
        rows += [
            Step("queries normed", "Q_h / rms(Q_h) * gain", heads, seen["query_norm"][1]),
            Step("keys normed", "K_h / rms(K_h) * gain", kv_heads, seen["key_norm"][1]),
        ]
    if isinstance(attention.position, Rotary):
        rows += [
            Step("queries rotated", "Q_h rotated by position", heads, steps.query),
            Step("keys rotated", "K_h rotated by position", kv_heads, steps.key),
        ]
    return [
        *rows,
        Step("scores", "Q_h K_h^T", pairs, steps.scores),
        Step("scaled", "scores / sqrt(d_head)", pairs, steps.scaled),
        Step("masked", f"scaled; {masked}: -inf", pairs, steps.masked),
        Step("weights", "softmax(masked) over keys", pairs, steps.weights),
        Step("context", "weights V_h", ("batch", "head", "query", "d_head"), steps.context),
        Step("heads joined", "C = context, heads joined", projected, seen["output"][0]),
        Step("output", f"C W_O{bias}", ("batch", "token", "d_model"), output),
    ]


def print_walk(config: ModelConfig) -> None:
    """Print the tensors of two short texts, as bytes, in the first layer of a new model."""
    positions = config.context_length * config.d_head  # of their table
    needed = 4 * (config.n_weights(256) + positions)
    check_memory(needed, torch.device("cpu"), "it", "or model.context_length")
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
    """A table that wraps long cells instead of truncating them."""
    return Table(*(Column(name, overflow="fold") for name in columns), width=WIDTH)


def main(values: Values) -> None:
    config = build(ShapesConfig, values)
    if config.run is None:
        print_walk(config.model)
        return
    if any(name.startswith("model") for name in overridden()):
        raise UserError("model: is that of the run; leave out model or run")
    print_walk(Run.open(config.run, "run").config(RunConfig).model)


if __name__ == "__main__":
    run_script("shapes", main, ShapesConfig)
