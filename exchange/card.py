"""The model card of a converted run: README.md of a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml

from common.errors import printable
from exchange.tokenizer import splits_names
from inference.opening import OpenRun
from store.run import Run
from store.settings import read_settings

GROUPS = ("converted_from", "init_from", "data", "tokenizer", "model", "optimizer")
CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
---

# {name}

A language model with {parameters:,} parameters{training}.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(".")  # the folder of this file
tokenizer = AutoTokenizer.from_pretrained(".")
tokens = tokenizer({prompt}, return_tensors="pt")
text = model.generate(**tokens, max_new_tokens=100, do_sample=True, top_p=0.95{stop})
print(tokenizer.decode(text[0], skip_special_tokens=True))
```

To finetune it with trl, give texts without the end of a document: trl adds it{split}.

Its settings:

{settings}"""
# Otherwise the name of the token is ordinary text.
TRL = ", as a token after `tokenizer.split_special_tokens = False`"


def model_card(opened: OpenRun, name: str, end: int | None) -> str:
    """The card as Markdown: what the model is, and how to load it. `end` is the
    token that ends a document, if it is one token."""
    mark, step = opened.tokenizer.document_end, opened.step
    is_text = mark is not None and end is None  # transformers can only stop at the text
    training = f", trained with glassgpt for {step:,} steps"
    return CARD.format(
        name=printable(name),
        parameters=opened.model.n_parameters,
        training=training if step else ", imported",
        prompt=json.dumps((mark or "") + "Once"),
        split=TRL * splits_names(opened.tokenizer, end),
        stop=f", stop_strings=[{json.dumps(mark)}], tokenizer=tokenizer" * is_text,
        settings=indent(yaml.safe_dump(_settings(opened.run), sort_keys=False), "    "),
    )


def _settings(run: Run) -> dict[str, Any]:
    """Model and training, as far as they are stored. Of paths, the last name."""
    stored = read_settings(run.config_file)
    found = {name: stored[name] for name in GROUPS if stored.get(name) is not None}
    data = found["data"] if isinstance(found.get("data"), dict) else {}
    for group, name in ((found, "converted_from"), (found, "init_from"), (data, "path")):
        if isinstance(group.get(name), str):
            group[name] = Path(group[name]).name
    return found
