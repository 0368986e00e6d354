"""A real browser on a real TensorBoard. Needs nothing of the rest of the repository."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
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

# Tests assert no timings.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

READ = """all => all.map(each =>
    [Number(each.dataset.place), Number(each.querySelector("b").textContent)])"""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
HOSTILE = '<img src=x onerror="document.title=1"></script><script>document.title=2</script><!--'
ODD_RUN = 'odd &run="<b>" #1%'
TEXT = [f"t{i}" for i in range(8)]
REFRESH = 10_000  # milliseconds between the tab's checks for new steps

Get = Callable[..., tuple[int, bytes]]


@cache
def chromium() -> sync_api.Browser:
    """One for all tests of a process: to start it takes longer than most of them."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    return sync_api.sync_playwright().start().chromium.launch(executable_path=CHROMIUM, args=FLAGS)


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


def served(logs: Path) -> Get:
    """The routes of the tab over a log folder: `get(route, **query)` returns status and content."""
    plugin = AttentionPlugin(TBContext(logdir=str(logs)))
    plugin.is_active()
    routes = plugin.get_plugin_apps()

    def get(route: str, **query: str) -> tuple[int, bytes]:
        answer = Client(routes[route]).get(query_string=query)
        return answer.status_code, answer.data

    return get


def causal_maps(step: int, layers: int = 2, heads: int = 2, n: int = 24) -> list[Tensor]:
    """Random causal attention, the same for every call."""
    logits = torch.randn(layers, 1, heads, n, n, generator=torch.Generator().manual_seed(step))
    future = torch.ones(n, n).triu(1).bool()
    return [*logits.masked_fill(future, -torch.inf).softmax(-1)]


def log(
    folder: Path,
    *steps: int,
    tokens: Sequence[str] = TEXT,
    maps: Sequence[Any] | None = None,
    tag: str = "probe",
    purge_step: int | None = None,
    **given: Any,
) -> None:
    """Log maps of these tokens: by default, random causal attention that differs by step."""
    with SummaryWriter(str(folder), purge_step=purge_step) as writer:
        for step in steps:
            logged = maps or causal_maps(step, n=len(tokens))
            add_attention(writer, tag, logged, tokens, step, **given)


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


OpenTab = Callable[..., Tab]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log folder with runs, for more of them."""
    logs = tmp_path_factory.mktemp("logs")
    with SummaryWriter(str(logs / "scalars alone")) as writer:
        writer.add_scalar("loss", 1.0, 0)
    tokens = ["Once", HOSTILE, " \n", "\u202e", "Once", "x" * 300]
    maps = torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(0)).softmax(-1)
    log(logs / ODD_RUN, 0, 5, tokens=tokens, maps=[maps], tag=HOSTILE)
    whole = [torch.eye(600).tril()[None, None]]
    log(logs / ODD_RUN, 0, tokens=["word"] * 600, maps=whole, tag="long")
    # The newest run.
    log(logs / "trained", 0, 3, 6, tokens=[f" w{i}" for i in range(24)], tag="attention")
    return logs


@pytest.fixture(scope="module")
def url(logs: Path) -> str:
    return tensorboard(logs)


@pytest.fixture
def opened(browser: sync_api.Browser) -> Iterator[OpenTab]:
    """Opens tabs, and closes them."""
    tabs: list[Tab] = []

    def open_it(url: str, frame: bool = False, width: int = 1280, height: int = 900) -> Tab:
        tabs.append(Tab(browser, url, frame, width, height))
        return tabs[-1]

    yield open_it
    for tab in tabs:
        tab.close()


@pytest.fixture
def open_tab(url: str, opened: OpenTab) -> OpenTab:
    """Opens the tab at a view: alone, or in the `frame` of TensorBoard, which takes longer to load
    than most tests."""

    def open_it(
        width: int = 1280, height: int = 900, frame: bool = False, **link: str | int
    ) -> Tab:
        parts = "".join(f"&p.attention.{key}={quote(str(value))}" for key, value in link.items())
        page = "" if frame else "data/plugin_entry.html?name=attention"
        return opened(f"{url}{page}#attention{parts}", frame, width, height)

    return open_it


@pytest.fixture
def open_page(opened: OpenTab, tmp_path: Path) -> OpenTab:
    """Writes a page to heads.html, and opens it."""

    def open_it(entries: list, **options: str) -> Tab:
        page(tmp_path / "heads.html", entries, **options)
        return opened((tmp_path / "heads.html").as_uri())

    return open_it
