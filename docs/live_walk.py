"""Record docs/touch.gif: a walk through the page of a run; and pictures of it: touch.png,
touch_phone.png and why.png.

python look.py run=RUN html=storyteller.html
python docs/live_walk.py storyteller.html
"""

from __future__ import annotations

import argparse
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

DOCS = Path(__file__).resolve().parent
SIZE = ViewportSize(width=1280, height=860)
WIDE = ViewportSize(width=1400, height=900)
PHONE = ViewportSize(width=400, height=800)
SMALL = (960, 645)  # pixels of the GIF
COLOURS = 64


def walk(page: Page) -> Iterator[int]:
    """Use the page, and yield whenever it is worth a picture, with the milliseconds to show it."""

    def settle() -> None:
        page.wait_for_selector("main[aria-busy=false]")

    yield 2500
    page.locator(".switches .buttons button").first.click()  # the head that is shown
    settle()
    yield 3500
    page.locator("button:has-text('All on')").click()
    settle()
    yield 1000
    page.locator("textarea").focus()
    page.keyboard.press("Control+End")
    for letter in " Ben gave Ida a kite.":
        page.keyboard.type(letter)
        settle()
        yield 100
    yield 1500
    page.locator("button.write").click()
    for _ in range(14):
        page.wait_for_timeout(60)
        yield 120
    settle()
    yield 3000


def opened(browser: Browser, path: Path, **options: Any) -> Page:
    """The page, without its tour."""
    page = browser.new_page(**options)
    page.add_init_script("localStorage.setItem('glassgpt-toured', '1')")
    page.goto(path.resolve().as_uri())
    page.wait_for_selector("main[aria-busy=false]")
    page.wait_for_timeout(500)
    return page


def main(path: Path) -> None:
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        phone = opened(browser, path, viewport=PHONE, has_touch=True, color_scheme="dark")
        phone.locator(".grid [role=switch][aria-label=L1H0]").click()
        phone.wait_for_selector("main[aria-busy=false]")
        phone.locator(".panel .words").scroll_into_view_if_needed()
        phone.wait_for_timeout(500)
        phone.screenshot(path=DOCS / "touch_phone.png")
        why = opened(browser, path, viewport=WIDE, color_scheme="dark")
        why.locator(".looks summary").first.click()
        why.locator(".looks .bars li").first.wait_for()
        why.locator(".looks details").first.scroll_into_view_if_needed()
        why.locator(".looks .bars li:has-text('L0H')").first.hover()
        why.wait_for_timeout(500)
        why.screenshot(path=DOCS / "why.png")
        page = opened(browser, path, viewport=SIZE)
        frames: list[Image.Image] = []
        times = []
        for time in walk(page):
            if len(frames) == 1:  # the head is off
                page.screenshot(path=DOCS / "touch.png")
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB").resize(SMALL)
            frames.append(picture.quantize(COLOURS, dither=Image.Dither.NONE))
            times.append(time)
        browser.close()
    gif, rest = DOCS / "touch.gif", frames[1:]
    frames[0].save(gif, save_all=True, append_images=rest, duration=times, loop=0, optimize=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Record docs/touch.gif from a page of a run.")
    parser.add_argument("page", type=Path, help="a page that look.py wrote")
    main(parser.parse_args().page)
