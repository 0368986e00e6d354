"""The Attention tab as a single HTML file that loads nothing else.

The maps are compressed as they are logged, and so are the script and all headers.
"""

from __future__ import annotations

import base64
import html
import operator
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tensorboard_attention.strict import from_json, to_json

STATIC = Path(__file__).parent / "static"
STYLE = "style.css"
# Each imports only those before it.
NAMES = """
    dom colours broken maps source state controls naming marks matters grid viewport picture text
    words opening choice order save panel scores headcurves wiring learned neurons induction
    guesses notes theme keys address play difference inspector compare app
"""
MODULES = [f"{name}.js" for name in NAMES.split()]
# The browser refuses any request that the page makes.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src blob:"
NEEDS = "This page needs JavaScript to draw the maps. Turn it on; the page loads nothing else."

# Inflates the script and adds it to the page. The modules cannot say that a browser is too old.
LOADER = """
if ("DecompressionStream" in window) {
  const packed = Uint8Array.from(
    atob(document.getElementById("packed").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const script = document.createElement("script");
  script.type = "module";
  script.textContent = await new Response(stream).text();
  document.body.append(script);
} else {
  document.querySelector(".about").append("This page needs a newer browser, of 2023 or later.");
}
// A frame of a notebook is as high as the page.
const frame = window.frameElement;
if (frame?.dataset.fits !== undefined)
  new ResizeObserver(() => {
    frame.style.height = `${document.documentElement.offsetHeight + 2}px`;
  }).observe(document.documentElement);
"""


def script() -> str:
    """The modules of the tab as one."""
    return joined(STATIC / name for name in MODULES)


def joined(modules: Iterable[Path]) -> str:
    """Modules as one script, which loads several times as fast: no two of them may share a
    top-level name."""
    texts = "\n".join(path.read_text("utf-8") for path in modules)
    return without_imports(texts).replace("\nexport ", "\n")


def without_imports(module: str) -> str:
    return re.sub(r"^import [^;]*;\n", "", module, flags=re.MULTILINE)


def page(
    path: str | Path,
    entries: Iterable[tuple[str, int, list[bytes]]],
    title: str = "Attention",
    about: str = "",
    run: str = ".",
) -> None:
    """Write an HTML file that shows attention maps as TensorBoard's Attention tab does.

        page("heads.html", [("my probe", step, encode(maps, tokens))])

    entries: tag, step and the result of `encode`, for any number of tags and steps.
    title, about: the heading and the line below it, as plain text.
    run: the name of the run; "." for none.
    """
    Path(path).write_text(page_text(entries, title, about, run), "utf-8")


def page_text(
    entries: Iterable[tuple[str, int, list[bytes]]],
    title: str = "Attention",
    about: str = "",
    run: str = ".",
) -> str:
    """The HTML of `page`."""
    shown: dict[str, Any] = {"run": run, "entries": []}
    headers = []
    for tag, step, (header, maps) in entries:
        headers.append(from_json(header))
        number = operator.index(step)  # such as one of NumPy's
        packed = base64.b64encode(maps).decode()
        shown["entries"].append({"tag": tag, "step": number, "maps": packed})
    # The headers are parsed from a text: in an object literal, "__proto__" would not be a name like
    # any other.
    data = 'JSON.parse(document.getElementById("data").textContent)'
    start = f"start(new Embedded({data}, JSON.parse({to_json(to_json(headers))})));"
    style = (STATIC / STYLE).read_text("utf-8")
    code = f"{script()}\n{start}"
    return document(title, about, NEEDS, POLICY, style, {"data": as_json(shown)}, code)


def as_json(value: Any) -> str:
    """JSON for a script element, which no "<" in a text may end."""
    return to_json(value).replace("<", "\\u003c")


def document(
    title: str,
    about: str,
    needs: str,
    policy: str,
    style: str,
    elements: Mapping[str, str],
    code: str,
) -> str:
    """An HTML page with the script `code`, compressed.

    title, about: the heading and the lines below it, as plain text.
    needs: what is shown without JavaScript.
    elements: the texts of script elements by their ids: JSON from `as_json`, or base64.
    """
    packed = base64.b64encode(zlib.compress(code.encode(), 9)).decode()
    lines = "".join(f"\n<p>{html.escape(line)}</p>" for line in about.splitlines())
    embedded = "\n".join(
        f'<script type="text/plain" id="{name}">{text}</script>'
        for name, text in {**elements, "packed": packed}.items()
    )
    return f"""<!doctype html>
<!-- Generated, not to be edited. -->
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{html.escape(title)}</title>
<style>{style}</style>
<body>
<div class="about">
<h1>{html.escape(title)}</h1>{lines}
<noscript>{needs}</noscript>
</div>
{embedded}
<script type="module">{LOADER}</script>
</body>
</html>
"""
