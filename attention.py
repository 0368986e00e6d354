"""Look at a trained model's attention over any text, after training.

    python attention.py run=runs/latest text="Once there was a hen." html=hen.html

The maps and scores go to the run's log, where TensorBoard shows them as one more probe.
"""

from __future__ import annotations

import openmp  # noqa: F401  # isort: skip

import os
from pathlib import Path
from zlib import crc32

from omegaconf import DictConfig

from configs.cli import run_script
from configs.schema import AttentionScriptConfig, build
from errors import UserError
from sample import open_model
from tensorboard_attention import encode, page
from training.checkpoint import load_progress
from training.device import choose_device
from training.run import Run


def main(cfg: DictConfig) -> None:
    config = build(cfg, AttentionScriptConfig)
    _check(config)
    _, tokenizer, model, checkpoint = open_model(
        config.run, config.checkpoint, choose_device(config.device, "device")
    )
    run = Run.open(config.run, "run")
    step = load_progress(checkpoint).step
    tokens = tokenizer.encode(config.text)
    kept = tokens[: model.config.context_length]
    if len(kept) < len(tokens):
        print(f"of {len(tokens)} tokens, the first {len(kept)}: the model reads no more")

    from torch.utils.tensorboard import SummaryWriter

    from observe.attention import AttentionMaps

    events = SummaryWriter(str(run.path))
    pairs = [(token, tokenizer.decode_bytes([token])) for token in kept]
    # Of long texts no two are the same probe, although they may begin alike.
    tag = f"text: {config.text[:40]}"
    if len(config.text) > 40:
        tag += f"… {crc32(config.text.encode()):08x}"
    probe = AttentionMaps(events, model, pairs, every=1, images_every=1, max_steps=step, tag=tag)
    maps = probe.log(step, images=True)
    events.close()
    print(f"logged as step {step} of {run.path}; to see it: tensorboard --logdir {run.path.parent}")
    if config.html is not None:
        page(config.html, [(tag, step, encode(maps, probe.texts))])
        print(f"written: {config.html}")


def _check(config: AttentionScriptConfig) -> None:
    """Raises UserError for what would fail only after the run's log was written."""
    try:
        config.text.encode()
    except UnicodeEncodeError:
        raise UserError("text: is not UTF-8; convert it to UTF-8") from None
    if config.html is None:
        return
    path = Path(config.html)
    if path.exists():
        raise UserError(f"html: {path} exists; give another file, or move it away")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"html: nothing can be written to {path.parent}; give another folder")


if __name__ == "__main__":
    run_script("attention", main)
