"""The evidence on heads and neurons is that of an explicit loop over all tokens."""

from __future__ import annotations

import shutil
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from common.errors import UserError
from data.batches import EvalBatches
from data.tokenizer import fixed_tokenizer
from inference.opening import open_run
from model import GPT, ablate, record_attention
from observe.evidence import (
    MARKED,
    N_PASSAGES,
    NEEDED,
    EvidenceFile,
    is_punctuation,
    measure_evidence,
)
from tensorboard_attention.evidence import read_evidence
from tests.conftest import small_config
from tests.observe.conftest import run_context, trainer_at

LINE = "Ada fed two red ants. Two ants fed Ada, and Ada fed two more red ants! Red, red ants. "
# One document of 160 tokens and seven of 25, of which some continue the line where others end.
TEXT = (2 * LINE)[:160] + (3 * LINE)[:175]
STARTS = np.array([0, *range(160, 335, 25)])
TOKENIZER = fixed_tokenizer("byte")


def make_model(**choices: Any) -> Any:
    torch.manual_seed(0)
    gpt = GPT(small_config(2, 2, 12, 160, d_head=6, **choices), 256).eval()
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.normal_(std=0.6)
    return gpt


def batches(rows: int = 3) -> EvalBatches:
    tokens = np.frombuffer(TEXT.encode(), np.uint8).astype(np.uint16)
    return EvalBatches(tokens, 160, rows, STARTS)


def windows() -> list[tuple[list[int], list[int]]]:
    """The inputs and targets of each window that `measure_evidence` reads, without padding."""
    found = []
    for inputs, targets in batches():
        for row, wanted in zip(inputs, targets, strict=True):
            n = int((wanted >= 0).nonzero().max()) + 1
            assert bool((wanted[:n] >= 0).all()), "every target of this text is scored"
            found.append((row[:n].tolist(), wanted[:n].tolist()))
    return found


def nats(model: GPT, ids: list[int], targets: list[int]) -> list[float]:
    with torch.no_grad():
        logs = torch.log_softmax(model(torch.tensor([ids]))[0], -1)
    return [-logs[place, target].item() for place, target in enumerate(targets)]


def marked(rule: str, ids: list[int], target: int, query: int, key: int) -> bool:
    """Whether a pattern marks a key of a query, in words of its own."""
    texts = [chr(id) for id in ids]
    match rule:
        case "copy":
            return ids[key] == target
        case "induction":
            return key > 0 and ids[key - 1] == ids[query]
        case "duplicate token":
            return key < query and ids[key] == ids[query]
        case "previous token":
            return key == query - 1
        case "same token":
            return key == query
        case "first token":
            return key == 0 and query > 0
        case "nearby":
            return query - key <= 8 and query > 16
        case "last word":
            return False  # no byte has three letters
        case "punctuation":
            return is_punctuation(texts[key])
    raise AssertionError(rule)


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_shares_of_patterns_are_those_of_a_loop(rows: int) -> None:
    """However many windows are read together: those of 25 tokens are padded beside the long one."""
    model = make_model()
    found = measure_evidence(model, TOKENIZER, batches(rows), 7)
    assert found["step"] == 7 and found["n_tokens"] == sum(len(ids) for ids, _ in windows())
    for (head, name), (share, often, count, needed, weight) in pattern_sums().items():
        patterns = found["heads"][head]["patterns"]
        if count == 0:
            assert name not in patterns
            continue
        expected = [share / count, often / count, needed / weight if weight else 0, count]
        assert patterns[name] == pytest.approx(expected, abs=2e-4), (head, name)


@cache
def pattern_sums() -> dict[tuple[str, str], list[float]]:
    """Sums over all queries, for each head and pattern."""
    model = make_model()
    names, heads = [rule.score for rule in MARKED], ("L0H0", "L0H1", "L1H0", "L1H1")
    sums = {(head, name): [0.0, 0, 0, 0.0, 0.0] for head in heads for name in names}
    for ids, targets in windows():
        intact = nats(model, ids, targets)
        with torch.no_grad(), record_attention(model) as maps:
            model(torch.tensor([ids]))
        rises = [
            rises_without(model, (layer, head), ids, targets, intact)
            for layer in range(2)
            for head in range(2)
        ]
        for query, target in enumerate(targets):
            rows = [row for layer in maps for row in layer[0, :, query].tolist()]
            for name in names:
                keys = [k for k in range(query + 1) if marked(name, ids, target, query, k)]
                if not keys:
                    continue
                for head, row, rise in zip(heads, rows, rises, strict=True):
                    share = sum(row[key] for key in keys)
                    total = sums[head, name]
                    total[0] += share
                    total[1] += share > 0.5
                    total[2] += 1
                    if rise[query] > NEEDED:
                        total[3] += share * rise[query]
                        total[4] += rise[query]
    return sums


def rises_without(
    model: GPT, head: tuple[int, int], ids: list[int], targets: list[int], intact: list[float]
) -> list[float]:
    """The rise of the loss of each target of a window if the head is replaced by its mean over all
    tokens of all windows."""
    layer, index = head
    gathered = []
    for read, _ in windows():
        with torch.no_grad(), record_attention(model, keep="context") as contexts:
            model(torch.tensor([read]))
        gathered.append(contexts[layer][0, index])
    mean = torch.cat(gathered).mean(0)
    with ablate(model, [head], {head: mean}):
        without = nats(model, ids, targets)
    return [loss - before for loss, before in zip(without, intact, strict=True)]


@pytest.mark.parametrize("rows", [1, 8])
def test_passages_are_the_largest_rises_and_outputs_of_their_windows(rows: int) -> None:
    model = make_model()
    found = measure_evidence(model, TOKENIZER, batches(rows), 0)
    ids, spelled = found["ids"], found["spelled"]
    offsets = np.cumsum([0, *found["windows"]])
    texts = ["".join(spelled[id] for id in ids[begin:end]) for begin, end in pairwise(offsets)]
    assert texts == [bytes([*read, wanted[-1]]).decode() for read, wanted in windows()]

    largest = []
    for (read, wanted), offset in zip(windows(), offsets, strict=False):
        rises = rises_without(model, (1, 0), read, wanted, nats(model, read, wanted))
        place = int(np.argmax(rises))
        largest.append((rises[place], offset + place + 1))
    largest = [pair for pair in sorted(largest, reverse=True)[:N_PASSAGES] if pair[0] > 0]
    passages = found["heads"]["L1H0"]["passages"]
    assert [at for at, _, _ in passages] == [at for _, at in largest]
    assert [rise for _, rise, _ in passages] == pytest.approx([r for r, _ in largest], abs=1e-3)
    at, _, attended = passages[0]
    window = int(np.searchsorted(offsets, at, side="right")) - 1
    read, _ = windows()[window]
    with torch.no_grad(), record_attention(model) as maps:
        model(torch.tensor([read]))
    row = maps[1][0, 0, at - offsets[window] - 1]
    assert [key - offsets[window] for key, _ in attended] == row.topk(
        len(attended)
    ).indices.tolist()


@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
@pytest.mark.parametrize("mlp", ["swiglu", "gelu", "relu2"])
def test_neurons_are_those_of_the_formula_of_the_mlp(mlp: str, norm: str) -> None:
    model = make_model(mlp=mlp, norm=norm)
    block: Any = model.blocks[1]
    with torch.no_grad():
        block.mlp.up.weight[7] = 0  # whose output is always 0
    found = measure_evidence(model, TOKENIZER, batches(), 0)
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
    EvidenceFile(context).on_finish(trainer_at(context, 3))
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
