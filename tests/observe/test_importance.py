"""Importance is the rise of the loss without a head, on whole held-out documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from observe.importance import MAX_TOKENS, held_out, importance

from data.corpora import open_corpus
from data.corpus import text_of
from data.encoding import Dataset
from data.tokenizer import fixed_tokenizer
from launch.schema import preset
from model import GPT
from model.gpt import Block
from observe import importance as importance_module
from tests.conftest import small_config
from tests.observe.conftest import run_context


def model(context_length: int, **choices: object) -> GPT:
    torch.manual_seed(0)
    gpt = GPT(small_config(3, 2, 12, context_length, d_head=4, **choices), 256)
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.normal_(std=0.3)
    return gpt


@pytest.mark.parametrize("copies", [1, 16])
@pytest.mark.parametrize("choices", [{}, {"n_kv_heads": 1}, {"window": 3}])
def test_importance_is_that_of_hooks_that_replace_the_output_of_one_head(
    choices: dict[str, Any], copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importance_module, "COPIES", copies)
    gpt = model(16, **choices, dropout=0.5).train()
    inputs, targets = torch.randint(256, (2, 4, 9))
    targets[0, :3] = -100  # not scored
    before = {name: each.clone() for name, each in gpt.state_dict().items()}
    found = importance(gpt, (inputs, targets))
    assert found.keys() == {"importance", "importance, error"} and gpt.training
    assert all(torch.equal(each, before[name]) for name, each in gpt.state_dict().items())
    gpt.eval()

    def loss() -> float:
        with torch.no_grad():
            logs = F.log_softmax(gpt(inputs).double(), dim=-1)
        scored = [
            logs[row, place, target].item()
            for row, targets_of_row in enumerate(targets.tolist())
            for place, target in enumerate(targets_of_row)
            if target >= 0
        ]
        assert len(scored) == 33
        return -sum(scored) / len(scored)

    intact = loss()
    for layer, block in enumerate(gpt.blocks):
        assert isinstance(block, Block)
        for head in range(2):

            def ablated(_module: object, joined: tuple, head: int = head) -> torch.Tensor:
                context = joined[0].clone()
                part = context[..., 4 * head : 4 * head + 4]
                part[:] = part[targets >= 0].mean(0)
                return context

            handle = block.attention.output.register_forward_pre_hook(ablated)
            rise = loss() - intact
            handle.remove()
            assert found["importance"][layer, head] == pytest.approx(rise, abs=1e-5)
    assert np.ptp(found["importance"]) > 0.01
    assert 0 < found["importance, error"].min() < np.ptp(found["importance"])


def test_tales_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each window scores all tokens of one tale, after the end of the one before."""
    monkeypatch.setattr(importance_module, "MAX_TOKENS", 4096)
    tokenizer = fixed_tokenizer("byte")
    corpus = open_corpus(preset("data", "tales", n_bytes=300_000))
    text = "".join(text_of(corpus, "val"))
    tokens = np.array(tokenizer.encode(text), dtype=np.uint16)
    tales = [tale.encode() for tale in text.split("\n\n") if tale]
    starts = np.cumsum([0, *(len(tale) + 2 for tale in tales[:-1])])
    longest = max(map(len, tales)) + 2
    context = run_context(tmp_path, model=model(longest))
    context = replace(
        context,
        dataset=Dataset(tokenizer, tokens, tokens, None, "0", None, starts, starts),
    )
    inputs, targets = held_out(context)
    assert 4096 / 2 < (targets >= 0).sum() < 2 * 4096
    assert len({int((row >= 0).sum()) for row in targets}) > 1, "shorter ones are padded"
    for read, wanted in zip(inputs, targets, strict=True):
        window = wanted[wanted >= 0]
        assert bytes(window.tolist()).removesuffix(b"\n\n") in tales
        assert torch.equal(read[: len(window)], torch.cat((torch.tensor([ord("\n")]), window[:-1])))


@pytest.mark.parametrize("context_length", [8, 64, 4096])
def test_other_texts_give_about_as_many_tokens(tmp_path: Path, context_length: int) -> None:
    context = run_context(tmp_path, model=model(context_length))
    tokens = (np.arange(100_000) % 251).astype(np.uint16)
    context = replace(context, dataset=replace(context.dataset, val=tokens))
    inputs, targets = held_out(context)
    assert targets.numel() == MAX_TOKENS and (targets >= 0).all()
    assert torch.equal((inputs + 1) % 251, targets)
    assert inputs.shape[1] == min(MAX_TOKENS // 4, context_length)


def test_a_short_split_is_read_whole(tmp_path: Path) -> None:
    context = run_context(tmp_path, model=model(64))
    for n in (2, 40):
        few = np.arange(n, dtype=np.uint16)
        inputs, targets = held_out(replace(context, dataset=replace(context.dataset, val=few)))
        assert inputs.tolist() == [list(range(n - 1))]
        assert targets.tolist() == [list(range(1, n))]
