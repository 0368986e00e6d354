"""Ablated heads and MLPs add nothing, or always the same, to the residual stream; the rest is
unchanged."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from model import ablate, mean_outputs

HEADS = [(0, 1), (1, 0), (1, 3)]


@torch.no_grad()
def test_zero_is_that_of_matrices_that_write_zeros(make_model, family):
    """The output matrix without the columns of the heads, and an MLP without its last one."""
    model, tokens = make_model(**family), torch.randint(13, (3, 7))
    intact = model(tokens)
    with ablate(model, HEADS, "zero", mlps=[1]):
        got = model(tokens)
    torch.testing.assert_close(model(tokens), intact, rtol=0, atol=0)
    for layer, head in HEADS:
        model.blocks[layer].attention.output.weight[:, 4 * head : 4 * head + 4] = 0
    for parameter in model.blocks[1].mlp.down.parameters():
        parameter.zero_()
    torch.testing.assert_close(got, model(tokens), rtol=1e-4, atol=1e-5)


def batches_of(rows, size):
    """Texts with their targets, `size` of them padded to one length at a time."""
    for at in range(0, len(rows), size):
        longest = max(len(row) for row in rows[at : at + size]) - 1
        batch = torch.full((2, len(rows[at : at + size]), longest), 5)  # padding is read
        batch[1] = -100
        for place, row in enumerate(rows[at : at + size]):
            batch[0, place, : len(row) - 1], batch[1, place, : len(row) - 1] = row[:-1], row[1:]
        yield batch[0], batch[1]


@torch.no_grad()
@pytest.mark.parametrize("size", [1, 3, 8])
def test_means_are_over_all_tokens_and_no_padding(make_model, family, size):
    """One long text beside seven short ones, against a loop over the texts one by one; the result
    does not depend on which of them are read together."""
    model = make_model(**family, context_length=40, dropout=0.5).train()
    rows = [torch.randint(13, (n,)) for n in (40, *(7,) * 7)]
    means = mean_outputs(model, batches_of(rows, size))
    assert model.training
    sums: dict[Any, Any] = {}
    count = 0
    for row in rows:
        x = model.eval().embed(row[None, :-1])
        for layer, block in enumerate(model.blocks):
            gathered: list[torch.Tensor] = []
            hook = block.attention.output.register_forward_pre_hook(
                lambda _, given, gathered=gathered: gathered.append(given[0])
            )
            x = x + block.attention(block.attention_norm(x))
            hook.remove()
            written = block.mlp(block.mlp_norm(x))
            x = x + written
            for head in range(4):
                part = gathered[0][0, :, 4 * head : 4 * head + 4]
                sums[layer, head] = sums.get((layer, head), 0) + part.sum(0)
            sums[f"mlp {layer}"] = sums.get(f"mlp {layer}", 0) + written[0].sum(0)
        count += len(row) - 1
    assert means.keys() == sums.keys() and count == 39 + 7 * 6
    expected = {part: total / count for part, total in sums.items()}
    torch.testing.assert_close(means, expected, rtol=1e-4, atol=1e-5)


def test_means_need_a_token_with_a_target(make_model):
    nothing = torch.full((1, 3), -100)
    with pytest.raises(ValueError, match=r"^batches: no token has a target"):
        mean_outputs(make_model(), [(torch.zeros_like(nothing), nothing)])


@pytest.mark.parametrize(
    ("heads", "mlps", "by", "reason"),
    [
        ([(0, 0)], [], "mean", "by: 'mean' is unknown; give 'zero', or means from `mean_outputs`"),
        ([(0, 0)], [1], {(0, 0): torch.zeros(4)}, "by: has no constant of 'mlp 1'"),
        ([(0, 0), (2, 0)], [], "zero", "layer: 2 is out of range; give at least 0 and at most 1"),
    ],
)
def test_what_the_model_does_not_have_is_refused(make_model, heads, mlps, by, reason):
    model, tokens = make_model(n_kv_heads=2), torch.randint(13, (2, 6))
    intact = model(tokens)
    with pytest.raises(ValueError, match=f"^{reason}"):
        ablate(model, heads, by, mlps).__enter__()
    torch.testing.assert_close(model(tokens), intact, rtol=0, atol=0)
