"""Heads that are held off, against a model whose output matrices get constants from hooks."""

from __future__ import annotations

import torch

from model import KVCache, cross_entropy, record_attention

HEADS = {(0, 1): "L0H1", (1, 0): "L1H0", (1, 3): "L1H3"}
TOKENS = torch.randint(13, (3, 8), generator=torch.Generator().manual_seed(1))


def both(make_model, family):
    """The same model with and without the heads."""
    held = make_model(**family, hold_off=",".join(HEADS.values()))
    plain = make_model(**family)
    held.load_state_dict(plain.state_dict(), strict=False)
    return held, plain


def constant(held, layer, head):
    return held.get_parameter(f"blocks.{layer}.attention.hold.constants.{head}")


def test_a_held_head_passes_on_its_constant(make_model, family):
    """The loss and all gradients are those of the model whose hooks replace the head's columns, and
    none reaches what the head alone reads with."""
    held, plain = both(make_model, family)
    for layer, head in HEADS:

        def replace(_matrix, inputs, layer=layer, head=head):
            first = head * plain.config.d_head
            width = constant(held, layer, head).detach().expand(3, 8, -1)
            before, after = inputs[0][..., :first], inputs[0][..., first + width.shape[-1] :]
            return (torch.cat((before, width, after), dim=-1),)

        plain.blocks[layer].attention.output.register_forward_pre_hook(replace)
    losses = [cross_entropy(model(TOKENS), TOKENS.roll(-1, 1)) for model in (held, plain)]
    torch.testing.assert_close(*losses)
    for loss in losses:
        loss.backward()
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(held.get_parameter(name).grad, parameter.grad)
    d_head, shared = plain.config.d_head, 4 // plain.config.n_kv_heads
    for layer, head in HEADS:
        assert constant(held, layer, head).grad is None
        attention = held.blocks[layer].attention
        assert not attention.query.weight.grad[head * d_head :][:d_head].any()
        for matrix in (attention.key, attention.value):
            with_others = matrix.weight.grad.unflatten(0, (-1, d_head))[head // shared].any()
            assert with_others == (shared > 1), "a shared key and value serve another head"


def test_cached_logits_of_held_heads(make_model, family):
    held, plain = both(make_model, family)
    with torch.no_grad():
        whole = held(TOKENS)
        assert not torch.allclose(whole, plain(TOKENS), atol=1e-3)
        cache = KVCache(held.config, batch=3)
        pieces = [held(piece, cache) for piece in TOKENS.split([3, 1, 1, 3], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=1e-4, atol=1e-5)


def test_held_heads_are_recorded(make_model):
    """Their maps as they are, and their contexts as the constants."""
    held, plain = both(make_model, {})
    with torch.no_grad():
        with record_attention(held, keep="steps") as steps:
            logits = held(TOKENS)
        with record_attention(plain) as maps:
            plain(TOKENS)
        torch.testing.assert_close(logits, held(TOKENS), rtol=1e-4, atol=1e-5)
    assert torch.equal(steps[0].weights, maps[0])
    for layer, head in HEADS:
        context = steps[layer].context[:, head]
        assert torch.equal(context, constant(held, layer, head).expand_as(context))
