"""Recorded maps are the weights that the model used, and recording has no side effects."""

from __future__ import annotations

import pytest
import torch

from model import AttentionSteps, KVCache, ablate, fused_attention, record_attention


def attends(model):
    return [block.attention.attend for block in model.blocks]


def test_maps_are_causal_distributions(make_model, family):
    model = make_model(**family)
    with record_attention(model) as maps:
        model(torch.randint(13, (3, 7)))
    assert len(maps) == 2
    for weights in maps:
        assert weights.shape == (3, 4, 7, 7) and not weights.requires_grad
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4, 7))
        assert (weights.triu(1) == 0).all()
        assert (weights >= 0).all()
    assert not torch.allclose(maps[0], maps[1]), "each layer has its own map"


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
    assert attends(model) == [fused_attention] * 2 and not model.blocks[0].attention.edits
    intact = make_model()
    intact.load_state_dict(model.state_dict())
    assert torch.equal(model(tokens), intact(tokens))


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


def test_an_unknown_tensor_is_refused(make_model):
    model = make_model()
    before = attends(model)
    with pytest.raises(ValueError, match=r"keep: 'maps' is unknown; .*weights"):
        record_attention(model, keep="maps").__enter__()
    assert attends(model) == before
