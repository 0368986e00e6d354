"""The Attention tab as one HTML file, to be kept or sent: it fetches nothing."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable
from pathlib import Path

from tensorboard_attention.plugin import MODULES, STATIC, STYLE

# The file itself forbids what it does not need: any request.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"


def page(
    path: str | Path,
    entries: Iterable[tuple[str, int, list[bytes]]],
    title: str = "Attention",
) -> None:
    """Write an HTML file that shows attention maps as TensorBoard's Attention tab does.

        page("heads.html", [("my probe", step, encode(outputs.attentions, tokens))])

    entries: tag, step and what `encode` gave, for as many tags and steps as are wanted.
    """
    data = [
        {
            "tag": tag,
            "step": step,
            "header": json.loads(header),
            "maps": base64.b64encode(maps).decode(),
        }
        for tag, step, (header, maps) in entries
    ]
    # Tokens are anybody's text: no "<" of theirs may end the script that holds them.
    embedded = json.dumps(data).replace("<", "\\u003c")
    style = (STATIC / STYLE).read_text("utf-8")
    Path(path).write_text(
        f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{html.escape(title)}</title>
<style>{style}</style>
<body>
<script type="application/json" id="data">{embedded}</script>
<script type="module">
{_script()}
start(new Embedded(JSON.parse(document.getElementById("data").textContent)));
</script>
</body>
</html>
""",
        "utf-8",
    )


def _script() -> str:
    """The modules as one. They stand in order and share no top-level name, so that only their
    imports and exports have to go."""
    code = "\n".join((STATIC / name).read_text("utf-8") for name in MODULES)
    return re.sub(r"^(import [^;]*;\n|export )", "", code, flags=re.MULTILINE)
