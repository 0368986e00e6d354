"""The Attention tab links to the live page of a run, which also works as TensorBoard sends it."""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright import sync_api

from tensorboard_attention.tests.conftest import Tab, tensorboard
from tests.conftest import succeed


def test_the_tab_opens_the_page_of_the_run(
    tiny: Path, tmp_path: Path, browser: sync_api.Browser
) -> None:
    shutil.copytree(tiny / "runs", tmp_path / "runs", symlinks=True)
    succeed("look", "run=runs/latest", "html=runs/latest/live.html", cwd=tmp_path)
    with tensorboard(tmp_path / "runs") as url:
        tab = Tab(browser, f"{url}#attention")
        errors: list[str] = []
        with tab.page.expect_popup() as opened:
            tab["a:has-text('Live page')"].click()
        page = opened.value
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.locator("main[data-ready]").wait_for()
        page.evaluate("history.replaceState(null, '', '#a=b')")
        assert page.url.endswith("#a=b") and not errors
        page.close()
        tab.close()
