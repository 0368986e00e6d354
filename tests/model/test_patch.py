"""Patched parts have the values that they are given; the rest is computed from them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from model import ablate, edit, patch


def texts(n: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(13, (3, n)), torch.randint(13, (3, n))


def parts_of(model, tokens):
    """What each head gathers, what each MLP adds, and the stream before each layer and after the
    last: by hooks on what PyTorch computes."""
    found: dict[object, torch.Tensor] = {}
    hooks = []
    for layer, block in enumerate(model.blocks):
        n_heads = model.config.n_heads

        def gather(_module, inputs, layer=layer, n_heads=n_heads):
            for head, value in enumerate(inputs[0].chunk(n_heads, dim=-1)):
                found[layer, head] = value

        def add(_module, _inputs, output, layer=layer):
            found[f"mlp {layer}"] = output

        def stream(_module, inputs, layer=layer):
            found[f"stream {layer}"] = inputs[0]

        hooks.append(block.attention.output.register_forward_pre_hook(gather))
        hooks.append(block.mlp.register_forward_hook(add))
        hooks.append(block.register_forward_pre_hook(stream))
    last = f"stream {len(model.blocks)}"
    hooks.append(
        model.final_norm.register_forward_pre_hook(
            lambda _module, inputs: found.update({last: inputs[0]})
        )
    )
    model(tokens)
    for hook in hooks:
        hook.remove()
    return found


@torch.no_grad()
def test_the_stream_of_another_text_gives_its_logits(make_model, family):
    model, (one, other) = make_model(**family), texts()
    theirs, expected = parts_of(model, other), model(other)
    for layer in range(len(model.blocks) + 1):
        with patch(model, {f"stream {layer}": theirs[f"stream {layer}"]}):
            torch.testing.assert_close(model(one), expected, rtol=0, atol=0)
    with patch(model, {"stream 1": theirs["stream 1"][:1]}):  # one text, in all of the batch
        torch.testing.assert_close(model(one), expected[:1].expand_as(expected))
    assert not torch.allclose(model(one), model(other))


@torch.no_grad()
def test_a_head_and_an_mlp_of_another_text(make_model, family):
    """The explicit sum of a block, with the values of one head and of the MLP exchanged, and a
    constant for another head."""
    model, (one, other) = make_model(**family), texts()
    ours, theirs = parts_of(model, one), parts_of(model, other)
    block, n_heads = model.blocks[1], model.config.n_heads
    gathered = [ours[1, head] for head in range(n_heads)]
    gathered[2] = theirs[1, 2]
    constant = torch.randn(model.config.d_head)
    gathered[3] = constant.expand_as(gathered[3])
    stream = ours["stream 1"] + block.attention.output(torch.cat(gathered, dim=-1))
    expected = model.logits(model.final_norm(stream + theirs["mlp 1"]))
    assert len(model.blocks) == 2
    with patch(model, {(1, 2): theirs[1, 2], (1, 3): constant, "mlp 1": theirs["mlp 1"]}):
        torch.testing.assert_close(model(one), expected, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_the_inner_edit_comes_last(make_model):
    model, (one, other) = make_model(), texts()
    value = parts_of(model, other)[1, 0]
    with patch(model, {(1, 0): value}):
        patched = model(one)
    with ablate(model, [(1, 0)], "zero"):
        ablated = model(one)
        with patch(model, {(1, 0): value}):
            torch.testing.assert_close(model(one), patched, rtol=0, atol=0)
    with patch(model, {(1, 0): value}), ablate(model, [(1, 0)], "zero"):
        torch.testing.assert_close(model(one), ablated, rtol=0, atol=0)
    assert not torch.allclose(patched, ablated)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ((2, 0), "layer"),
        ((0, 4), "head"),
        ("stream 3", "layer"),
        ("query 1", "'query 1' is no part of a model"),
        ((1, 0, 0), "(1, 0, 0) is no part of a model"),
    ],
)
def test_what_the_model_does_not_have_is_refused(make_model, part, reason):
    model = make_model()
    with pytest.raises(ValueError, match=re.escape(reason)), patch(model, {part: torch.zeros(1)}):
        pass


@torch.no_grad()
@pytest.mark.parametrize("part", [(0, 2), "mlp 0", "stream 1", "stream 2"])
def test_compiled_code_sees_an_edit(make_model, part, no_shape_checks):
    model, (one, _) = make_model(), texts()
    compiled: Any = torch.compile(model, backend="eager")
    intact = compiled(one)
    with edit(compiled, {part: torch.neg}):
        changed = compiled(one)
        torch.testing.assert_close(changed, model(one))
    assert not torch.allclose(changed, intact)
    torch.testing.assert_close(compiled(one), intact)


@torch.no_grad()
@pytest.mark.parametrize("part", [(0, 2), "mlp 0", "stream 1"])
def test_values_that_are_no_tensors_are_refused(make_model, part, no_shape_checks):
    model, (one, _) = make_model(), texts()
    wrong: Any = np.zeros(4, np.float32)
    refused = pytest.raises(ValueError, match=re.escape(f"{part}: gives a ndarray; give a Tensor"))
    with refused, patch(model, {part: wrong}):
        model(one)


@torch.no_grad()
def test_heads_are_spelled_as_users_do(make_model):
    """As JSON and NumPy have them; one head is no list of heads."""
    model, (one, _) = make_model(), texts()
    with ablate(model, [(1, 0)], "zero"):
        expected = model(one)
    lists: list[Any] = [[[1, 0]], [(np.int64(1), np.int64(0))]]
    for heads in lists:
        with ablate(model, heads, "zero"):
            torch.testing.assert_close(model(one), expected, rtol=0, atol=0)
    with pytest.raises(ValueError, match="1 is no part of a model"), ablate(model, (1, 0), "zero"):
        pass


@torch.no_grad()
@pytest.mark.parametrize("part", [(1, 2), "mlp 0", "stream 1"])
def test_values_of_another_shape_are_refused(make_model, part):
    model, (one, other) = make_model(), texts()
    short = parts_of(model, other[:, :5])[part]
    intact = model(one)
    for wrong in (short, torch.zeros(99)):
        shape = re.escape(str([*wrong.shape]))
        refused = pytest.raises(ValueError, match=rf"has the shape {shape}; it replaces \[3, 7, ")
        with refused, patch(model, {part: wrong}):
            model(one)
    torch.testing.assert_close(model(one), intact, rtol=0, atol=0)
