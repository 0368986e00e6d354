"""The model card of a converted run: README.md of a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from common.errors import printable
from common.files import read_json, read_text
from common.settings import flat
from inference.opening import OpenRun
from training.run import Run
from training.state import TrainState, load_state
from training.stored import read_settings

MOST = 1 << 26  # bytes of metrics.jsonl
# Settings of the training, apart from the model.
GROUPS = ("data.", "tokenizer.", "optimizer.")
SETTINGS = ("trainer.max_steps", "trainer.batch_size", "seed", "init_from", "converted_from")

CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
---

# {name}

A language model{origin}.

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

## Training

{training}
"""
DOCUMENT = """
In training, {end} ended every document, so a prompt that begins with it begins a new one.
"""


def model_card(opened: OpenRun, name: str, end: int | None) -> str:
    """The card as Markdown: what the model is, how good it is, and how to load it. `end` is the
    token that ends a document, if it is one token."""
    state, mark = load_state(opened.checkpoint), opened.tokenizer.document_end
    is_text = mark is not None and end is None  # transformers can only stop at the text
    return CARD.format(
        name=printable(name),
        origin=f" that glassgpt trained for {state.step:,} steps" if state.step else "",
        results=_results(opened, state),
        prompt=json.dumps((mark or "") + "Once"),
        stop=f",\n    stop_strings=[{json.dumps(mark)}], tokenizer=tokenizer" * is_text,
        document="" if mark is None else DOCUMENT.format(end=f"`{json.dumps(mark)}`"),
        model=_table(asdict(opened.config.model)),
        training=_table(_training(opened.run)),
    )


def _results(opened: OpenRun, state: TrainState) -> str:
    """The table of the loss of this checkpoint; a sentence if it is not known."""
    rows: dict[str, Any] = {
        "steps": f"{state.step:,}",
        "tokens": f"{state.tokens:,}",
        "parameters": f"{sum(map(torch.numel, opened.model.parameters())):,}",
    }
    try:
        found = _evaluation(opened.run, state.step)
        rows |= {
            "validation loss (nats per token)": f"{found['val_loss']:.4f}",
            "bits per byte": f"{found['val_bpb']:.4f}",
            "measured on validation tokens": f"{found['val_tokens']:,}",
        }
        if found["floor_bpb"] is not None:
            rows["floor: bits per byte that no model can beat"] = f"{found['floor_bpb']:.4f}"
    except (OSError, ValueError, LookupError, TypeError):  # there is none, or a damaged one
        if not state.step:
            return "Its loss is not known: it was imported."
    return _table(rows)


def _evaluation(run: Run, step: int) -> dict[str, Any]:
    """The last evaluation at a step: of the whole split, if the run ended there."""
    lines = map(json.loads, read_text(run.path / "metrics.jsonl", MOST).splitlines())
    found = [line for line in lines if line["step"] == step and "val_loss" in line]
    if run.summary_file.exists() and read_json(run.summary_file)["steps"] == step:
        found.append(read_json(run.summary_file))
    return found[-1]


def _training(run: Run) -> dict[str, Any]:
    """Corpus and settings of the training, as far as they are stored. Of paths, the last name."""
    found = {
        name: value
        for name, value in flat(read_settings(run.config_file)).items()
        if value is not None and (name.startswith(GROUPS) or name in SETTINGS)
    }
    for name in ("data.path", "init_from", "converted_from"):
        if name in found:
            found[name] = Path(found[name]).name
    return found


def _table(values: Mapping[str, Any]) -> str:
    rows = [f"| {name} | {_cell(value)} |" for name, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _cell(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return printable(text).replace("|", "\\|")
