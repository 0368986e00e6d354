"""Parts of the site that are generated when it is built, so that they cannot differ from their
source: the settings from the comments in configs/, the table of head scores in the README of the
tab, the text of tiny.py, and the notebook with its formulas.

A page says where its part goes with a comment such as `<!-- settings -->`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
from launch.help import Explained, read_explained  # noqa: E402

CONFIGS = ROOT / "configs"
GROUPS = ("data", "tokenizer", "model", "optimizer")
SCRIPTS = ("sample", "evaluate", "look", "compare", "verdict", "convert", "shapes")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls this for every page."""
    makers = {"settings": settings, "scores": scores, "notebook": notebook, "tiny": tiny}
    for name, make in makers.items():
        if (mark := f"<!-- {name} -->") in markdown:
            markdown = markdown.replace(mark, make())
    return markdown


def tiny() -> str:
    """tiny.py as a whole."""
    return f"```python\n{(ROOT / 'tiny.py').read_text(encoding='utf-8')}```"


def about(path: Path) -> str:
    """The comment at the top of a YAML file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next(n for n, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line.lstrip("# ") for line in lines[:first] if "@package" not in line)


def table(found: list[Explained]) -> str:
    rows = (f"| `{name}` | `{default}` | {comment} |" for name, default, comment in found)
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows]) + "\n\n"


def settings() -> str:
    """All settings, grouped as on the command line."""
    defaults = (CONFIGS / "train.yaml").read_text(encoding="utf-8")
    page = "## train.py\n\n" + table(read_explained(CONFIGS / "train.yaml"))
    for group in GROUPS:
        page += f"### {group}\n\nChoose one with `{group}=...`.\n\n"
        default = re.findall(rf"^  - {group}: (\w+)$", defaults, re.MULTILINE)[0]
        options = sorted((CONFIGS / group).glob("*.yaml"))
        for path in sorted(options, key=lambda option: option.stem != default):
            is_default = " (default)" if path.stem == default else ""
            base = re.findall(r"^defaults: \[(\w+),", path.read_text("utf-8"), re.MULTILINE)
            rest = f" All other settings are those of `{base[0]}`." if base else ""
            page += f"#### {group}={path.stem}{is_default}\n\n{about(path)}{rest}\n\n"
            page += table(read_explained(path, f"{group}."))
    page += "### experiment\n\nSets of overrides. Choose one with `experiment=...`.\n\n"
    for path in sorted((CONFIGS / "experiment").glob("*.yaml")):
        page += f"#### experiment={path.stem}\n\n```yaml\n{path.read_text('utf-8')}```\n\n"
    for script in SCRIPTS:
        page += f"## {script}.py\n\n" + table(read_explained(CONFIGS / f"{script}.yaml"))
    return page + "And the settings of [`model`](#model): `model=...`, `model.n_heads=...`.\n"


def scores() -> str:
    """The table of head scores in the README of the tab."""
    readme = (ROOT / "tensorboard_attention/README.md").read_text(encoding="utf-8")
    return re.findall(r"^\| score \| meaning \|\n(?:\|.*\n)*", readme, re.MULTILINE)[0]


def notebook() -> str:
    """The notebook with its outputs, as Markdown."""
    stored = json.loads((ROOT / "notebooks/attention.ipynb").read_text(encoding="utf-8"))
    parts: list[str] = []
    for cell in stored["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            # The page has a title of its own, and the parts of the notebook are sections of it.
            source = source if parts else source.partition("\n")[2]
            parts.append(render_formulas(re.sub(r"\A# ", "## ", source)))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
            elif "image/png" in output.get("data", {}):
                image = "".join(output["data"]["image/png"]).replace("\n", "")
                parts.append(f'<img class="output" alt="" src="data:image/png;base64,{image}">')
    return "\n\n".join(parts)


def render_formulas(text: str) -> str:
    """`$formulas$` as MathML, which browsers display without a script."""
    from latex2mathml.converter import convert

    text = re.sub(r"\$\$(.+?)\$\$", lambda found: convert(found[1], display="block"), text)
    return re.sub(r"\$(.+?)\$", lambda found: convert(found[1]), text)
