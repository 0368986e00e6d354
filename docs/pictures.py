"""Make all pictures of the docs, and docs/storyteller.html, from a finished default run.
Needs Chromium, and the extras `test` and `notebook`.

python train.py name=storyteller
python docs/pictures.py runs/storyteller
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright
from tensorboard.program import TensorBoard

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

from docs.heads_forming import draw_forming  # noqa: E402

HEAD, HEAD_NAME = "L1H0", "layer 1, head 0"  # that docs/why.md is about
WIDE, PHONE = ViewportSize(width=1400, height=900), ViewportSize(width=400, height=800)
NARROW = ViewportSize(width=640, height=900)
CODE = """import glassgpt

run = glassgpt.open_run("runs/storyteller")
glassgpt.look(run, "Once there was a brave fox named Ida. Ida had a shiny red hat. Then Ida")"""


def opened(browser: Browser, address: str, **options: Any) -> Page:
    """The page in which the model runs, without its tour, with the head chosen."""
    page = browser.new_page(**options)
    page.add_init_script("localStorage.setItem('glassgpt-toured', '1')")
    page.goto(address)
    page.locator(f".grid button[aria-label^='{HEAD_NAME}']").click()
    page.wait_for_selector("main[aria-busy=false]")
    page.wait_for_timeout(500)
    return page


def live(browser: Browser, address: str) -> None:
    """touch.png, touch_phone.png and why.png: a head is off; and why it looks at a token."""
    kinds: dict[str, dict[str, Any]] = {
        "touch": {"viewport": WIDE},
        "touch_phone": {"viewport": PHONE, "has_touch": True, "color_scheme": "dark"},
    }
    for name, options in kinds.items():
        page = opened(browser, address, **options)
        page.locator(f".grid [role=switch][aria-label={HEAD}]").click()
        page.wait_for_selector("main[aria-busy=false]")
        if name == "touch_phone":
            page.locator(".panel .words").scroll_into_view_if_needed()
        else:
            page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(500)
        page.screenshot(path=DOCS / f"{name}.png")
    page = opened(browser, address, viewport=WIDE, color_scheme="dark")
    page.locator(".looks summary").first.click()
    page.locator(".looks .bars li").first.wait_for()
    page.locator(".looks details").first.scroll_into_view_if_needed()
    page.locator(".looks .bars li:has-text('L0H')").first.hover()
    page.wait_for_timeout(500)
    page.screenshot(path=DOCS / "why.png")


def tab(browser: Browser, address: str) -> None:
    """Those of TensorBoard: tab.png, images.png, wiring.png and learned.png."""
    page = browser.new_page(viewport=WIDE)
    page.goto(f"{address}/#attention")
    page.frame_locator("iframe[src*=attention]").locator(".matters li").first.wait_for()
    page.wait_for_timeout(1000)
    page.screenshot(path=DOCS / "tab.png")
    shutil.copy(DOCS / "tab.png", ROOT / "tensorboard_attention/tab.png")
    page.goto(f"{address}/?again#images")
    page.locator("img[src*=individualImage]").nth(1).wait_for()
    page.wait_for_timeout(1500)
    page.screenshot(path=DOCS / "images.png")
    page.goto(f"{address}/data/plugin_entry.html?name=attention")
    page.locator(".wiring svg").wait_for()
    page.set_viewport_size(NARROW)
    page.wait_for_timeout(1000)
    page.locator(".wiring").screenshot(path=DOCS / "wiring.png")
    page.set_viewport_size(WIDE)
    page.locator(".learned:not(.guesses) tr:has-text('song') td button").nth(1).click()
    page.locator(".learned:not(.guesses)").screenshot(path=DOCS / "learned.png")


def notebook(browser: Browser, folder: Path) -> None:
    """notebook.png: what `glassgpt.look` shows."""
    new = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CODE)])
    ran = NotebookClient(new, resources={"metadata": {"path": str(folder)}}).execute()
    page = browser.new_page(viewport=WIDE)
    outputs = [output for cell in ran.cells for output in cell.get("outputs", ())]
    page.set_content("".join(output.get("data", {}).get("text/html", "") for output in outputs))
    page.frame_locator("iframe").locator(".grid canvas").first.wait_for()
    page.wait_for_timeout(500)
    page.screenshot(path=DOCS / "notebook.png")


def tensorboard(folder: Path) -> str:
    """The address of one for the runs in a folder, until this process ends."""
    program = TensorBoard()
    program.configure(logdir=str(folder))
    return program.launch().rstrip("/")


def main(run: Path) -> None:
    draw_forming(run)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder, "storyteller.html")
        subprocess.run([sys.executable, ROOT / "look.py", f"run={run}", f"html={page}"], check=True)
        shutil.move(page, DOCS / page.name)
        shutil.copytree(run, Path(folder, "runs/storyteller"))
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        live(browser, (DOCS / page.name).as_uri())
        notebook(browser, Path(folder))
        tab(browser, tensorboard(Path(folder, "runs")))
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the pictures of the docs from a run.")
    parser.add_argument("run", type=Path, help="folder of a finished default run")
    main(parser.parse_args().run)
