"""The messages of the page and the worker, in a real worker: every question is answered, the newest
first, and nothing stalls what is typed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from playwright import sync_api

from launch.schema import preset
from live.page import worker_code
from model import GPT, ablate, record_attention
from model.gpt import blocks_of
from tests.live.drawn import build, ids_for, packed, triangle

NOTHING: dict[str, Any] = {"by": "zero", "heads": [], "mlps": []}
STEPS = (0, 500)
START = """(source) => {
    const worker = new Worker(URL.createObjectURL(new Blob([source])));
    // Posts questions at once, and returns all messages until each has its last. `then`: posted at
    // the first part of an answer.
    window.ask = (questions, then = []) => new Promise((resolve, reject) => {
        const [found, open] = [[], new Set([...questions, ...then].map(({ id }) => id))];
        worker.onerror = ({ message }) => reject(new Error(message));
        worker.onmessage = ({ data }) => {
            found.push(data);
            if (!data.part) open.delete(data.id);
            else for (const each of then.splice(0)) worker.postMessage(each);
            if (!open.size) resolve(found);
        };
        for (const each of questions) worker.postMessage(each);
    });
}"""

Ask = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def checkpoints() -> list[GPT]:
    """Large enough that a read takes several moments."""
    config = preset("model", "nano", n_layers=4, context_length=128)
    return [build(config, 300, seed) for seed in STEPS]


@pytest.fixture(scope="module")
def ask(browser: sync_api.Browser, checkpoints: list[GPT]) -> Iterator[Ask]:
    """ask(questions, then): all messages of the worker, which has loaded two checkpoints."""
    page = browser.new_page()
    page.evaluate(START, worker_code())
    numbers = iter(range(10**6))

    def ask_it(*questions: dict[str, Any], then: tuple[dict[str, Any], ...] = ()) -> Any:
        numbered = [[{"id": next(numbers), **each} for each in some] for some in (questions, then)]
        code = "([questions, then]) => ask(questions, then)"
        first = numbered[0][0]["id"]
        found = page.evaluate(code, numbered)
        return [{**each, "id": each["id"] - first} for each in found]

    pages = [packed(each) for each in checkpoints]
    data = {**pages[0]["data"], "steps": STEPS}
    weights = [each["text"] for each in pages]
    assert ask_it({"type": "load", "data": data, "weights": weights}) == [{"id": 0, "ready": True}]
    yield ask_it
    page.close()


def read(ids: list[int], step: int = 500, view: str = "weights", **off: Any) -> dict[str, Any]:
    return {"type": "read", "step": step, "ids": ids, "view": view, "off": {**NOTHING, **off}}


def check_shown(found: dict[str, Any], model: GPT, ids: list[int]) -> None:
    tokens = torch.tensor([ids])
    with record_attention(model) as maps:
        logits = model(tokens)[0]
    heads = [triangle(layer[0, head]) for layer in maps for head in range(4)]
    np.testing.assert_allclose(found["maps"], np.concatenate(heads), atol=1e-5)
    losses = F.cross_entropy(logits[:-1], tokens[0, 1:], reduction="none")
    np.testing.assert_allclose(found["losses"], [np.nan, *losses], atol=1e-3)


def test_what_comes_next_and_what_could_have_been_there(ask: Ask, checkpoints: list[GPT]) -> None:
    model = checkpoints[1]
    ids = ids_for(model, 20, seed=8)
    question = {"type": "next", "step": 500, "ids": ids, "k": 3}
    off = {"by": "zero", "heads": [[0, 1], [1, 2]], "mlps": [1]}
    shares = model(torch.tensor([ids]))[0].softmax(-1)
    with ablate(model, [(0, 1), (1, 2)], "zero", mlps=[1]):
        without = model(torch.tensor([ids]))[0].softmax(-1)
    for i in (0, 7, 19):
        there = ids[i + 1 : i + 2]
        top = shares[i].topk(3).indices.tolist()
        (found,) = ask({**question, "off": NOTHING, "i": i})
        assert [row["id"] for row in found["rows"]] == [*dict.fromkeys(top + there)]
        assert all(row["before"] is None for row in found["rows"])
        (found,) = ask({**question, "off": off, "i": i})
        top = without[i].topk(3).indices.tolist() + top[:1]
        assert [row["id"] for row in found["rows"]] == [*dict.fromkeys(top + there)]
        rows = [(row["id"], row["now"], row["before"]) for row in found["rows"]]
        for token, now, before in rows:
            assert now == pytest.approx(without[i, token].item(), abs=1e-4)
            assert before == pytest.approx(shares[i, token].item(), abs=1e-4)


def test_reads_of_each_step(ask: Ask, checkpoints: list[GPT]) -> None:
    ids = ids_for(checkpoints[0], 40, seed=1)
    for step, model in zip(STEPS, checkpoints, strict=True):
        (found,) = ask(read(ids, step))
        assert "before" not in found
        check_shown(found, model, ids)
        likely = model(torch.tensor([ids]))[0, -1].topk(10).indices.tolist()
        assert [row["id"] for row in found["rows"]] == likely


def test_shares_of_what_is_moved(ask: Ask, checkpoints: list[GPT]) -> None:
    """A weight times the norm of what the head moves from there."""
    model, ids = checkpoints[1], ids_for(checkpoints[1], 12, seed=3)
    (found,) = ask(read(ids, view="moved"))
    with record_attention(model, keep="steps") as layers:
        model(torch.tensor([ids]))
    expected: list[float] = []
    for steps, block in zip(layers, blocks_of(model), strict=True):
        columns = block.attention.output.weight.split(model.config.d_head, 1)
        for weights, value, column in zip(steps.weights[0], steps.value[0], columns, strict=True):
            shares = weights * (value @ column.T).norm(dim=-1)
            expected += triangle(shares / shares.sum(-1, keepdim=True))
    np.testing.assert_allclose(found["maps"], expected, atol=1e-5)


def test_what_is_off_changes_the_reading_and_says_what_was_before(
    ask: Ask, checkpoints: list[GPT]
) -> None:
    ids = ids_for(checkpoints[1], 30, seed=4)
    for text in (ids[:20], ids):  # which only goes on
        (found,) = ask(read(text, heads=[[1, 2], [3, 0]], mlps=[2]))
        check_shown(found["before"], checkpoints[1], text)
        with ablate(checkpoints[1], [(1, 2), (3, 0)], "zero", mlps=[2]):
            check_shown(found, checkpoints[1], text)


def test_the_newest_read_cancels_older_ones(ask: Ask, checkpoints: list[GPT]) -> None:
    texts = [ids_for(checkpoints[1], 120, seed) for seed in range(20, 26)]
    found = ask(*[read(text) for text in texts])
    by_id = {each["id"]: each for each in found}
    assert sorted(by_id) == [*range(6)]
    assert all(by_id[i] == {"id": i, "cancelled": True} for i in range(1, 5))
    check_shown(by_id[5], checkpoints[1], texts[5])


def test_looks_inside(ask: Ask, checkpoints: list[GPT]) -> None:
    """Asked at once, about different texts: each is answered about its own."""
    texts = [ids_for(checkpoints[1], 15, seed) for seed in (30, 31)]
    common = [{"step": 500, "ids": text, "off": NOTHING} for text in texts]
    attribution = {"type": "attribution", "i": 14, "token": 8, **common[0]}
    *lenses, found = ask(*({"type": "lens", "k": 3, **each} for each in common), attribution)
    logits = [checkpoints[1](torch.tensor([text]))[0] for text in texts]
    for lens, expected in zip(lenses, logits, strict=True):
        *_, last = lens["layers"]
        assert [place[0][0] for place in last] == expected.argmax(-1).tolist()
    assert abs(found["logit"] - logits[0][14, 8].item()) < 1e-3


WRITE = {"type": "write", "step": 500, "off": NOTHING, "settings": {"temperature": 0, "seed": 1}}


def test_writing_can_be_stopped(ask: Ask) -> None:
    found = ask({**WRITE, "ids": [1, 2, 3], "n": 10**6}, then=({"type": "stop", "of": "write"},))
    assert found[-2:] == [{"id": 1, "done": True}, {"id": 0, "cancelled": True}]
    assert len(found) < 1000


def test_what_is_typed_comes_before_writing(ask: Ask, checkpoints: list[GPT]) -> None:
    """It comes while the worker is at the first question, and after the writing was asked for, of
    which one token is there at most."""
    model = checkpoints[1]
    ids = ids_for(model, 128, seed=7)
    lens = {"type": "lens", "step": 500, "ids": ids, "off": NOTHING, "k": 1}
    found = ask(lens, {**WRITE, "ids": ids[:20], "n": 5}, read(ids))
    assert [each["id"] for each in found] in ([0, 1, 2, *[1] * 5], [0, 2, *[1] * 6])
    check_shown(next(each for each in found if each["id"] == 2), model, ids)
    assert found[-1] == {"id": 1, "done": True}


def test_what_cannot_be_answered_is_an_error_and_ends_nothing(
    ask: Ask, checkpoints: list[GPT]
) -> None:
    errors = {
        "There is no token to read.": read([]),
        "This page has no step 7.": read([1], step=7),
    }
    for said, question in errors.items():
        (found,) = ask(question)
        assert found["error"] == said
    (found,) = ask(read([1, 2]))
    check_shown(found, checkpoints[1], [1, 2])
