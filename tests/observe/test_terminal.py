"""The output of a run in the terminal."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from observe.terminal import Terminal, against_floor
from tests.observe.conftest import observed_run
from training.observer import EvalMetrics, StepMetrics, Summary

SUMMARY = Summary(1.5, 0.55, 5000, 1.4, 0.52, 5000, 1000, 64000, 20.0, 3200.0, 935296, 0, 0.5)
METRICS = StepMetrics(2.0, 0.7, 0.01, 1.0, 640, 3200.0)


def shown(live: bool, run: str = "runs/my run", has_page: bool = True) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=live, width=90, markup=False, highlight=False)
    observed = observed_run(Path(run), None, 1000, (), lambda: "Once [red] a hen.", has_page)
    terminal = Terminal(observed, True, console, attention=True)
    terminal.on_start(0)
    terminal.on_step(10, METRICS)
    terminal.on_eval(10, EvalMetrics(1.5, 0.55, 5000, 0.44))
    terminal.on_end(1000, SUMMARY)
    return out.getvalue()


def test_the_summary_shows_results_and_the_next_commands() -> None:
    for live in (True, False):
        text = shown(live)
        for words in (
            "text, byte of 256 tokens, model of ",
            "parameters, adamw, cpu",
            "25.0% above",
            "Validation  0.5500 bits per byte, 10.0% above the floor of 0.5000",
            "1,000 steps",
            "Once [red] a hen.",
            "python sample.py run='runs/my run'",
            "python look.py run='runs/my run' html=storyteller.html",
            "To watch: tensorboard --logdir runs\n",
            ":6006/data/plugin_entry.html?name=attention\n\n",
        ):
            assert words in text, words


def test_a_page_that_cannot_be_written_is_not_named() -> None:
    text = shown(live=False, has_page=False)
    assert "look.py" not in text and "python sample.py" in text


def test_no_control_characters_without_a_terminal() -> None:
    assert "\x1b" not in shown(live=False)
    assert "\x1b" in shown(live=True)


def test_a_run_that_fails_closes_its_bar_without_a_summary() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=90)
    observed = observed_run(Path("runs/x"), max_steps=10, sample=lambda: "never")
    terminal = Terminal(observed, False, console)
    terminal.on_start(0)
    terminal.on_step(3, None)
    terminal.on_end(3, None)
    assert terminal.bar.tasks[0].completed == 3
    assert terminal.bar.finished or not terminal.bar.live.is_started
    assert "never" not in out.getvalue() and "tensorboard" not in out.getvalue()


def test_against_floor() -> None:
    assert against_floor(0.6, None) == "0.6000 bits per byte"
    assert against_floor(0.6, 0.5) == "0.6000 bits per byte, 20.0% above the floor of 0.5000"
