"""A browser, in which the modules of the page run as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright import sync_api

from tensorboard_attention.tests.conftest import CHROMIUM, FLAGS
from tests.conftest import ROOT

STATIC = ROOT / "live" / "static"
Call = Callable[..., Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[sync_api.Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    with sync_api.sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)


def serve(route: sync_api.Route) -> None:
    """Answer for http://glassgpt/, where the modules are."""
    name = Path(route.request.url).name
    if name.endswith(".js"):
        route.fulfill(path=STATIC / name, content_type="text/javascript")
    else:
        route.fulfill(body="<!doctype html>", content_type="text/html")


@pytest.fixture
def module(browser: sync_api.Browser) -> Iterator[Call]:
    """module("weights.js", "(module, x) => ...", x): what a function of a module returns."""
    page = browser.new_page()
    page.route("**/*", serve)
    page.goto("http://glassgpt/")

    def call(name: str, code: str, argument: Any = None) -> Any:
        return page.evaluate(
            f"""async (argument) => {{
                const module = await import("/{name}");
                return await ({code})(module, argument);
            }}""",
            argument,
        )

    yield call
    page.close()
