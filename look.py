"""Show the attention of a trained model over any text.

    python look.py run=runs/latest text="Once there was a hen." html=hen.html

The maps and scores are added to the run's log, where TensorBoard shows them as another probe.
"""

from __future__ import annotations

import openmp  # noqa: F401  # isort: skip

from training.signals import stop_at_once

if __name__ == "__main__":
    stop_at_once()  # the imports below take a second or two

from pathlib import Path
from zlib import crc32

from omegaconf import DictConfig

from configs.cli import run_script
from configs.schema import LookConfig, build
from errors import UserError
from inference import open_run
from observe.attention import Probe
from observe.observed import open_events
from tensorboard_attention import encode, page
from training.device import choose_device


def main(cfg: DictConfig) -> None:
    config = build(cfg, LookConfig)
    check_page(config)
    opened = open_run(config.run, config.checkpoint, choose_device(config.device, "device"))
    tokens = opened.tokenizer.encode(config.text)
    kept = tokens[: opened.config.model.context_length]
    if len(kept) < len(tokens):
        print(f"Using the first {len(kept)} of {len(tokens)} tokens: the model's context length")

    opened.run.check_contents("run")
    events = open_events(opened.run.path)
    tag = f"text: {config.text[:40]}"
    if len(config.text) > 40:  # two long texts that begin alike are different probes
        tag += f"… {crc32(config.text.encode()):08x}"
    probe = Probe(events, opened.model, opened.tokenizer, kept, tag)
    maps = probe.log(opened.step, images=True)
    events.close()
    logdir = opened.run.path.parent
    print(f"Logged to {opened.run.path}, step {opened.step}. View: tensorboard --logdir {logdir}")
    if config.html is not None:
        page(config.html, [(tag, opened.step, encode(maps, probe.spelled))])
        print(f"Wrote {config.html}")


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
