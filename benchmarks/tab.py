"""How fast the Attention tab is: 12 layers x 12 heads x 64 tokens at 200 logged steps.

    python benchmarks/tab.py [--rounds 5] [--tokens 64] [--steps 200]

Logs maps that change as those of heads in training do (from uniform to previous-token, first-token
and copying heads), starts TensorBoard and opens the tab in headless Chromium. First view: from the
start of the tab's frame to the drawn grid, in a new browser every round; also reported from the
opening of TensorBoard's address. Step change: from the slider's event to the frame after the
drawing, for steps far apart (never fetched before) and for neighbouring steps. Memory is the
largest resident set of TensorBoard's processes. Prints medians of the rounds.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import common.startup  # noqa: F401  # isort: skip

import torch

from benchmarks.harness import browser_page, make_parser, print_table, spread
from tensorboard_attention import add_attention

LAYERS = HEADS = 12
NAMES = (
    "first view, from the start of the tab's frame to the drawn grid",
    "first view, including TensorBoard's own page",
    "step change, to a step not fetched before",
    "step change, to the next step",
)
FIRST = """new MutationObserver((_, observer) => {
  if (!document.querySelector("main[data-shown]")) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.firstView = performance.now(); }));
}).observe(document, { subtree: true, childList: true, attributes: true });"""
CHANGE = """(input, value) => new Promise((resolve) => {
  const began = performance.now();
  const main = document.querySelector("main");
  new MutationObserver((_, observer) => {
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - began)));
  }).observe(main, { attributeFilter: ["data-shown"] });
  input.value = value;
  input.dispatchEvent(new Event("input"));
})"""


def main() -> None:
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--tokens", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=200, help="default: %(default)s")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        log(folder, arguments.tokens, arguments.steps)
        ms = (time.perf_counter() - began) * 1e3 / arguments.steps
        kb = sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e3 / arguments.steps
        print(
            f"{LAYERS} x {HEADS} heads, {arguments.tokens} tokens, {arguments.steps} steps: "
            f"{kb:,.0f} kB per step, logged in {ms:.0f} ms each",
            flush=True,
        )
        with tensorboard(folder) as (url, memory):
            rounds = [look(url, arguments.steps) for _ in range(arguments.rounds)]
    found = zip(NAMES, zip(*rounds, strict=True), strict=True)
    rows = [(name, spread(times, ".0f", " ms")) for name, times in found]
    rows.append(("peak memory of TensorBoard's processes", f"{max(memory) / 1e6:.0f} MB"))
    print_table(("", f"{arguments.tokens} tokens, {arguments.steps} steps"), rows)


def log(folder: str, n_tokens: int, n_steps: int) -> None:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)
    torch.manual_seed(0)
    half = n_tokens // 2
    tokens = [f" w{i % half}" for i in range(n_tokens)]
    # Heads learn to attend to the previous token, the first one, the token itself, or what followed
    # an earlier occurrence.
    eye, first = torch.eye(n_tokens), torch.zeros(n_tokens, n_tokens)
    first[:, 0] = 1
    goals = torch.stack([eye.roll(-1, 1).tril(), first, eye, eye.roll(1 - half, 1).tril()])
    onsets = torch.rand(LAYERS, HEADS) * n_steps
    noise = torch.randn(LAYERS, HEADS, n_tokens, n_tokens)
    kinds = torch.randint(len(goals), (LAYERS, HEADS))
    for step in range(n_steps):
        strength = 6 * torch.sigmoid((step - onsets) / 8)[..., None, None]
        drift = 0.3 * torch.randn_like(noise)
        logits = strength * goals[kinds] + noise + drift
        future = torch.ones_like(eye).triu(1).bool()
        maps = logits.masked_fill(future, -torch.inf).softmax(-1)
        add_attention(writer, "probe", list(maps[:, None]), tokens, step * 10)
    writer.close()


@contextmanager
def tensorboard(folder: str) -> Iterator[tuple[str, list[int]]]:
    """Its address, and a list to which its memory in bytes is appended while it runs."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        addresses = (re.search(r"http://\S+:\d+/", line) for line in process.stderr)
        url = next(found.group() for found in addresses if found)
        memory: list[int] = []
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.2):
                memory.append(resident(process.pid))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield url, memory
        finally:
            over.set()
            thread.join()
            process.terminate()


def resident(pid: int) -> int:
    """Bytes of memory in use by a process and all its descendants."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return pages * resource.getpagesize() + sum(resident(int(child)) for child in children)


def look(url: str, n_steps: int) -> tuple[float, float, float, float]:
    """Milliseconds of each of NAMES, in a new browser."""
    with browser_page(height=900) as page:
        page.add_init_script(FIRST)
        began = time.perf_counter()
        page.goto(f"{url}#attention")
        frame = page.frame_locator("iframe[src*=attention]")
        drawn = frame.locator("main[data-shown]")
        drawn.wait_for(timeout=60000)
        whole = (time.perf_counter() - began) * 1e3
        page.wait_for_timeout(1500)  # the curves are fetched after the first view
        first = drawn.evaluate("() => window.firstView")
        slider = frame.locator("input[type=range] >> nth=0")
        far = [slider.evaluate(CHANGE, n_steps * i // 8) for i in (1, 5, 3, 7, 2, 6)]
        near = []
        for i in range(10):
            page.wait_for_timeout(150)
            near.append(slider.evaluate(CHANGE, n_steps // 4 + i + 1))
        return first, whole, median(far), median(near)


if __name__ == "__main__":
    main()
