"""Asking more of the Attention tab: differences, saved files, the address, labels and access."""

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
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from playwright import sync_api
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention, encode, page
from tensorboard_attention.tests.conftest import HOSTILE, Tab, causal_maps
from tensorboard_attention.tests.events import HEADER, event, look, write

EMOJI = [
    "👩🏽\u200d🚀",
    "🇫🇷",
    "👨\u200d👩\u200d👧\u200d👦",
    "🏴\U000e0067\U000e0062\U000e007f",
    "1\ufe0f\u20e3",
]
MINUS = "\u2212"
SVG = "{http://www.w3.org/2000/svg}"


def shown_byte(weight: np.ndarray) -> np.ndarray:
    """The weight that the tab shows for a weight that was logged."""
    return (np.rint(np.sqrt(weight) * 255) / 255) ** 2


@pytest.fixture
def logs(site: dict[str, str], address: tuple[str, Path]) -> Path:
    return address[1]


def log(
    folder: Path, *steps: int, n: int = 8, heads: int = 2, tokens: list[str] | None = None
) -> None:
    writer = SummaryWriter(str(folder))
    for step in steps:
        texts = tokens or [f"t{i}" for i in range(n)]
        add_attention(writer, "probe", causal_maps(step, heads=heads, n=len(texts)), texts, step)
    writer.close()


def saved(tab: Tab, what: str, panel: str = ".panel:not(.difference) >> nth=0") -> Any:
    menu = tab[panel].locator(".save")
    menu.locator("summary").click()
    with tab.page.expect_download() as found:
        menu.locator(f"button:has-text('{what}')").click()
    data = Path(found.value.path()).read_bytes()
    return data if "PNG" in what else data.decode()


def labels(text: str) -> tuple[list[str], list[str]]:
    """Of the rows and of the columns in a saved SVG."""
    texts = ElementTree.fromstring(text).findall(f".//{SVG}text")
    rows = [each.text or "" for each in texts if each.get("text-anchor") == "end"]
    columns = [each.text or "" for each in texts if "rotate" in each.get("transform", "")]
    return rows, columns


# Differences


def test_the_difference_of_two_views(logs: Path, open_tab: Callable[..., Tab]) -> None:
    """Its cells, signs and numbers are those of the logged weights, first minus second."""
    log(logs / "differ", 0, 1)
    tab = open_tab(run="differ", step=1, run2="differ", step2=0, layer=1, head=1)
    assert tab[".panel.difference"].is_hidden()
    tab["button:has-text('Difference')"].click()
    panel = tab[".panel.difference"]
    sync_api.expect(panel.locator("h2")).to_have_text("Layer 1, head 1 · step 1 minus step 0")
    one, two = (shown_byte(causal_maps(step, n=8)[1][0, 1].numpy()) for step in (1, 0))
    lines = [*csv.DictReader(io.StringIO(saved(tab, "Weights", ".panel.difference")))]
    assert len(lines) == 36
    for line in lines:
        at = int(line["query"]), int(line["key"])
        assert float(line["difference"]) == pytest.approx(one[at] - two[at], abs=1e-5)
    # The readout of a cell.
    canvas = panel.locator("canvas")
    box = canvas.bounding_box()
    assert box
    canvas.hover(position={"x": box["width"] - 10, "y": box["height"] - 10})
    one_is, two_is, difference = one[7, 7], two[7, 7], one[7, 7] - two[7, 7]
    sign = MINUS if difference < 0 else "+"
    sync_api.expect(panel.locator(".readout")).to_have_text(
        f"7 t7 → 7 t7: {one_is:.3f} {MINUS} {two_is:.3f} = {sign}{abs(difference):.3f}"
    )
    ticks = panel.locator(".ticks span").all_inner_texts()
    assert ticks == [f"{MINUS}1", f"{MINUS}.25", f"{MINUS}.05", "0", "+.05", "+.25", "+1"]
    assert "more in step 0" in panel.locator(".more").inner_text()
    tab.page.keyboard.press("d")
    sync_api.expect(panel).to_be_hidden()


def test_texts_that_differ_have_no_difference(logs: Path, open_tab: Callable[..., Tab]) -> None:
    log(logs / "first text", 0)
    log(logs / "second text", 0, tokens=list("abcdefgh"))
    tab = open_tab(run="first text", run2="second text", difference=1)
    panel = tab[".panel.difference"]
    sync_api.expect(panel.locator(".note")).to_have_text(
        "Only maps of the same text have a difference."
    )
    assert panel.locator("canvas").is_hidden()


# Linear RGB as it is seen (Machado, Oliveira and Fernandes 2009), row by row; to LMS and OKLab
# (Ottosson 2020).
VISION = {
    "all": "1 0 0  0 1 0  0 0 1",
    "protan": "0.1523 1.0526 -0.2049  0.1145 0.7863 0.0992  -0.0039 -0.0481 1.0520",
    "deutan": "0.3673 0.8606 -0.2280  0.2801 0.6725 0.0474  -0.0118 0.0429 0.9689",
    "tritan": "1.2555 -0.0767 -0.1788  -0.0784 0.9308 0.1476  0.0047 0.6914 0.3039",
}
TO_LMS = "0.412221 0.536333 0.051446  0.211903 0.680700 0.107397  0.088302 0.281719 0.629979"
TO_LAB = "0.210454 0.793618 -0.004072  1.977998 -2.428592 0.450594  0.025904 0.782772 -0.808676"


def matrix(text: str) -> np.ndarray:
    """Transposed, for colours in rows."""
    return np.array(text.split(), dtype=float).reshape(3, 3).T


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("dark", [False, True])
def test_signs_are_told_apart_in_any_vision(
    open_tab: Callable[..., Tab], vision: str, dark: bool
) -> None:
    code = """(_, dark) => import(new URL("colours.js", document.baseURI)).then(
        ({ diverging, scale, future }) => [...diverging(dark), scale(dark)[0], future(dark)])"""
    pixels = np.array(open_tab()["main"].evaluate(code, dark), dtype="<u4")
    channels = pixels.view(np.uint8).reshape(-1, 4)[:, :3] / 255
    linear = np.where(channels > 0.04045, ((channels + 0.055) / 1.055) ** 2.4, channels / 12.92)
    seen = (linear @ matrix(VISION[vision])).clip(0)
    lab = np.cbrt(seen @ matrix(TO_LMS)) @ matrix(TO_LAB)
    assert pixels[255] == pixels[511], "zero is the background"
    assert pixels[512] not in pixels[:511]
    sides = lab[254::-1], lab[256:511]
    for side in sides:
        steps = np.diff(side[:, 0]) * (1 if dark else -1)
        assert (steps > -0.004).all() and steps.sum() > 0.5
    apart = np.linalg.norm(sides[0] - sides[1], axis=1)
    assert (apart[50:] > 0.07).all(), "from a difference of 0.04 on"


def test_both_views_move_together(logs: Path, open_tab: Callable[..., Tab]) -> None:
    log(logs / "many", *range(0, 50, 10))
    tab = open_tab(run="many", step=20, run2="many", step2=10)
    views = lambda one, two: tab.shown(["many", "probe", one], ["many", "probe", two])  # noqa: E731
    slider, other = tab["input[type=range] >> nth=0"], tab["input[type=range] >> nth=1"]
    slider.fill("3")
    views(30, 10)
    tab["label:has-text('Move both')"].click()
    slider.fill("4")
    views(40, 20)
    slider.fill("0")  # 20 before the first step there is none
    views(0, 0)
    slider.fill("3")
    views(30, 10)
    other.fill("2")
    views(40, 20)
    tab.page.wait_for_url(re.compile("step=last.*step2=20&.*together=1"))
    tab.page.reload()
    views(40, 20)
    assert tab["label:has-text('Move both') input"].is_checked()
    tab["label:has-text('Move both')"].click()
    other.fill("0")
    views(40, 0)


def test_arrow_keys_follow_the_order_that_is_seen(logs: Path, open_tab: Callable[..., Tab]) -> None:
    log(logs / "wide", 0, heads=14)
    tab = open_tab(run="wide", sort="entropy")
    places = {
        each["name"]: (each["x"], each["y"])
        for each in tab[".head"].evaluate_all(
            """all => all.map(each => ({
                name: each.getAttribute("aria-label").split(",").slice(0, 2).join(),
                x: each.offsetLeft,
                y: each.offsetTop,
            }))"""
        )
    }
    rows = sorted({y for _, y in places.values()})
    assert len(rows) > 2
    start = next(name for name, (x, y) in places.items() if y == rows[0])
    chosen = tab[".head[aria-pressed=true]"]

    def now() -> tuple[int, int]:
        name = chosen.get_attribute("aria-label") or ""
        return places[",".join(name.split(",")[:2])]

    tab[f".head[aria-label^='{start},']"].click()
    for key, row in [("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1)]:
        tab.page.keyboard.press(key)
        sync_api.expect(chosen).to_be_focused()
        assert now() == (places[start][0], rows[row])
    tab.page.keyboard.press("ArrowRight")
    sync_api.expect(chosen).to_be_focused()
    assert now()[0] > places[start][0] and now()[1] == rows[1]


# Saved files


@pytest.mark.parametrize("exported", [False, True])
def test_a_saved_map_has_every_label(
    logs: Path,
    open_tab: Callable[..., Tab],
    browser: sync_api.Browser,
    tmp_path: Path,
    exported: bool,
) -> None:
    """In SVG that any XML parser reads, whatever the tokens are; and in a PNG of the same size."""
    tokens = [HOSTILE, "\x00\x1b", "a&b<c>", '"', " the", "\ud800", "\uffff", *map(str, range(93))]
    maps = causal_maps(0, 1, 1, 100)
    path = tmp_path / "heads.html"
    if exported:
        page(path, [("probe", 0, encode(maps, tokens))])
        tab = Tab(browser, path.as_uri(), frame=False)
    else:
        log(logs / "labels & <more>", 0, tokens=[each.replace("\ud800", "?") for each in tokens])
        tab = open_tab(run="labels & <more>")
    text = saved(tab, "SVG")
    rows, columns = labels(text)
    assert rows == columns and len(rows) == 100
    assert rows[1:5] == [r"\u{0}\u{1b}", "a&b<c>", '"', "·the"] and rows[-1] == "92"
    assert rows[5] == r"\u{d800}" if exported else "?"
    root = ElementTree.fromstring(text)
    sizes = {float(each.get("font-size", "0")) for each in root.iter(f"{SVG}text")}
    assert min(sizes) >= 12
    places = [each.get("transform", "") for each in root.iter(f"{SVG}text")]
    downs = [float(place.split()[1].split(")")[0]) for place in places]
    assert min(np.diff(downs[1:101])) >= 12, "no two labels overlap"
    data = saved(tab, "PNG")
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width = int.from_bytes(data[16:20], "big")
    assert width in (round(float(root.get("width", "0"))) * each for each in (1, 2))
    if exported:
        assert tab.asked[0] == path.as_uri() and all(
            url.startswith("blob:") for url in tab.asked[1:]
        )
        tab.close()


def test_a_saved_map_has_the_logged_weights(logs: Path, open_tab: Callable[..., Tab]) -> None:
    """As colours in the SVG: the palette's, for each cell, and the future's; and as numbers."""
    tokens = [" a", "=1+1", 'b"', "c,d", "line\n", "-", "@x", "t7"]
    log(logs / "numbers", 0, tokens=tokens)
    tab = open_tab(run="numbers", layer=1, head=0)
    weights = shown_byte(causal_maps(0, n=8)[1][0, 0].numpy())
    lines = [*csv.DictReader(io.StringIO(saved(tab, "Weights")))]
    cells = {(int(line["query"]), int(line["key"])): float(line["weight"]) for line in lines}
    assert cells == {
        (query, key): pytest.approx(weights[query, key], abs=1e-5)
        for query in range(8)
        for key in range(query + 1)
    }
    assert [json.loads(line["key_token"]) for line in lines[-8:]] == tokens
    text = saved(tab, "SVG")
    code = """() => import(new URL("colours.js", document.baseURI)).then(
        ({ scale, future, css }) => [...scale(false), future(false)].map(css))"""
    palette = tab["main"].evaluate(code)
    fills: dict[tuple[int, int], str] = {}
    for path in ElementTree.fromstring(text).iter(f"{SVG}path"):
        for key, query, length in re.findall(r"M(\d+) (\d+)h(\d+)v1", path.get("d", "")):
            for at in range(int(length)):
                assert (int(query), int(key) + at) not in fills
                fills[int(query), int(key) + at] = path.get("fill", "")
    for (query, key), fill in fills.items():
        byte = 256 if key > query else round(np.sqrt(weights[query, key]) * 255)
        assert fill == palette[byte]
    assert len(fills) == 64


def test_saved_scores(logs: Path, open_tab: Callable[..., Tab]) -> None:
    writer = SummaryWriter(str(logs / "=scored"))
    mine = {
        "=cmd()": [torch.tensor([0.5, -0.25])] * 2,
        "mine": [torch.tensor([1.0, torch.nan])] * 2,
    }
    add_attention(writer, "probe", causal_maps(0, n=8), list("abcdefgh"), 3, mine)
    writer.close()
    text = saved(open_tab(run="=scored"), "Scores")
    lines = [*csv.DictReader(io.StringIO(text))]
    heads = [(int(line["layer"]), int(line["head"])) for line in lines]
    assert heads == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [line["'=cmd()"] for line in lines] == ["0.5", "-0.25"] * 2
    assert [line["mine"] for line in lines] == ["1", ""] * 2
    assert {(line["run"], line["probe"], line["step"]) for line in lines} == {
        ("'=scored", "probe", "3")
    }


def test_a_png_that_is_too_large_is_refused(
    site: dict[str, str], open_tab: Callable[..., Tab], logs: Path
) -> None:
    header = HEADER | {"tokens": ["x"] * 1200, "heads": [1], "scores": {}, "causal": True}
    import zlib

    from tensorboard_attention.summary import attention_summary

    writer = SummaryWriter(str(logs / "huge"))
    logged = attention_summary("probe", [torch.eye(3)[None, None]], list("abc"))
    logged.value[0].tensor.string_val[:] = [
        json.dumps(header).encode(),
        zlib.compress(bytes(1200 * 1201 // 2)),
    ]
    writer._get_file_writer().add_summary(logged, 0)
    writer.close()
    tab = open_tab(run="huge")
    menu = tab[".save >> nth=0"]
    menu.locator("summary").click()
    menu.locator("button:has-text('PNG')").click()
    sync_api.expect(tab[".notice"]).to_contain_text("Save the map as SVG")
    assert len(labels(saved(tab, "SVG"))[0]) == 1200


# The address


def test_the_view_survives_a_reload(logs: Path, open_tab: Callable[..., Tab]) -> None:
    """Also the zoom; and the address of a view of the last step leads to the last step."""
    log(logs / "reloaded", 0, 5, n=30)
    tab = open_tab(run="reloaded")
    tab[".head >> nth=2"].click()
    tab[".token[data-place='3'] >> nth=0"].click()
    tab[".sorting select"].select_option("entropy")
    tab["button:has-text('Compare')"].click()
    for _ in range(3):
        tab.page.keyboard.press("+")
    title = tab[".panel:not([hidden]) h2 >> nth=0"].inner_text()
    picture = tab["canvas.picture:visible >> nth=0"]
    corner: Any = {"x": 110, "y": 110}
    picture.hover(position=corner)
    cell = tab[".panel:not([hidden]) .readout >> nth=0"].inner_text()
    assert re.match(r"\d+ t", cell)
    tab.page.wait_for_url(re.compile("zoom=3.375"))
    tab.page.reload()
    tab.shown(["reloaded", "probe", 5], ["reloaded", "probe", 0])
    assert tab[".panel:not([hidden]) h2 >> nth=0"].inner_text() == title
    assert tab[".sorting select"].input_value() == "entropy"
    assert tab[".token.focus >> nth=0"].get_attribute("data-place") == "3"
    picture.hover(position=corner)
    assert tab[".panel:not([hidden]) .readout >> nth=0"].inner_text() == cell
    # The last step stays the last step.
    writer = SummaryWriter(str(logs / "reloaded"), filename_suffix=".later")
    add_attention(writer, "probe", causal_maps(9, n=30), [f"t{i}" for i in range(30)], 9)
    writer.close()
    tab.page.reload()
    tab.shown(["reloaded", "probe", 9], ["reloaded", "probe", 0])


@pytest.mark.parametrize(
    "zoom", ["1e999,0,0", "2", "a,b,c", "NaN,0,0", "2,-5,9e9", "1e300,0.5,0.5"]
)
def test_an_odd_zoom_in_a_link(open_tab: Callable[..., Tab], zoom: str) -> None:
    tab = open_tab(run="trained", zoom=zoom)
    assert tab.shown() == [["trained", "attention", 6]]
    picture = tab["canvas.picture >> nth=0"]
    picture.hover(position={"x": 100, "y": 100})
    assert re.match(r"\d+ ·w\d+ → ", tab[".readout >> nth=0"].inner_text())


def test_another_tab_of_tensorboard_keeps_its_address(
    logs: Path, open_tab: Callable[..., Tab]
) -> None:
    tab = open_tab(run="trained")
    tab.page.wait_for_url(re.compile("step=last"))
    bar = tab.page.locator("tb-webapp header, app-header")
    bar.get_by_text("Time Series").first.click()
    tab.page.locator("iframe[src*=attention]").wait_for(state="hidden")
    tab.page.clock.run_for(2_000)
    assert "attention" not in tab.page.url.split("#")[1].split("&")[0]
    bar.get_by_text("Attention").first.click()
    tab.page.locator("iframe[src*=attention]").wait_for(state="visible")
    tab.page.wait_for_url(re.compile("step=last"))


# Playing


@pytest.mark.parametrize(("count", "seconds"), [(120, 2), (30, 5), (3, 20)])
def test_playing_takes_the_chosen_time(
    browser: sync_api.Browser, tmp_path: Path, count: int, seconds: int
) -> None:
    """By the page's own clock; short runs take at most a second for each step."""
    entries = [
        ("probe", step, encode(causal_maps(step, 1, 1, 4), list("abcd"))) for step in range(count)
    ]
    page(tmp_path / "heads.html", entries)
    tab = Tab(browser, (tmp_path / "heads.html").as_uri(), frame=False)
    tab["select.speed >> nth=0"].select_option(str(seconds))
    code = """([count]) => new Promise((resolve) => {
        const began = performance.now();
        new MutationObserver(() => {
            const [[, , step]] = JSON.parse(document.querySelector("main").dataset.shown);
            if (step === count - 1) resolve(performance.now() - began);
        }).observe(document.querySelector("main"), { attributeFilter: ["data-shown"] });
        document.querySelector("button.play").click();
    })"""
    tab["input[type=range] >> nth=0"].fill("0")
    tab.shown([".", "probe", 0])
    took = tab["main"].evaluate(f"(_, [count]) => ({code})([count])", [count])
    expected = min(seconds, count - 1) * 1000
    assert 0.7 * expected < took < 1.6 * expected + 1500
    sync_api.expect(tab["button.play >> nth=0"]).to_have_text("▶")
    tab.close()


# Heads that are not finite


def broken_maps() -> list[torch.Tensor]:
    maps = causal_maps(0, n=8)
    maps[1][0, 0, 3, 1] = torch.nan
    return maps


def test_heads_that_are_not_finite_are_marked(logs: Path, open_tab: Callable[..., Tab]) -> None:
    writer = SummaryWriter(str(logs / "broken head"))
    add_attention(writer, "probe", broken_maps(), list("abcdefgh"), 0)
    writer.close()
    tab = open_tab(run="broken head", layer=1, head=0)
    marked = "all => all.map(each => /NaN/.test(each.textContent + each.ariaLabel))"
    assert tab[".head"].evaluate_all(marked) == [False, False, True, False]
    coloured = """all => all.map((each) => {
        const { data } = each.getContext("2d").getImageData(0, 0, each.width, each.height);
        return data.slice(0, 4).join();
    })"""
    corners = tab[".head canvas"].evaluate_all(coloured)
    assert len(set(corners)) == 2 and corners[2] != corners[0], "a cross through the map"
    assert "not finite (NaN)" in tab[".note >> nth=0"].inner_text()
    tab[".head >> nth=3"].click()
    sync_api.expect(tab[".panel:not(.difference) .note >> nth=0"]).not_to_contain_text("This head")


def test_not_finite_heads_in_headers(tmp_path: Path) -> None:
    """Only as they are written: pairs of a layer and a head that are there."""
    assert json.loads(encode(broken_maps(), list("abcdefgh"))[0])["not_finite"] == [[1, 0]]
    assert "not_finite" not in HEADER
    good: Any = [[[0, 0]], [[0, 1], [0, 0]], []]
    bad: Any = [None, 1, {}, [0], [[0]], [[0, 2]], [[1, 0]], [[-1, 0]], [[0, True]], [[0, 0]] * 3]
    steps = [HEADER | {"not_finite": each} for each in (*good, *bad)]
    write(tmp_path, *(event(step, header) for step, header in enumerate(steps)))
    assert look(tmp_path)["steps"] == {".": {"probe": [0, 1, 2]}}


# The server


@contextmanager
def server(*options: str) -> Iterator[tuple[str, subprocess.Popen]]:
    command = [sys.executable, "-m", "tensorboard.main", "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        found = (re.search(r"http://localhost:\d+/", line) for line in process.stderr)
        yield next(each for each in found if each).group(), process
        process.terminate()


def test_a_server_that_is_gone(browser: sync_api.Browser, tmp_path: Path) -> None:
    """The tab says so; the slider, the heading and the maps stay those of the last view."""
    log(tmp_path / "run", *range(10))
    with server("--logdir", str(tmp_path)) as (url, process):
        tab = Tab(browser, f"{url}#attention")
        assert tab.shown() == [["run", "probe", 9]]
        process.terminate()
        process.wait()
        tab["input[type=range] >> nth=0"].fill("2")
        notice = tab[".notice"]
        sync_api.expect(notice).to_have_text("TensorBoard does not answer. Is it still running?")
        assert tab[".stepper output >> nth=0"].inner_text() == "9 (10 of 10)"
        assert tab["input[type=range] >> nth=0"].input_value() == "9"
        assert tab.shown() == [["run", "probe", 9]]
        tab[".head >> nth=1"].click()
        sync_api.expect(tab[".panel:not([hidden]) h2 >> nth=0"]).to_have_text("Layer 0, head 1")
        assert "does not answer" in notice.inner_text()
        tab.page.clock.run_for(10_000)
        assert "does not answer" in notice.inner_text()
        port = url.rstrip("/").rsplit(":", 1)[1]
        again = [
            sys.executable,
            "-m",
            "tensorboard.main",
            "--port",
            port,
            "--logdir",
            str(tmp_path),
        ]
        with subprocess.Popen(again, stderr=subprocess.PIPE, text=True) as second:
            assert second.stderr
            assert any("http://localhost" in line for line in second.stderr)
            tab.page.clock.run_for(10_000)
            sync_api.expect(notice).to_have_text("")
            tab["input[type=range] >> nth=0"].fill("2")
            tab.shown(["run", "probe", 2])
            second.terminate()
        tab.close()


def test_a_server_that_is_gone_is_noticed_without_a_click(
    browser: sync_api.Browser, tmp_path: Path
) -> None:
    log(tmp_path / "run", 0)
    with server("--logdir", str(tmp_path)) as (url, process):
        tab = Tab(browser, f"{url}#attention")
        process.terminate()
        process.wait()
        tab.page.clock.run_for(10_000)
        sync_api.expect(tab[".notice"]).to_contain_text("TensorBoard does not answer")
        tab.close()


def test_a_step_that_cannot_be_shown_hides_the_old_maps(
    logs: Path, open_tab: Callable[..., Tab]
) -> None:
    log(logs / "two steps", 0, 1)
    tab = open_tab(run="two steps")
    tab.page.route("**/maps?run=two*step=0", lambda route: route.fulfill(status=404))
    tab.page.reload()
    tab.shown(["two steps", "probe", 1])
    tab["input[type=range] >> nth=0"].fill("0")
    sync_api.expect(tab[".notice"]).to_have_text("These maps are no longer in the log.")
    sync_api.expect(tab["canvas.picture >> nth=0"]).to_be_hidden()
    tab["input[type=range] >> nth=0"].fill("1")
    sync_api.expect(tab["canvas.picture:visible"]).to_have_count(1)


def test_named_log_folders(browser: sync_api.Browser, tmp_path: Path) -> None:
    for name in ("one", "two/below", "c"):
        log(tmp_path / name, 0)
    spec = f"mine:{tmp_path / 'one'},yours:{tmp_path / 'two'},{tmp_path / 'c'}"
    with server("--logdir_spec", spec) as (url, _):
        tab = Tab(browser, f"{url}#attention")
        runs = tab[".picker select >> nth=0"].locator("option").all_inner_texts()
        assert sorted(runs) == sorted(["mine", "yours/below", str(tmp_path / "c")])
        tab[".picker select >> nth=0"].select_option("mine")
        tab.shown(["mine", "probe", 0])
        tab.close()


# Labels


def test_labels_count_as_they_are_drawn(open_tab: Callable[..., Tab]) -> None:
    code = """(_, texts) => import(new URL("dom.js", document.baseURI)).then(
        ({ tokenLabel }) => texts.map((text) => tokenLabel(text, 12)))"""
    texts = {
        "\u200d" * 20: r"\u{200d}…",
        "\u200b": r"\u{200b}",
        r"a\xff\xfe\xfd": r"a\xff\xfe…",
        **{each: each for each in EMOJI},
        EMOJI[0] * 6: EMOJI[0] * 6,
        EMOJI[0] * 7: EMOJI[0] * 5 + "…",
        "👩\u200d": r"👩\u{200d}",  # the beginning of a sequence
        "🇫": "🇫",
        "incomprehensible": "incomprehen…",
        "e\u0301" * 3: "e\u0301" * 3,
        "\u2764\ufe0f": "\u2764\ufe0f",
    }
    assert open_tab()["main"].evaluate(code, [*texts]) == [*texts.values()]


def test_odd_tokens_do_not_distort_the_map(logs: Path, open_tab: Callable[..., Tab]) -> None:
    """The map has nearly the size that it has with plain tokens."""
    odd = ["\u200d" * 20, "\u200b" * 50, "a\u0301" * 30, "﷽" * 12, *EMOJI, "W" * 40]
    log(logs / "odd tokens", 0, tokens=odd)
    log(logs / "plain tokens", 0, tokens=["m" * 12] * len(odd))
    sides = {}
    for width in (1280, 400):
        for run in ("odd tokens", "plain tokens"):
            tab = open_tab(run=run, width=width)
            picture = tab["canvas.picture >> nth=0"]
            box = picture.bounding_box()
            assert box
            # Where the map begins: the first row is its first cell's at every place in it.
            places = range(0, int(box["width"]) // 2, 2)
            found = []
            for x in places:
                picture.hover(position={"x": x, "y": box["height"] - 12})
                if not tab[".readout >> nth=0"].inner_text().startswith("Row:"):
                    found.append(tab[".readout >> nth=0"].inner_text())
            size = [re.match(r"\d+ .* → (\d+) ", text) for text in found]
            sides[width, run] = (
                box["width"],
                sum(bool(each) and each[1] != "9" for each in size if each),
            )
        assert sides[width, "odd tokens"][0] == sides[width, "plain tokens"][0]
        assert sides[width, "odd tokens"][1] >= 0.7 * sides[width, "plain tokens"][1] > 0


# Access


def test_tokens_are_reached_and_read_without_a_mouse(
    logs: Path, open_tab: Callable[..., Tab]
) -> None:
    tab = open_tab(run="trained", token=5, layer=1, head=1)
    text = tab.root.get_by_role("listbox", name="Tokens of the text")
    assert text.get_by_role("option").count() == 24
    assert text.locator("[tabindex='0']").count() == 1
    chosen = text.get_by_role("option", selected=True)
    assert chosen.get_attribute("aria-label") == "5: w5"
    chosen.focus()
    keyboard = tab.page.keyboard
    for key, place in [("ArrowRight", 6), ("Home", 0), ("End", 23), ("ArrowLeft", 22)]:
        keyboard.press(key)
        sync_api.expect(text.locator(f"[data-place='{place}']")).to_be_focused()
        sync_api.expect(chosen).to_have_attribute("data-place", f"{place}")
    keyboard.press("Enter")
    keyboard.press(",")  # at another step, it is still chosen and focused
    tab.shown(["trained", "attention", 3])
    sync_api.expect(text.locator("[data-place='22']")).to_be_focused()
    table = tab.root.get_by_role("table")
    sync_api.expect(table.locator("caption")).to_have_text(
        "Layer 1, head 1: weights of token 22, w22"
    )
    weights = shown_byte(causal_maps(3)[1][0, 1].numpy())
    rows = table.locator("tbody tr")
    assert rows.count() == 24
    for place in (0, 7, 22):
        cells = rows.nth(place).locator("td").all_inner_texts()
        assert cells[:2] == [f"{place}", f"w{place}"]
        assert float(cells[2]) == pytest.approx(weights[22, place], abs=6e-4)
    later = rows.nth(23).locator("td").all_inner_texts()
    assert later[2] == "\u2013" and float(later[3]) == pytest.approx(weights[23, 22], abs=6e-4)
    curve = tab.root.get_by_role("img", name=re.compile("^entropy over steps, from .* at step 3$"))
    sync_api.expect(curve).to_have_count(1)


SMALL = """() => [...document.querySelectorAll("main *")].filter((each) =>
    [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) &&
    parseFloat(getComputedStyle(each).fontSize) < 12).map((each) => each.outerHTML)"""


@pytest.mark.parametrize("width", [1280, 400])
def test_no_text_is_smaller_than_12_pixels(open_tab: Callable[..., Tab], width: int) -> None:
    tab = open_tab(
        run="trained", run2="trained", step2=0, difference=1, sort="entropy", width=width
    )
    tab[".chart polyline >> nth=3"].wait_for(state="attached")
    tab[".keys summary"].click()
    assert tab["main"].evaluate(SMALL) == []
    assert tab["main"].evaluate("() => document.scrollingElement.scrollWidth <= innerWidth")
    cut = "all => all.filter((each) => each.scrollWidth > each.clientWidth).length"
    assert tab[".caption"].evaluate_all(cut) == 0, "scores are read without a tooltip"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_forced_colours_show_what_is_chosen(
    site: dict[str, str], browser: sync_api.Browser, scheme: Any
) -> None:
    context = browser.new_context(forced_colors="active", color_scheme=scheme)
    view = context.new_page()
    view.goto(f"{site['url']}data/plugin_entry.html?name=attention#&p.attention.run=trained")
    view.locator("main[data-shown]").wait_for()
    outline = "all => all.map((each) => getComputedStyle(each).outlineStyle)"
    assert view.locator(".head").evaluate_all(outline).count("solid") == 1
    assert view.locator(".token").evaluate_all(outline).count("solid") == 1
    # The labels on the map are drawn in the colour of text, and the legend keeps its colours.
    read = """(canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, 60, canvas.height);
        const seen = new Set();
        for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) seen.add(data[i]);
        return [...seen];
    }"""
    ink = view.locator("canvas.picture >> nth=0").evaluate(read)
    assert (255 if scheme == "dark" else 0) in ink
    ramp = view.locator(".ramp:visible >> nth=0").evaluate(
        "(each) => getComputedStyle(each).backgroundImage"
    )
    assert ramp.startswith("linear-gradient")
    context.close()


def test_a_phone_shows_the_tab_alone(site: dict[str, str], browser: sync_api.Browser) -> None:
    """At the address that train.py prints."""
    context = browser.new_context(
        viewport={"width": 400, "height": 800}, is_mobile=True, has_touch=True
    )
    view = context.new_page()
    errors: list[str] = []
    view.on("pageerror", lambda error: errors.append(str(error)))
    view.goto(f"{site['url']}data/plugin_entry.html?name=attention")
    view.locator("main[data-shown]").wait_for()
    assert view.evaluate("() => [innerWidth, document.scrollingElement.scrollWidth]") == [400, 400]
    assert view.title() == "Attention"
    view.locator(".head >> nth=1").tap()
    view.wait_for_url(re.compile("head=1"))
    view.reload()
    view.locator("main[data-shown]").wait_for()
    sync_api.expect(view.locator(".panel:not([hidden]) h2 >> nth=0")).to_have_text(
        "Layer 0, head 1"
    )
    context.close()
    assert errors == []
