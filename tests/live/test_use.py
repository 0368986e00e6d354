"""The live page as people use it: a real page of a run that was really trained, in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import torch.nn.functional as F
from playwright import sync_api

from inference.opening import open_run
from model import ablate
from store.results import head_names
from store.run import Run
from tensorboard_attention.tests.conftest import HOSTILE
from tests.live.conftest import Call
from tests.live.drawn import triangle
from tests.live.pages import BARS, Live, check_names

TEXT = "Once there was a hen. The hen"
OVERFLOW = "document.documentElement.scrollWidth <= innerWidth"
CONTRASTS = """(text) => ["token", "token lucky"].map((kind) => {
    const token = document.createElement("span");
    token.className = kind;
    token.style.setProperty("--loss", "100%");
    text.append(token);
    const { color, backgroundColor } = getComputedStyle(token);
    token.remove();
    const [darker, lighter] = [color, backgroundColor].map((colour) => {
        const scale = colour.startsWith("rgb") ? 255 : 1;
        const [red, green, blue] = colour.match(/[\\d.]+/g).map((each) => {
            const value = each / scale;
            return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    }).sort((one, other) => one - other);
    return (lighter + 0.05) / (darker + 0.05);
})"""


@pytest.fixture
def live(site: str, browser: sync_api.Browser) -> Iterator[Live]:
    page = Live(browser, site)
    yield page
    page.close()


def test_the_first_view_shows_what_to_do(live: Live) -> None:
    """A text is there, with its losses, what comes next, and the head that tells most."""
    assert live["textarea"].input_value() and len(live.losses()) > 3
    assert live[BARS].count() == 10 and live[".head[aria-pressed=true]"].count() == 1
    assert live[".verdict"].inner_text() and live[".sentence"].inner_text() == ""
    live.press("Tab")  # begins at the top
    sync_api.expect(live["button:has-text('Tour')"]).to_be_focused()
    assert live["h1"].inner_text() and "glassgpt" in live["footer"].inner_text()
    assert live[".surprise .note"].inner_text() and live[".kinds span"].count() == 4


def test_the_same_example_again_has_the_same_token(live: Live) -> None:
    """Nobody chose it, so each head has its own, also after a reload."""

    def tokens() -> list[str | None]:
        found = []
        for head in live[".grid .head"].all():
            live.click(head)
            found.append(live[".words .token.focus"].get_attribute("data-place"))
        return found

    live.click(live[".grid .head"].last)
    found = []
    for _ in range(2):
        live.click(live[".examples button"].first)
        found.append(tokens())
    live.reload()
    assert tokens() == found[0] == found[1] and len({*found[0]}) > 1


def test_the_scale_of_surprise_goes_beyond_a_blind_guess(module: Call) -> None:
    """Of tokens that cost 0 to 3 times as much."""
    shown = module(
        "surprise.js",
        """({ Surprise }) => {
            const part = new Surprise(() => {});
            const losses = [NaN, 0, 3.8, 7.6, 11.4, 15.2, 22.8];
            const tokens = losses.map((_, i) => `t${i}`);
            part.show({ tokens, losses, begun: 0 }, 7.6, null, false);
            const shades = part.text.spans.map((span) => span.style.getPropertyValue("--loss"));
            return [part.most.textContent, ...shades.map(parseFloat)];
        }""",
    )
    assert shown == ["15.2 nats or more; a blind guess: 7.6", 0, 0, 25, 50, 75, 100, 100]


def test_the_perfect_reader_of_the_texts_of_the_page(live: Live, tiny_run: Path) -> None:
    """It says of them, and of their beginnings, what it says in Python; of another one, nothing."""
    run, unknown = open_run(tiny_run, "last"), "The perfect reader knows"
    prompt = live["textarea"].input_value()
    for text in (prompt, prompt.rpartition(" ")[0]):
        live.type(text)
        floor = run.read(text).floor
        assert floor.unknown == "" and unknown not in live[".typing > .note"].inner_text()
        titles = live[".losses .token"].evaluate_all("all => all.map((token) => token.title)")
        found = [float(title.split(" of which ")[1].split()[0]) for title in titles[1:]]
        avoidable = np.array(live.losses()) - floor.nats[1:]
        assert found == pytest.approx(avoidable.tolist(), abs=2e-3)
        lucky = live[".losses .lucky"].evaluate_all("all => all.map((one) => one.dataset.place)")
        assert [int(place) for place in lucky] == [i for i, x in enumerate(found, 1) if x < 0]
        mean = live[".sum b"].nth(1).inner_text().replace("\N{MINUS SIGN}", "-")
        assert float(mean) == pytest.approx(avoidable.mean(), abs=2e-3)
        likely = sorted(floor.next_tokens[-1].values(), reverse=True)[:5]
        shares = [row.split(" · ")[1] for row in live[f"{BARS} b"].all_inner_texts()]
        shown = sorted((float(share.strip("<%")) for share in shares), reverse=True)
        assert shown[: len(likely)] == pytest.approx([100 * p for p in likely], abs=0.06)
    live.type(f"{prompt} whale")
    assert unknown in live[".typing > .note"].inner_text()
    assert live[".losses .lucky"].count() == 0
    assert not any("·" in text for text in live[f"{BARS} b"].all_inner_texts())


def test_an_empty_text_and_one_that_is_too_long_are_read(live: Live) -> None:
    live.type("")
    assert live[BARS].count() == 10
    assert live[".grid"].is_hidden() and live[".understanding"].is_hidden()
    live.type("The hen and the fox. " * 30)
    assert "of" in live[".typing > .note"].inner_text() and len(live.losses()) <= 32
    live.click(".losses .token >> nth=0")  # before which the model sees nothing
    assert live[".next h2"].inner_text() == "What comes next"
    live.type("")
    live["button:has-text('Tour')"].click()
    sync_api.expect(live[".tour"]).to_be_visible()
    assert live["textarea"].input_value()


def test_a_token_is_exchanged_and_the_text_goes_on_from_there(live: Live) -> None:
    live.type(TEXT)
    live.click(".losses .token >> nth=4")
    assert "Instead of" in live[".next h2"].inner_text()
    before = live[".losses .token"].all_inner_texts()
    choice = live[f"{BARS} button:not([aria-current]) >> nth=2"]
    label = choice.locator(".name").inner_text()
    live.click(choice)
    assert live[".next h2"].inner_text() == "What comes next"
    assert live[".losses .token"].all_inner_texts() == [*before[:4], label]
    live.click(f"{BARS} button >> nth=0")
    assert live[".losses .token"].count() == 6


def test_it_writes_the_same_with_the_same_seed(live: Live) -> None:
    def written() -> str:
        live.type("Once")
        live[".write"].click()
        return live.written()

    one = written()
    assert one.startswith("Once") and len(one) > 10 and written() == one
    live[".settings summary"].click()
    live[".settings input >> nth=3"].fill("7")
    live[".settings input >> nth=4"].fill("12")
    live[".settings input >> nth=4"].press("Tab")
    count = len(live.losses())
    other = written()
    assert other != one and len(live.losses()) <= count
    live[".settings input >> nth=4"].fill("10000")
    live[".settings input >> nth=4"].press("Tab")
    live.type("Once")
    live[".write"].click()
    live["textarea"].press_sequentially("!")  # stops it
    assert "!" in live.written()
    live[".write"].click()
    live[".write:has-text('Stop')"].wait_for()
    live.page.evaluate("location.hash = 'text=A fox'")  # a link, which stops it too
    sync_api.expect(live["textarea"]).to_have_value("A fox")
    assert live.written() == "A fox" and live["button:has-text('Undo')"].is_hidden()
    losses = live.losses()
    live.page.evaluate("location.hash = 'text=A fox&ids=0.1.2'")  # the tokens of another text
    live.settled()
    assert live.losses() == losses


def test_the_start_of_an_undivided_text_is_no_part_of_it(
    site_file: Path, tiny_run: Path, tmp_path: Path, browser: sync_api.Browser
) -> None:
    """The model writes without a text from tokens that are not printed, and have no loss."""
    start = open_run(tiny_run, "last").tokenizer.encode("The hen")
    begins = re.compile(r'"start_ids": ?\[[^]]*\], ?"adds_start": ?true')
    undivided = f'"start_ids":{start},"adds_start":false'
    page, count = begins.subn(undivided, site_file.read_text("utf-8"))
    assert count == 1
    (tmp_path / "undivided.html").write_text(page, "utf-8")
    live = Live(browser, (tmp_path / "undivided.html").as_uri())
    tokens, box = live[".losses .token"], live["textarea"]
    live.type("")
    assert tokens.count() == len(start) and not live.losses() and not live[".sum b"].count()
    label = live[f"{BARS} .name >> nth=0"].inner_text()
    live.click(f"{BARS} button >> nth=0")
    assert tokens.last.inner_text() == label and len(live.losses()) == 1
    assert tokens.count() == len(start) + 1 and "hen" not in box.input_value()
    live.click(".losses .token >> nth=1")  # which nothing else can replace
    assert live[".next h2"].inner_text() == "What comes next"
    live.type("")
    live[".write"].click()
    written, losses = live.written(), live.losses()
    assert written and "hen" not in written
    assert live[".spoken"].text_content() == f"Written: {written}"
    live.reload()
    assert box.input_value() == written and live.losses() == losses
    live["textarea"].press_sequentially("!")
    live.settled()
    assert box.input_value() == f"{written}!"
    live.page.context.close()
    assert live.errors == []


def test_a_head_is_switched_off_and_on(live: Live, tiny_run: Path) -> None:
    live.type(TEXT)
    before = live.mean_loss()
    live[".grid .head >> nth=1"].click()
    live[".by select"].select_option("zero")
    live.off("L0H1")
    opened = open_run(tiny_run, "last")
    with ablate(opened.model, [(0, 1)], "zero"):
        reading = opened.read(TEXT)
    losses = F.cross_entropy(reading.logits[:-1], reading.tokens[1:], reduction="none")
    assert live.losses() == pytest.approx(losses.tolist(), abs=1e-3)
    text = live[".next .sum"].inner_text()
    assert f"with parts off, {before:.3f} with all on, of the same text" in text
    assert "it wrote" not in text
    assert 11 <= live[".next .track .was"].count() <= 12
    assert "off" in live[".grid .head >> nth=1"].inner_text()
    assert live[".offlist li"].all_inner_texts() == ["L0H1 ✕"]
    live.view("change")
    assert live[".difference canvas"].is_visible()
    live.off("MLP of layer 0")
    assert live[".offlist li"].count() == 2
    live.off("All heads of layer 0")
    assert "layer 0: all heads ✕" in live[".offlist li"].all_inner_texts()
    live.click("button:has-text('All on')")
    assert live.mean_loss() == before and live[".offlist"].is_hidden()
    assert live[".difference canvas"].is_hidden()
    live.press("x")
    assert live[".offlist li"].count() == 1


def test_the_loss_of_what_a_broken_model_writes(live: Live, tiny_run: Path) -> None:
    """The loss of its own text is low: the comparison is with the intact model on that text."""
    live.type(TEXT)
    live[".by select"].select_option("zero")
    live.off("All heads of layer 0")
    live[".write"].click()
    assert live.written() != TEXT
    shown = live[".next .sum"].inner_text()
    assert shown.endswith("of the same text, whose end it wrote with parts off")
    live.click("button:has-text('All on')")
    assert f"{live.mean_loss():.3f} with all on" in shown
    assert "it wrote" not in live[".next .sum"].inner_text()


def test_the_selection_follows_typing(live: Live) -> None:
    live.type(TEXT)
    live[".words .token >> nth=2"].click()
    live.page.mouse.move(0, 0)  # a token that it points at comes first
    live.settled()
    live.type("")
    live["textarea"].press_sequentially("Once there was")
    live.settled()
    last = live[".losses .token"].count() - 1
    place = live[".words .text .focus"].get_attribute("data-place")
    assert place == f"{last}" and last > 3


def test_heads_have_the_names_of_the_step(live: Live, tiny_run: Path) -> None:
    names = head_names(Run(tiny_run), (0, 3, 6))
    for place, step in enumerate((0, 3, 6)):
        live[".stepper input"].fill(f"{place}")
        live.settled()
        check_names(live, names[step])


OVERLAP = """() => {
    document.querySelector(".tour").scrollIntoView({ block: "nearest" });
    const [one, two] = [".tour", ".toured"].map((name) =>
        document.querySelector(name).getBoundingClientRect());
    const isBeside = one.right <= two.left || two.right <= one.left;
    return !isBeside && one.bottom > two.top && two.bottom > one.top;
}"""


@pytest.mark.parametrize("width", [1400, 400])
def test_a_tour_on_the_first_visit(site: str, browser: sync_api.Browser, width: int) -> None:
    """It names a head, switches it off, and on again, covers nothing and stops nothing: a text is
    typed as fast as keys come, from the moment at which there is a place for it. On the next visit
    it waits to be asked."""
    live = Live(browser, site, width, tours=True, waits=False)
    live["textarea"].focus()
    live.page.keyboard.type(HOSTILE + " Once there was a lamb.")
    live.settled()
    assert HOSTILE in live["textarea"].input_value() and live["img"].count() == 0
    assert live.page.evaluate("scrollY") == 0
    tour, off = live[".tour"], live[".offlist li"]
    stops = ["best guess", r"L\dH\d\.", "off now: .* → ", "Every part is on"]
    for text, n_off in zip(stops, (0, 0, 1, 0), strict=True):
        sync_api.expect(tour).to_contain_text(re.compile(text))
        sync_api.expect(tour).to_be_in_viewport(ratio=1)
        live.page.keyboard.press("End")
        live["textarea"].press_sequentially(" Ben <b>")
        live.settled()
        assert off.count() == n_off and not live.page.evaluate(OVERLAP)
        best, share = live[f"{BARS} button >> nth=0"].inner_text().split("\n")
        if "guess" in text:
            assert f"{best}: {share}" in tour.inner_text(), "it tells of the text at hand"
        elif "dH" in text:
            assert live[".panel h2 >> nth=0"].inner_text() in tour.inner_text()
        tour.locator("button >> nth=0").click()
    live.settled()
    assert tour.is_hidden()
    live.page.goto(site)
    live.settled()
    assert tour.is_hidden()
    live["button:has-text('Tour')"].click()
    for text in stops[1:3]:
        tour.locator("button >> nth=0").click()
        sync_api.expect(tour).to_contain_text(re.compile(text))
    live.click(tour.locator("button:has-text('Skip')"))
    assert tour.is_hidden() and off.count() == 0
    live.page.context.close()
    assert live.errors == []


NEXT = """(module, rows) => {
    const part = new module.NextTokens({}, "");
    part.show(rows.map(([now, before], id) => ({ id, token: `t${id}`, now, before })), null);
    return [...part.node.querySelectorAll("li")].map((row) =>
        ["span.name", "b"].map((part) => row.querySelector(part).textContent).join(" "));
}"""


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[0.998], [0.0012], [0.0004]], ["t0 99.8%", "t1 0.1%", "others 0.1%"]),
        (
            [[0.7, 0.1], [0.0002, 0.85], [0.0001, 0.0009]],
            ["t0 10.0% → 70.0%", "t1 85.0% → <0.1%", "others 5.0% → 30.0%"],
        ),
        ([[0.0004], [0.0003]], ["t0 <0.1%", "t1 <0.1%", "others 99.9%"]),
    ],
)
def test_improbable_tokens_share_a_row(
    module: Call, rows: list[list[float]], expected: list[str]
) -> None:
    """Unless no token is much more probable. rows: now, and before if parts are off."""
    assert module("next.js", NEXT, rows) == expected


@pytest.mark.parametrize("width", [1280, 400])
def test_what_comes_next_stays_in_view(site: str, browser: sync_api.Browser, width: int) -> None:
    live = Live(browser, site, width=width)
    live[".panel .words .lists"].first.scroll_into_view_if_needed()
    assert live.page.evaluate("scrollY") > 100
    for selector in (".next .sum", f"{BARS} >> nth=0", f"{BARS} >> nth=2"):
        sync_api.expect(live[selector]).to_be_in_viewport(ratio=1)
    live.close()


def test_what_could_have_been_begins_with_the_token(live: Live) -> None:
    """The list scrolls to it."""
    live.page.set_viewport_size({"width": 400, "height": 900})
    live.type(TEXT)
    rows, marked = live[".next li"], live[".next li:has([aria-current])"]
    for place in range(2, 6):
        live.click(f".losses .token >> nth={place}")
        sync_api.expect(marked).to_be_in_viewport(ratio=0.9)
    live.click("button:has-text('What comes next')")
    sync_api.expect(rows.first).to_be_in_viewport(ratio=0.9)


def test_a_link_without_a_zoom_shows_the_whole_map(live: Live) -> None:
    live[".zoom button[aria-label^='Zoom in']"].click()
    live.page.wait_for_url("**zoom=*")
    live.page.evaluate("location.hash = 'text=A fox'")
    live.page.wait_for_url("**layer=*")
    sync_api.expect(live["canvas.picture"].first).to_have_class("picture")
    assert "zoom=" not in live.page.url


def test_a_map_has_the_weights_of_its_head_or_the_shares_that_it_moves(
    live: Live, tiny_run: Path
) -> None:
    live.type(TEXT)
    live.click(".grid .head >> nth=2")  # in the second layer
    weights = open_run(tiny_run, "last").read(TEXT).maps[1][0]
    shown = [float(row["weight"]) for row in live.table()]
    assert shown == pytest.approx(triangle(weights), abs=1e-5)
    live.view("moved")
    moved = [float(row["moved"]) for row in live.table()]
    assert sum(moved) == pytest.approx(len(weights), abs=1e-4) and moved != shown


@pytest.mark.long
def test_looks_inside(live: Live) -> None:
    live.type(TEXT)
    lens = live.open("What each layer would say")
    tokens, rows = live[".losses .token"].count(), 2
    assert lens.locator("td").count() == rows * tokens
    last = lens.locator("tbody tr").last.locator("td").last
    assert last.inner_text()[:9] == live[f"{BARS} .name"].first.inner_text()[:9]
    last.click()
    assert lens.locator(".readout").inner_text().count("%") == 5
    live.click(".grid .head >> nth=2")  # in the second layer
    reasons = live.open("Why this head looks there")
    assert reasons.locator(".bars li").count() == 11 and "the score" in reasons.inner_text()
    reasons.locator("li:has-text('L0H')").first.hover()
    assert live[".cell.marked"].count() in (1, 2)
    writers = live.open("Which parts write the next token")
    text = writers.locator(".sum").inner_text().replace("\N{MINUS SIGN}", "-")
    sums = re.findall(r"[+-]\d+\.\d+", text)
    assert float(sums[0]) == pytest.approx(float(sums[1]), abs=2e-3)
    writers.locator("select").select_option(index=3)
    live.settled()
    circuit = live.open("What this head writes")
    assert circuit.locator(".bars li").count() == 10


def test_a_neuron_colours_the_text(live: Live) -> None:
    live.type(TEXT)
    look = live.open("Which neurons are active")
    chosen = look.locator(".bars button >> nth=3")
    live.click(chosen)
    name, output = look.locator(".bars [aria-current]").inner_text().split()
    assert chosen.inner_text().split() == [name, output]
    assert look.locator(".neuron h4").inner_text() == f"Output of {name} at every token"
    titles = [
        look.locator(f".neuron .text {kind}").evaluate_all("all => all.map(({ title }) => title)")
        for kind in (".focus", ".token", ".lucky")
    ]
    (focus,), every, above = titles
    assert focus.endswith(f": output {output}")
    assert len(above) >= sum("+" in title for title in every) > 0
    assert not any("\N{MINUS SIGN}" in title for title in above)
    assert look.locator(".neuron p:has-text('most') .token").count() == 20


@pytest.mark.long
def test_a_link_restores_the_view(live: Live, site: str, browser: sync_api.Browser) -> None:
    live.type("A fox & 100% <b> 狐")
    live.click(".grid .head >> nth=3")
    live.off("L1H1")
    live.off("MLP of layer 1")
    live.view("moved")
    live.press(",")
    live.click(".losses .token >> nth=3")
    live["button:has-text('Copy link')"].click()
    live.page.wait_for_timeout(500)
    link = live.page.url
    assert link.startswith(site + "#")
    other = Live(browser, link)
    for selector in (".losses", ".next", ".offlist", ".panel h2 >> nth=0", ".stepper output"):
        assert other[selector].inner_text() == live[selector].inner_text()
    assert other["textarea"].input_value() == "A fox & 100% <b> 狐"
    assert other[".views select"].input_value() == "moved"
    other.type("else")
    other.page.wait_for_url("**text=else*")
    other.page.goto(link)  # pasted into the same tab
    sync_api.expect(other["textarea"]).to_have_value("A fox & 100% <b> 狐")
    other.settled()
    assert other[".losses"].inner_text() == live[".losses"].inner_text()
    other.page.context.close()


@pytest.mark.long
@pytest.mark.parametrize(
    "fragment",
    [
        "text=%E4%8&layer=99&head=-1&token=1e9&step=x&heads=9.9,1,a.b,0.0,0.0&mlps=7,zz&by=<b>",
        "text=&ids=999999.1&view=change&zoom=1,2&temperature=NaN&topK=-1",
        f"text={quote(HOSTILE)}&place=0&by=mean&mlps=0",
    ],
)
def test_a_hostile_link_shows_a_page(site: str, browser: sync_api.Browser, fragment: str) -> None:
    live = Live(browser, f"{site}#{fragment}")
    live.url = live.asked[0]
    assert live[BARS].count() == 10
    live.close()


@pytest.mark.long
def test_the_slider_goes_through_training(live: Live) -> None:
    assert live[".stepper output"].inner_text().startswith("6 ")
    at_end = live.losses()
    live[".stepper input"].focus()
    live.press("Home")
    assert live[".stepper output"].inner_text().startswith("0 ")
    assert live.losses() != at_end and len(live.losses()) == len(at_end)
    live[".play"].click()
    live[".stepper output:has-text('6 (')"].wait_for()
    live.settled()
    assert live.losses() == at_end


@pytest.mark.long
def test_the_keyboard_alone_reaches_everything(live: Live) -> None:
    live.page.keyboard.press("Escape")
    seen = set()
    for _ in range(60):
        live.page.keyboard.press("Tab")
        seen.add(live.page.evaluate("document.activeElement.outerHTML.slice(0, 100)"))
    text = "\n".join(seen)
    for part in ("<textarea", "Let it write", "Sampling", '"token', '"head', "MLP of", "What each"):
        assert part in text
    live["textarea"].focus()
    live.page.keyboard.press("Control+Enter")
    live.written()
    live[".head[aria-pressed=true]"].focus()
    title = live[".panel h2 >> nth=0"].inner_text()
    live.press("ArrowLeft", "ArrowUp", "ArrowRight", "ArrowRight")
    assert live[".panel h2 >> nth=0"].inner_text() != title
    live[".losses .token[tabindex='0']"].focus()
    live.press("Home", "ArrowRight", "ArrowRight", "Enter")
    assert "(token 2)" in live[".next h2"].inner_text()


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_screens_do_not_scroll_sideways(
    site: str, browser: sync_api.Browser, scheme: str
) -> None:
    live = Live(browser, site, width=400, color_scheme=scheme, has_touch=True)
    assert live.page.evaluate(OVERFLOW)
    live.type("A" * 200 + " the hen")
    live.off("L")
    for title in ("What each layer", "Which parts", "What this head", "The smallest part"):
        live.open(title)
    names = live.open("Why this head looks there").locator(".name")
    assert all(names.evaluate_all("all => all.map((each) => each.scrollWidth <= each.clientWidth)"))
    assert min(live[".losses"].evaluate(CONTRASTS)) >= 4.5
    live[".settings summary"].click()
    live.view("change")
    assert live.page.evaluate(OVERFLOW)
    live.close()
