"""sample.py and evaluate.py on a real run."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console as RichConsole

from common.errors import printable
from inference.generation import SamplingConfig
from inference.opening import open_run
from inference.writer import Writer
from model import record_attention
from sample import SampleConfig, colour, print_samples, show_attention
from tests.conftest import ROOT, command, metrics, succeed

LONG = ("max_new_tokens=60", "temperature=1")


def test_the_same_seed_gives_the_same_text(tiny: Path) -> None:
    one = succeed("sample", "prompt=Once", *LONG, cwd=tiny)
    assert one == succeed("sample", "run=runs/latest", "prompt=Once", *LONG, cwd=tiny)
    assert one != succeed("sample", "prompt=Once", *LONG, "seed=2", cwd=tiny)
    assert one.startswith("Once")


def test_several_samples_are_one_batch(tiny: Path) -> None:
    output = succeed("sample", "num_samples=3", "prompt=The", *LONG, cwd=tiny)
    heads = [line for line in output.splitlines() if line.startswith("--- ")]
    assert heads == ["--- 1 ---", "--- 2 ---", "--- 3 ---"]
    bodies = {body.partition(" ---")[2].strip() for body in output.split("--- ")[1:]}
    assert len(bodies) == 3 and all(body.startswith("The") for body in bodies)


def test_a_prompt_from_a_file_or_standard_input(tiny: Path, tmp_path: Path) -> None:
    """Without a byte order mark, and without the last line end; others stay."""
    (tmp_path / "prompt.txt").write_bytes(b"\xef\xbb\xbfOnce\r\na hen\r\n")
    few = "max_new_tokens=5"
    expected = succeed("sample", "prompt=Once\r\na hen", few, cwd=tiny)
    assert expected == succeed("sample", f"prompt_file={tmp_path}/prompt.txt", few, cwd=tiny)
    stdin = "Once\r\na hen\n"
    assert expected == succeed("sample", "prompt_file=-", few, cwd=tiny, stdin=stdin)


def test_prompts_of_interactive_mode(tiny: Path) -> None:
    few = "max_new_tokens=5"
    marked = "\ufeffOnce\r\nTwice\r\n"
    output = succeed("sample", "interactive=true", few, cwd=tiny, stdin=marked)
    assert output.count("> ") == 3 and "\ufeff" not in output
    assert output == succeed("sample", "interactive=true", few, cwd=tiny, stdin="Once\nTwice\n")


def test_ctrl_c_stops_a_text_and_then_the_program(tiny: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "sample.py"), "interactive=true", "max_new_tokens=1000000"],
        cwd=tiny,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdin and process.stdout
    output = process.stdout.fileno()

    def read_until(text: bytes) -> None:
        shown = b""
        while text not in shown:
            byte = os.read(output, 1)
            assert byte, process.communicate()
            shown += byte

    read_until(b"> ")
    for prompt in (b"Once", b"Twice"):  # a stopped text does not prevent the next
        process.stdin.write(prompt + b"\n")
        process.stdin.flush()
        read_until(prompt)
        process.send_signal(signal.SIGINT)
        read_until(b"\n> ")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0 and b"Traceback" not in errors


def as_script(sampled: SamplingConfig, show: str | None = None) -> SampleConfig:
    more: dict[str, Any] = {"prompt_file": None, "interactive": False, "num_samples": 1}
    return SampleConfig(
        **asdict(sampled), **more, run="", checkpoint="", show=show, device="", precision="fp32"
    )


def test_only_a_terminal_gets_control_characters_as_escapes(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a model, or who has asked it, has written."""
    opened = open_run(tiny / "runs/latest", "best")
    writer = Writer(opened.model, opened.tokenizer)
    characters = [chr(code) for code in (*range(32), *range(127, 160), 0x202E, 0x2066, 0x2069)]
    prompt = "é\u200d\u3000".join(characters)
    config = as_script(SamplingConfig(prompt, 1, 1.0, None, None, seed=1))
    terminal, file = io.StringIO(newline=""), io.StringIO(newline="")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    for stream in (terminal, file):
        monkeypatch.setattr(sys, "stdout", stream)
        print_samples(writer, config, "")
    assert file.getvalue().startswith(prompt)
    kept = [c if c in "\n\t" else c.encode("unicode_escape").decode() for c in characters]
    assert terminal.getvalue().startswith("é\u200d\u3000".join(kept))


def test_the_text_is_coloured_by_what_a_head_attends_to(tiny: Path) -> None:
    """With the weights of a pass without a cache; the text is the one without colours."""
    opened = open_run(tiny / "runs/latest", "best")
    writer = Writer(opened.model, opened.tokenizer)
    sampled = SamplingConfig("Once there was a hen", 8, 1.0, None, None, seed=1)
    config = as_script(sampled, show="L1H1")
    out = io.StringIO()
    console = RichConsole(file=out, force_terminal=True, color_system="truecolor", width=2000)
    show_attention(writer, config, console)
    shown = out.getvalue().rpartition("\x1b[2K")[2]
    plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown)
    assert "".join(plain.split()) == "".join(printable(writer.write(sampled)).split())

    ids = [
        *opened.tokenizer.encode_document(sampled.prompt),
        *(int(step[0]) for step in writer.tokens(sampled)),
    ]
    with record_attention(opened.model) as maps:
        opened.model(torch.tensor([ids[:-1]]))
    colours = [colour(weight) for weight in maps[1][0, 1, -1].tolist()]
    found = re.findall(r"48;2;(\d+);(\d+);(\d+)m", shown)
    assert len({*found}) > 3
    assert {f"black on rgb({','.join(each)})" for each in found} <= {*colours}


def test_an_evaluation_agrees_with_the_run(tiny: Path, tiny_run: Path) -> None:
    """Evaluating a checkpoint gives the validation loss that training measured, also as JSON."""
    measured = [line for line in metrics(tiny_run) if "val_loss" in line]
    best = min(measured, key=lambda line: line["val_loss"])
    output = succeed("evaluate", "batch_size=7", cwd=tiny)
    assert f"{best['val_loss']:.4f} nats per token" in output
    assert f"{best['val_bpb']:.4f} bits per byte" in output
    assert f"floor of {best['floor_bpb']:.4f}" in output
    done = command("evaluate", "json=true", "checkpoint=last", cwd=tiny)
    found, last = json.loads(done.stdout), measured[-1]
    assert done.stdout.count("\n") == 1 and found["bytes"] > found["tokens"] > 0
    assert (found["run"], found["step"], found["split"]) == (f"runs/{tiny_run.name}", 6, "val")
    assert done.stderr == f"evaluating {found['tokens']:,} tokens\n"
    for name, value in (("loss", "val_loss"), ("bpb", "val_bpb"), ("floor_bpb", "floor_bpb")):
        assert found[name] == pytest.approx(last[value], rel=1e-6)


def test_an_evaluation_of_another_text(tiny: Path, tmp_path: Path) -> None:
    """Every token except the first is scored exactly once, as in an explicit loop."""
    text = "Once upon a time there was a hen. " * 20
    (tmp_path / "hen.txt").write_text(text)
    opened = open_run(tiny / "runs/latest", "best")
    tokens = torch.tensor(opened.tokenizer.encode(text))
    for stride in (32, 12):  # of windows of 32, from each of which the targets are new
        nats, end = 0.0, 0
        for start in range(0, len(tokens) - 1, stride):
            window = tokens[start : start + 33]
            logits = opened.model(window[None, :-1])[0].double()
            losses = F.cross_entropy(logits, window[1:], reduction="none")[end - start :]
            nats, end = nats + losses.sum().item(), end + len(losses)
        given = ("data=text", f"data.path={tmp_path}/hen.txt", f"stride={stride}")
        output = succeed("evaluate", *given, cwd=tiny)
        assert f"{nats / (len(tokens) - 1):.4f} nats per token" in output
        assert f"({len(tokens) - 1:,} tokens" in output
    part = succeed("evaluate", *given, "eval_tokens=64", cwd=tiny)
    assert f"({len(tokens) - 1:,} tokens" not in part
    (tmp_path / "hen.txt").write_text("a")
    done = command("evaluate", "data=text", f"data.path={tmp_path}/hen.txt", cwd=tiny)
    assert done.returncode == 2 and "has 1 token, but needs 2" in done.stderr


def test_both_splits_together_are_scored_as_each_alone(tiny: Path, tiny_run: Path) -> None:
    """A tale follows the end of another one, whichever it is."""
    train, val, whole = (
        json.loads(succeed("evaluate", "json=true", f"split={split}", cwd=tiny))
        for split in ("train", "val", "all")
    )
    assert whole["tokens"] == train["tokens"] + val["tokens"]
    nats = sum(each["loss"] * each["tokens"] for each in (train, val))
    assert whole["loss"] * whole["tokens"] == pytest.approx(nats, rel=1e-6)
