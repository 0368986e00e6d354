"""The evidence on heads and neurons is that of an explicit loop over all tokens, and the need for a
head the rise of the loss without it."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import observe.heads
import observe.need
from common.errors import UserError
from data.corpora import open_corpus
from data.roles import ROLES
from data.tales import Tales
from inference.opening import open_run
from launch.schema import preset
from model import GPT, ablate, mean_outputs, record_attention
from observe.attention import AttentionConfig, AttentionMaps
from observe.evidence import N_PASSAGES, EvidenceFile, measure_evidence
from observe.heads import HeadNames, documents_of, spell
from observe.need import KINDS, target_kinds, token_kinds, token_losses
from observe.tensorboard import open_events
from tensorboard_attention.evidence import read_evidence
from tests.observe.conftest import TOKENIZER, dataset_of, random_model, run_context, trainer_at

LINE = "Ada fed two red ants. Two ants fed Ada, and Ada fed two more red ants! Red, red ants. "
# One document of 160 tokens and seven of 25, of which some continue the line where others end.
TEXT = (2 * LINE)[:160] + (3 * LINE)[:175]
DATASET = dataset_of([TEXT[:160], *(TEXT[start:][:25] for start in range(160, 335, 25))])


def make_model(**choices: Any) -> Any:
    return random_model(2, 2, 12, 160, std=0.6, d_head=6, **choices).eval()


@pytest.mark.parametrize("rows", [1, 8])
def test_passages_and_need_are_the_rises_of_their_windows(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many windows are read together: those of 25 tokens are padded beside the long one."""
    monkeypatch.setattr(observe.heads, "ROWS", rows)
    model = make_model()
    found = measure_evidence(model, None, DATASET, 7, [])
    documents = documents_of(model, DATASET, 10_000)
    assert found["step"] == 7 and found["n_tokens"] == documents.n_tokens == len(TEXT)
    ids, spelled = found["ids"], found["spelled"]
    offsets = np.cumsum([0, *found["windows"]])
    texts = ["".join(spelled[id] for id in ids[begin:end]) for begin, end in pairwise(offsets)]
    assert texts == [bytes([*each.ids, each.targets[-1]]).decode() for each in documents.windows]

    largest, halves, counts = [], [0.0, 0.0], [0, 0]
    means, of_windows = mean_outputs(model, documents.batches), []
    for batch in documents.batches:
        without, intact = token_losses(model, batch, means)
        of_windows += [*(without - intact)[1, 0]]
    for window, padded, offset in zip(documents.windows, of_windows, offsets, strict=False):
        rises = padded[: len(window.ids)]
        halves[window.half] += sum(rises)
        counts[window.half] += len(rises)
        place = int(np.argmax(rises))
        largest.append((rises[place], offset + place + 1))
    largest = [pair for pair in sorted(largest, reverse=True)[:N_PASSAGES] if pair[0] > 0]
    head = found["heads"]["L1H0"]
    expected = [sum(halves) / sum(counts), *(np.array(halves) / counts)]
    assert head["need"] == pytest.approx(expected, abs=2e-4)
    assert {*head["kinds"]} == {*KINDS}
    assert np.sum([*head["kinds"].values()], 0) == pytest.approx(head["need"], abs=5e-4)
    names = HeadNames(model, spell(TOKENIZER, 256), documents).measure([]).names
    assert head["role"][0] == names[1][0].label and head["says"] == names[1][0].headline
    passages = head["passages"]
    assert [at for at, _, _ in passages] == [at for _, at in largest]
    assert [rise for _, rise, _ in passages] == pytest.approx([r for r, _ in largest], abs=1e-3)
    at, _, attended = passages[0]
    which = int(np.searchsorted(offsets, at, side="right")) - 1
    with torch.no_grad(), record_attention(model) as maps:
        model(torch.from_numpy(documents.windows[which].ids)[None])
    row = maps[1][0, 0, at - offsets[which] - 1]
    assert [key - offsets[which] for key, _ in attended] == row.topk(len(attended)).indices.tolist()


@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
@pytest.mark.parametrize("mlp", ["swiglu", "gelu", "relu2"])
def test_neurons_are_those_of_the_formula_of_the_mlp(mlp: str, norm: str) -> None:
    model = make_model(mlp=mlp, norm=norm)
    block: Any = model.blocks[1]
    with torch.no_grad():
        block.mlp.up.weight[7] = 0  # whose output is always 0
    found = measure_evidence(model, None, DATASET, 0, [])
    never = found["neurons"][1][7]
    assert (never["passages"], never["raises"], never["lowers"]) == ([], [], [])
    seen: list[torch.Tensor] = []
    hook = block.mlp_norm.register_forward_hook(lambda _module, _given, out: seen.append(out[0]))
    for window in documents_of(model, DATASET, 10_000).windows:
        with torch.no_grad():
            model(torch.from_numpy(window.ids)[None])
    hook.remove()
    offsets = np.cumsum([0, *found["windows"]])
    weight = block.mlp.gate.weight if mlp == "swiglu" else block.mlp.up.weight
    for neuron in (0, 5):
        active, values = 0, []
        for stream, offset in zip(seen, offsets, strict=False):
            before = stream @ weight[neuron]
            active += int((before > 0).sum())
            if mlp == "swiglu":
                out = torch.sigmoid(before) * before * (stream @ block.mlp.up.weight[neuron])
            elif mlp == "relu2":
                out = before.clamp(min=0) ** 2
            else:
                out = F.gelu(before, approximate="tanh")
            place = int(out.abs().argmax())
            values.append((out[place].item(), int(offset) + place))
        values.sort(key=lambda pair: -abs(pair[0]))
        given = found["neurons"][1][neuron]
        assert given["active"] == pytest.approx(active / found["n_tokens"], abs=1e-4)
        for (at, value), (expected, place) in zip(given["passages"], values, strict=False):
            assert (at, value) == (place, pytest.approx(expected, abs=2e-3))
        # By the direct path, at the scale that the final norm has: LayerNorm takes the mean away.
        written = block.mlp.down.weight[:, neuron] * values[0][0]
        centred = written - sum(written) / 12 if norm == "layernorm" else written
        logits = torch.stack(
            [row @ (centred * model.final_norm.weight) for row in model.unembedding.weight]
        )
        order = logits.argsort(descending=True).tolist()
        assert given["raises"] == [spelled(id) for id in order[:6]]
        assert given["lowers"] == [spelled(id) for id in order[:-7:-1]]


def test_a_model_that_has_diverged_keeps_its_result(tmp_path: Path) -> None:
    context = run_context(tmp_path)
    with torch.no_grad():
        next(context.model.parameters()).fill_(torch.nan)
    writer = open_events(tmp_path)
    maps = AttentionMaps(AttentionConfig("auto", None), context, writer)
    EvidenceFile(context, maps).on_finish(trainer_at(context, 3))
    writer.close()
    assert not (tmp_path / "evidence.json").exists()


def spelled(id: int) -> str:
    return bytes([id]).decode(errors="backslashreplace")


def test_a_run_has_its_evidence_at_the_end(tiny_run: Path, tmp_path: Path) -> None:
    found = open_run(tiny_run).evidence()
    assert found == read_evidence(tiny_run), "the tab reads it"
    assert found["step"] == open_run(tiny_run).step
    assert {*found["heads"]} == {"L0H0", "L0H1", "L1H0", "L1H1"}
    assert all(head["role"][0] and head["says"] for head in found["heads"].values())
    copy = shutil.copytree(tiny_run, tmp_path / "copy")
    (copy / "evidence.json").unlink()
    with pytest.raises(UserError, match=r"has no usable evidence.json.*evidence=true"):
        open_run(copy).evidence()


def small_model(context_length: int, **choices: object) -> GPT:
    return random_model(3, 2, 12, context_length, std=0.3, d_head=4, **choices)


@pytest.mark.parametrize("copies", [1, 16])
@pytest.mark.parametrize("choices", [{}, {"n_kv_heads": 1}, {"window": 3}])
@torch.no_grad()
def test_need_is_the_rise_of_the_loss_without_one_head(
    choices: dict[str, Any], copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of windows of whatever length, read one by one."""
    monkeypatch.setattr(observe.need, "COPIES", copies)
    gpt = small_model(16, **choices).eval()
    texts = dataset_of(["Ada fed a hen.\n", "A hen!\n", "No, two red ants.\n"])
    documents = documents_of(gpt, texts, 100)
    before = {name: each.clone() for name, each in gpt.state_dict().items()}
    means = mean_outputs(gpt, documents.batches)
    losses = [token_losses(gpt, batch, means) for batch in documents.batches]
    found = sum((without - loss).sum((-2, -1)) for without, loss in losses) / documents.n_tokens
    assert found.shape == (3, 2)
    assert all(torch.equal(each, before[name]) for name, each in gpt.state_dict().items())

    def loss() -> float:
        nats = 0.0
        for window in documents.windows:
            logits = gpt(torch.from_numpy(window.ids)[None])[0].double()
            targets = torch.from_numpy(window.targets)
            nats += F.cross_entropy(logits, targets, reduction="sum").item()
        return nats / documents.n_tokens

    intact = loss()
    for head in np.ndindex(3, 2):
        with ablate(gpt, [head], means):
            assert found[head] == pytest.approx(loss() - intact, abs=1e-5)
    assert np.ptp(found) > 0.01


def test_the_targets_of_tales_have_their_roles() -> None:
    corpus = open_corpus(preset("data", "tales", n_bytes=300_000))
    assert isinstance(corpus, Tales)
    tales = [tale for _, tale in zip(range(5), corpus.tales("val"), strict=False)]
    texts = dataset_of([tale.text + corpus.document_end for tale in tales])
    documents = documents_of(small_model(128), texts, 10_000)  # the windows of a tale overlap
    names, found = target_kinds(corpus, TOKENIZER, documents)
    assert names == ROLES
    known: dict[int, int] = {}  # by place in the split
    for window, kinds in zip(documents.windows, found, strict=True):
        assert len(kinds) == len(window.targets)
        for place, kind in enumerate(kinds, window.begin):
            assert known.setdefault(place, kind) == kind
    assert texts.val_starts is not None
    for tale, start in zip(tales, texts.val_starts.tolist(), strict=True):
        first, again, *_ = [each.start for each in tale.mentions if each.name == "hero"]
        assert ROLES[known[start + first]] == "first choices"
        assert ROLES[known[start + again]] == "names again"
        assert ROLES[known[start + again + 1]] == "spelling within a word"


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
    documents = documents_of(small_model(16), dataset_of(["ab, ab " * 3, "cd. " * 5]), 100)
    names, kinds = target_kinds(None, TOKENIZER, documents)
    assert names == KINDS
    for window, found in zip(documents.windows, kinds, strict=True):
        text = TOKENIZER.decode([*window.ids.tolist(), int(window.targets[-1])])
        for place, kind in enumerate(found, 1):
            assert (text[place] in ",.") == (names[kind] == P)
            assert (text[place] in "bd") == (names[kind] == W)
