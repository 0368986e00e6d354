"""A browser, in which the modules of the page run as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright import sync_api

from live.page import modules
from tensorboard_attention import export
from tensorboard_attention.tests.conftest import browser
from tests.conftest import ROOT, succeed

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
def site_file(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with all checkpoints, with exact weights."""
    folder = tmp_path_factory.mktemp("live")
    options = ("html=live.html", "checkpoints=all", "weights=float32")
    succeed("look", f"run={tiny_run}", *options, cwd=folder)
    return folder / "live.html"


@pytest.fixture(scope="session")
def site(site_file: Path) -> str:
    """Its address."""
    return site_file.as_uri()
