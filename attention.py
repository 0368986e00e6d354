"""Look at a trained model's attention over any text, after training.

    python attention.py run=runs/latest text="Once there was a hen." html=hen.html

The maps and scores go to the run's log, where TensorBoard shows them as one more probe.
"""

from __future__ import annotations

import openmp  # noqa: F401  # isort: skip

from itertools import islice
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from omegaconf import DictConfig
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from configs.cli import run_script
from configs.schema import AttentionScriptConfig, build
from data import Corpus, Tokenizer
from data.tales import Tales
from errors import UserError
from observe.heads import copy_targets
from sample import open_model
from tensorboard_attention import encode, page
from training.checkpoint import load_progress
from training.device import choose_device
from training.run import Run

N_STORIES = 4  # each takes as long as a quarter of a training step


def main(cfg: DictConfig) -> None:
    config = build(cfg, AttentionScriptConfig)
    if config.html is not None and Path(config.html).exists():
        raise UserError(f"html: {config.html} exists; give another file, or move it away")
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
    tag = f"text: {config.text[:40]}"
    probe = AttentionMaps(events, model, pairs, every=1, images_every=1, tag=tag)
    maps = probe.log(step, images=True)
    events.close()
    print(f"logged as step {step} of {run.path}; to see it: tensorboard --logdir {run.path.parent}")
    if config.html is not None:
        page(config.html, [(tag, step, encode(maps, probe.texts))])
        print(f"written: {config.html}")


def stories(
    corpus: Corpus, tokenizer: Tokenizer, context_length: int
) -> tuple[Int[Tensor, "batch token"], Bool[Tensor, "batch token token"]] | None:
    """Tales of the validation split, padded to one length, and where a head that copies looks in
    them; None for a corpus whose words nobody knows to be repeated."""
    if not isinstance(corpus, Tales):
        return None
    tokens, targets = [], []
    start = len(corpus.document_end)
    for tale in islice(corpus.tales("val"), N_STORIES):
        story = tokenizer.encode(corpus.document_end + tale.text)[:context_length]
        lengths = [len(tokenizer.decode_bytes([token])) for token in story]
        mentions = [(name, start + first, start + last) for name, first, last in tale.mentions]
        tokens.append(torch.tensor(story))
        targets.append(copy_targets(lengths, mentions))
    longest = max(map(len, tokens))
    # Of causal maps no row that counts sees the padding.
    padded = [F.pad(each, (0, longest - len(each), 0, longest - len(each))) for each in targets]
    return pad_sequence(tokens, batch_first=True), torch.stack(padded)


if __name__ == "__main__":
    run_script("attention", main)
