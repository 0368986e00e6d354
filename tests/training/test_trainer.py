"""Compare the training loop with an explicit one; test resuming, bad steps and observers."""

from __future__ import annotations

import copy
import json
import math
import signal
import threading
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from common.errors import UserError
from data.batches import UNSCORED, EvalBatches
from launch.schema import preset
from model import GPT
from store.checkpoint import Checkpoints, load_state
from store.run import Summary
from tests.conftest import every_device, last_checkpoint, seal, small_config
from tests.training.conftest import (
    ADAMW,
    CONFIG,
    CONTEXT,
    MUON,
    TOKEN_BYTES,
    VOCAB,
    make_trainer,
    smoothed_loss,
    tokens,
    unevenly,
)
from training import loss_scale
from training.callback import Callback, EvalMetrics, StepMetrics
from training.config import TrainerConfig
from training.distributed import Ranks
from training.evaluation import Evaluation, measure
from training.optimizer import Optimizer, OptimizerConfig
from training.trainer import Trainer, next_token_loss

CPU = torch.device("cpu")
SGD = preset("optimizer", "sgd", warmup_steps=0)
both_optimizers = pytest.mark.parametrize("optimizer", [ADAMW, MUON], ids=["adamw", "muon"])


class Diary(Callback):
    """Records every call."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self.metrics: dict[int, StepMetrics] = {}
        self.evals: dict[int, EvalMetrics] = {}
        self.summary: Summary | None = None
        self.batches: list[tuple[int, int, int]] = []

    def on_start(self, trainer: Trainer) -> None:
        self.events.append(("start", trainer.state.step))

    def on_step(self, trainer: Trainer) -> None:
        self.events.append(("step", trainer.state.step))

    def on_metrics(self, trainer: Trainer, metrics: StepMetrics) -> None:
        self.metrics[trainer.state.step] = metrics

    def on_eval_batch(self, trainer: Trainer, done: int, total: int) -> None:
        self.batches.append((trainer.state.step, done, total))

    def on_eval(self, trainer: Trainer, metrics: EvalMetrics) -> None:
        self.events.append(("eval", trainer.state.step))
        self.evals[trainer.state.step] = metrics

    def on_checkpoint(self, trainer: Trainer, path: Path) -> None:
        self.events.append(("checkpoint", trainer.state.step))
        assert (path / "model.safetensors").is_file()

    def on_end(self, trainer: Trainer) -> None:
        self.events.append(("end", trainer.state.step))
        self.summary = trainer.summary


def trainer(
    folder: Path,
    config: TrainerConfig = CONFIG,
    resume: bool = False,
    observers: Sequence[Callback] = (),
    **options: Any,
) -> tuple[Trainer, Diary]:
    """A trainer with a diary as the first observer."""
    diary, checkpoints = Diary(), Checkpoints(folder / "checkpoints")
    last = checkpoints.find("last", "run") if resume else None
    return make_trainer(
        folder, config, checkpoint=last, observers=[diary, *observers], **options
    ), diary


def fit(made: Trainer) -> Summary:
    summary = made.fit()
    assert summary is not None
    return summary


def poison(made: Trainer, steps: Container[int]) -> None:
    """Make the loss of these steps NaN, by the count of steps from 1."""

    def spoil(module: nn.Module, arguments: object, output: Any) -> Any:
        if not module.training or made.state.step + 1 not in steps:
            return output
        return output * math.nan

    made.model.register_forward_hook(spoil)


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


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize(("smoothing", "parts"), [(0.0, 1), (0.0, 4), (0.3, 2)])
def test_the_loop_matches_an_explicit_loop(tmp_path: Path, smoothing: float, parts: int) -> None:
    """With the model's own loss, and with one that the user gives; with fewer targets from row to
    row, so that the parts of a batch have different numbers of them."""
    loss = smoothed_loss if smoothing else next_token_loss
    made, diary = trainer(tmp_path, replace(CONFIG, grad_accumulation=parts), loss=loss)
    batch = made.batches = unevenly(made.batches)
    model = copy.deepcopy(made.model)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim == 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    plain = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    losses, norms = [], []
    for step in range(1, 7):
        inputs, targets = batch(step - 1)
        logits, scored = model(inputs).flatten(0, 1), targets.flatten()
        objective = F.cross_entropy(logits, scored, label_smoothing=smoothing)
        objective.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        for group in plain.param_groups:
            group["lr"] = 1e-2 * (7 - step) / 6
        plain.step()
        plain.zero_grad()
        losses.append(objective.item())
    made.fit()
    torch.testing.assert_close(weights(made), {**model.state_dict()}, rtol=1e-4, atol=1e-6)
    for step, metrics in diary.metrics.items():
        assert metrics.train_loss == pytest.approx(losses[step - 1], rel=1e-5)
        assert metrics.grad_norm == pytest.approx(norms[step - 1], rel=1e-4)
        assert metrics.lr == pytest.approx(1e-2 * (7 - step) / 6)
        assert metrics.tokens == step * 4 * CONTEXT
        _, targets = batch(step - 1)
        counted = targets[targets != UNSCORED].tolist()
        bits = losses[step - 1] * len(counted) / math.log(2)
        n_bytes = sum(1 if token == 0 else 2 for token in counted)
        assert metrics.train_bpb == pytest.approx(bits / n_bytes, rel=1e-5)


def test_observers_are_called_in_order(tmp_path: Path) -> None:
    """A checkpoint that is due is saved before the evaluation; a best one after it."""
    made, diary = trainer(tmp_path, replace(CONFIG, checkpoint_every=2))
    summary = fit(made)
    expected: list[tuple[str, int]] = [("start", 0)]
    for step in range(1, 7):
        expected.append(("step", step))
        if step % 2 == 0:
            expected += [("checkpoint", step), ("eval", step)]
    assert diary.events == [*expected, ("end", 6)]
    # 13 windows, the last one shorter, in batches of 4.
    assert diary.batches == [(step, done, 4) for step in (2, 4, 6) for done in (1, 2, 3, 4)]
    assert sorted(diary.metrics) == [2, 4, 6]
    assert diary.summary == summary
    assert summary.val_loss == diary.evals[6].val_loss
    assert summary.parameters == sum(p.numel() for p in made.model.parameters())


@pytest.mark.parametrize(
    ("optimizer", "precision"), [(ADAMW, "fp16"), (MUON, "fp32"), (SGD, "fp32")]
)
def test_a_resumed_run_takes_the_same_steps(
    tmp_path: Path, optimizer: OptimizerConfig, precision: str
) -> None:
    config = replace(CONFIG, precision=precision)
    choices: dict[str, Any] = {"dropout": 0.2, "optimizer": optimizer}
    straight, _ = trainer(tmp_path / "straight", config, **choices)
    straight.fit()
    first, _ = trainer(tmp_path / "cut", replace(config, max_steps=3), **choices)
    first.fit()
    second, diary = trainer(tmp_path / "cut", config, resume=True, **choices)
    assert second.state.loss_scale == first.state.loss_scale
    second.fit()
    assert diary.events[0] == ("start", 3)
    assert_same(weights(second), weights(straight))


@pytest.mark.parametrize("first_scale", [2.0**16, 2.0**40])
def test_the_loss_scale_of_float16_is_that_of_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_scale: float
) -> None:
    """The larger first one overflows for several steps, which are skipped but do not end the run;
    afterwards it doubles again."""
    monkeypatch.setattr(loss_scale, "FIRST", first_scale)
    monkeypatch.setattr(loss_scale, "GROWTH_STEPS", 5)
    config = replace(CONFIG, precision="fp16", max_steps=60, max_bad_steps=2, eval_every=0)
    made, _ = trainer(tmp_path, config)
    model = copy.deepcopy(made.model)
    reference = Optimizer(model, made.optimizer.config, config.max_steps)
    scaler = torch.amp.GradScaler("cpu", first_scale, growth_interval=5)
    still = torch.optim.SGD(model.parameters(), lr=0.0)  # through which the scaler reads gradients
    skipped = 0
    made.call("on_start")
    for step in range(config.max_steps):
        inputs, targets = made.batches(step)
        with torch.autocast("cpu", torch.float16):
            loss = model(inputs, targets=targets)
        scaler.scale(loss).backward()
        scaler.unscale_(still)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        reference.step(step + 1, norm.isfinite())
        skipped += not norm.isfinite()
        scaler.step(still)
        scaler.update()
        reference.zero_grad()

        made.step(inputs, targets)
        made.call("on_step")
        assert made.state.loss_scale == scaler.get_scale(), step
        assert_same(weights(made), {**model.state_dict()})
    made.call("on_end")
    assert made.state.bad_steps == skipped > config.max_bad_steps


@pytest.mark.parametrize("recorded", [True, False])
def test_an_evaluation_that_was_not_recorded_is_repeated(tmp_path: Path, recorded: bool) -> None:
    config = replace(CONFIG, checkpoint_every=2, keep_checkpoints=2)
    first, _ = trainer(tmp_path, replace(config, max_steps=4))
    first.fit()
    last = last_checkpoint(tmp_path)
    assert last.name == "step-000004"
    if not recorded:
        earlier = json.loads((last.with_name("step-000002") / "state.json").read_text())
        before = ("evaluated", "best_step", "best_val_loss", "best_val_tokens")
        seal(last, **{name: earlier[name] for name in before})
    second, diary = trainer(tmp_path, config, resume=True)
    assert second.state.evaluated == (4 if recorded else 2)
    second.fit()
    assert list(diary.evals) == ([6] if recorded else [4, 6])
    state = load_state(last_checkpoint(tmp_path))
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


def test_evaluations_score_a_part_and_the_last_one_everything(tmp_path: Path) -> None:
    class Spoiler(Callback):
        def on_step(self, trainer: Trainer) -> None:
            if trainer.state.step == 5:
                with torch.no_grad():
                    next(made.model.parameters()).normal_(std=9)

    config = replace(CONFIG, eval_tokens="40")
    made, diary = trainer(tmp_path, config, observers=[Spoiler()])
    (evaluation,) = (each for each in made.callbacks if isinstance(each, Evaluation))
    evaluation.part.bits, evaluation.whole.bits = 9.0, 50.0
    summary = fit(made)
    assert diary.evals[6].val_loss > 1.1 * summary.best_val_loss, "the last one is not the best"
    assert summary.val_tokens == 100
    assert {each.val_tokens for each in diary.evals.values()} == {40}
    best = min(diary.evals.values(), key=lambda each: each.val_loss)
    assert summary.best_val_loss == best.val_loss
    assert summary.best_val_bpb == pytest.approx(best.val_bpb)
    assert isinstance(made.model, GPT)
    whole = EvalBatches(tokens(101), CONTEXT, 4)
    expected = measure(made.model, whole, TOKEN_BYTES, CPU, nullcontext())
    assert (summary.val_loss, summary.val_bpb) == (expected.loss, expected.bpb)
    assert summary.floor_bpb == 50 / expected.bytes


def test_evaluations_and_what_came_before_are_not_in_the_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes one second here, and a batch of an evaluation a hundred."""

    class Clock(Callback):
        now = 0.0

        def on_step(self, trainer: Trainer) -> None:
            self.now += 1

        def on_eval_batch(self, trainer: Trainer, done: int, total: int) -> None:
            self.now += 100

    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    made, diary = trainer(tmp_path, replace(CONFIG, eval_every=2))
    made.callbacks.insert(0, clock)
    summary = fit(made)
    assert {each.tokens_per_second for each in diary.metrics.values()} == {4 * CONTEXT}
    assert (summary.seconds, summary.tokens_per_second) == (6, 4 * CONTEXT)


def test_a_batch_that_ranks_cannot_share_is_refused() -> None:
    config = replace(CONFIG, batch_size=6, grad_accumulation=2)
    config.check_ranks(3)
    with pytest.raises(UserError, match=r"^trainer\.batch_size: 6 cannot be divided among 2 ranks"):
        config.check_ranks(2)


@pytest.mark.parametrize(("every", "steps"), [(100, 100), (0, 6)])
def test_automatic_evaluations_score_a_fortieth(every: int, steps: int) -> None:
    """Of what it could read in the time of the steps: three tokens for each of theirs."""
    config = replace(CONFIG, eval_tokens="auto", eval_every=every, max_steps=6)
    scored = config.scored_tokens(2048)
    assert scored is not None
    assert scored / (scored + 3 * 2048 * steps) == pytest.approx(1 / 40, rel=1e-3)


@both_optimizers
def test_when_steps_are_read_changes_nothing(tmp_path: Path, optimizer: OptimizerConfig) -> None:
    """The weights to the last bit, and all evaluations, also with skipped steps and with gradients
    that are clipped. A step that was skipped is not measured."""
    config = replace(CONFIG, max_steps=12, max_bad_steps=5, eval_every=4, checkpoint_every=0)
    made = []
    for log_every in (1, 3, 100):
        settings = replace(config, log_every=log_every)
        choices: dict[str, Any] = {"dropout": 0.2, "optimizer": optimizer}
        each, diary = trainer(tmp_path / str(log_every), settings, **choices)
        poison(each, {2, 6, 7})
        summary = fit(each)
        assert summary.bad_steps == 3
        made.append((diary, weights(each)))
    (every, expected), *others = made
    assert [[*diary.metrics] for diary, _ in made] == [
        [1, 3, 4, 5, 8, 9, 10, 11, 12],
        [3, 9, 12],
        [12],
    ]
    for diary, found in others:
        assert [each for each in diary.events if each[0] != "checkpoint"] == [
            each for each in every.events if each[0] != "checkpoint"
        ]
        assert diary.evals == every.evals
        for step, measured in diary.metrics.items():
            rate = measured.tokens_per_second
            assert measured == replace(every.metrics[step], tokens_per_second=rate)
        assert_same(found, expected)


@every_device
@both_optimizers
def test_the_host_reads_nothing_between_measured_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, optimizer: OptimizerConfig
) -> None:
    """Reading a value, or a size that depends on values, would wait for a GPU; there, PyTorch then
    raises an error."""
    read: list[str] = []

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, arguments: Any = (), names: Any = None
        ) -> Any:
            if "local_scalar_dense" in str(function) or "nonzero" in str(function):
                read.append(f"{function} at {made.state.step}")
            return function(*arguments, **(names or {}))

    def tolist(self: torch.Tensor) -> Any:
        read.append(f"tolist at {made.state.step}")
        return without_a_call(self)

    without_a_call = torch.Tensor.tolist  # of any function that is dispatched
    monkeypatch.setattr(torch.Tensor, "tolist", tolist)
    config = replace(CONFIG, max_steps=9, log_every=4, max_bad_steps=9, eval_every=0)
    config = replace(config, checkpoint_every=0)
    ranks = Ranks(torch.device(device))
    made, _ = trainer(tmp_path, config, dropout=0.1, optimizer=optimizer, ranks=ranks)
    made.call("on_start")
    with Calls():
        for step in range(1, 9):
            before = len(read)
            with waiting_is_an_error(device, but=step % 4 == 0):
                made.step(*made.batches(made.state.step))
                in_step = read[before:]
                made.call("on_step")
            assert not in_step
            assert (len(read) > before) == (step % 4 == 0), read[before:]
    made.call("on_end")


def test_so_many_bad_steps_are_read_in_time(tmp_path: Path) -> None:
    """Even if no step is measured, no step follows the last one that is allowed."""
    config = replace(CONFIG, max_steps=40, log_every=40, max_bad_steps=7, eval_every=0)
    made, diary = trainer(tmp_path, replace(config, checkpoint_every=0))
    poison(made, {2, 3, 4, *range(13, 40)})
    with pytest.raises(UserError, match=r"diverged at step 19: loss nan.*7 consecutive steps"):
        made.fit()
    assert made.state.bad_steps == 10 and diary.events[-2:] == [("step", 18), ("end", 19)]


def test_no_checkpoint_is_saved_during_bad_steps(tmp_path: Path) -> None:
    made, diary = trainer(tmp_path, replace(CONFIG, eval_every=0, checkpoint_every=1))
    poison(made, range(3, 9))
    with pytest.raises(UserError, match=r"diverged at step 4.*2 consecutive steps"):
        made.fit()
    assert [step for name, step in diary.events if name == "checkpoint"] == [1, 2]
    assert load_state(Checkpoints(tmp_path / "checkpoints").find("last", "run")).step == 2


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    class Poisoner(Callback):
        def on_step(self, trainer: Trainer) -> None:
            with torch.no_grad():
                next(made.model.parameters()).fill_(math.inf)

    config = replace(CONFIG, eval_every=0, checkpoint_every=1)
    made, _ = trainer(tmp_path, config, observers=[Poisoner()])
    with pytest.raises(UserError, match="not finite"):
        made.fit()
    assert not Checkpoints(tmp_path / "checkpoints").steps


class Sends(Callback):
    """Sends signals to its own process, at once, after a step or in its evaluation. Before the
    other callbacks, it is as if they had come in the step."""

    def __init__(self, step: int, *numbers: int, in_evaluation: bool = False) -> None:
        self.step, self.numbers, self.in_evaluation = step, numbers, in_evaluation

    def on_step(self, trainer: Trainer) -> None:
        if trainer.state.step == self.step and not self.in_evaluation:
            self.send()

    def on_eval_batch(self, trainer: Trainer, done: int, total: int) -> None:
        if trainer.state.step == self.step and self.in_evaluation and done == 1:
            self.send()

    def send(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, self.numbers)
        for number in self.numbers:
            # To this thread: another one, such as of TensorBoard, would take it at once.
            signal.pthread_kill(threading.get_ident(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self.numbers)


@pytest.mark.parametrize(
    ("names", "in_evaluation"),
    [("INT", False), ("TERM", True), ("HUP INT", False), ("INT TERM", True), ("HUP TERM", False)],
)
def test_a_signal_stops_a_run_that_then_goes_on(
    tmp_path: Path, names: str, in_evaluation: bool
) -> None:
    """After the step, with a checkpoint, and without the evaluation that was not complete. Two at
    once are as one."""
    numbers = [getattr(signal, f"SIG{name}") for name in names.split()]
    before = signal.default_int_handler  # the tests may have been started to ignore the signal
    for number in numbers:
        signal.signal(number, before)
    straight, whole = trainer(tmp_path / "straight", dropout=0.2)
    straight.fit()
    sender = Sends(4, *numbers, in_evaluation=in_evaluation)
    first, diary = trainer(tmp_path / "cut", dropout=0.2)
    first.callbacks.insert(0, sender)
    assert first.fit() is None and first.stop_signal == numbers[0]
    assert all(signal.getsignal(number) == before for number in numbers)
    assert diary.events[-1] == ("end", 4) and diary.summary is None and list(diary.evals) == [2]
    assert len([each for each in diary.batches if each[0] == 4]) == int(in_evaluation)
    assert load_state(last_checkpoint(tmp_path / "cut")).step == 4
    second, diary = trainer(tmp_path / "cut", dropout=0.2, resume=True)
    second.fit()
    assert {2: whole.evals[2], **diary.evals} == whole.evals
    assert_same(weights(second), weights(straight))


def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    """As under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        made, _ = trainer(tmp_path)
        made.callbacks.insert(0, Sends(2, signal.SIGHUP))
        fit(made)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_to_save_writes_a_checkpoint_after_the_step(tmp_path: Path) -> None:
    config = replace(CONFIG, eval_every=0, checkpoint_every=0)
    made, diary = trainer(tmp_path, config)
    made.callbacks.insert(0, Sends(2, signal.SIGUSR1))
    fit(made)
    assert [step for name, step in diary.events if name == "checkpoint"] == [2, 6]


def test_all_callbacks_end_and_the_first_error_is_raised(tmp_path: Path) -> None:
    class FailsAtTheEnd(Callback):
        def on_end(self, trainer: Trainer) -> None:
            raise OSError("at the end")

    class FailsInAStep(Callback):
        def on_step(self, trainer: Trainer) -> None:
            raise UserError("in a step")

    made, diary = trainer(tmp_path, observers=[FailsInAStep()])
    made.callbacks.insert(0, FailsAtTheEnd())
    with pytest.raises(UserError, match="in a step"):
        made.fit()
    assert diary.events[-1] == ("end", 1)


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
            made.step(*made.batches(0))
        made.fit()
        kept.append(weights(made))
        weighed.append(sum(sizes))
    assert_same(*kept)
    assert weighed[1] < weighed[0] / 2


def test_measure_counts_every_target_once() -> None:
    torch.manual_seed(0)
    model = GPT(small_config(1, 2, 16, CONTEXT, dropout=0.5), VOCAB).train()
    text = tokens(61)
    got = measure(model, EvalBatches(text, CONTEXT, 3), TOKEN_BYTES, CPU, nullcontext())
    assert model.training
    model.eval()
    nats, n_bytes = 0.0, sum(1 if token == 0 else 2 for token in text[1:])
    for start in range(0, 60, CONTEXT):
        window = torch.from_numpy(text[start : start + CONTEXT + 1].astype(np.int64))
        with torch.no_grad():
            log_probabilities = model(window[None, :-1])[0].double().log_softmax(-1)
        nats -= log_probabilities.gather(1, window[1:, None]).sum().item()
    assert (got.tokens, got.bytes) == (60, n_bytes)
    assert got.nats == pytest.approx(nats, rel=1e-5)
    assert got.loss == pytest.approx(nats / 60, rel=1e-5)
    assert got.bpb == pytest.approx(nats / math.log(2) / n_bytes, rel=1e-5)
