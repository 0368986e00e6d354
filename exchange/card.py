"""The model card of a converted run: README.md of a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from errors import printable
from files import read_json, read_text
from inference.opening import RunConfig
from training.run import Run
from training.state import TrainState, load_state
from training.stored import read_settings

MOST = 1 << 26  # bytes of metrics.jsonl

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


def model_card(run: Run, config: RunConfig, checkpoint: Path, name: str, end: int | None) -> str:
    """The card as Markdown: what the model is, how good it is, and how to load it. `end` is the
    token that ends a document, if it is one token."""
    progress, mark = load_state(checkpoint), config.document_end
    is_text = mark is not None and end is None  # transformers can only stop at the text
    return CARD.format(
        name=printable(name),
        origin=f" that glassgpt trained for {progress.step:,} steps" if progress.step else "",
        results=_results(run, progress),
        prompt=json.dumps((mark or "") + "Once"),
        stop=f",\n    stop_strings=[{json.dumps(mark)}], tokenizer=tokenizer" * is_text,
        document="" if mark is None else DOCUMENT.format(end=f"`{json.dumps(mark)}`"),
        model=_table(asdict(config.model)),
        training=_table(_training(run, config)),
    )


def _results(run: Run, progress: TrainState) -> str:
    """The table of the loss of this checkpoint, from summary.json if it is the last one, and
    otherwise from the evaluation at its step; a sentence if there is none."""
    rows: dict[str, Any] = {"steps": f"{progress.step:,}", "tokens": f"{progress.tokens:,}"}
    try:
        summary = read_json(run.summary_file)
        is_last = summary["steps"] == progress.step
        found = summary if is_last else _evaluation(run, progress.step)
        names = {
            "val_loss": "validation loss (nats per token)",
            "val_bpb": "bits per byte",
        }
        rows |= {label: f"{found[name]:.4f}" for name, label in names.items()}
        if not is_last:
            rows["measured on validation tokens"] = f"{found['val_tokens']:,}"
        if summary["floor_bpb"] is not None:
            rows["floor: bits per byte that no model can beat"] = f"{summary['floor_bpb']:.4f}"
        rows["parameters"] = f"{summary['parameters']:,}"
    except (OSError, ValueError, KeyError, TypeError):
        if not progress.step:
            return "Its loss is not known: it was imported."
    return _table(rows)


def _evaluation(run: Run, step: int) -> dict[str, Any]:
    """What metrics.jsonl says of the evaluation at a step."""
    lines = map(json.loads, read_text(run.path / "metrics.jsonl", MOST).splitlines())
    return [line for line in lines if line["step"] == step and "val_loss" in line][-1]


def _training(run: Run, config: RunConfig) -> dict[str, Any]:
    """Corpus and settings of the training, as far as they are stored. Of paths, the last name."""
    settings = read_settings(run.config_file)
    data = {} if config.data is None else asdict(config.data)
    found = {f"data.{name}": value for name, value in data.items()}
    for name in ("tokenizer", "optimizer"):
        section = settings.get(name)
        found |= {f"{name}.{key}": value for key, value in (section or {}).items()}
    trainer = settings.get("trainer") or {}
    found |= {f"trainer.{key}": trainer.get(key) for key in ("max_steps", "batch_size")}
    found |= {key: settings.get(key) for key in ("seed", "init_from", "converted_from")}
    for name in ("data.path", "init_from", "converted_from"):
        if isinstance(found.get(name), str):
            found[name] = Path(found[name]).name
    return {name: value for name, value in found.items() if value is not None}


def _table(values: Mapping[str, Any]) -> str:
    rows = [f"| {name} | {_cell(value)} |" for name, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _cell(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return printable(text).replace("|", "\\|")
