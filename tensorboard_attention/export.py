"""The Attention tab as a single HTML file that loads nothing else."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable
from pathlib import Path

STATIC = Path(__file__).parent / "static"
STYLE = "style.css"
# Each imports only those before it.
MODULES = [
    f"{name}.js"
    for name in (
        *("dom", "colours", "maps", "source", "state", "controls", "grid", "picture", "words"),
        *("opening", "choice", "order", "panel", "scores", "notes", "theme", "keys", "app"),
    )
]
# The browser refuses any request that the page makes.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"


def page(
    path: str | Path, entries: Iterable[tuple[str, int, list[bytes]]], title: str = "Attention"
) -> None:
    """Write an HTML file that shows attention maps as TensorBoard's Attention tab does.

        page("heads.html", [("my probe", step, encode(maps, tokens))])

    entries: tag, step and the result of `encode`, for any number of tags and steps.
    """
    data = []
    for tag, step, (header, maps) in entries:
        text = base64.b64encode(maps).decode()
        data.append({"tag": tag, "step": step, "header": json.loads(header), "maps": text})
    # Tokens can be any text: a "<" in them must not end the script element.
    embedded = json.dumps(data).replace("<", "\\u003c")
    modules = "\n".join((STATIC / name).read_text("utf-8") for name in MODULES)
    # As one module: no two of them share a top-level name.
    script = re.sub(r"^(import [^;]*;\n|export )", "", modules, flags=re.MULTILINE)
    Path(path).write_text(
        f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{html.escape(title)}</title>
<style>{(STATIC / STYLE).read_text("utf-8")}</style>
<body>
<script type="application/json" id="data">{embedded}</script>
<script type="module">
{script}
start(new Embedded(JSON.parse(document.getElementById("data").textContent)));
</script>
</body>
</html>
""",
        "utf-8",
    )
