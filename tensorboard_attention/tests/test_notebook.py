"""`show` displays maps in the frame of a notebook's cell."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright import sync_api

from tensorboard_attention import show
from tensorboard_attention.tests.conftest import causal_maps

TOKENS = [*"abcdefghijklmnop"]


@pytest.mark.parametrize("width", [900, 400])
def test_a_frame_is_as_high_as_what_it_shows(
    tmp_path: Path, browser: sync_api.Browser, width: int
) -> None:
    """Without a request, in a page like the output of a cell."""
    viewer = show(causal_maps(0, 2, 4, 16), TOKENS, title="Heads & <more>")
    cell = tmp_path / "cell.html"
    cell.write_text(f"<!doctype html><body>{viewer._repr_html_()}</body>")
    asked: list[str] = []
    errors: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 600})
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(cell.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("main[data-shown]").wait_for()
    assert frame.locator("h1").inner_text() == "Heads & <more>"
    assert frame.locator(".grid .head").count() == 8
    frame.locator(".grid .head >> nth=5").click()
    sync_api.expect(frame.locator(".panel h2 >> nth=0")).to_have_text("L1H1")
    page.wait_for_timeout(300)  # the frame follows at the next layout
    sizes = frame.locator("html").evaluate("(html) => [html.scrollHeight, innerHeight]")
    assert 0 <= sizes[1] - sizes[0] <= 4
    assert not errors and not [url for url in asked if url.startswith("http")]
    page.close()
