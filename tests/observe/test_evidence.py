"""The evidence on heads and neurons is that of an explicit loop over all tokens."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import observe.heads
from common.errors import UserError
from data.batches import EvalBatches
from inference.opening import open_run
from model import mean_outputs, record_attention
from observe.attention import AttentionConfig, AttentionMaps
from observe.evidence import N_PASSAGES, EvidenceFile, measure_evidence
from observe.heads import HeadNames, documents_of, spell
from observe.need import KINDS, token_losses
from observe.tensorboard import open_events
from tensorboard_attention.evidence import read_evidence
from tests.observe.conftest import TOKENIZER, dataset_of, random_model, run_context, trainer_at

LINE = "Ada fed two red ants. Two ants fed Ada, and Ada fed two more red ants! Red, red ants. "
# One document of 160 tokens and seven of 25, of which some continue the line where others end.
TEXT = (2 * LINE)[:160] + (3 * LINE)[:175]
DATASET = dataset_of([TEXT[:160], *(TEXT[start:][:25] for start in range(160, 335, 25))])


def make_model(**choices: Any) -> Any:
    return random_model(2, 2, 12, 160, std=0.6, d_head=6, **choices).eval()


def windows() -> list[tuple[list[int], list[int]]]:
    """The inputs and targets of each window that `measure_evidence` reads, without padding."""
    found = []
    for inputs, targets in EvalBatches(DATASET.val, 160, 3, DATASET.val_starts):
        for row, wanted in zip(inputs, targets, strict=True):
            n = int((wanted >= 0).nonzero().max()) + 1
            assert bool((wanted[:n] >= 0).all()), "every target of this text is scored"
            found.append((row[:n].tolist(), wanted[:n].tolist()))
    return found


@pytest.mark.parametrize("rows", [1, 8])
def test_passages_and_need_are_the_rises_of_their_windows(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many windows are read together: those of 25 tokens are padded beside the long one."""
    monkeypatch.setattr(observe.heads, "ROWS", rows)
    model = make_model()
    found = measure_evidence(model, None, DATASET, 7, [])
    assert found["step"] == 7 and found["n_tokens"] == sum(len(ids) for ids, _ in windows())
    ids, spelled = found["ids"], found["spelled"]
    offsets = np.cumsum([0, *found["windows"]])
    texts = ["".join(spelled[id] for id in ids[begin:end]) for begin, end in pairwise(offsets)]
    assert texts == [bytes([*read, wanted[-1]]).decode() for read, wanted in windows()]

    largest, halves, counts = [], [0.0, 0.0], [0, 0]
    documents = documents_of(model, DATASET, 10_000)
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
    read, _ = windows()[which]
    with torch.no_grad(), record_attention(model) as maps:
        model(torch.tensor([read]))
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
    for read, _ in windows():
        with torch.no_grad():
            model(torch.tensor([read]))
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
                out = torch.nn.functional.gelu(before, approximate="tanh")
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
