"""Builds those who watch a run, as the settings ask. What they need is imported only if they do."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from configs.schema import TrainConfig, flat
from data import Corpus, Dataset, Tokenizer
from data.tales import Tales
from model import GPT
from observe.metrics_file import MetricsFile
from sample import Writer
from training.checkpoint import Progress
from training.observer import Observer
from training.run import Run

N_STORIES = 4


def build_observers(
    config: TrainConfig,
    settings: DictConfig,
    run: Run,
    model: GPT,
    corpus: Corpus,
    dataset: Dataset,
    progress: Progress,
    device: torch.device,
    is_whole: bool,
) -> list[Observer]:
    """Those whom the settings ask to watch, in the order in which they are told.

    Where the model is not whole but cut over several ranks, nobody can call it alone: there are no
    samples, no maps and no embeddings (nor histograms, which train.py refuses).
    """
    samples = config.observe.samples
    writer = Writer(model, dataset.tokenizer, dataset.document_end)

    @lru_cache(maxsize=1)
    def sample_at(step: int) -> str:  # the last evaluation and the closing words show the same
        return writer.write(
            samples.prompt,
            samples.max_new_tokens,
            samples.seed,
            samples.temperature,
            samples.top_p,
        )

    def sample() -> str:
        if not is_whole:
            return "(no sample: trainer.parallel=fsdp has cut the model; sample.py writes one)"
        return sample_at(progress.step)

    observers: list[Observer] = [MetricsFile(run.metrics_file)]
    if config.observe.terminal:
        from observe.terminal import Terminal

        title = (
            f"{config.data.name}, {config.tokenizer.name} of {model.vocab_size:,} tokens, "
            f"model of {model.n_parameters:,} parameters, {config.optimizer.name}, {device.type}"
        )
        observers.append(
            Terminal(run.path, config.trainer.max_steps, sample, title, config.observe.tensorboard)
        )
    if config.observe.tensorboard:
        from torch.utils.tensorboard import SummaryWriter

        from observe.attention import PROBE_TOKENS, AttentionMaps
        from observe.embeddings import MAX_TOKENS, Embeddings
        from observe.heads import N_TEXTS, N_TOKENS, HeadScores
        from observe.histograms import Histograms
        from observe.tensorboard import TensorBoard

        # What a killed process wrote after its last checkpoint comes again: TensorBoard forgets it.
        events = SummaryWriter(str(run.path), purge_step=progress.step + 1 if progress.step else 0)
        if (watch := config.observe.attention).every and is_whole:
            probe, tokenizer = watch.probe, dataset.tokenizer
            start = torch.from_numpy(dataset.val[: N_TEXTS * N_TOKENS].astype(np.int64))
            tokens = start[:PROBE_TOKENS].tolist() if probe is None else tokenizer.encode(probe)
            pairs = [(token, tokenizer.decode_bytes([token])) for token in tokens]
            told = stories(corpus, tokenizer, config.model.context_length)
            scores = HeadScores(events, model, start, told)
            steps = (watch.every, watch.images_every, config.trainer.max_steps)
            observers.append(AttentionMaps(events, model, pairs, *steps, scores))
        if is_whole:
            spelled = [
                dataset.tokenizer.decode_bytes([token])
                for token in range(min(model.vocab_size, MAX_TOKENS))
            ]
            observers.append(Embeddings(run.path, model, spelled))
        if config.observe.histograms.every:
            observers.append(Histograms(events, model, config.observe.histograms.every))
        observers.append(
            TensorBoard(
                events,
                OmegaConf.to_yaml(settings, resolve=True),
                _hparams(settings),
                dataset.floor_bpb,
                sample,
            )
        )
    if config.observe.profile.steps:
        from observe.profile import Profile

        trainer = config.trainer
        pauses = (trainer.eval_every, trainer.checkpoint_every, trainer.max_steps)
        folder = run.path / "profile"
        observers.insert(0, Profile(folder, config.observe.profile, device, pauses))
    return observers


def stories(
    corpus: Corpus, tokenizer: Tokenizer, context_length: int
) -> tuple[Int[Tensor, "batch token"], Bool[Tensor, "batch token token"]] | None:
    """Tales of the validation split, padded to one length, and where a head that copies looks in
    them; None for a corpus whose words nobody knows to be repeated."""
    if not isinstance(corpus, Tales):
        return None
    from observe.heads import copy_targets

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


def _hparams(settings: DictConfig) -> dict[str, bool | int | float | str]:
    """The settings of what is trained; null as text."""
    elsewhere = ("run_dir", "resume", "cache_dir", "observe.", "experiment")
    return {
        name: "null" if value is None else value
        for name, value in flat(OmegaConf.to_container(settings, resolve=True)).items()
        if not name.startswith(elsewhere)
    }
