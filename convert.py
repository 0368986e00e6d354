"""Convert a run to a Hugging Face folder or to GGUF, or such a folder to a run.

    python convert.py source=runs/latest to=storyteller/
    python convert.py source=runs/latest to=storyteller.gguf
    python convert.py source=path/to/gpt2 to=runs/gpt2

The direction follows from what `source` and `to` are. Nothing is overwritten.
"""

from __future__ import annotations

import openmp  # noqa: F401  # isort: skip

from training.signals import stop_at_once

if __name__ == "__main__":
    stop_at_once()  # the imports below take a second or two

import os
import shlex
from pathlib import Path

from omegaconf import DictConfig

from configs.cli import run_script
from configs.schema import ConvertConfig, build
from errors import UserError, check_path
from exchange.export import to_folder, to_gguf
from exchange.hub import fetch, is_hub_name
from exchange.run import to_run


def main(cfg: DictConfig) -> None:
    config = build(cfg, ConvertConfig)
    check_path("source", config.source)
    target = check_target(config.to)
    is_gguf = target.suffix == ".gguf"
    if config.dtype == "q8_0" and not is_gguf:
        raise UserError("dtype: q8_0 is for GGUF; give float32, bfloat16 or float16")
    source = Path(config.source)
    if (source / "config.yaml").is_file():
        if config.tokenizer is not None:
            raise UserError("tokenizer: a run has its own; leave tokenizer out")
        convert = to_gguf if is_gguf else to_folder
        print(convert(source, target, config.checkpoint, config.dtype))
        return
    if is_gguf:
        raise UserError(
            f"source: {source} is not a run, and only a run becomes GGUF; convert it to a run "
            "first, such as to=runs/imported"
        )
    if not source.exists() and is_hub_name(config.source):
        source = fetch(config.source)
    if not (source / "config.json").is_file():
        what = "does not exist" if not source.exists() else "has no config.yaml and no config.json"
        raise UserError(
            f"source: {source} {what}; give the folder of a run, or one that transformers saved"
        )
    print(to_run(source, target, config.source, config.dtype, config.tokenizer))
    quoted = shlex.quote(str(target))
    print(f"Try: python sample.py run={quoted} prompt=...")


def check_target(to: str) -> Path:
    """The path `to`. Raises UserError if it exists or cannot be created."""
    check_path("to", to)
    target = Path(to)
    if os.path.lexists(target):
        raise UserError(f"to: {target} exists; give another one, or move it")
    parent = next(each for each in target.absolute().parents if os.path.lexists(each))
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise UserError(f"to: {parent} is not a writable folder; choose another")
    return target


if __name__ == "__main__":
    run_script("convert", main)
