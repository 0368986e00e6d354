"""The need for heads is the rise of the loss without each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import observe.need
from data.corpora import open_corpus
from data.roles import ROLES
from data.tales import Tales
from launch.schema import preset
from model import GPT, mean_outputs
from model.gpt import Block
from observe.heads import documents_of
from observe.need import KINDS, target_kinds, token_kinds, token_losses
from tests.observe.conftest import TOKENIZER, dataset_of, random_model


def model(context_length: int, **choices: object) -> GPT:
    return random_model(3, 2, 12, context_length, std=0.3, d_head=4, **choices)


@pytest.mark.parametrize("copies", [1, 16])
@pytest.mark.parametrize("choices", [{}, {"n_kv_heads": 1}, {"window": 3}])
def test_need_is_that_of_hooks_that_replace_the_output_of_one_head(
    choices: dict[str, Any], copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its mean over all tokens of all windows, of whatever length."""
    monkeypatch.setattr(observe.need, "COPIES", copies)
    gpt = model(16, **choices).eval()
    documents = documents_of(
        gpt, dataset_of(["Ada fed a hen.\n", "A hen!\n", "No, two red ants.\n"]), 100
    )
    before = {name: each.clone() for name, each in gpt.state_dict().items()}
    means = mean_outputs(gpt, documents.batches)
    losses = [token_losses(gpt, batch, means) for batch in documents.batches]
    found = sum((without - loss).sum((-2, -1)) for without, loss in losses) / documents.n_tokens
    assert found.shape == (3, 2)
    assert all(torch.equal(each, before[name]) for name, each in gpt.state_dict().items())
    windows = [(torch.from_numpy(each.ids), each.targets) for each in documents.windows]

    def contexts(block: Block) -> torch.Tensor:
        """What the output matrix of a block reads at the scored tokens of all windows."""
        seen: list[torch.Tensor] = []
        handle = block.attention.output.register_forward_pre_hook(
            lambda _module, given: seen.append(given[0][0])
        )
        with torch.no_grad():
            for ids, _ in windows:
                gpt(ids[None])
        handle.remove()
        rows = [each[targets >= 0] for each, (_, targets) in zip(seen, windows, strict=True)]
        return torch.cat(rows)

    def loss() -> float:
        losses = []
        for ids, targets in windows:
            with torch.no_grad():
                logs = F.log_softmax(gpt(ids[None])[0].double(), dim=-1)
            losses += [-logs[place, id].item() for place, id in enumerate(targets) if id >= 0]
        return sum(losses) / len(losses)

    intact = loss()
    for layer, block in enumerate(gpt.blocks):
        assert isinstance(block, Block)
        of_layer = contexts(block).mean(0)
        for head in range(2):
            part = slice(4 * head, 4 * head + 4)

            def ablated(_module: object, joined: tuple, part: slice = part) -> torch.Tensor:
                context = joined[0].clone()
                context[..., part] = of_layer[part]  # noqa: B023
                return context

            handle = block.attention.output.register_forward_pre_hook(ablated)
            rise = loss() - intact
            handle.remove()
            assert found[layer, head] == pytest.approx(rise, abs=1e-5)
    assert np.ptp(found) > 0.01


def test_the_targets_of_tales_have_their_roles() -> None:
    corpus = open_corpus(preset("data", "tales", n_bytes=300_000))
    assert isinstance(corpus, Tales)
    tales = [tale for _, tale in zip(range(5), corpus.tales("val"), strict=False)]
    texts = dataset_of([tale.text + corpus.document_end for tale in tales])
    documents = documents_of(model(128), texts, 10_000)  # the windows of a tale overlap
    names, found = target_kinds(corpus, TOKENIZER, documents)
    assert names == ROLES
    known: dict[int, int] = {}  # by place in the split
    for window, kinds in zip(documents.windows, found, strict=True):
        assert len(kinds) == len(window.targets)
        for place, kind in enumerate(kinds, window.begin):
            assert known.setdefault(place, kind) == kind
    assert texts.val_starts is not None
    for tale, start in zip(tales, texts.val_starts.tolist(), strict=True):
        first = next(mention for mention in tale.mentions if mention.name == "hero")
        again = [mention for mention in tale.mentions if mention.name == "hero"][1]
        assert ROLES[known[start + first.start]] == "first choices"
        assert ROLES[known[start + again.start]] == "names again"
        assert ROLES[known[start + again.start + 1]] == "spelling within a word"


N, B, W, P, S = "new words", "words mentioned before", "within words", "punctuation", "white space"


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (
            ["Ben", " saw", " a", " d", "oe", ".", "\n", "Ben", " d", "uck", " d", "oe"],
            [N, N, N, W, P, S, B, N, W, B, W],
        ),
        ([b" ", *(bytes([byte]) for byte in "Ёж „ё".encode())], [N, W, W, W, S, P, P, P, N, W]),
        (["the", " क", "ि", "ताब", "।", "", "the"], [N, W, W, P, S, B]),  # a vowel sign; an end
        ([" café", " caf", b"\xc3", b"\xa9", "😀"], [B, W, W, P]),
        (["I", " \u2764\ufe0f", " می", "\u200c", "خواهم"], [P, N, W, W]),  # a heart; a joiner
    ],
    ids=("english", "bytes", "hindi", "parts", "marks"),
)
def test_the_kind_of_tokens(tokens: list[str | bytes], expected: list[str]) -> None:
    given = [token.encode() if isinstance(token, str) else token for token in tokens]
    assert [KINDS[kind] for kind in token_kinds(given)] == expected


def test_the_targets_of_other_texts_have_a_kind() -> None:
    documents = documents_of(model(16), dataset_of(["ab, ab " * 3, "cd. " * 5]), 100)
    names, kinds = target_kinds(None, TOKENIZER, documents)
    assert names == KINDS
    for window, found in zip(documents.windows, kinds, strict=True):
        text = TOKENIZER.decode([*window.ids.tolist(), int(window.targets[-1])])
        for place, kind in enumerate(found, 1):
            assert (text[place] in ",.") == (names[kind] == P)
            assert (text[place] in "bd") == (names[kind] == W)
