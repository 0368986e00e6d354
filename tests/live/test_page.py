"""The page as a file: it loads without a network, and shows hostile texts as text."""

from __future__ import annotations

from pathlib import Path

from playwright import sync_api

from tests.conftest import succeed


def test_the_page_of_a_run_loads(tiny_run: Path, tmp_path: Path, browser: sync_api.Browser) -> None:
    output = succeed("look", f"run={tiny_run}", "html=live.html", cwd=tmp_path)
    assert "Wrote live.html" in output
    page, asked, errors = browser.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    url = (tmp_path / "live.html").as_uri()
    page.goto(url)
    page.locator("main[data-ready]").wait_for()
    print(page.locator("main").inner_text())
    assert not errors and [each for each in asked if not each.startswith("blob:")] == [url]
    page.close()
