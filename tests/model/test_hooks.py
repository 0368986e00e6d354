"""Parts of a model that are ablated, patched or edited have the values that they are given, and the
rest is computed from them; recorded maps are what the model used."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from model import (
    AttentionSteps,
    KVCache,
    ablate,
    edit,
    fused_attention,
    mean_outputs,
    patch,
    record_attention,
)


def texts(n: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(13, (3, n)), torch.randint(13, (3, n))


def parts_of(model, tokens):
    """What each head gathers, what each MLP adds, and the stream before each layer and after the
    last."""
    found: dict[object, torch.Tensor] = {}
    gathered: list[torch.Tensor] = []
    x = model.embed(tokens)
    for layer, block in enumerate(model.blocks):
        found[f"stream {layer}"] = x
        hook = block.attention.output.register_forward_pre_hook(
            lambda _module, inputs: gathered.append(inputs[0])
        )
        x = x + block.attention(block.attention_norm(x))
        hook.remove()
        for head, value in enumerate(gathered.pop().chunk(model.config.n_heads, dim=-1)):
            found[layer, head] = value
        found[f"mlp {layer}"] = block.mlp(block.mlp_norm(x))
        x = x + found[f"mlp {layer}"]
    found[f"stream {len(model.blocks)}"] = x
    return found


def batches_of(rows, size):
    """Texts with their targets, `size` of them padded to one length at a time."""
    for at in range(0, len(rows), size):
        some = rows[at : at + size]
        inputs = pad_sequence([row[:-1] for row in some], True, 5)  # padding is read
        yield inputs, pad_sequence([row[1:] for row in some], True, -100)


@torch.no_grad()
@pytest.mark.parametrize("size", [1, 3, 8])
def test_means_are_over_all_tokens_and_no_padding(make_model, family, size):
    """One long text beside seven short ones, against the texts one by one; the result does not
    depend on which of them are read together."""
    model = make_model(**family, context_length=40, dropout=0.5).train()
    rows = [torch.randint(13, (n,)) for n in (40, *(7,) * 7)]
    means = mean_outputs(model, batches_of(rows, size))
    assert model.training
    of_rows = [parts_of(model.eval(), row[None, :-1]) for row in rows]
    expected = {
        part: torch.cat([parts[part][0] for parts in of_rows]).mean(0)
        for part in of_rows[0]
        if not str(part).startswith("stream")
    }
    torch.testing.assert_close(means, expected, rtol=1e-4, atol=1e-5)


def test_means_need_a_token_with_a_target(make_model):
    nothing = torch.full((1, 3), -100)
    with pytest.raises(ValueError, match=r"^batches: no token has a target"):
        mean_outputs(make_model(), [(torch.zeros_like(nothing), nothing)])


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
    """The explicit sum of a block, with the values of one head and of the MLP exchanged, a constant
    for another head, and a third one negated, which is recorded as it was."""
    model, (one, other) = make_model(**family), texts()
    ours, theirs = parts_of(model, one), parts_of(model, other)
    gathered = [ours[1, head] for head in range(4)]
    gathered[1], gathered[2] = -ours[1, 1], theirs[1, 2]
    constant = torch.randn(model.config.d_head)
    gathered[3] = constant.expand_as(gathered[3])
    stream = ours["stream 1"] + model.blocks[1].attention.output(torch.cat(gathered, dim=-1))
    expected = model.logits(model.final_norm(stream + theirs["mlp 1"]))
    assert len(model.blocks) == 2
    values = {(1, 2): theirs[1, 2], (1, 3): constant, "mlp 1": theirs["mlp 1"]}
    negated = edit(model, {(1, 1): torch.neg})
    with record_attention(model, keep="context") as contexts, patch(model, values), negated:
        torch.testing.assert_close(model(one), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(contexts[1][:, 1], ours[1, 1], rtol=1e-4, atol=1e-4)


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
def test_heads_are_spelled_as_users_do(make_model):
    """As JSON and NumPy have them."""
    model, (one, _) = make_model(), texts()
    with ablate(model, [(1, 0)], "zero"):
        expected = model(one)
    lists: list[Any] = [[[1, 0]], [(np.int64(1), np.int64(0))]]
    for heads in lists:
        with ablate(model, heads, "zero"):
            torch.testing.assert_close(model(one), expected, rtol=0, atol=0)


ZERO = torch.zeros(4)


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (lambda model: record_attention(model, keep="maps"), "keep: 'maps' is unknown; "),
        (lambda model: ablate(model, [(0, 0)], "mean"), "by: 'mean' is unknown; give 'zero', "),
        (lambda model: ablate(model, [], {(0, 0): ZERO}, [1]), "by: has no constant of 'mlp 1'"),
        (lambda model: ablate(model, (1, 0), "zero"), "1 is no part of a model"),
        (lambda model: patch(model, {(2, 0): ZERO}), "layer: 2 is out of range"),
        (lambda model: patch(model, {(0, 4): ZERO}), "head: 4 is out of range"),
        (lambda model: patch(model, {"stream 3": ZERO}), "layer: 3 is out of range"),
        (lambda model: patch(model, {"query 1": ZERO}), "'query 1' is no part of a model"),
        (lambda model: patch(model, {(1, 0, 0): ZERO}), "(1, 0, 0) is no part of a model"),
    ],
)
def test_what_there_is_not_is_refused(make_model, use, reason):
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}"), use(make_model()):
        pass


@torch.no_grad()
@pytest.mark.parametrize("part", [(1, 2), "mlp 0", "stream 1"])
def test_values_that_do_not_fit_are_refused(make_model, part, no_shape_checks):
    model, (one, other) = make_model(), texts()
    intact = model(one)
    wrong: dict[str, Any] = {
        "gives a ndarray; give a Tensor": np.zeros(4, np.float32),
        "has the shape [99]; it replaces [3, 7, ": torch.zeros(99),
        "has the shape [3, 5, ": parts_of(model, other[:, :5])[part],
    }
    for reason, value in wrong.items():
        refused = pytest.raises(ValueError, match=re.escape(f"{part}: {reason}"))
        with refused, patch(model, {part: value}):
            model(one)
    torch.testing.assert_close(model(one), intact, rtol=0, atol=0)


def test_activation_checkpointing_loses_no_layer(make_model):
    """Its backward pass computes layers again, the last one first."""
    model, tokens = make_model().train(), torch.randint(13, (2, 7))
    with record_attention(model) as expected:
        model(tokens)
    model.checkpoint_activations()
    with record_attention(model) as maps:
        model(tokens, targets=tokens).backward()
    for weights, theirs in zip(maps, expected, strict=True):
        torch.testing.assert_close(weights, theirs)


@torch.no_grad()
def test_with_a_cache_the_new_rows_are_recorded(make_model, family):
    model = make_model(**family)
    tokens = torch.randint(13, (1, 8))
    with record_attention(model) as maps:
        model(tokens)
        whole = [weights.clone() for weights in maps]
        cache = KVCache(model.config, batch=1)
        model(tokens[:, :5], cache)
        model(tokens[:, 5:], cache)
    for rows, weights in zip(maps, whole, strict=True):
        torch.testing.assert_close(rows, weights[:, :, 5:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [2, 0, 1]])
@torch.no_grad()
def test_recordings_and_edits_close_in_any_order(make_model, order):
    """After each, the model is that of those that are still open."""
    model, tokens = make_model(), torch.randint(13, (1, 5))
    edits = [[(0, 1)], [(1, 2)], [(0, 3)]]
    opened = [(record_attention(model), ablate(model, heads, "zero")) for heads in edits]
    lists = []
    for recording, ablation in opened:
        lists.append(recording.__enter__())
        ablation.__enter__()
    still = {0, 1, 2}
    for place in order:
        for context in opened[place]:
            context.__exit__(None, None, None)
        still.remove(place)
        for records in lists:
            records.clear()
        logits = model(tokens)
        assert [bool(records) for records in lists] == [
            bool(still) and place == max(still) for place in range(3)
        ]
        with ablate(model, [head for each in still for head in edits[each]], "zero"):
            torch.testing.assert_close(model(tokens), logits)
    attention = model.blocks[0].attention
    assert attention.attends == [fused_attention] and not attention.edits
    assert torch.equal(model(tokens), make_model()(tokens))


def test_recording_the_original_of_a_compiled_model(make_model, no_shape_checks):
    model = make_model()
    tokens = torch.randint(13, (1, 8))
    graphs = []

    def count(graph, _inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(model, backend=count)
    expected = compiled(tokens)
    n_graphs = len(graphs)
    with record_attention(model) as maps:
        torch.testing.assert_close(model(tokens), expected, rtol=1e-4, atol=1e-4)
    assert len(maps) == 2
    torch.testing.assert_close(compiled(tokens), expected)
    assert len(graphs) == n_graphs, "the compiled code is still valid"


@pytest.mark.parametrize("name", AttentionSteps._fields)
def test_any_tensor_of_the_formula_can_be_recorded(make_model, name):
    model, tokens = make_model(n_kv_heads=2), torch.randint(13, (2, 5))
    with record_attention(model, keep="steps") as steps, torch.no_grad():
        model(tokens)
    with record_attention(model, keep=name) as records:
        model(tokens)
    assert len(records) == len(steps) == 2
    for record, step in zip(records, steps, strict=True):
        assert torch.equal(record, getattr(step, name)) and not record.requires_grad
