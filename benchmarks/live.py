"""How fast the live page's engine is: a key at the end and at the front of a text, and writing.

    python benchmarks/live.py [--rounds 5] [--tokens 64]

Asks the page's worker, in headless Chromium, from a page that shows nothing. Weights are random,
since time does not depend on them: of the default model and of one with 10.65 million parameters
(6 layers, 6 heads, d_model 384, context 256), and a vocabulary of 512 and 65. A key is timed from
the question to the answer, with all maps, losses and probabilities: of one more token after 64, and
of 64 with another token in front. Writing: 100 tokens after 64. Prints medians of the rounds.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
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
    arguments = parser.parse_args()
    for name, (sizes, vocab_size) in SHAPES.items():
        model = GPT(preset("model", "nano", **sizes), vocab_size)
        print(f"{name}: {model.n_parameters:,} parameters")
        with worker(model) as page:
            found = [times(page, arguments.tokens) for _ in range(arguments.rounds + 1)]
        for what, unit in UNITS.items():  # the first round compiles the worker's script
            print(f"  {what}: {spread([each[what] for each in found[1:]], '.1f', unit)}")


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
