"""Compare the training loop with an explicit one; test resuming, bad steps and observers."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from configs.schema import preset
from data.batches import Batches, Windows
from data.tales import Tales
from data.tokenizer import train_bpe
from data.tokens import document_starts
from errors import UserError
from model import GPT, cross_entropy
from tests.conftest import every_device, small_config
from training import checkpoint, clock
from training.checkpoint import Checkpoints
from training.config import TrainerConfig, n_tokens
from training.device import autocast
from training.evaluation import largest_activations, measure
from training.feed import Batch, Feed
from training.observer import EvalMetrics, Observer, StepMetrics, Summary
from training.optimizer import Optimizer
from training.progress import EVALUATED, Progress, load_progress
from training.ranks import Ranks
from training.tensors import write_tensors
from training.trainer import Reports, Trainer, TrainingData
from training.weights import load_optimizer, load_weights

VOCAB, CONTEXT = 13, 8
CPU = torch.device("cpu")
CONFIG = TrainerConfig(
    max_steps=6,
    batch_size=4,
    eval_every=2,
    eval_tokens="all",
    final_eval_tokens="all",
    checkpoint_every=3,
    keep_checkpoints=1,
    log_every=2,
    grad_accumulation=1,
    max_grad_norm=1.0,
    max_bad_steps=2,
    device="cpu",
    precision="fp32",
    compile=False,
    parallel="ddp",
)
MUON = preset("optimizer", "muon", warmup_steps=0)
ADAMW = preset("optimizer", "adamw", lr=1e-2, warmup_steps=0, decay_fraction=1.0)
# Token 0 has one byte, every other token has two.
TOKEN_BYTES = torch.tensor([1] + [2] * (VOCAB - 1))


def tokens(n: int = 400) -> np.ndarray:
    return np.random.default_rng(0).integers(VOCAB, size=n).astype(np.uint16)


class Diary(Observer):
    """Records every call."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self.metrics: dict[int, StepMetrics] = {}
        self.evals: dict[int, EvalMetrics] = {}
        self.summary: Summary | None = None
        self.batches: list[tuple[int, int, int]] = []

    def on_start(self, step: int) -> None:
        self.events.append(("start", step))

    def on_step(self, step: int, metrics: StepMetrics | None) -> None:
        self.events.append(("step", step))
        if metrics:
            self.metrics[step] = metrics

    def on_eval_batch(self, step: int, done: int, total: int) -> None:
        self.batches.append((step, done, total))

    def on_eval(self, step: int, metrics: EvalMetrics) -> None:
        self.events.append(("eval", step))
        self.evals[step] = metrics

    def on_checkpoint(self, step: int, path: Path) -> None:
        self.events.append(("checkpoint", step))
        assert (path / "model.safetensors").is_file()

    def on_end(self, step: int, summary: Summary | None) -> None:
        self.events.append(("end", step))
        self.summary = summary


def trainer(
    folder: Path,
    config: TrainerConfig = CONFIG,
    dropout: float = 0.0,
    resume: bool = False,
    lr: float = 1e-2,
    observers: Sequence[Observer] = (),
    device: str = "cpu",
) -> tuple[Trainer, Diary]:
    torch.manual_seed(0)
    model = GPT(small_config(2, 2, 16, CONTEXT, dropout=dropout), VOCAB).to(device)
    optimizer = Optimizer(model, replace(ADAMW, lr=lr), max(6, config.max_steps))
    folder.mkdir(exist_ok=True)
    checkpoints, progress, diary = Checkpoints(folder / "checkpoints"), Progress(), Diary()
    if resume:
        load_weights(model, checkpoints.find("last", "run"))
        load_optimizer(optimizer, checkpoints.find("last", "run"))
        progress = load_progress(checkpoints.find("last", "run"))
    windows = Windows(tokens(101), CONTEXT, 4)
    data = TrainingData(
        seed=5,
        batch=Batches(tokens(), config.batch_size, CONTEXT, seed=5),
        validation=windows.part(n_tokens(config.eval_tokens)),
        final_validation=windows.part(n_tokens(config.final_eval_tokens)),
        token_bytes=TOKEN_BYTES,
    )
    reports = Reports(checkpoints, [diary, *observers])
    ranks = Ranks(torch.device(device))
    return Trainer(config, model, optimizer, data, reports, progress, ranks), diary


def poison(made: Trainer, steps: Container[int]) -> None:
    """Make the loss of these steps NaN, by the count of steps from 1."""
    made.model.register_forward_hook(
        lambda module, arguments, output: (
            output * math.nan if module.training and made.progress.step + 1 in steps else output
        )
    )


@contextmanager
def waiting_is_an_error(device: str, but: bool) -> Iterator[None]:
    """Where the host would wait for a GPU, PyTorch raises an error, except if `but`."""
    if device == "cuda" and not but:
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("default")


def weights(made: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in made.model.state_dict().items()}


def test_the_loop_matches_an_explicit_loop(tmp_path: Path) -> None:
    made, diary = trainer(tmp_path)
    torch.manual_seed(0)
    model = GPT(small_config(2, 2, 16, CONTEXT), VOCAB)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim == 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    plain = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    batch = Batches(tokens(), 4, CONTEXT, seed=5)
    losses, norms = [], []
    for step in range(1, 7):
        inputs, targets = batch(step - 1)
        loss = torch.nn.functional.cross_entropy(model(inputs).transpose(1, 2), targets)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        for group in plain.param_groups:
            group["lr"] = 1e-2 * (7 - step) / 6
        plain.step()
        plain.zero_grad()
        losses.append(loss.item())
    made.fit()
    for name, tensor in weights(made).items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=1e-4, atol=1e-6)
    for step, metrics in diary.metrics.items():
        assert metrics.train_loss == pytest.approx(losses[step - 1], rel=1e-5)
        assert metrics.grad_norm == pytest.approx(norms[step - 1], rel=1e-4)
        assert metrics.lr == pytest.approx(1e-2 * (7 - step) / 6)
        assert metrics.tokens == step * 4 * CONTEXT
        _, targets = batch(step - 1)
        bits = losses[step - 1] * targets.numel() / math.log(2)
        n_bytes = sum(1 if token == 0 else 2 for token in targets.flatten().tolist())
        assert metrics.train_bpb == pytest.approx(bits / n_bytes, rel=1e-5)


def test_observers_are_called_in_order(tmp_path: Path) -> None:
    made, diary = trainer(tmp_path)
    summary = made.fit()
    called = [event for event in diary.events if event[0] != "checkpoint"]
    expected: list[tuple[str, int]] = [("start", 0)]
    for step in range(1, 7):
        expected += [("step", step)] + [("eval", step)] * (step % 2 == 0)
    assert called == [*expected, ("end", 6)]
    assert {("checkpoint", 3), ("checkpoint", 6)} <= set(diary.events)
    assert sorted(diary.metrics) == [2, 4, 6]
    assert diary.summary == summary
    assert summary.val_loss == diary.evals[6].val_loss
    best = min(diary.evals.values(), key=lambda each: each.val_loss)
    assert summary.best_val_loss == best.val_loss
    assert summary.best_val_bpb == pytest.approx(best.val_bpb)
    assert summary.parameters == sum(p.numel() for p in made.model.parameters())


def test_gradient_accumulation_matches_the_whole_batch(tmp_path: Path) -> None:
    whole, _ = trainer(tmp_path / "whole")
    parts, _ = trainer(tmp_path / "parts", replace(CONFIG, grad_accumulation=4))
    whole.fit(), parts.fit()
    for a, b in zip(weights(whole).values(), weights(parts).values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_every_step_draws_dropout_anew(tmp_path: Path) -> None:
    """A pure function of the step: two equal runs draw the same."""
    drawn = []
    for name in ("one", "other"):
        made, _ = trainer(tmp_path / name, dropout=0.2)
        states: list[bytes] = []

        def remember(module: GPT, inputs: object, states: list[bytes] = states) -> None:
            if module.training:
                states.append(torch.get_rng_state().numpy().tobytes())

        made.model.register_forward_pre_hook(remember)
        made.fit()
        drawn.append(states)
    assert len({*drawn[0]}) == CONFIG.max_steps
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_resumed_run_takes_the_same_steps(tmp_path: Path, dropout: float) -> None:
    straight, _ = trainer(tmp_path / "straight", dropout=dropout)
    straight.fit()
    first, _ = trainer(tmp_path / "cut", replace(CONFIG, max_steps=3), dropout)
    first.fit()
    second, diary = trainer(tmp_path / "cut", dropout=dropout, resume=True)
    second.fit()
    assert diary.events[0] == ("start", 3)
    for a, b in zip(weights(straight).values(), weights(second).values(), strict=True):
        assert torch.equal(a, b)


def test_observers_do_not_change_the_result(tmp_path: Path) -> None:
    class DrawsRandomNumbers(Observer):
        def on_step(self, step: int, metrics: StepMetrics | None) -> None:
            torch.rand(step)

    plain, _ = trainer(tmp_path / "plain", dropout=0.2)
    watched, _ = trainer(tmp_path / "watched", dropout=0.2, observers=[DrawsRandomNumbers()])
    plain.fit(), watched.fit()
    for a, b in zip(weights(plain).values(), weights(watched).values(), strict=True):
        assert torch.equal(a, b)


def test_a_checkpoint_that_is_due_is_saved_before_the_evaluation(tmp_path: Path) -> None:
    made, diary = trainer(tmp_path, replace(CONFIG, checkpoint_every=2))
    made.fit()
    for step in (2, 4, 6):
        saved, evaluated = (diary.events.index((name, step)) for name in ("checkpoint", "eval"))
        assert saved < evaluated
    # 13 windows, the last one shorter, in batches of 4.
    assert diary.batches == [(step, done, 4) for step in (2, 4, 6) for done in (1, 2, 3, 4)]


@pytest.mark.parametrize("recorded", [True, False])
def test_an_evaluation_that_was_not_recorded_is_repeated(tmp_path: Path, recorded: bool) -> None:
    config = replace(CONFIG, checkpoint_every=2)
    first, _ = trainer(tmp_path, replace(config, max_steps=4))
    first.fit()
    last = tmp_path / "checkpoints/last"
    if not recorded:
        (last / EVALUATED).write_text('{"step": ')
    second, diary = trainer(tmp_path, config, resume=True)
    assert second.progress.evaluated == (4 if recorded else 2)
    second.fit()
    assert list(diary.evals) == ([6] if recorded else [4, 6])
    state = load_progress(last)
    assert state.evaluated == 6 and state.best_val_loss is not None
    straight, whole = trainer(tmp_path / "straight", config)
    straight.fit()
    assert state.best_val_loss == min(each.val_loss for each in whole.evals.values())
    names = ("best", "last")
    expected, found = (
        [Checkpoints(folder / "checkpoints").find(name, "run").name for name in names]
        for folder in (tmp_path / "straight", tmp_path)
    )
    assert found == expected


def test_a_repeated_step_forgets_its_evaluation(tmp_path: Path) -> None:
    """A run that is resumed from an earlier checkpoint trains with today's settings."""
    config = replace(CONFIG, checkpoint_every=2, keep_checkpoints=3, max_steps=4)
    first, _ = trainer(tmp_path, config)
    first.fit()
    (tmp_path / "checkpoints/step-000004/model.safetensors").unlink()  # resumes at step 2
    second, diary = trainer(tmp_path, config, resume=True, lr=1e-3)
    second.fit()
    assert list(diary.evals) == [4]
    best = load_progress(tmp_path / "checkpoints/last").best_val_loss
    assert best is not None and best <= diary.evals[4].val_loss


def test_evaluations_score_a_part_and_the_last_one_everything(tmp_path: Path) -> None:
    made, diary = trainer(tmp_path, replace(CONFIG, eval_tokens="40"))
    summary = made.fit()
    assert summary.val_tokens == 100
    assert {each.val_tokens for each in diary.evals.values()} == {40}
    best = min(diary.evals.values(), key=lambda each: each.val_loss)
    assert summary.best_val_loss == best.val_loss
    assert summary.best_val_bpb == pytest.approx(best.val_bpb)
    assert isinstance(made.model, GPT)
    whole = Windows(tokens(101), CONTEXT, 4)
    expected = measure(made.model, whole, TOKEN_BYTES, CPU, autocast(CPU, "fp32"))
    assert (summary.val_loss, summary.val_bpb) == (expected.loss, expected.bpb)


def test_an_evaluation_on_a_cpu_is_in_float32_although_steps_are_in_bfloat16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.device.trains_faster_in_bf16", lambda _: True)
    losses = []
    for precision in ("auto", "fp32"):
        made, diary = trainer(tmp_path / precision, replace(CONFIG, precision=precision))
        summary = made.fit()
        whole = Windows(tokens(101), CONTEXT, 4)
        expected = measure(made.model, whole, TOKEN_BYTES, CPU, nullcontext())
        assert summary.val_loss == diary.evals[6].val_loss == expected.loss
        losses.append(diary.metrics[6].train_loss)
    assert losses[0] != losses[1]


def test_evaluations_take_a_twentieth_of_the_time_by_default() -> None:
    config = replace(CONFIG, eval_tokens="auto", max_steps=1000, eval_every=100)
    # At most ten evaluations; a training token costs as much as three scored ones.
    scored = config.scored_tokens(tokens_per_step=120)
    assert scored is not None
    assert 10 * scored / (3 * 120 * 1000 + 10 * scored) == pytest.approx(0.05, abs=1e-4)
    extended = replace(config, max_steps=2000)
    assert extended.scored_tokens(120) == scored, "the best of both is comparable"
    for setting, expected in (("all", None), ("0", None), ("7", 7)):
        assert replace(config, eval_tokens=setting).scored_tokens(120) == expected


def test_the_time_of_evaluations_is_not_training_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 0.0

    class Hourglass(Observer):
        def on_step(self, step: int, metrics: StepMetrics | None) -> None:
            nonlocal seconds
            seconds += 1

        def on_eval_batch(self, step: int, done: int, total: int) -> None:
            nonlocal seconds
            seconds += 1000

    monkeypatch.setattr(clock.time, "perf_counter", lambda: seconds)
    made, diary = trainer(tmp_path, replace(CONFIG, log_every=3), observers=[Hourglass()])
    summary = made.fit()
    assert summary.seconds == 5  # the last second passes after the last step
    assert diary.metrics[6].tokens_per_second == pytest.approx(3 * 4 * CONTEXT / 3)


def test_tales_are_scored_whole_and_to_the_last_byte() -> None:
    """As by a loop that reads each tale alone, after the end of another one."""
    corpus = Tales(preset("data", "tales", n_bytes=20_000))
    tales = list(corpus.pieces("val"))
    tokenizer = train_bpe(tales, 400)
    text = np.array([token for tale in tales for token in tokenizer.encode(tale)], np.uint16)
    starts = document_starts(text, tokenizer, "\n\n")
    assert starts is not None and len(starts) == len(tales) > 2
    torch.manual_seed(0)
    model = GPT(small_config(1, 2, 16, 600), tokenizer.vocab_size).eval()
    token_bytes = torch.from_numpy(tokenizer.token_bytes)
    batches = Windows(text, 600, 3, starts)
    got = measure(model, batches, token_bytes, CPU, autocast(CPU, "fp32"))
    nats = 0.0
    for tale in tales:
        ids = torch.tensor([int(text[-1]), *tokenizer.encode(tale)])
        with torch.no_grad():
            nats += cross_entropy(model(ids[None, :-1]), ids[None, 1:], "sum").item()
    assert got.nats == pytest.approx(nats, rel=1e-6)
    assert got.bytes == len("".join(tales)) and got.tokens == len(text)


def test_checkpoints_last_and_best(tmp_path: Path) -> None:
    made, diary = trainer(tmp_path)
    made.fit()
    checkpoints = made.reports.checkpoints
    best_step = min(diary.evals, key=lambda step: diary.evals[step].val_loss)
    for name, step in (("last", 6), ("best", best_step)):
        state = json.loads((checkpoints.find(name, "run") / "state.json").read_text())
        assert state["step"] == step
    kept = {path.name for path in checkpoints.folder.glob("step-*")}
    assert kept == {"step-000006", f"step-{best_step:06d}"}
    assert isinstance(made.model, GPT)
    other = GPT(made.model.config, VOCAB)
    load_weights(other, checkpoints.find("last", "run"))
    for a, b in zip(other.parameters(), made.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_steps_that_are_not_read_at_once_are_the_same(tmp_path: Path, optimizer: str) -> None:
    """As on a GPU: the weights to the last bit, all events and measurements, also with skipped
    steps, one of them a measured one, and with gradients that are clipped."""
    config = replace(CONFIG, max_steps=12, max_bad_steps=5, eval_every=4, log_every=3)
    made = []
    for runs_ahead in (False, True):
        each, diary = trainer(tmp_path / str(runs_ahead), config, dropout=0.2)
        if optimizer == "muon":
            each.optimizer = Optimizer(each.model, MUON, config.max_steps)
        each.runs_ahead = runs_ahead
        poison(each, {2, 6, 7})
        summary = each.fit()
        made.append((diary.events, {**diary.metrics}, diary.evals, weights(each), summary))
    (events, metrics, evals, plain, summary), ahead = made
    assert events == ahead[0] and evals == ahead[2]
    assert summary.bad_steps == ahead[4].bad_steps == 3
    assert list(metrics) == list(ahead[1]) == [3, 9, 12]
    for step, measured in metrics.items():
        assert replace(measured, tokens_per_second=0.0) == replace(
            ahead[1][step], tokens_per_second=0.0
        )
    for name, tensor in plain.items():
        assert torch.equal(tensor, ahead[3][name]), name


@every_device
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_host_reads_nothing_inside_of_a_step(
    tmp_path: Path, device: str, optimizer: str
) -> None:
    """Reading a value, or a size that depends on values, would wait for a GPU; there, PyTorch then
    raises an error. Batches are read before the results of the step before."""

    class Calls(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.read: list[str] = []

        def __torch_dispatch__(
            self, function: Any, types: Any, arguments: Any = (), names: Any = None
        ) -> Any:
            if "local_scalar_dense" in str(function) or "nonzero" in str(function):
                self.read.append(f"{function} at {made.progress.step}")
            return function(*arguments, **(names or {}))

    config = replace(CONFIG, max_steps=9, log_every=4, max_bad_steps=9, eval_every=0)
    made, _ = trainer(tmp_path, config, dropout=0.1, device=device)
    if optimizer == "muon":
        made.optimizer = Optimizer(made.model, MUON, config.max_steps)
    made.runs_ahead = True
    asked: list[tuple[int, float]] = []

    def read_batch(step: int) -> Batch:
        asked.append((step, made.results.loss))
        return made.data.batch(step)

    made.feed = Feed(read_batch, torch.device(device))
    with Calls() as calls:
        for step in range(1, 9):
            before = len(calls.read)
            with waiting_is_an_error(device, but=step % 4 == 0):
                measured = made.train_step()
            assert (len(calls.read) > before) == (measured is not None) == (step % 4 == 0)
    assert [step for step, _ in asked] == [*range(9)]
    losses = [loss for _, loss in asked]
    assert all(math.isnan(loss) for loss in losses[:5]) and losses[5] == losses[8]


def test_so_many_bad_steps_are_read_in_time(tmp_path: Path) -> None:
    """Even if no step is measured, no step follows the last one that is allowed."""
    config = replace(CONFIG, max_steps=40, log_every=40, max_bad_steps=7, eval_every=0)
    made, diary = trainer(tmp_path, replace(config, checkpoint_every=0))
    made.runs_ahead = True
    poison(made, {2, 3, 4, *range(13, 40)})
    with pytest.raises(UserError, match=r"diverged at step 19: loss nan.*7 consecutive steps"):
        made.fit()
    assert made.progress.bad_steps == 10 and diary.events[-2:] == [("step", 18), ("end", 19)]


def test_a_skipped_step_is_known_before_its_evaluation(tmp_path: Path) -> None:
    """It has no checkpoint, and the time of the steps that are waited for is training time."""
    seconds = 0.0
    config = replace(CONFIG, max_steps=8, eval_every=3, log_every=100, checkpoint_every=0)
    made, diary = trainer(tmp_path, replace(config, max_bad_steps=9, keep_checkpoints=9))
    made.runs_ahead = True
    poison(made, {3})
    read = made.results.read

    def wait() -> None:
        nonlocal seconds
        seconds += len(made.results._unread)
        read()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made.results, "read", wait)
        patch.setattr(clock.time, "perf_counter", lambda: seconds)
        summary = made.fit()
    assert ("eval", 3) in diary.events and ("checkpoint", 3) not in diary.events
    assert ("checkpoint", 6) in diary.events
    assert summary.seconds == 8


def test_batches_are_those_of_their_steps() -> None:
    asked: list[int] = []

    def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        asked.append(step)
        return torch.tensor([step]), torch.tensor([-step])

    feed = Feed(batch, CPU)
    for step in (0, 1, 5, 5, 2):
        assert feed(step) == (step, -step)
        feed.prepare(step + 1)
    assert asked == [0, 1, 2, 5, 6, 5, 6, 2, 3]


def test_a_huge_learning_rate_raises(tmp_path: Path) -> None:
    made, diary = trainer(tmp_path, replace(CONFIG, max_steps=200, log_every=1), lr=1e30)
    with pytest.raises(UserError, match=r"optimizer\.lr.*blocks\.0"):
        made.fit()
    assert diary.events[-1][0] == "end"
    assert diary.summary is None


def test_a_bad_step_is_skipped_and_counted(tmp_path: Path) -> None:
    """A step whose loss is not finite leaves the weights unchanged."""
    made, _ = trainer(tmp_path, replace(CONFIG, eval_every=0, checkpoint_every=1))
    before: dict[int, dict[str, torch.Tensor]] = {}

    def poison(module: torch.nn.Module, arguments: object, logits: torch.Tensor) -> torch.Tensor:
        before[made.progress.step] = weights(made)
        return logits * math.nan if made.progress.step == 2 else logits

    handle = made.model.register_forward_hook(poison)
    while made.progress.step < 4:
        made.train_step()
    handle.remove()
    assert made.progress.bad_steps == 1 and made.progress.bad_in_a_row == 0
    for name, tensor in before[3].items():
        assert torch.equal(tensor, before[2][name])
        assert not torch.equal(weights(made)[name], tensor)


@pytest.mark.parametrize("runs_ahead", [False, True])
def test_observers_see_the_gradients_that_the_optimizer_uses(
    tmp_path: Path, runs_ahead: bool
) -> None:
    """At step 1 they are the clipped gradients of an explicit loop. A skipped step has none."""
    seen: dict[int, dict[str, torch.Tensor]] = {}

    class Watcher(Observer):
        def wants_gradients(self, step: int) -> bool:
            return step != 5

        def on_gradients(self, step: int) -> None:
            seen[step] = {
                name: each.grad.clone()
                for name, each in made.model.named_parameters()
                if each.grad is not None
            }

    config = replace(CONFIG, eval_every=0, max_grad_norm=0.1, log_every=6)
    made, _ = trainer(tmp_path, config, observers=[Watcher()])
    made.runs_ahead = runs_ahead
    torch.manual_seed(0)
    model = GPT(small_config(2, 2, 16, CONTEXT), VOCAB)
    inputs, targets = Batches(tokens(), 4, CONTEXT, seed=5)(0)
    torch.nn.functional.cross_entropy(model(inputs).transpose(1, 2), targets).backward()
    assert torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1) > 0.1
    made.model.register_forward_hook(
        lambda module, arguments, logits: logits * math.nan if made.progress.step == 2 else logits
    )
    made.fit()
    assert list(seen) == [1, 2, 4, 6]
    for name, each in model.named_parameters():
        assert each.grad is not None
        torch.testing.assert_close(seen[1][name], each.grad, rtol=1e-4, atol=1e-7)
    assert all(each.grad is None for each in made.model.parameters())


def test_no_checkpoint_is_saved_during_bad_steps(tmp_path: Path) -> None:
    made, diary = trainer(tmp_path, replace(CONFIG, eval_every=0, checkpoint_every=1))
    made.model.register_forward_hook(
        lambda module, arguments, logits: logits * math.nan if made.progress.step >= 2 else logits
    )
    with pytest.raises(UserError, match=r"diverged at step 4.*2 consecutive steps"):
        made.fit()
    assert [step for name, step in diary.events if name == "checkpoint"] == [1, 2]
    assert load_progress(made.reports.checkpoints.find("last", "run")).step == 2


def test_a_checkpoint_delayed_by_bad_steps_is_saved_later(tmp_path: Path) -> None:
    made, diary = trainer(tmp_path, replace(CONFIG, eval_every=0, checkpoint_every=3))
    made.model.register_forward_hook(
        lambda module, arguments, logits: logits * math.nan if made.progress.step == 2 else logits
    )
    made.fit()
    assert [step for name, step in diary.events if name == "checkpoint"] == [4, 6]


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    class Poisoner(Observer):
        def on_step(self, step: int, metrics: StepMetrics | None) -> None:
            with torch.no_grad():
                next(made.model.parameters()).fill_(math.inf)

    config = replace(CONFIG, eval_every=0, checkpoint_every=1)
    made, _ = trainer(tmp_path, config, observers=[Poisoner()])
    with pytest.raises(UserError, match="not finite"):
        made.fit()
    assert not made.reports.checkpoints


def checkpoint_bytes(folder: Path) -> dict[str, bytes]:
    """The tensors of all checkpoints; their wall-clock times differ."""
    found = sorted((folder / "checkpoints").glob("step-*/*.safetensors"))
    return {str(each.relative_to(folder)): each.read_bytes() for each in found}


def test_a_checkpoint_in_the_background_is_that_of_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training goes on while the one of step 1 is not written yet, and the next one waits for it.
    The files are those of a run that waits for each."""
    config = replace(CONFIG, checkpoint_every=3, keep_checkpoints=9, eval_every=0, max_steps=7)
    trainer(tmp_path / "one", config)[0].fit()
    reached, written = threading.Event(), []

    def write_later(path: Path, *arguments: object) -> None:
        assert reached.wait(60), "training waits"
        written.append(path.name)
        write_tensors(path, *arguments)  # type: ignore[arg-type]

    class Watcher(Observer):
        def on_step(self, step: int, metrics: StepMetrics | None) -> None:
            if step == 5:
                assert not written and not made.reports.checkpoints
                reached.set()

    monkeypatch.setattr(checkpoint, "write_tensors", write_later)
    in_background = replace(config, async_checkpoint=True)
    made, diary = trainer(tmp_path / "other", in_background, observers=[Watcher()])
    made.fit()
    assert checkpoint_bytes(tmp_path / "other") == checkpoint_bytes(tmp_path / "one")
    assert [step for name, step in diary.events if name == "checkpoint"] == [3, 6, 7]
    assert diary.events.index(("checkpoint", 3)) > diary.events.index(("step", 5))
    assert diary.events[-1] == ("end", 7)
    steps = [load_progress(path).step for path in made.reports.checkpoints.intact()]
    assert steps == [3, 6, 7]


def test_an_evaluation_waits_for_the_checkpoint_of_its_step(tmp_path: Path) -> None:
    config = replace(CONFIG, checkpoint_every=1, keep_checkpoints=9)
    trainer(tmp_path / "one", config)[0].fit()
    made, _ = trainer(tmp_path / "other", replace(config, async_checkpoint=True))
    made.fit()
    assert checkpoint_bytes(tmp_path / "other") == checkpoint_bytes(tmp_path / "one")
    for name in ("best", "last"):
        mine, theirs = (
            load_progress(Checkpoints(tmp_path / each / "checkpoints").find(name, "run"))
            for each in ("one", "other")
        )
        assert replace(mine, seconds=0.0) == replace(theirs, seconds=0.0)


@pytest.mark.parametrize("last", [3, 6])
def test_a_disk_that_refuses_is_reported_at_the_next_step(tmp_path: Path, last: int) -> None:
    """Also at the end."""
    (tmp_path / "checkpoints").write_text("is not a folder")
    config = replace(CONFIG, eval_every=0, checkpoint_every=last, async_checkpoint=True)
    made, diary = trainer(tmp_path, config)
    train_step = made.train_step

    def wait_and_step() -> StepMetrics | None:
        if made.saving:
            made.saving.exception(60)
        return train_step()

    made.train_step = wait_and_step  # type: ignore[method-assign]
    with pytest.raises(UserError, match="the checkpoint cannot be written"):
        made.fit()
    assert diary.events[-2:] == [("step", min(last + 1, 6)), ("end", min(last + 1, 6))]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_recomputed_blocks_change_nothing_but_memory(tmp_path: Path, precision: str) -> None:
    """The same weights, with dropout; the same names; little is kept for the backward pass."""
    config = replace(CONFIG, precision=precision, eval_every=0)
    kept, weighed = [], []
    for recompute in (False, True):
        made, _ = trainer(tmp_path / str(recompute), config, dropout=0.2)
        names = [name for name, _ in made.model.named_parameters()]
        if recompute:
            made.model.checkpoint_activations()  # type: ignore[operator]
        assert [name for name, _ in made.model.named_parameters()] == names
        sizes: list[int] = []

        def weigh(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(weigh, lambda tensor: tensor):
            made.train_step()
        made.fit()
        kept.append(weights(made))
        weighed.append(sum(sizes))
    for name, each in kept[0].items():
        assert torch.equal(each, kept[1][name]), name
    assert weighed[1] < weighed[0] / 2


@pytest.mark.parametrize("broken", [None, 2])
def test_the_largest_activations_are_those_of_the_batch(broken: int | None) -> None:
    """The model reads one sequence at a time; NaN in one of them is reported."""
    torch.manual_seed(0)
    model = GPT(small_config(1, 2, 16, CONTEXT), VOCAB)
    inputs = torch.randint(VOCAB - 1, (4, CONTEXT))
    if broken is not None:
        inputs[broken, 3] = VOCAB - 1
        with torch.no_grad():
            model.token_embedding.weight[VOCAB - 1] = math.nan
    found = largest_activations(model, inputs, autocast(CPU, "fp32"))
    assert {"token_embedding", "blocks.0", "final_norm", "unembedding"} <= found.keys()
    with torch.no_grad():
        for name, expected in (
            ("token_embedding", model.token_embedding(inputs)),
            ("unembedding", model(inputs)),
        ):
            largest = expected.abs().max().item()
            assert found[name] == pytest.approx(largest, rel=1e-5, nan_ok=True)
            assert math.isnan(found[name]) == (broken is not None)


def test_measure_counts_every_target_once() -> None:
    torch.manual_seed(0)
    model = GPT(small_config(1, 2, 16, CONTEXT, dropout=0.5), VOCAB).train()
    text = tokens(61)
    got = measure(model, Windows(text, CONTEXT, 3), TOKEN_BYTES, CPU, autocast(CPU, "fp32"))
    assert model.training
    model.eval()
    nats, n_bytes = 0.0, 0
    for position in range(1, len(text)):
        start = (position - 1) // CONTEXT * CONTEXT
        context = torch.from_numpy(text[start:position].astype(np.int64))[None]
        with torch.no_grad():
            log_probabilities = model(context)[0, -1].double().log_softmax(0)
        nats -= log_probabilities[int(text[position])].item()
        n_bytes += 1 if text[position] == 0 else 2
    assert (got.tokens, got.bytes) == (60, n_bytes)
    assert got.nats == pytest.approx(nats, rel=1e-5)
    assert got.loss == pytest.approx(nats / 60, rel=1e-5)
    assert got.bpb == pytest.approx(nats / math.log(2) / n_bytes, rel=1e-5)


def test_cross_entropy_of_uniform_logits() -> None:
    logits = torch.zeros(2, 3, VOCAB, dtype=torch.bfloat16)
    targets = torch.zeros(2, 3, dtype=torch.long)
    assert cross_entropy(logits, targets).item() == pytest.approx(math.log(VOCAB), rel=1e-6)
