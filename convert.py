"""Convert a run to a Hugging Face folder or to GGUF, or such a folder to a run.

    python convert.py source=latest to=storyteller/
    python convert.py source=latest to=storyteller.gguf
    python convert.py source=path/to/gpt2 to=runs/gpt2

The direction follows from what `source` and `to` are. Nothing is overwritten.

Prints what was written, and how to use it. Exit status 0; 2 for a mistake in the settings, and for
a source that cannot be converted.
"""

from __future__ import annotations

import common.startup  # noqa: F401  # isort: skip

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError, check_choice, check_path, printable
from common.files import check_creatable, real_path
from common.settings import Values, build
from data.tokenizer import Tokenizer
from exchange.export import to_folder, to_gguf
from exchange.hub import fetch, is_hub_name
from exchange.run import to_run
from launch.cli import run_script
from store.run import find_run, is_latest


@dataclass
class ConvertConfig:
    """The settings of convert.py; configs/convert.yaml explains them."""

    source: str
    to: str
    checkpoint: str | None
    dtype: str | None

    def __post_init__(self) -> None:
        if self.checkpoint is not None:
            check_choice("checkpoint", self.checkpoint, ("best", "last"))
        if self.dtype is not None:
            check_choice("dtype", self.dtype, ("float32", "bfloat16", "float16", "q8_0"))


def main(values: Values) -> None:
    config = build(ConvertConfig, values)
    source, target = check_paths(config)
    print(printable(convert(config, source, target)))


def convert(config: ConvertConfig, source: Path, target: Path) -> str:
    """Convert in the direction that source and target ask for; returns what to tell the user."""
    is_gguf = target.name.lower().endswith(".gguf")
    if config.dtype == "q8_0" and not is_gguf:
        raise UserError("dtype: q8_0 is for GGUF; give float32, bfloat16 or float16")
    if (source / "config.yaml").is_file():
        write = to_gguf if is_gguf else to_folder
        return write(source, target, config.checkpoint or "best", config.dtype)
    if is_gguf:
        raise UserError(
            f"source: {source} is not a run, and only a run becomes GGUF; convert it to a run "
            "first, such as to=runs/imported"
        )
    if not source.exists() and is_hub_name(config.source):
        source = fetch(config.source)
    if (source / "adapter_config.json").is_file():  # beside a whole model, it would change it
        raise UserError(
            f"source: {source} has an adapter of peft; convert the folder that "
            "merge_and_unload().save_pretrained(...) writes"
        )
    if not (source / "config.json").is_file():
        what = "does not exist" if not source.exists() else "has no config.yaml and no config.json"
        if source.suffix == ".gguf":
            what = "is GGUF, which is only written"
        raise UserError(
            f"source: {source} {what}; give the folder of a run, one that transformers saved, or a "
            "name on the Hugging Face hub, such as openai-community/gpt2"
        )
    if config.checkpoint is not None:
        raise UserError(f"checkpoint: {source} is no run and has one model; leave checkpoint out")
    said = to_run(source, target, config.source, config.dtype)
    # Where nothing stands before a prompt, one may begin in the middle of a document.
    prompt = " prompt=Once" if Tokenizer.load(target / "tokenizer").beginning()[1] else ""
    return f"{said}\nTry: python sample.py run={shlex.quote(str(target))}{prompt}"


def check_paths(config: ConvertConfig) -> tuple[Path, Path]:
    """The paths `source` and `to`. Raises UserError if `to` exists or cannot be created."""
    check_path("source", config.source)
    check_path("to", config.to)
    source, target = find_run(Path(config.source).expanduser()), Path(config.to).expanduser()
    if is_latest(target):
        raise UserError(f"to: {target} is reserved for the newest run; give another one")
    if os.path.lexists(target):
        raise UserError(f"to: {target} exists; give another one, or move it")
    check_creatable("to", target)
    is_model = any((source / name).is_file() for name in ("config.yaml", "config.json"))
    if is_model and real_path(target).is_relative_to(real_path(source)):
        raise UserError(f"to: {target} is inside source; choose another folder")
    return source, target


if __name__ == "__main__":
    run_script("convert", main, ConvertConfig)
