"""A real browser on a real TensorBoard. Needs nothing of the rest of the repository."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import torch
from hypothesis import settings
from playwright import sync_api
from tensorboard import program
from tensorboard.plugins.base_plugin import TBContext
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter
from werkzeug.test import Client

from tensorboard_attention import add_attention, page
from tensorboard_attention.export import STATIC
from tensorboard_attention.plugin import AttentionPlugin
from tensorboard_attention.tests.chromium import chromium

# Tests assert no timings.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

READ = """all => all.map(each =>
    [Number(each.dataset.place), Number(each.querySelector("b").textContent)])"""
HOSTILE = '<img src=x onerror="document.title=1"></script><script>document.title=2</script><!--'
ODD_RUN = 'odd &run="<b>" #1%'


Get = Callable[..., tuple[int, bytes]]


def served(logs: Path) -> Get:
    """The routes of the tab over a log folder: `get(route, **query)` returns status and content."""
    plugin = AttentionPlugin(TBContext(logdir=str(logs)))
    plugin.is_active()
    routes = plugin.get_plugin_apps()

    def get(route: str, **query: str) -> tuple[int, bytes]:
        answer = Client(routes[route]).get(query_string=query)
        return answer.status_code, answer.data

    return get


@pytest.fixture(scope="session")
def browser() -> sync_api.Browser:
    return chromium()


@contextmanager
def serve(
    *options: str, python: str | Path = sys.executable, cwd: Path | None = None
) -> Iterator[tuple[str, subprocess.Popen]]:
    """The address of a TensorBoard, and its process."""
    command = [str(python), "-m", "tensorboard.main", "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=cwd) as process:
        assert process.stderr
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"http://localhost:\d+/", line):
                break
        else:
            pytest.fail("".join(lines))
        try:
            yield found.group(), process
        finally:  # SIGTERM can be lost in a thread of TensorBoard's
            process.kill()


def tensorboard(logs: Path) -> str:
    """The address of a TensorBoard over a log folder, in a thread that ends with the process: to
    start it takes a tenth of the time of a process of its own."""
    server = program.TensorBoard()
    server.configure(logdir=str(logs), port=0)
    return server.launch()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A TensorBoard, and its log folder, which is still empty."""
    logs = tmp_path_factory.mktemp("logs")
    return tensorboard(logs), logs


def causal_maps(step: int, layers: int = 2, heads: int = 2, n: int = 24) -> list[Tensor]:
    """Random causal attention, the same for every call."""
    logits = torch.randn(layers, 1, heads, n, n, generator=torch.Generator().manual_seed(step))
    future = torch.ones(n, n).triu(1).bool()
    return [*logits.masked_fill(future, -torch.inf).softmax(-1)]


def log(
    folder: Path, *steps: int, n: int = 8, heads: int = 2, tokens: list[str] | None = None
) -> None:
    writer = SummaryWriter(str(folder))
    for step in steps:
        texts = tokens or [f"t{i}" for i in range(n)]
        add_attention(writer, "probe", causal_maps(step, heads=heads, n=len(texts)), texts, step)
    writer.close()


def shown_byte(weight: np.ndarray) -> np.ndarray:
    """The weight that the tab shows for a weight that was logged."""
    return (np.rint(np.sqrt(weight) * 255) / 255) ** 2


def module(route: sync_api.Route) -> None:
    route.fulfill(path=STATIC / Path(route.request.url).name, content_type="text/javascript")


class Watched:
    """A new page of a browser, in which JavaScript errors are noted, and what it requests."""

    def __init__(self, context: sync_api.BrowserContext) -> None:
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.page = context.new_page()
        self.root: sync_api.Page | sync_api.FrameLocator = self.page
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def __getitem__(self, selector: str) -> sync_api.Locator:
        return self.root.locator(selector)

    def saved(self, what: str, panel: str = ".panel:not(.difference) >> nth=0") -> bytes:
        """The picture (PNG) or the table (CSV) of a map."""
        with self.page.expect_download() as found:
            self[panel].locator(f".save button:has-text('{what}')").click()
        return Path(found.value.path()).read_bytes()

    def table(self, *panel: str) -> list[dict[str, str]]:
        """The lines of the saved table."""
        return [*csv.DictReader(io.StringIO(self.saved("CSV", *panel).decode()))]


class Tab(Watched):
    """The Attention tab in a new browser page. JavaScript errors fail the test that closes it."""

    def __init__(
        self,
        browser: sync_api.Browser,
        url: str,
        frame: bool = True,
        width: int = 1280,
        height: int = 900,
    ):
        context = browser.new_context(
            viewport={"width": width, "height": height},
            has_touch=width < 800,
            is_mobile=width < 800,
        )
        context.clock.install()  # time passes as usual until a test moves it forward
        # Modules that tests import themselves: TensorBoard serves all of them as one.
        context.route(re.compile(r"/(dom|colours)\.js$"), module)
        super().__init__(context)
        self.page.goto(url)
        if frame:
            self.root = self.page.frame_locator("iframe[src*=attention]")
        self.shown()
        self["button.more"].evaluate_all("all => all.forEach((one) => one.click())")
        self["section.head-scores details"].evaluate_all(
            "all => all.forEach((one) => (one.open = true))"
        )

    def shown(self, *views: list) -> Any:
        """Wait until these views (or any) are drawn; return what is drawn."""
        wanted = "[data-shown]"
        if views:
            text = json.dumps(views, separators=(",", ":"), ensure_ascii=False)
            wanted = f"[data-shown={json.dumps(text)}]"
        found = self[f"main{wanted}"].get_attribute("data-shown", timeout=15000)
        return found if found == "empty" else json.loads(found or "")

    def listed(self, way: str) -> dict[int, float]:
        """The listed weights of the token in focus, by position."""
        rows = self[f".panel:not([hidden]) .lists .{way} li[data-place]"]
        return dict(rows.evaluate_all(READ))

    def close(self) -> None:
        self.page.context.close()
        assert self.errors == []


@pytest.fixture(scope="module")
def site(address: tuple[str, Path], browser: sync_api.Browser) -> dict[str, str]:
    """The address, now of a folder with runs, and the text of the tab while it was empty."""
    url, logs = address
    empty = Tab(browser, f"{url}#attention")
    said = {"url": url, "empty": empty["main"].inner_text()}
    empty.close()
    scalars = SummaryWriter(str(logs / "scalars alone"))
    scalars.add_scalar("loss", 1.0, 0)
    scalars.close()
    odd = SummaryWriter(str(logs / ODD_RUN))
    tokens = ["Once", HOSTILE, " \n", "\u202e", "Once", "x" * 300]
    for step in (0, 5):
        maps = torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(step)).softmax(-1)
        add_attention(odd, HOSTILE, [maps], tokens, step)
    add_attention(odd, "long", [torch.eye(600).tril()[None, None]], ["word"] * 600, 0)
    odd.close()
    # The newest run.
    trained = SummaryWriter(str(logs / "trained"))
    for step in (0, 3, 6):
        add_attention(trained, "attention", causal_maps(step), [f" w{i}" for i in range(24)], step)
    trained.close()
    return said


@pytest.fixture
def logs(site: dict[str, str], address: tuple[str, Path]) -> Path:
    """The log folder of the site, for more runs."""
    return address[1]


@contextmanager
def tabs(browser: sync_api.Browser, url: str) -> Iterator[Callable[..., Tab]]:
    """Opens tabs of a TensorBoard at a view, and closes them: the tab alone, or in the `frame` of
    TensorBoard, which takes longer to load than most tests."""
    opened = []

    def open_it(
        width: int = 1280, height: int = 900, frame: bool = False, **link: str | int
    ) -> Tab:
        parts = "".join(f"&p.attention.{key}={quote(str(value))}" for key, value in link.items())
        page = "" if frame else "data/plugin_entry.html?name=attention"
        opened.append(Tab(browser, f"{url}{page}#attention{parts}", frame, width, height))
        return opened[-1]

    yield open_it
    for tab in opened:
        tab.close()


@pytest.fixture
def open_tab(site: dict[str, str], browser: sync_api.Browser) -> Iterator[Callable[..., Tab]]:
    with tabs(browser, site["url"]) as open_it:
        yield open_it


@pytest.fixture
def open_page(browser: sync_api.Browser, tmp_path: Path) -> Iterator[Callable[..., Tab]]:
    """Writes a page to heads.html, opens it, and closes it."""
    opened = []

    def open_it(entries: list, width: int = 1280, **options: str) -> Tab:
        page(tmp_path / "heads.html", entries, **options)
        url = (tmp_path / "heads.html").as_uri()
        opened.append(Tab(browser, url, frame=False, width=width))
        return opened[-1]

    yield open_it
    for tab in opened:
        tab.close()
