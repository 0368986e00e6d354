"""Show the attention of a trained model over any text, or as it formed in training.

    python look.py run=latest html=storyteller.html
    python look.py run=latest text="Once there was a jolly deer." html=deer.html
    python look.py run=latest text="Once there was a jolly deer named" circuit=true
    python look.py run=latest html=forming.html steps=all
    python look.py run=latest text="Once there was a jolly deer." reader=true

Without a text, a page is written in which the model itself runs; with steps=all, one of the maps
that the run logged. The maps and scores of a text are added to the run's log, where TensorBoard
shows them as another probe. With reader=true, nothing is written, and what the model says of every
token of a tale is printed beside what a reader says who knows the grammar of tales.

Prints what was written where, and for a text the address of its maps in TensorBoard. Exit status 0;
2 for a mistake in the settings.
"""

from __future__ import annotations

import common.startup  # noqa: F401  # isort: skip

import math
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from urllib.parse import quote
from zlib import crc32

from common.device import choose_device
from common.errors import (
    UserError,
    as_mistake,
    check_choice,
    check_folder,
    print_note,
    printable,
    refusal,
)
from common.files import naming, new_file, open_regular, read_json, real_path
from common.settings import Values, build
from inference.opening import STARTS, OpenRun, each_checkpoint, open_run
from inference.tables import print_circuit, print_reader
from launch.cli import run_script
from live.models import initial_model
from live.notebook import page_of, text_at_hand, title_of
from live.pack import BYTES
from live.page import about_run, check_page
from live.texts import page_texts
from observe.attention import Probe
from observe.evidence import measure_evidence, write_evidence
from observe.tensorboard import open_events
from store.results import TAG, evidence_of, head_names, last_names, open_log
from store.run import Run
from store.settings import read_settings
from tensorboard_attention import page
from tensorboard_attention.evidence import NAME
from tensorboard_attention.scores import Heads
from tensorboard_attention.strict import from_json, to_json
from tensorboard_attention.summary import name_fields

Entries = list[tuple[str, int, list[bytes]]]  # tag, step, maps


@dataclass
class LookConfig:
    """The settings of look.py; configs/look.yaml explains them."""

    run: str
    checkpoint: str
    text: str | None
    start: str
    steps: str
    name: str | None
    html: str | None
    weights: str | None
    checkpoints: str | None
    circuit: bool
    target: str | None
    reader: bool
    evidence: bool
    cache_dir: str
    device: str

    def __post_init__(self) -> None:
        check_folder("cache_dir", self.cache_dir)
        for name, what in (("text", "the text to look at"), ("html", "a file")):
            if getattr(self, name) == "":
                raise ValueError(f"{name}: is empty; give {what}")
        if self.text is None and self.html is None and not self.evidence:
            raise ValueError(
                "text: is missing; give the text to look at, html=FILE for a page in which the "
                "model runs, or evidence=true"
            )
        for name in ("circuit", "reader"):
            if getattr(self, name) and (self.text is None or self.html or self.steps == "all"):
                raise ValueError(
                    f"{name}: is printed for a text at one step; give text, without html and steps"
                )
        if self.target is not None and not self.circuit:
            raise ValueError("target: is the next token of a circuit; add circuit=true")
        check_choice("start", self.start, STARTS)
        check_choice("steps", self.steps, ("last", "all"))
        for name, choices in {"weights": BYTES, "checkpoints": ("one", "all")}.items():
            if (value := getattr(self, name)) is None:
                continue
            check_choice(name, value, choices)
            if not self.is_live:
                raise ValueError(
                    f"{name}: is for the page in which the model runs; leave it out, or give "
                    "html=FILE without text and steps"
                )
        for name in ("steps", "checkpoints"):
            if getattr(self, name) == "all" and self.checkpoint == "best":
                raise ValueError(
                    f"{name}: all are more than checkpoint=best; leave one of them out"
                )
        if self.start != "document" and self.text is None:
            raise ValueError("start: is that of a text; give one, or leave start out")

    @property
    def is_live(self) -> bool:
        """Whether the page is one in which the model runs."""
        return self.html is not None and self.text is None and self.steps == "last"


def main(values: Values) -> None:
    config = build(LookConfig, values)
    opened = open_run(config.run, config.checkpoint, choose_device(config.device, "device"))
    page_file = None if config.html is None else new_page(config.html)
    if config.evidence:
        write_evidence_of(opened, config)
    if config.text is not None and (config.circuit or config.reader):
        if config.circuit:
            print_circuit(opened, config.text, config.start, config.target, config.cache_dir)
        if config.reader:
            print_reader(opened, config.text, config.start)
        return
    entries = None if config.text is None else look_at(config.text, opened, config)
    if page_file and config.is_live:
        write_live_page(page_file, opened, config)
    elif page_file:
        name = title_of(opened, config.name)
        *_, figures = about(opened).splitlines()
        page(page_file, entries or logged_maps(opened.run), f"Attention of {name}", figures, name)
        print(f"Wrote {page_file}")


def write_live_page(file: Path, opened: OpenRun, config: LookConfig) -> None:
    """Write the page in which the model runs."""
    weights, tokenizer = config.weights or "float16", opened.tokenizer
    check_page(opened.model, tokenizer, weights)
    checkpoints = all_checkpoints(opened) if config.checkpoints == "all" else [opened]
    corpus, dataset = text_at_hand(opened, config.cache_dir)
    tokens = dataset.val if dataset else None
    run = {
        "name": title_of(opened, config.name),
        "about": about(opened),
        **page_texts(corpus, tokens, tokenizer, opened.config.model.context_length),
    }
    with new_file(file) as temporary:
        temporary.write_text(page_of(opened, checkpoints, weights, dataset, run), "utf-8")
    print(f"Wrote {file} ({file.stat().st_size / 1e6:.1f} MB): open it in a browser, and type")


def write_evidence_of(opened: OpenRun, config: LookConfig) -> None:
    """Measure what heads and neurons do over a part of the validation split, and print the roles of
    heads."""
    corpus, dataset = opened.text(config.cache_dir)
    before = last_names(opened.run, opened.step)
    with as_mistake("evidence: ", "; leave it out"):  # also of weights that are not finite
        found = measure_evidence(opened.model, corpus, dataset, opened.step, before)
        write_evidence(opened.run.path, found)
    for name, head in found["heads"].items():
        print(printable(f"{name}  {head['says']}; need {head['need'][0]:.4f} nats per token"))
    print(f"Wrote {opened.run.path / NAME}, over {found['where']}")


def all_checkpoints(opened: OpenRun) -> Iterator[OpenRun]:
    """The run with the model of each checkpoint that it kept, and before them with that with which
    it began, where its seed can make it again."""
    stored = read_settings(opened.run.config_file)
    seed = stored.get("seed")
    if stored.get("init_from") is None and type(seed) is int and 0 <= seed < 2**63:
        first = initial_model(opened.model.config, opened.model.vocab_size, seed)
        yield replace(opened, model=first.to(next(opened.model.parameters()).device), step=0)
    yield from each_checkpoint(opened)


def look_at(text: str, opened: OpenRun, config: LookConfig) -> Entries:
    """Log the maps of a text, at the step of `opened` or at those of all checkpoints."""
    tokenizer, is_bare = opened.tokenizer, config.start == "text"
    tokens = opened.encode(text, config.start)
    if added := len(tokens) - len(tokenizer.encode(text)):
        special = {id: name for name, id in tokenizer.special_tokens.items()}  # spell nothing
        parts = [special.get(id) or tokenizer.decode([id]) for id in tokens[:added]]
        mark = printable(repr("".join(parts)))
        print(f"Put {mark} in front, as in training; start=text leaves it out")
    kept = opened.first_tokens(text, config.start)
    tag = f"{'bare ' if is_bare else ''}text: {text[:40]}"
    if len(text) > 40:  # two long texts that begin alike are different probes
        tag += f"… {crc32(text.encode()):08x}"
    steps, floor = [], opened.floor(kept)
    with naming(opened.run.path), open_events(opened.run.path) as events:
        for checkpoint in each_checkpoint(opened) if config.steps == "all" else [opened]:
            probe = Probe(events, checkpoint.model, tokenizer, kept, tag, floor)
            names = checkpoint.head_names()
            probe.log(checkpoint.step, Heads({}, {}, names) if names else None)
            steps.append(checkpoint.step)
    folder = real_path(opened.run.path)
    logdir = opened.run.path.parent if opened.run.path.name else folder.parent
    print(
        f"Logged to {opened.run.path}, step{'s' * (len(steps) > 1)} {', '.join(map(str, steps))}."
    )
    print(f"View: tensorboard --logdir {shlex.quote(str(logdir))}")
    print(f"{link(folder, tag)} (if TensorBoard names another port than 6006, use that)")
    index = open_log(opened.run.path)
    return [(tag, step, [*index.maps(".", tag, step)]) for step in steps]


def link(folder: Path, tag: str) -> str:
    """The address of a probe in a TensorBoard over the folder in which the run's is; its keys are
    those of tensorboard_attention/static/state.js."""
    parts = {"run": folder.name, "tag": tag}
    found = (f"&p.attention.{key}={quote(value, safe='')}" for key, value in parts.items())
    return "http://localhost:6006/#attention" + "".join(found)


def logged_maps(run: Run) -> Entries:
    """The maps of the probe that the run logged while it was trained, at all steps; at that of its
    evidence, heads are named as it says. Raises UserError if there are none."""
    index = open_log(run.path)
    for note in index.notes():
        print_note(f"note: {note}")
    found = index.steps().get(".", {}).get(TAG, [])
    if not found:
        raise UserError(
            f"run: {run.path} has logged no attention maps; give a text, or train it with "
            "observe.attention.every"
        )
    entries = {step: [*index.maps(".", TAG, step)] for step in found}
    with suppress(UserError):
        if (step := evidence_of(run)["step"]) in entries:
            header = from_json(entries[step][0])
            names = head_names(run, [step])[step]
            if [*map(len, names)] == header["heads"]:
                entries[step][0] = to_json(header | name_fields(names)).encode()
    return [(TAG, step, maps) for step, maps in entries.items()]


def about(opened: OpenRun) -> str:
    """A sentence on a run, and a line with its model, data, loss and date, as far as they are
    known."""
    data, parts = opened.corpus(), []
    with suppress(OSError, ValueError, TypeError, KeyError):  # it is still in training
        summary = read_json(opened.run.summary_file)
        loss, bpb, step = (float(summary[name]) for name in ("val_loss", "val_bpb", "steps"))
        if math.isfinite(loss + bpb) and step == opened.step:
            parts.append(
                f"validation loss {loss:.3f} nats per token ({bpb:.3f} bits per byte) at step "
                f"{step:,.0f}"
            )
    with suppress(OSError, ValueError), open_regular(opened.run.log_file) as file:
        parts.append(f"trained on {date.fromisoformat(file.read(10).decode())}")
    return about_run(opened.model, data.name if data else None, parts)


def new_page(html: str) -> Path:
    """The file of a page. Raises UserError for what would otherwise fail only after the log was
    written."""
    path = Path(html)
    try:
        path.touch(exist_ok=False)  # some file systems refuse files in writable folders
    except FileExistsError:
        raise UserError(f"html: {path} exists; give another file, or move it") from None
    except OSError as error:
        raise UserError(f"html: {refusal(error)}") from error
    path.unlink()
    return path


if __name__ == "__main__":
    run_script("look", main, LookConfig)
