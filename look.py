"""Show the attention of a trained model over any text, or as it formed in training.

    python look.py run=runs/latest html=storyteller.html
    python look.py run=runs/latest text="Once there was a hen." html=hen.html
    python look.py run=runs/latest html=forming.html steps=all

Without a text, a page is written in which the model itself runs; with steps=all, one of the maps
that the run logged. The maps and scores of a text are added to the run's log, where TensorBoard
shows them as another probe.
"""

from __future__ import annotations

import openmp  # noqa: F401  # isort: skip

from training.signals import stop_at_once

if __name__ == "__main__":
    stop_at_once()  # the imports below take a second or two

import math
import shlex
from datetime import date
from pathlib import Path
from urllib.parse import quote
from zlib import crc32

from omegaconf import DictConfig

from configs.cli import run_script
from configs.schema import LookConfig, build
from errors import UserError, printable
from files import open_regular, read_json, real_path
from inference import OpenRun, each_checkpoint, open_run
from live.contents import describe
from live.pack import pack
from live.page import live_page
from live.texts import SPARE, prompt, reference
from observe.attention import TAG, Probe
from observe.observed import open_events
from tensorboard_attention import encode, page
from tensorboard_attention.index import Index
from training.device import choose_device

Entries = list[tuple[str, int, list[bytes]]]  # tag, step, maps


def main(cfg: DictConfig) -> None:
    config = build(cfg, LookConfig)
    check_page(config)
    opened = open_run(config.run, config.checkpoint, choose_device(config.device, "device"))
    if config.text is None and config.steps == "last":
        write_live_page(opened, config)
        return
    if config.text is None:
        entries = logged_maps(opened.run.path, config.steps)
    else:
        entries = look_at(config.text, opened, config)
    if config.html is not None:
        name = printable(real_path(opened.run.path).name)
        page(config.html, entries, f"Attention of {name}", about(opened), name)
        print(f"Wrote {config.html}")


def write_live_page(opened: OpenRun, config: LookConfig) -> None:
    """Write the page in which the model runs."""
    assert config.html is not None
    corpus = SPARE
    length = opened.config.model.context_length
    tensors = {name: each.detach().numpy() for name, each in opened.model.named_parameters()}
    name = printable(real_path(opened.run.path).name)
    run = {
        "name": name,
        "about": about(opened),
        "prompt": prompt(corpus, opened.tokenizer, length),
        "reference": reference(corpus, opened.tokenizer, length),
        "losses": {},
    }
    data = describe(
        opened.model, [opened.step], "float16", opened.tokenizer, opened.config.document_end, run
    )
    text = live_page(data, [pack(tensors, "float16")], name, run["about"])
    Path(config.html).write_text(text, "utf-8")
    print(f"Wrote {config.html}")


def look_at(text: str, opened: OpenRun, config: LookConfig) -> Entries:
    """Log the maps of a text, at the step of `opened` or at those of all checkpoints."""
    tokens = opened.tokenizer.encode(text)
    kept = tokens[: opened.config.model.context_length]
    if len(kept) < len(tokens):
        print(f"Using the first {len(kept)} of {len(tokens)} tokens: the model's context length")
    opened.run.check_contents("run")
    events = open_events(opened.run.path)
    tag = f"text: {text[:40]}"
    if len(text) > 40:  # two long texts that begin alike are different probes
        tag += f"… {crc32(text.encode()):08x}"
    entries = []
    for each in each_checkpoint(opened) if config.steps == "all" else [opened]:
        probe = Probe(events, each.model, each.tokenizer, kept, tag)
        maps = probe.log(each.step, config.images)
        entries.append((tag, each.step, encode(maps, probe.spelled)))
    events.close()
    steps = ", ".join(f"{step}" for _, step, _ in entries)
    folder = real_path(opened.run.path)
    logdir = opened.run.path.parent if opened.run.path.name else folder.parent
    print(f"Logged to {opened.run.path}, step{'s' * (len(entries) > 1)} {steps}.")
    print(f"View: tensorboard --logdir {shlex.quote(str(logdir))}")
    print(link(folder, tag))
    return entries


def link(folder: Path, tag: str) -> str:
    """The address of a probe in a TensorBoard over the folder in which the run's is; its keys are
    those of tensorboard_attention/static/state.js."""
    parts = {"run": folder.name, "tag": tag}
    found = (f"&p.attention.{key}={quote(value, safe='')}" for key, value in parts.items())
    return "http://localhost:6006/#attention" + "".join(found)


def logged_maps(folder: Path, steps: str) -> Entries:
    """The maps of the probe that the run logged while it was trained, at all steps or at the last.
    Raises UserError if there are none."""
    index = Index(str(folder))
    while not index.refresh():
        pass
    found = index.steps().get(".", {}).get(TAG, [])
    if not found:
        raise UserError(
            f"run: {folder} has logged no attention maps; give a text, or train it with "
            "observe.attention.every"
        )
    chosen = found if steps == "all" else found[-1:]
    return [(TAG, step, [*index.maps(".", TAG, step)]) for step in chosen]


def about(opened: OpenRun) -> str:
    """A line on the run: its model, data, loss and date, as far as they are known."""
    model = opened.config.model
    parts = [
        f"{model.n_layers} layers of {model.n_heads} heads, "
        f"{opened.model.n_parameters:,} parameters",
    ]
    if opened.config.data is not None:
        parts.append(f"data: {opened.config.data.name}")
    try:
        summary = read_json(opened.run.summary_file)
        loss, bpb, step = (float(summary[name]) for name in ("val_loss", "val_bpb", "steps"))
        if math.isfinite(loss + bpb + step):
            parts.append(
                f"validation loss {loss:.3f} nats per token ({bpb:.3f} bits per byte) at step "
                f"{step:,.0f}"
            )
    except (OSError, ValueError, TypeError, KeyError):
        pass  # it is still in training
    try:
        with open_regular(opened.run.log_file) as file:
            parts.append(f"trained on {date.fromisoformat(file.read(10).decode())}")
    except (OSError, ValueError):
        pass
    return "; ".join(parts)


def check_page(config: LookConfig) -> None:
    """Raise UserError for mistakes that would otherwise fail only after the log was written."""
    if config.html is None:
        return
    path = Path(config.html)
    if not path.parent.is_dir():
        raise UserError(f"html: {path.parent} is not a folder; give another one")
    try:
        path.touch(exist_ok=False)  # some file systems refuse files in writable folders
        path.unlink()
    except FileExistsError:
        raise UserError(f"html: {path} exists; give another file, or move it") from None
    except OSError as error:
        raise UserError(
            f"html: {path} cannot be created ({error.strerror}); give another file"
        ) from error


if __name__ == "__main__":
    run_script("look", main)
