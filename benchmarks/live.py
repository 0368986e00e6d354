"""How fast the live page is: a key at the end and at the front of a text, and writing.

    python benchmarks/live.py --page FILE [--rounds 5] [--tokens 64]

Uses a page that look.py wrote, in a new browser every round. First view: from the opening of the
file to the drawn maps. A key is timed to the frame after everything is drawn, once the text has at
least as many tokens; writing with the whole page following. Prints medians of the rounds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness import browser_page, make_parser, print_table, spread

UNITS = {
    "first view, from the opening of the file to the drawn maps": " ms",
    "a key at the end, to the frame in which everything follows": " ms",
    "a key at the front": " ms",
    "writing, with the whole page following": " tokens/s",
}
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


def main() -> None:
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--tokens", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--page", type=Path, required=True, help="a page that look.py wrote")
    arguments = parser.parse_args()
    rounds = [look(arguments.page, arguments.tokens) for _ in range(arguments.rounds)]
    print(f"{arguments.page}: {arguments.page.stat().st_size / 1e6:.2f} MB")
    found = zip(UNITS.items(), zip(*rounds, strict=True), strict=True)
    print_table(("", ""), ((what, spread(times, ".0f", unit)) for (what, unit), times in found))


def look(path: Path, tokens: int) -> tuple[float, float, float, float]:
    """One of each of UNITS, in a new browser."""
    with browser_page(height=860) as page:
        page.goto(path.resolve().as_uri(), wait_until="commit")
        page.wait_for_selector(DRAWN, state="attached")
        first = page.evaluate("() => performance.now()")
        shown = page.locator(".surprise .token, .typing .token")
        while shown.count() < tokens:
            page.evaluate(TYPE, [" and a", True])
        end, front = (
            median(page.evaluate(TYPE, ["a", at_end]) for _ in range(5)) for at_end in (True, False)
        )
        before, began = shown.count(), page.evaluate("() => performance.now()")
        page.locator("button.write").click()
        page.wait_for_selector("button.write:has-text('▶')")
        seconds = (page.evaluate("() => performance.now()") - began) / 1000
        return first, end, front, (shown.count() - before) / seconds


if __name__ == "__main__":
    main()
