"""The Attention tab as a single HTML file that loads nothing else."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parent / "static"
STYLE = "style.css"
# Each imports only those before it.
MODULES = [
    f"{name}.js"
    for name in (
        *("dom", "colours", "broken", "maps", "source", "state", "controls", "grid", "viewport"),
        *("picture", "table", "words", "opening", "choice", "order", "panel", "scores", "notes"),
        *("theme", "keys", "address", "play", "save", "difference", "compare", "app"),
    )
]
# The browser refuses any request that the page makes.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
NEEDS = "This page needs JavaScript to draw the maps. Turn it on; the page loads nothing else."


def script() -> str:
    """The modules as one, which loads several times as fast: no two of them share a top-level
    name."""
    modules = "\n".join((STATIC / name).read_text("utf-8") for name in MODULES)
    return without_imports(modules).replace("\nexport ", "\n")


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
    # Tokens can be any text: a "<" in them must not end the script element.
    embedded = json.dumps(_embedded(entries, run)).replace("<", "\\u003c")
    line = f"\n<p>{html.escape(about)}</p>" if about else ""
    Path(path).write_text(
        f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{html.escape(title)}</title>
<style>{(STATIC / STYLE).read_text("utf-8")}</style>
<body>
<div class="about">
<h1>{html.escape(title)}</h1>{line}
<noscript>{NEEDS}</noscript>
</div>
<script type="application/json" id="data">{embedded}</script>
<script type="module">
{script()}
start(new Embedded(JSON.parse(document.getElementById("data").textContent)));
</script>
</body>
</html>
""",
        "utf-8",
    )


def _embedded(entries: Iterable[tuple[str, int, list[bytes]]], run: str) -> dict[str, Any]:
    """What a page shows. `values` has the values of all headers, each once; a header says by name
    where they are."""
    places: dict[str, int] = {}
    steps = []
    for tag, step, (header, maps) in entries:
        fields = {name: json.dumps(value) for name, value in json.loads(header).items()}
        steps.append(
            {
                "tag": tag,
                "step": step,
                "header": {
                    name: places.setdefault(text, len(places)) for name, text in fields.items()
                },
                "maps": base64.b64encode(maps).decode(),
            }
        )
    return {"run": run, "values": [json.loads(text) for text in places], "entries": steps}
