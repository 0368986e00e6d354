"""The model card of a converted run: README.md of a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from errors import printable
from files import read_json
from inference.opening import RunConfig
from training.progress import load_progress
from training.run import Run

CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
---

# {name}

A language model that glassgpt trained{step}.

{results}

## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."  # the folder of this file
model = AutoModelForCausalLM.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
tokens = tokenizer({prompt}, return_tensors="pt")
text = model.generate(
    **tokens, max_new_tokens=100, do_sample=True, temperature=0.8, top_p=0.95{stop}
)
print(tokenizer.decode(text[0], skip_special_tokens=True))
```
{document}
## Model

{model}

## Training text

{data}
"""
DOCUMENT = """
In training, {end} ended every document, so a prompt that begins with it begins a new one.
"""


def model_card(run: Run, config: RunConfig, checkpoint: Path, name: str, end: int | None) -> str:
    """The card as Markdown: what the model is, how good it is, and how to load it. `end` is the
    token that ends a document, if it is one token."""
    step, mark = load_progress(checkpoint).step, config.document_end
    data = {} if config.data is None else asdict(config.data)
    for private in ("path", "exclude"):
        data.pop(private, None)
    is_text = mark is not None and end is None  # transformers can only stop at the text
    return CARD.format(
        name=printable(name),
        step=f" for {step:,} steps" if step else "",
        results=_results(run),
        prompt=json.dumps((mark or "") + "Once"),
        stop=f",\n    stop_strings=[{json.dumps(mark)}], tokenizer=tokenizer" * is_text,
        document="" if mark is None else DOCUMENT.format(end=f"`{json.dumps(mark)}`"),
        model=_table(asdict(config.model)),
        data=_table(data) if data else "Not known: the model was imported.",
    )


def _results(run: Run) -> str:
    """The table of what summary.json holds; a sentence if there is none."""
    try:
        summary = read_json(run.summary_file)
        rows = {
            "validation loss (nats per token)": summary["val_loss"],
            "validation bits per byte": summary["val_bpb"],
            "floor: bits per byte that no model can beat": summary["floor_bpb"],
        }
        known = {name: f"{value:.4f}" for name, value in rows.items() if value is not None}
        counts = ("steps", "tokens", "parameters")
        return _table(known | {name: f"{summary[name]:,}" for name in counts})
    except (OSError, ValueError, KeyError, TypeError):
        return "Its loss is not known: it was imported, or its training has not ended."


def _table(values: Mapping[str, Any]) -> str:
    rows = [f"| {name} | {_cell(value)} |" for name, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _cell(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return printable(text).replace("|", "\\|")
