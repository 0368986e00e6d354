"""A run as a folder for Hugging Face transformers, or as GGUF for llama.cpp.

Promises: what is written appears whole or not at all; the run is only read; other programs open it
without code of this project.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from common.errors import as_mistake
from common.files import new_folder
from exchange.card import model_card
from exchange.config import to_config
from exchange.families import ARCHITECTURES, family
from exchange.gguf import write_gguf
from exchange.gguf_tokenizer import pre_tokenizer
from exchange.tokenizer import end_token, filler, write_tokenizer
from exchange.weights import WEIGHTS, dtype_name, to_hugging_face
from inference.opening import OpenRun, open_run
from store.weights import MODEL, write_tensors


def to_folder(source: Path, target: Path, checkpoint: str, dtype: str | None) -> str:
    """Write the folder `target`; returns what to tell the user. Raises UserError."""
    opened = open_run(source, checkpoint, setting="source")
    model, tokenizer = opened.config.model, opened.tokenizer
    kind = dtype or dtype_name(opened.checkpoint / MODEL)
    with as_mistake(), new_folder(target) as folder:
        write_tensors(folder / WEIGHTS, to_hugging_face(model, _weights(opened), kind))
        end = write_tokenizer(tokenizer, folder, model.context_length)
        is_own = tokenizer.document_end is not None
        last = filler(tokenizer) if end is None else end
        start = end if is_own or tokenizer.bos_id is None else tokenizer.bos_id
        if start is None:  # an empty prompt begins as in sample.py
            start = tokenizer.beginning()[0][-1]
        several = not is_own and len(tokenizer.eos_ids) > 1
        ends = [*tokenizer.eos_ids] if several else last
        ids = {"bos_token_id": start, "eos_token_id": ends, "pad_token_id": last}
        config = to_config(model, tokenizer.vocab_size)
        _write_json(folder / "config.json", config | ids | {"dtype": kind, "torch_dtype": kind})
        _write_json(folder / "generation_config.json", ids)
        card = model_card(opened, target.name, end)
        (folder / "README.md").write_text(card, encoding="utf-8")
    return (
        f"Wrote {target}: {ARCHITECTURES[family(model)]}, from {opened.checkpoint}. In Python, "
        "after pip install transformers:\n"
        f"  AutoModelForCausalLM.from_pretrained({str(target)!r})"
    )


def to_gguf(source: Path, target: Path, checkpoint: str, dtype: str | None) -> str:
    """Write the file `target`; returns what to tell the user. Raises UserError."""
    opened = open_run(source, checkpoint, setting="source")
    model, tokenizer = opened.config.model, opened.tokenizer
    kind, name = dtype or dtype_name(opened.checkpoint / MODEL), target.stem
    first, end = tokenizer.first_id, end_token(tokenizer)
    with as_mistake("source: ", "; write a folder for transformers instead"):
        cut = pre_tokenizer(tokenizer)
    with as_mistake():
        n_others = write_gguf(
            target, model, tokenizer, _weights(opened), kind, name=name, first=first, end=end
        )
    lines = [f"Wrote {target} ({kind}), from {opened.checkpoint}."]
    if n_others:
        lines.append(
            f"note: {n_others} of the matrices are float32: their rows are not multiples of 32 "
            "numbers, which q8_0 needs"
        )
    if tokenizer.byte_pairs().is_normalized:
        lines.append(
            "note: the tokenizer brings a text into Unicode's form NFC, which llama.cpp does not do"
        )
    if not cut.is_same:
        lines.append(
            f"note: llama.cpp cuts text for this tokenizer with its pattern {cut.name}, the most "
            "similar that it has; some texts give other tokens there"
        )
    return "\n".join(lines)


def _weights(opened: OpenRun) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in opened.model.named_parameters()}


def _write_json(file: Path, contents: Mapping[str, object]) -> None:
    file.write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")
