"""The whole model: attention paths, causality, cache, parameter counts, gradients."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from model import GPT, KVCache, cross_entropy, edit, eval_mode, record_attention
from model.attention import CausalSelfAttention

assert_close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("pieces", [[1] * 8, [5, 1, 2]])
def test_the_cache_changes_nothing(make_model, family, pieces):
    model = make_model(**family)
    tokens = torch.randint(13, (2, 8))
    expected = model(tokens)

    def in_pieces() -> torch.Tensor:
        cache = KVCache(model.config, batch=2)
        logits = [model(piece, cache) for piece in tokens.split(pieces, dim=1)]
        assert cache.length == 8
        return torch.cat(logits, dim=1)

    assert_close(in_pieces(), expected)
    with record_attention(model):
        assert_close(in_pieces(), expected)


@torch.no_grad()
def test_a_future_token_changes_no_earlier_logit(make_model, family):
    model, tokens = make_model(**family), torch.randint(13, (1, 8))
    before = model(tokens)
    for place in range(8):
        changed = tokens.clone()
        changed[0, place] = (tokens[0, place] + 5) % 13
        after = model(changed)
        assert torch.equal(after[:, :place], before[:, :place])
        assert not torch.equal(after[:, place], before[:, place])


def test_gradients_flow_to_every_parameter(make_model, family):
    model = make_model(**family, tied_embeddings=False)
    tokens = torch.arange(13).repeat(3)[:32].view(4, 8)
    cross_entropy(model(tokens), tokens.roll(-1, dims=1)).backward()
    for name, parameter in model.named_parameters():
        if name.endswith("key.bias") and not family["qk_norm"] and family["position"] == "learned":
            continue  # adds a constant to each row of scores, which the softmax ignores
        assert parameter.grad is not None, name
        assert (parameter.grad != 0).any(), name
        if name in ("token_embedding.weight", "position.weight"):
            assert (parameter.grad != 0).all(), "every token and position is in the batch"


@pytest.mark.parametrize("tied", [True, False])
def test_initial_weights(make_config, tied):
    choices = {"n_kv_heads": 2, "bias": True, "position": "learned", "tied_embeddings": tied}
    config = make_config(n_layers=8, d_model=64, **choices)
    torch.manual_seed(3)
    model = GPT(config, 200)
    torch.manual_seed(3)
    again = GPT(config, 200)
    stds = {
        "token_embedding": 0.5,
        "position": 0.5,
        "value": 1 / 8,
        "output": 1 / 8 / 4,
        "down": 0.02 / 4,
    }
    for (name, parameter), same in zip(model.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(parameter, same), "the weights depend only on torch's seed"
        if name.endswith("bias"):
            assert (parameter == 0).all(), name
        elif "norm" in name:
            expected = 0.04 if tied and name == "final_norm.weight" else 1
            assert (parameter == expected).all(), name
        else:
            expected = next((std for part, std in stds.items() if f"{part}.w" in name), 0.02)
            assert parameter.std().item() == pytest.approx(expected, rel=0.1), name
    tokens, targets = torch.randint(200, (2, 16, 8))
    loss = cross_entropy(model(tokens), targets).item()
    assert loss == pytest.approx(math.log(200), abs=0.1)


def test_a_new_layer_passes_on_what_its_heads_read(make_config):
    model = GPT(make_config(n_layers=2, n_heads=4, n_kv_heads=2, d_head=6, d_model=12), 20)
    layers = [each for each in model.modules() if isinstance(each, CausalSelfAttention)]
    assert len(layers) == 2
    for layer in layers:
        value, output = layer.value.weight, layer.output.weight
        for head in range(4):
            read = value[head // 2 * 6 :][:6]
            assert_close(output[:, head * 6 :][:, :6], read.T / 2)


def test_dropout_applies_only_in_training(make_model):
    model = make_model(dropout=0.3)
    tokens = torch.randint(13, (2, 8))
    assert torch.equal(model(tokens), model(tokens))
    model.train()
    torch.manual_seed(1)
    first = model(tokens)
    assert not torch.equal(first, model(tokens))
    torch.manual_seed(1)
    assert torch.equal(first, model(tokens)), "dropout depends only on torch's seed"
    model.blocks[0].eval()
    with eval_mode(model):
        assert torch.equal(model(tokens), model(tokens))
    assert model.training and model.blocks[1].mlp.training and not model.blocks[0].mlp.training


@pytest.mark.parametrize("mlp", ["gelu", "swiglu"])
def test_dropout_applies_to_the_embedding_and_every_branch(make_model, mlp):
    model = make_model(dropout=0.5, mlp=mlp).train()
    dropped: dict[str, torch.Tensor] = {}
    block = model.blocks[0]
    block.register_forward_pre_hook(lambda _, inputs: dropped.update(embedding=inputs[0]))
    block.attention.register_forward_hook(lambda _, __, out: dropped.update(attention=out))
    block.mlp.register_forward_hook(lambda _, __, out: dropped.update(mlp=out))
    model(torch.randint(13, (4, 8)))
    assert dropped.keys() == {"embedding", "attention", "mlp"}
    for place, x in dropped.items():
        assert (x == 0).float().mean().item() == pytest.approx(0.5, abs=0.1), place


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.zeros(1, 9, dtype=torch.long), "9 tokens exceed context_length=8"),
        (torch.tensor([[0, 13]]), "ids run from 0 to 13; the vocabulary has ids 0 to 12"),
        (torch.tensor([[-1, 2]]), "ids run from -1 to 2"),
        (torch.tensor([1, 2]), r"tokens: have the shape \[2\]; give a batch"),
    ],
)
def test_invalid_tokens_raise(make_model, no_shape_checks, tokens, message):
    with pytest.raises(ValueError, match=message):
        make_model()(tokens)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 3), "9 tokens exceed context_length=8"),
        ((2, 1), "cache: is for a batch of 1; 2 were given"),
    ],
)
def test_what_a_cache_has_no_room_for_raises(make_model, shape, message):
    model = make_model()
    cache = KVCache(model.config, batch=1)
    model(torch.zeros(1, 6, dtype=torch.long), cache)
    with pytest.raises(ValueError, match=message):
        model(torch.zeros(shape, dtype=torch.long), cache)


@torch.no_grad()
def test_a_cache_after_a_call_that_was_interrupted(make_model):
    model, tokens = make_model(), torch.randint(13, (1, 8))

    def interrupt(_value: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt

    cache = KVCache(model.config, batch=1)
    model(tokens[:, :4], cache)
    with pytest.raises(KeyboardInterrupt), edit(model, {"mlp 0": interrupt}):
        model(tokens[:, 4:6], cache)
    assert_close(model(tokens[:, 4:], cache), model(tokens)[:, 4:])


@torch.no_grad()
def test_the_cache_of_a_model_that_lost_its_last_layer(make_model):
    model, tokens = make_model(), torch.randint(13, (1, 8))
    cache = KVCache(model.config, batch=1)
    model.blocks = model.blocks[:1]
    pieces = [model(piece, cache) for piece in tokens.split(2, dim=1)]
    assert_close(torch.cat(pieces, dim=1), model(tokens))


@torch.no_grad()
@pytest.mark.parametrize("assign", [False, True])
def test_a_model_that_is_made_without_memory(make_model, assign):
    model, tokens = make_model(position="rotary"), torch.randint(13, (1, 8))
    with torch.device("meta"):
        empty = GPT(model.config, 13)
    loaded = empty if assign else empty.to_empty(device="cpu")
    loaded.load_state_dict(model.state_dict(), assign=assign)
    torch.testing.assert_close(loaded.eval()(tokens), model(tokens), rtol=0, atol=0)


def test_it_compiles_into_one_graph(make_model, no_shape_checks):
    model = make_model()
    tokens = torch.randint(13, (2, 8))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert_close(compiled(tokens), model(tokens))
    assert_close(compiled(tokens, targets=tokens), model(tokens, targets=tokens))


def test_half_precision_stays_close_and_does_not_warn(make_model, family, recwarn):
    model = make_model(**family)
    tokens = torch.randint(13, (2, 8))
    expected = cross_entropy(model(tokens), tokens)
    with torch.autocast("cpu", torch.bfloat16):
        loss = cross_entropy(model(tokens), tokens)
        with record_attention(model):
            explicit = cross_entropy(model(tokens), tokens)
    loss.backward()
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=0.05, atol=0.05)
    torch.testing.assert_close(explicit, expected, rtol=0.05, atol=0.05)
    assert not list(recwarn)
