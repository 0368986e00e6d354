"""How fast the live page is: a key at the end and at the front of a text, and writing.

    python benchmarks/live.py [--rounds 5] [--tokens 64] [--page FILE]

With --page, uses a page that look.py wrote, in a new browser every round. First view: from the
opening of the file to the drawn maps. A key is timed to the frame after everything is drawn, once
the text has at least as many tokens; writing with the whole page following.

Without, asks the page's worker, in headless Chromium, from a page that shows nothing. Weights are
random, since time does not depend on them: of the default model and of one with 10.65 million
parameters (6 layers, 6 heads, d_model 384, context 256), and a vocabulary of 512 and 65. A key is
timed from the question to the answer, with all maps, losses and probabilities: of one more token
after 64, and of 64 with another token in front. Writing: 100 tokens after 64. Prints medians of the
rounds.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import openmp  # noqa: F401  # isort: skip

import torch
from playwright import sync_api

from benchmarks.common import make_parser, spread
from benchmarks.tab import FLAGS
from configs.schema import preset
from live.pack import pack
from live.page import STATIC, WORKER
from model import GPT
from tensorboard_attention.export import joined

WRITTEN = 100
SHAPES: dict[str, tuple[dict[str, Any], int]] = {
    "default": ({}, 512),
    "10.65 M": ({"n_layers": 6, "n_heads": 6, "d_model": 384, "d_mlp": 1024}, 65),
}
ASK = "(question) => ask(question)"
UNITS = {"a key at the end": " ms", "at the front": " ms", "writing": " tokens/s"}
DRAWN = "main[aria-busy=false]"
TYPE = """([letters, atEnd]) => new Promise((done) => {
    const [field, main] = [document.querySelector("textarea"), document.querySelector("main")];
    const began = performance.now();
    const watch = new MutationObserver(() => {
        if (main.getAttribute("aria-busy") !== "false") return;
        watch.disconnect();
        requestAnimationFrame(() => done(performance.now() - began));
    });
    watch.observe(main, { attributes: true, attributeFilter: ["aria-busy"] });
    field.value = atEnd ? field.value + letters : letters + field.value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
})"""
START = """(source) => {
    const worker = new Worker(URL.createObjectURL(new Blob([source])));
    window.ask = (question) => new Promise((resolve, reject) => {
        const began = performance.now();
        worker.onerror = reject;
        worker.onmessage = ({ data }) => {
            if (data.error) reject(new Error(data.error));
            if (!data.part) resolve(performance.now() - began);
        };
        worker.postMessage({ id: began, ...question });
    });
}"""


def main() -> None:
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--tokens", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--page", type=Path, help="a page that look.py wrote")
    arguments = parser.parse_args()
    if arguments.page:
        found = [whole(arguments.page, arguments.tokens) for _ in range(arguments.rounds)]
        print(f"{arguments.page}: {arguments.page.stat().st_size / 1e6:.2f} MB")
        for what, unit in {"first view": " ms", **UNITS}.items():
            print(f"  {what}: {spread([each[what] for each in found], '.1f', unit)}")
        return
    for name, (sizes, vocab_size) in SHAPES.items():
        model = GPT(preset("model", "nano", **sizes), vocab_size)
        print(f"{name}: {model.n_parameters:,} parameters")
        with worker(model) as page:
            found = [times(page, arguments.tokens) for _ in range(arguments.rounds + 1)]
        for what, unit in UNITS.items():  # the first round compiles the worker's script
            print(f"  {what}: {spread([each[what] for each in found[1:]], '.1f', unit)}")


def whole(path: Path, tokens: int) -> dict[str, float]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto(path.resolve().as_uri(), wait_until="commit")
        page.wait_for_selector(DRAWN, state="attached")
        first = page.evaluate("() => performance.now()")
        shown = page.locator(".surprise .token, .typing .token")
        while shown.count() < tokens:
            page.evaluate(TYPE, [" and a", True])
        keys = {}
        for what, at_end in (("a key at the end", True), ("at the front", False)):
            keys[what] = median(page.evaluate(TYPE, ["a", at_end]) for _ in range(5))
        before, began = shown.count(), page.evaluate("() => performance.now()")
        page.locator("button.write").click()
        page.wait_for_selector("button.write:has-text('▶')")
        seconds = (page.evaluate("() => performance.now()") - began) / 1000
        written = shown.count() - before
        browser.close()
    return {"first view": first, **keys, "writing": written / seconds}


@contextmanager
def worker(model: GPT) -> Iterator[sync_api.Page]:
    """A page that has asked its worker to load the model."""
    parameters = dict(model.named_parameters())
    data = {
        "config": {**asdict(model.config), "vocab_size": model.vocab_size},
        "steps": [0],
        "weights": "float32",
        "parameters": [[name, list(each.shape)] for name, each in parameters.items()],
    }
    weights = [pack({name: each.detach().numpy() for name, each in parameters.items()}, "float32")]
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page()
        page.evaluate(START, joined(STATIC / f"{name}.js" for name in WORKER))
        page.evaluate(ASK, {"type": "load", "data": data, "weights": weights})
        yield page
        browser.close()


def times(page: sync_api.Page, tokens: int) -> dict[str, float]:
    off = {"by": "zero", "heads": [], "mlps": []}
    common: dict[str, Any] = {"step": 0, "off": off}
    ids = torch.randint(65, (tokens + 1,)).tolist()

    def read(ids: list[int]) -> float:
        return page.evaluate(ASK, {"type": "read", "ids": ids, "view": "weights", **common})

    read(ids[:-1])
    end = read(ids)
    front = read([(ids[0] + 1) % 65, *ids[1:-1]])
    settings = {"temperature": 0.8, "topK": 50, "topP": 0.95, "seed": 1}
    write = {"type": "write", "ids": ids[:-1], "n": WRITTEN, "settings": settings, **common}
    seconds = page.evaluate(ASK, write) / 1000
    return {"a key at the end": end, "at the front": front, "writing": WRITTEN / seconds}


if __name__ == "__main__":
    main()
