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


def model_card(run: Run, config: RunConfig, checkpoint: Path, name: str) -> str:
    """The card as Markdown: what the model is, how good it is, and how to load it."""
    end = config.document_end
    start = (
        ""
        if end is None
        else (
            f"\nA prompt begins a document if it begins with {end!r}, which ends every document of the "
            "training text.\n"
        )
    )
    prompt = "" if end is None else end
    data = (
        "not known: the run was converted" if config.data is None else _table(asdict(config.data))
    )
    return f"""---
library_name: transformers
pipeline_tag: text-generation
---

# {printable(name)}

A language model that glassgpt trained. Step {load_progress(checkpoint).step:,}.

{_results(run)}

## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."  # the folder of this file
model = AutoModelForCausalLM.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
tokens = tokenizer({json.dumps(prompt + "Once")}, return_tensors="pt")
text = model.generate(**tokens, max_new_tokens=100, do_sample=True, temperature=0.8, top_p=0.95)
print(tokenizer.decode(text[0], skip_special_tokens=True))
```
{start}
## Model

{_table(asdict(config.model))}

## Training text

{data}
"""


def _results(run: Run) -> str:
    """The table of what summary.json holds; a sentence if there is none."""
    try:
        summary = read_json(run.summary_file)
        rows = {
            "validation loss (nats per token)": summary["val_loss"],
            "validation bits per byte": summary["val_bpb"],
            "floor: bits per byte that no model can beat": summary["floor_bpb"],
            "steps": summary["steps"],
            "tokens": summary["tokens"],
            "parameters": summary["parameters"],
        }
        return _table({name: value for name, value in rows.items() if value is not None})
    except (OSError, ValueError, KeyError, TypeError):
        return "The run has no results: it was converted, or its training has not ended."


def _table(values: Mapping[str, Any]) -> str:
    rows = [f"| {name} | {_cell(value)} |" for name, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _cell(value: Any) -> str:
    text = f"{value:.4f}" if isinstance(value, float) and value >= 0.1 else str(value)
    return printable(text).replace("|", "\\|")
