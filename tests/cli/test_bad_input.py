"""Every user error exits with status 2, prints one line and changes nothing on disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch.mistakes import one_line_errors
from tests.conftest import ROOT, TINY, command, files, succeed

# (script, arguments, words that the error line must contain). `{tiny}` is replaced by the
# directory of a trained run.
MISTAKES: list[tuple[str, list[str], list[str]]] = [
    # Unknown names
    ("train", ["max_steps=4"], ["max_steps: no such setting", "trainer.max_steps?"]),
    ("train", ["data.path=notes.txt"], ["data.path", "no such setting", "data=text"]),
    ("train", ["data=txet"], ["data: 'txet' is unknown; choose one of", "did you mean text?"]),
    ("train", ["hydra/launcher=x"], ["hydra/launcher: 'x' is unknown; choose one of basic"]),
    ("train", ["--max_steps=5"], ["--max_steps=5", "trainer.max_steps"]),
    ("train", ["~model"], ["~model", "setting=value"]),
    ("train", ["seed=1,2"], ["seed=1,2"]),
    ("train", ["--cfg=nope"], ["--cfg", "choose from 'job'"]),
    ("train", ["-cntrain"], ["--config-name", "experiment=NAME"]),
    ("train", ["--resolve"], ["--resolve", "--cfg"]),
    ("train", ["-m", "seed=1,2", "hydra.sweep.dir=/proc/x"], ["/proc/x", "cannot be"]),
    ("sample", ["hydra.mode=MULTIRUN", "run={tiny}", "seed=1,2"], ["-m", "train.py"]),
    ("evaluate", ["run={tiny}", "data.n_bytes=5"], ["data.n_bytes: ", "add data=tales"]),
    # Values of the wrong kind
    ("train", ["seed=${nowhere}"], ["seed", "nowhere"]),
    ("sample", ["run={tiny}", "prompt=\udcff"], ["prompt", "UTF-8"]),
    # Values out of range
    ("shapes", ["model.d_model=1000000000"], ["model", "GB", "smaller"]),
    ("train", ["trainer.batch_size=1000000000"], ["trainer.batch_size", "GB"]),
    ("train", ["trainer.batch_size=9", "trainer.grad_accumulation=2"], ["trainer.grad_acc", "9"]),
    ("train", ["trainer.device=tpu"], ["choose one of auto, cpu, cuda, mps"]),
    ("train", ["tokenizer=byte", "tokenizer.vocab_size=300"], ["tokenizer.vocab_size", "byte"]),
    ("train", ["observe.wandb=true", "observe.tensorboard=false"], ["observe.wandb"]),
    # Files
    ("train", [*TINY, f"cache_dir={'n' * 300}"], ["n" * 40]),
    ("sample", [f"run={'n' * 300}"], ["n" * 40]),
    ("train", ["data=text", "data.path=short.txt"], ["model.context_length", "train split"]),
    ("train", ["data=dataset"], ["data.path", "hub"]),
    ("train", ["data=shakespeare", "data.url=http://127.0.0.1:9/"], ["data.path"]),
    ("train", ["cache_dir=short.txt"], ["cache_dir", "short.txt"]),
    ("sample", ["run={tiny}", "prompt_file=nowhere.txt"], ["prompt_file", "nowhere.txt"]),
    ("sample", ["run={tiny}", "prompt_file=/dev/zero"], ["prompt_file", "/dev/zero", "shorter"]),
    # Runs
    ("train", [*TINY, "run_dir=/proc/x"], ["run_dir: /proc is not a writable folder"]),
    ("train", [*TINY, "run_dir=a/none/../b"], ["run_dir: a/none/../b: a/none is not a folder"]),
    ("convert", ["source={tiny}", "to=none/../a"], ["to: none/../a: none is not a folder"]),
    ("train", ["name=a/b"], ["name: 'a/b' is not the name of a folder"]),
    ("train", ["resume={tiny}", "trainer.max_steps=5"], ["trainer.max_steps: ", "at step 6"]),
    ("train", ["init_from=gpt2"], ["init_from", "convert.py source="]),
    ("sample", [], ["run", "latest is not a run"]),
    ("sample", ["run={tiny}", "checkpoint=first"], ["checkpoint", "first", "best"]),
    ("sample", ["run={tiny}", "show=L2H0"], ["show: the model has no L2H0; give one from L0H0"]),
    ("evaluate", ["run={tiny}", "split=test"], ["split", "train, val"]),
    ("evaluate", ["run={tiny}", "data=text", "data.path=one_letter.txt"], ["1 token, but needs 2"]),
    # Attention of a text, and the page in which the model runs
    ("look", ["run={tiny}"], ["text", "missing", "html=FILE"]),
    ("look", ["run={tiny}", "text=a", "html=short.txt"], ["html", "exists"]),
    ("look", ["run={tiny}", "reader=true"], ["text", "missing"]),
    (
        "look",
        ["run={tiny}", "reader=true", "text=a", "html=a"],
        ["reader: is printed", "without html"],
    ),
    ("look", ["run={tiny}", "reader=true", "text=Zebras."], ["is no tale, from 'Zebras.' on"]),
    ("look", ["run={tiny}", "reader=true", f"text={'Once ' * 40}"], ["text", "1 to 32"]),
    ("look", ["run={tiny}", "html=a", "start=text"], ["start", "leave start out"]),
    ("look", ["run={tiny}", "text=a", "steps=all", "checkpoint=best"], ["steps: ", "best"]),
    ("look", ["run={tiny}", "html="], ["html", "empty"]),
    ("look", ["run={tiny}", "html=a", "weights=int4"], ["weights", "int4", "float16, int8"]),
    ("look", ["run={tiny}", "text=a", "weights=int8"], ["weights", "leave it out"]),
    (
        "look",
        ["run={tiny}", "html=a", "checkpoints=all", "checkpoint=best"],
        ["checkpoints", "checkpoint=best", "one of them"],
    ),
]


PREPARES = ("training a tokenizer", "encoding the text")


def prepare_folder(folder: Path) -> None:
    """Create files, each of which is invalid in one way."""
    (folder / "short.txt").write_text("Too short to learn from.")
    (folder / "one_letter.txt").write_text("a")


@pytest.mark.parametrize(
    ("script", "arguments", "words"), MISTAKES, ids=[" ".join([s, *a])[:70] for s, a, _ in MISTAKES]
)
def test_a_mistake_ends_in_one_line(
    tiny_run: Path, tmp_path: Path, script: str, arguments: list[str], words: list[str]
) -> None:
    prepare_folder(tmp_path)
    before, run_before = files(tmp_path), files(tiny_run)
    filled = [each.replace("{tiny}", str(tiny_run)) for each in arguments]
    done = command(script, *filled, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    # A text is prepared before it is known to be too short.
    lines = [line for line in done.stderr.splitlines() if not line.startswith(PREPARES)]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    for word in words:
        assert word.replace("{tiny}", str(tiny_run)) in lines[0]
    assert all(line.startswith(PREPARES) for line in done.stdout.splitlines())
    assert files(tmp_path) == before, "the command changed its folder"
    assert files(tiny_run) == run_before, "the command changed the run"


HEAD = "# @package _global_\n"
EXPERIMENTS = {
    HEAD + "trainer:\n  max_steps: [3\n": ["mine.yaml", "line 4", "expected"],
    HEAD + "trainer:\n  max_step: 3\n": ["trainer.max_step: no such setting", "max_steps?"],
    HEAD + "trainer: 3\n": ["trainer.max_steps: a file gives trainer as one value"],
    HEAD + "trainer.max_steps: 3\n": ["trainer.max_steps: is a key with a dot; write trainer: and"],
    "trainer:\n  max_steps: 3\n": ["experiment: ", "first line", "# @package _global_"],
    "\ufeff" + HEAD + "trainer:\n  max_steps: 3\n": ["experiment: ", "without a byte order mark"],
    HEAD + "name: \udcff\n": ["experiment: ", "not UTF-8 (invalid start byte at byte 26)"],
}


@pytest.mark.parametrize("text", EXPERIMENTS)
def test_a_mistake_in_an_experiment_ends_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine/experiment").mkdir(parents=True)
    content = text.encode(errors="surrogateescape")
    (tmp_path / "mine/experiment/mine.yaml").write_bytes(content)
    done = command("train", "experiment=mine", "--config-dir=mine", *TINY, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert all(word in done.stderr for word in EXPERIMENTS[text]), done.stderr


def test_flags_can_stand_between_settings(tmp_path: Path) -> None:
    (tmp_path / "mine/model").mkdir(parents=True)
    (tmp_path / "mine/model/own.yaml").write_text("defaults: [nano, _self_]\nn_heads: 1\n")
    arguments = ("model=own", "--config-dir", "mine", "seed=7", "--cfg", "job", "cache_dir=here")
    printed = succeed("train", *arguments, cwd=tmp_path)
    assert printed.startswith("seed: 7\n") and "\ncache_dir: here\n" in printed
    assert "\n  n_heads: 1\n" in printed


def test_a_working_folder_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = str(ROOT / "shapes.py")
    started = ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", sys.executable, script]
    done = subprocess.run(started, cwd=gone, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and "working folder" in line


ON_A_RUN = (
    ("train", "resume=runs/latest", "trainer.max_steps=8", "data=text", "data.path=hens.txt"),
    ("evaluate",),
    ("look", "text=hen"),
    ("convert", "to=there"),
    ("shapes",),
)


@pytest.mark.parametrize("scripts", [(), pytest.param(ON_A_RUN, marks=pytest.mark.long)])
def test_scripts_run_in_any_working_folder(
    tmp_path: Path, scripts: tuple[tuple[str, ...], ...]
) -> None:
    """As users start them: in new processes, which print no warning."""
    folder = tmp_path / "a${x}b"
    folder.mkdir()
    (folder / "hens.txt").write_text("Once there was a hen. " * 200)
    small = [each for each in TINY if not each.startswith(("data.", "tokenizer."))]
    new = ("train", *small, "data=text", "data.path=hens.txt", "tokenizer=byte")
    for script, *arguments in (new, ("sample", "max_new_tokens=3"), *scripts):
        done = command(script, *arguments, cwd=folder, OMP_NUM_THREADS="1")
        assert done.returncode == 0, done.stderr
        assert done.stderr == "" or script in ("sample", "evaluate")  # which say what they do


def test_ranks_that_torchrun_did_not_start(tmp_path: Path) -> None:
    done = command("train", *TINY, cwd=tmp_path, LOCAL_RANK="0")
    assert done.returncode == 2 and "LOCAL_RANK" in done.stderr
    assert done.stderr.count("\n") == 1 and files(tmp_path) == {}


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("std::bad_alloc")])
def test_python_without_memory(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit, one_line_errors():
        raise error
    assert exit.value.code == 2
    assert capsys.readouterr().err.startswith("error: out of memory")


@pytest.mark.parametrize(
    ("number", "advice"),
    [("ENOSPC", "free some disk space"), ("EMFILE", "ulimit -n"), ("EBUSY", "another file")],
)
@pytest.mark.parametrize("name", ["ä/notes.txt", None])
def test_what_a_system_refuses_is_one_line(
    number: str, advice: str, name: object, capsys: pytest.CaptureFixture[str]
) -> None:
    code = getattr(errno, number)
    file = name or "standard output or a file"
    with pytest.raises(SystemExit) as exit, one_line_errors():
        raise OSError(code, os.strerror(code), name)
    assert exit.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {file}: cannot be read or written ({os.strerror(code)}); ")
    assert advice in line


def test_a_bug_keeps_its_traceback(tmp_path: Path) -> None:
    """Only user errors are reduced to one line; a bug must not be hidden."""
    with pytest.raises(ZeroDivisionError), one_line_errors():
        _ = 1 / 0
