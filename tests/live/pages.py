"""A live page in a browser, and read without one, from its description in live/pack.py alone."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright import sync_api

from tensorboard_attention import naming
from tensorboard_attention.naming import HeadName
from tensorboard_attention.tests.conftest import Tab, Watched

BARS = ".next .bars li:has(button)"  # of tokens; the last one is of all others


def element(page: Path, name: str) -> str:
    return page.read_text("utf-8").split(f'id="{name}">')[1].split("</script>")[0]


def data_in(page: Path) -> dict[str, Any]:
    return json.loads(element(page, "model"))


def check_names(page: Live | Tab, names: Sequence[Sequence[HeadName]]) -> None:
    """The page, or the tab, says of every head what this says, by layer and head."""
    heads = [head for layer in names for head in layer]
    sync_api.expect(page[".grid .role"]).to_have_text([head.label for head in heads])
    overview = f"{naming.overview([head.label for head in heads])}."
    sync_api.expect(page[".overview"]).to_have_text(overview)
    verdict = page[".panel:not([hidden]) .verdict"].first
    for button, head in zip(page[".grid .head"].all(), heads, strict=True):
        button.click()
        sync_api.expect(verdict).to_have_text(head.headline)
        sync_api.expect(verdict).to_have_attribute("title", re.compile(re.escape(head.details)))


class Live(Watched):
    """A live page in a browser. Errors and other requests fail the test that closes it."""

    def __init__(
        self,
        browser: sync_api.Browser,
        url: str,
        width: int = 1280,
        tours: bool = False,
        waits: bool = True,
        **options: object,
    ):
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, **options)  # type: ignore[arg-type]
        if not tours:
            context.add_init_script("localStorage.setItem('glassgpt-toured', '1')")
        super().__init__(context)
        self.url = url
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.goto(url, wait_until="load" if waits else "commit")
        if waits:
            self.settled()

    def settled(self) -> None:
        """Wait until all that was asked for is shown."""
        self["main[aria-busy=false]"].wait_for()

    def type(self, text: str) -> None:
        self["textarea"].fill(text)
        self.settled()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
            self.settled()

    def click(self, what: str | sync_api.Locator) -> None:
        (self[what] if isinstance(what, str) else what).click()
        self.settled()

    def off(self, name: str) -> None:
        self.click(self[f".switches button:has-text('{name}')"].first)

    def view(self, name: str) -> None:
        self[".views select"].select_option(name)
        self.settled()

    def written(self) -> str:
        """The text, when the model has stopped writing."""
        self[".write:has-text('Let it write')"].wait_for()
        self.settled()
        return self["textarea"].input_value()

    def reload(self) -> None:
        self.page.wait_for_timeout(500)  # until the address follows
        self.page.reload()
        self.settled()

    def losses(self) -> list[float]:
        titles = self[".losses .token"].evaluate_all("all => all.map(({ title }) => title)")
        return [
            float(found[1]) for title in titles if (found := re.search(r"loss ([\d.]+)", title))
        ]

    def mean_loss(self) -> float:
        return float(self[".next .sum b"].inner_text())

    def open(self, title: str) -> sync_api.Locator:
        """One of the looks inside."""
        look = self[f".looks > details:has-text('{title}')"]
        look.locator("> summary").click()
        look.locator(".bars, table").first.wait_for()
        self.settled()
        return look

    def close(self) -> None:
        """Without errors, and without a request but for the page and what it made itself."""
        self.page.context.close()
        assert self.errors == [], self.errors
        assert {each for each in self.asked if not each.startswith("blob:")} == {self.url}
