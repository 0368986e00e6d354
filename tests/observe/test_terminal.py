"""The output of a run in the terminal."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path

import pytest

from observe.roles import Outputs
from observe.terminal import RunConsole, Terminal, against_floor, duration, gzip_bpb
from tests.observe.conftest import METRICS, SUMMARY, dataset_of, run_context, trainer_at
from training.callback import EvalMetrics


def shown(
    live: bool,
    has_page: bool = True,
    is_in_sweep: bool = False,
    sample: str = "Once [red] a hen.",
    fails: bool = False,
) -> str:
    out = io.StringIO(newline="")
    console = RunConsole(file=out, force_terminal=live, width=90, markup=False, highlight=False)
    context = run_context(
        Path("runs/my run"),
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
    end = trainer if fails else trainer_at(context, 1000)
    end.summary = None if fails else SUMMARY
    terminal.on_end(end)
    if not fails:
        terminal.on_result(end)
    return out.getvalue()


def test_the_summary_shows_results_and_the_next_commands() -> None:
    """With control characters in a terminal alone."""
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
        assert ("\x1b" in text) == live


def test_a_page_that_cannot_be_written_is_not_named() -> None:
    text = shown(live=False, has_page=False)
    assert "look.py" not in text and "python sample.py" in text


def test_a_run_of_a_sweep_shows_its_result_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """And on standard error that it has begun."""
    (line,) = shown(live=False, is_in_sweep=True).splitlines()
    assert line == "  0.5500 bits per byte, 10.0% above the floor of 0.5000, in 20 s: runs/my run"
    assert capsys.readouterr() == ("", "training my run, 1,000 steps\n")


def test_a_file_gets_the_exact_sample_and_a_terminal_a_visible_one() -> None:
    sample = "Once\r\x1b[2J " + "a hen " * 40
    assert sample + "\n" in shown(live=False, sample=sample)
    live = shown(live=True, sample=sample).rpartition("Sample:")[2]
    assert live.strip().startswith(r"Once\r\x1b[2J a hen") and "\x1b[2J" not in live


def test_a_run_that_fails_closes_its_bar_without_a_summary() -> None:
    text = shown(live=True, fails=True)
    assert "  10/1000" in text.rpartition("\r")[2] and text.endswith("\n\n")
    assert not re.search("Validation|Sample|python", text)


def test_against_floor() -> None:
    assert against_floor(0.6, None) == "0.6000 bits per byte"
    assert against_floor(0.6, 0.5) == "0.6000 bits per byte, 20.0% above the floor of 0.5000"
    assert against_floor(1.76, 0.5) == "1.7600 bits per byte, 3.5 times the floor of 0.5000"


def test_gzip_is_that_of_the_command(tmp_path: Path) -> None:
    text = b"Ada sold nine kettles, and Ben sold two. " * 300
    (tmp_path / "text").write_bytes(text)
    done = subprocess.run(["gzip", "-9", "-c", "-n", "text"], cwd=tmp_path, capture_output=True)
    assert gzip_bpb(dataset_of([text.decode()])) == pytest.approx(
        8 * len(done.stdout) / len(text), rel=0.02
    )


def test_durations_are_rounded() -> None:
    seconds = (7.24, 43.5, 59.5, 142.6, 3599.6, 3659, 3900)
    expected = ["7.2 s", "44 s", "1m 00s", "2m 23s", "1h 00m", "1h 01m", "1h 05m"]
    assert [duration(each) for each in seconds] == expected
