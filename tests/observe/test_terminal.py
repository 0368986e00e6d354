"""The output of a run in the terminal."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import numpy as np
import pytest

from data.encoding import Dataset
from data.tokenizer import fixed_tokenizer
from observe.roles import Outputs
from observe.terminal import RunConsole, Terminal, against_floor, duration, gzip_bpb
from tests.observe.conftest import METRICS, SUMMARY, run_context, trainer_at
from training.callback import EvalMetrics


def shown(
    live: bool,
    run: str = "runs/my run",
    has_page: bool = True,
    is_in_sweep: bool = False,
    sample: str = "Once [red] a hen.",
) -> str:
    out = io.StringIO(newline="")
    console = RunConsole(file=out, force_terminal=live, width=90, markup=False, highlight=False)
    context = run_context(
        Path(run),
        "trainer.max_steps=1000",
        "trainer.precision=fp32",
        write_sample=lambda: sample,
        has_page=has_page,
        is_in_sweep=is_in_sweep,
    )
    terminal = Terminal(context, Outputs(context), console)
    terminal.on_start(trainer_at(context, 0))
    trainer = trainer_at(context, 10)
    terminal.on_metrics(trainer, METRICS)
    terminal.on_step(trainer)
    terminal.on_eval(trainer, EvalMetrics(1.5, 0.55, 5000, 0.44))
    end = trainer_at(context, 1000)
    end.summary = SUMMARY
    terminal.on_end(end)
    terminal.on_result(end)
    return out.getvalue()


def test_the_summary_shows_results_and_the_next_commands() -> None:
    for live in (True, False):
        text = shown(live)
        for words in (
            "text, byte of 256 tokens, model of ",
            "parameters, adamw\ncpu, fp32: trainer.precision=fp32\n",
            "\nThe text is read 250 times; docs/text.md shows ",
            "25.0% above",
            "Validation  0.5500 bits per byte, 10.0% above the floor of 0.5000",
            "1,000 steps",
            "Once [red] a hen.",
            "python sample.py run='runs/my run'",
            "python look.py run='runs/my run' html='my run.html'",
            "To watch: tensorboard --logdir runs\n\n",
        ):
            assert words in text, words


def test_a_page_that_cannot_be_written_is_not_named() -> None:
    text = shown(live=False, has_page=False)
    assert "look.py" not in text and "python sample.py" in text


def test_a_run_of_a_sweep_shows_its_result_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """And on standard error that it has begun."""
    (line,) = shown(live=False, is_in_sweep=True).splitlines()
    assert line == "  0.5500 bits per byte, 10.0% above the floor of 0.5000, in 20 s: runs/my run"
    assert capsys.readouterr() == ("", "training my run, 1,000 steps\n")


def test_no_control_characters_without_a_terminal() -> None:
    assert "\x1b" not in shown(live=False)
    assert "\x1b" in shown(live=True)


def test_a_file_gets_the_exact_sample_and_a_terminal_a_visible_one() -> None:
    sample = "Once\r\x1b[2J " + "a hen " * 40
    assert sample + "\n" in shown(live=False, sample=sample)
    live = shown(live=True, sample=sample).rpartition("Sample:")[2]
    assert live.strip().startswith(r"Once\r\x1b[2J a hen") and "\x1b[2J" not in live


def test_a_run_that_fails_closes_its_bar_without_a_summary() -> None:
    out = io.StringIO()
    console = RunConsole(file=out, force_terminal=True, width=90)
    settings = ("trainer.max_steps=10", "observe.tensorboard=false")
    context = run_context(Path("runs/x"), *settings, write_sample=lambda: "never")
    terminal, trainer = Terminal(context, Outputs(context), console), trainer_at(context, 3)
    terminal.on_start(trainer_at(context, 0))
    terminal.on_step(trainer)
    terminal.on_end(trainer)
    assert terminal.bar.tasks[0].completed == 3
    assert terminal.bar.finished or not terminal.bar.live.is_started
    assert "never" not in out.getvalue() and "tensorboard" not in out.getvalue()


def test_against_floor() -> None:
    assert against_floor(0.6, None) == "0.6000 bits per byte"
    assert against_floor(0.6, 0.5) == "0.6000 bits per byte, 20.0% above the floor of 0.5000"
    assert against_floor(1.76, 0.5) == "1.7600 bits per byte, 3.5 times the floor of 0.5000"


def test_gzip_is_that_of_the_command(tmp_path: Path) -> None:
    text = b"Ada sold nine kettles, and Ben sold two. " * 300
    (tmp_path / "text").write_bytes(text)
    done = subprocess.run(["gzip", "-9", "-c", "-n", "text"], cwd=tmp_path, capture_output=True)
    tokens = np.frombuffer(text, np.uint8).astype(np.uint16)
    dataset = Dataset(fixed_tokenizer("byte"), tokens, tokens, None, "0")
    assert gzip_bpb(dataset) == pytest.approx(8 * len(done.stdout) / len(text), rel=0.02)


def test_durations_are_rounded() -> None:
    seconds = (7.24, 43.5, 59.5, 142.6, 3599.6, 3659, 3900)
    expected = ["7.2 s", "44 s", "1m 00s", "2m 23s", "1h 00m", "1h 01m", "1h 05m"]
    assert [duration(each) for each in seconds] == expected
