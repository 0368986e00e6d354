"""A browser, in which the modules of the page run as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import settings
from playwright import sync_api

from live.page import modules
from model import GPT, record_attention
from tensorboard_attention import export
from tensorboard_attention.tests.conftest import browser
from tests.conftest import ROOT, succeed
from tests.live.drawn import (
    triangle,
)

__all__ = ["browser"]  # for the tests of this folder
STATIC = ROOT / "live" / "static"
Call = Callable[..., Any]


def serve(route: sync_api.Route) -> None:
    """Answer for http://glassgpt/, where the modules are."""
    name = Path(route.request.url).name
    if name.endswith(".js"):
        own = STATIC / name
        path = own if own.exists() else export.STATIC / name
        route.fulfill(path=path, content_type="text/javascript")
    else:
        route.fulfill(body="<!doctype html>", content_type="text/html")


@pytest.fixture(scope="module")
def empty_page(browser: sync_api.Browser) -> Iterator[sync_api.Page]:
    page = browser.new_page()
    page.route("**/*", serve)
    page.goto("http://glassgpt/")
    yield page
    page.close()


@pytest.fixture(scope="module")
def module(empty_page: sync_api.Page) -> Call:
    """module("weights.js", "(module, x) => ...", x): what a function of a module returns."""

    def call(name: str, code: str, argument: Any = None) -> Any:
        return empty_page.evaluate(
            f"""async (argument) => {{
                const module = await import("/{name}");
                return await ({code})(module, argument);
            }}""",
            argument,
        )

    return call


@pytest.fixture(scope="module")
def engine(empty_page: sync_api.Page) -> Call:
    """engine("(x) => ...", x): what a function returns that sees what the modules of the engine
    export, `load`, which makes a model of what `packed` returns, and `finished`, which returns
    what a generator does that works in pieces."""
    for name in [*modules("worker")][:-1]:
        empty_page.evaluate(f"import('/{name}.js').then((found) => Object.assign(window, found))")
    empty_page.evaluate(
        """() => {
            window.load = async ({ data, text }) =>
                new Model(data.config, await unpack(data, text));
            window.finished = (pieces) => {
                for (;;) {
                    const { done, value } = pieces.next();
                    if (done) return value;
                }
            };
        }"""
    )
    return empty_page.evaluate


@pytest.fixture(scope="session")
def site(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page with all checkpoints, with exact weights."""
    folder = tmp_path_factory.mktemp("live")
    options = ("html=live.html", "checkpoints=all", "weights=float32")
    succeed("look", f"run={tiny_run}", *options, cwd=folder)
    return (folder / "live.html").as_uri()


LOGITS = 1e-3  # largest differences from PyTorch


WEIGHTS = 2e-5  # the page computes in float32: 1.03e-5 was seen, in drawn models


DRAWN = settings(max_examples=20)


SHOWN = """(reading) => ({
    logits: reading.tokens.map((_, i) => [...reading.logits(i)]),
    weights: reading.layers.map(({ weights }, layer) =>
        weights.map((_, head) => [...reading.weights(layer, head)])),
    losses: [...reading.losses()].map((each) => Number.isNaN(each) ? null : each),
})"""


def close(found: Any, expected: torch.Tensor, most: float = LOGITS) -> None:
    numbers = torch.tensor(found, dtype=torch.float32)
    torch.testing.assert_close(numbers, expected.float(), rtol=0, atol=most)


def check(found: Any, model: GPT, ids: list[int]) -> None:
    """What a reading shows is what PyTorch computes in one pass: in float64, so that only the
    rounding of the page remains."""
    tokens = torch.tensor([ids])
    with record_attention(model.double()) as layers:
        logits = model(tokens)[0]
    model.float()
    close(found["logits"], logits)
    for layer, weights_of in enumerate(layers):
        for head in range(model.config.n_heads):
            weights = torch.tensor(triangle(weights_of[0, head]))
            close(found["weights"][layer][head], weights, WEIGHTS)
    assert found["losses"][0] is None
    losses = F.cross_entropy(logits[:-1], tokens[0, 1:], reduction="none")
    close(found["losses"][1:], losses)
