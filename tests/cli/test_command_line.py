"""The command line: a user's mistake ends with status 2 and one line and changes nothing on disk;
scripts run in any terminal and folder."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from launch.mistakes import one_line_errors
from tests.conftest import PLAIN, ROOT, TINY, command, files, refused, succeed

# (script, arguments, words that the error line must contain). `{tiny}` is replaced by the
# directory of a trained run.
MISTAKES: list[tuple[str, list[str], list[str]]] = [
    # Unknown names
    ("train", ["max_steps=4"], ["max_steps: no such setting", "trainer.max_steps?"]),
    ("train", ["data=txet"], ["data: 'txet' is unknown; choose one of", "did you mean text?"]),
    ("train", ["hydra/launcher=x"], ["hydra/launcher: 'x' is unknown; choose one of basic"]),
    ("train", ["--max_steps=5"], ["--max_steps=5", "trainer.max_steps"]),
    ("train", ["~model"], ["~model", "setting=value"]),
    ("train", ["seed=1,2"], ["seed=1,2"]),
    ("train", ["--cfg=nope"], ["--cfg", "choose from 'job'"]),
    ("train", ["-cntrain"], ["--config-name", "experiment=NAME"]),
    ("sample", ["hydra.mode=MULTIRUN", "run={tiny}", "seed=1,2"], ["-m", "train.py"]),
    # Values of the wrong kind
    ("train", ["seed=${nowhere}"], ["seed", "nowhere"]),
    ("sample", ["run={tiny}", "prompt=\udcff"], ["prompt", "UTF-8"]),
    # Values out of range
    ("shapes", ["model.d_model=1000000000"], ["model", "GB", "smaller"]),
    ("train", ["trainer.batch_size=1000000000"], ["trainer.batch_size", "GB"]),
    ("train", ["trainer.batch_size=9", "trainer.grad_accumulation=2"], ["trainer.grad_acc", "9"]),
    ("train", ["trainer.device=tpu"], ["choose one of auto, cpu, cuda, mps"]),
    ("train", ["observe.wandb=true", "observe.tensorboard=false"], ["observe.wandb"]),
    # Files
    ("sample", [f"run={'n' * 300}"], ["n" * 40]),
    ("train", ["data=dataset"], ["data.path", "hub"]),
    ("sample", ["run={tiny}", "prompt_file=nowhere.txt"], ["prompt_file", "nowhere.txt"]),
    ("sample", ["run={tiny}", "prompt_file=/dev/zero"], ["prompt_file", "/dev/zero", "shorter"]),
    # Runs
    ("train", [*TINY, "run_dir=/proc/x"], ["run_dir: /proc is not a writable folder"]),
    ("convert", ["source={tiny}", "to=none/../a"], ["to: none/../a: none is not a folder"]),
    ("train", ["name=a/b"], ["name: 'a/b' is not the name of a folder"]),
    ("train", ["resume={tiny}", "trainer.max_steps=5"], ["trainer.max_steps: ", "at step 6"]),
    ("train", ["init_from=gpt2"], ["init_from", "convert.py source="]),
    ("sample", ["run={tiny}", "checkpoint=first"], ["checkpoint", "first", "best"]),
    ("sample", ["run={tiny}", "show=L2H0"], ["show: the model has no L2H0; give one from L0H0"]),
    ("evaluate", ["run={tiny}", "split=test"], ["split", "train, val"]),
    # Attention of a text, and the page in which the model runs
    ("look", ["run={tiny}"], ["text", "missing", "html=FILE"]),
    ("look", ["run={tiny}", "text=a", "html=short.txt"], ["html", "exists"]),
    ("look", ["run={tiny}", "reader=true", "text=Zebras."], ["is no tale, from 'Zebras.' on"]),
    ("look", ["run={tiny}", "reader=true", f"text={'Once ' * 40}"], ["text", "1 to 32"]),
    ("look", ["run={tiny}", "html=a", "start=text"], ["start", "leave start out"]),
    ("look", ["run={tiny}", "text=a", "steps=all", "checkpoint=best"], ["steps: ", "best"]),
    ("look", ["run={tiny}", "html=a", "checkpoints=all", "checkpoint=best"], ["checkpoints: "]),
    ("look", ["run={tiny}", "text=a", "html=a", "reader=true"], ["reader: is printed"]),
    ("look", ["run={tiny}", "html=a", "weights=int4"], ["weights", "int4", "float16, int8"]),
    ("look", ["run={tiny}", "text=a", "weights=int8"], ["weights", "leave it out"]),
    # The two sides of a verdict
    ("verdict", [], ["idea: its settings are those of the base"]),
    ("verdict", ["seed=3"], ["seed: verdict.py gives each run its own", "give seeds_from"]),
    ("verdict", ["optimizer.beta2=0.99", "base='"], ["base: No closing quotation"]),
    ("verdict", ["base=data.n_bytes=70000", "data.n_bytes=60000"], ["data.n_bytes: the two"]),
    ("verdict", ["optimizer.beta2=0.99", "margin=2"], ["margin: 2.0 is out of range"]),
    ("verdict", ["model.d_model=7"], ["model.n_heads: 4 does not divide"]),
    ("verdict", ["init_from=latest"], ["init_from: latest can change"]),
    ("verdict", ["against=nowhere"], ["against: nowhere"]),
]


@pytest.mark.parametrize(
    ("script", "arguments", "words"), MISTAKES, ids=[" ".join([s, *a])[:70] for s, a, _ in MISTAKES]
)
def test_a_mistake_ends_in_one_line(
    tiny_run: Path, tmp_path: Path, script: str, arguments: list[str], words: list[str]
) -> None:
    (tmp_path / "short.txt").touch()
    before = files(tiny_run)
    filled = [each.replace("{tiny}", str(tiny_run)) for each in arguments]
    line = refused(script, *filled, cwd=tmp_path)
    assert all(word in line for word in words), line
    assert files(tiny_run) == before, "the command changed the run"


HEAD = "# @package _global_\n"
EXPERIMENTS = {
    HEAD + "trainer:\n  max_steps: [3\n": ["mine.yaml", "line 4", "expected"],
    HEAD + "trainer:\n  max_step: 3\n": ["trainer.max_step: no such setting", "max_steps?"],
    HEAD + "trainer: 3\n": ["trainer.max_steps: a file gives trainer as one value"],
    HEAD + "trainer.max_steps: 3\n": ["trainer.max_steps: is a key with a dot; write trainer: and"],
    "trainer:\n  max_steps: 3\n": ["experiment: ", "first line", "# @package _global_"],
    HEAD + "name: \udcff\n": ["experiment: ", "not UTF-8 (invalid start byte at byte 26)"],
}


@pytest.mark.parametrize("text", EXPERIMENTS)
def test_a_mistake_in_an_experiment_ends_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine/experiment").mkdir(parents=True)
    content = text.encode(errors="surrogateescape")
    (tmp_path / "mine/experiment/mine.yaml").write_bytes(content)
    line = refused("train", "experiment=mine", "--config-dir=mine", *TINY, cwd=tmp_path)
    assert all(word in line for word in EXPERIMENTS[text]), line


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
    ("train", "resume=runs/latest", "trainer.max_steps=8", "data=text", "data.path=text.txt"),
    ("evaluate",),
    ("look", "text=hen"),
    ("convert", "to=there"),
    ("shapes",),
)


@pytest.mark.parametrize("scripts", [(), pytest.param(ON_A_RUN, marks=pytest.mark.long)])
def test_scripts_run_in_any_folder_and_terminal(
    tmp_path: Path, scripts: tuple[tuple[str, ...], ...]
) -> None:
    """As users start them: in new processes, which print no warning, and what the terminal lacks
    as escapes. Files are UTF-8: Python, which warns where one is opened without an encoding, finds
    none of ours."""
    folder, prompt = tmp_path / "a${x}b ü", "Käse 🧀"
    folder.mkdir()
    text = f"{prompt} und Brot 🍞: „gut“.\n\n" * 500
    (folder / "text.txt").write_text(text, encoding="utf-8")
    settings = (
        *(each for each in TINY if not each.startswith(("data.", "tokenizer."))),
        *("data=text", "data.path=text.txt", "tokenizer=byte", f"observe.samples.prompt={prompt}"),
        f"observe.attention.probe={prompt} isst",
    )
    terminal = {"PYTHONIOENCODING": "ascii", "PYTHONWARNDEFAULTENCODING": "1"}
    done = command("train", *settings, cwd=folder, **terminal)
    assert done.returncode == 0, done.stderr
    assert "Sample:\n\n" + r"K\xe4se \U0001f9c0" in done.stdout
    warned = [line for line in done.stderr.splitlines() if "Warning: " in line]
    ours = [line for line in warned if line.startswith(str(ROOT)) and "site-packages" not in line]
    assert not ours and all("EncodingWarning" in line for line in warned)
    (run,) = (folder / "runs").iterdir()
    stored = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    assert stored["observe"]["samples"]["prompt"] == prompt
    (sample,) = EventAccumulator(str(run)).Reload().Tensors("sample/text_summary")[-1:]
    assert prompt in sample.tensor_proto.string_val[0].decode()
    for script, *arguments in (("sample", "max_new_tokens=3"), *scripts):
        done = command(script, *arguments, cwd=folder, OMP_NUM_THREADS="1")
        assert done.returncode == 0, done.stderr
        assert done.stderr == "" or script in ("sample", "evaluate")  # which say what they do


def test_ranks_that_torchrun_did_not_start(tmp_path: Path) -> None:
    assert "LOCAL_RANK" in refused("train", *TINY, cwd=tmp_path, LOCAL_RANK="0")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "out of memory; choose a smaller model"),
        (RuntimeError("std::bad_alloc"), "out of memory; choose a smaller model"),
        (OSError(errno.ENOSPC, "why", "a.txt"), "a.txt: cannot be read or written (why); free "),
        (OSError(errno.EMFILE, "why"), "standard output or a file: cannot be read or written "),
    ],
)
def test_what_a_system_refuses_is_one_line(
    error: Exception, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit, one_line_errors():
        raise error
    assert exit.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {said}")


def test_a_bug_keeps_its_traceback() -> None:
    """Only user errors are reduced to one line; a bug must not be hidden."""
    with pytest.raises(ZeroDivisionError), one_line_errors():
        _ = 1 / 0


def test_a_file_called_runs_does_not_matter_elsewhere(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "runs").write_text("mine")
    before = files(here)
    places = (f"run_dir={tmp_path}/run", f"cache_dir={tmp_path}/cache")
    succeed("train", *PLAIN, *places, cwd=here)
    assert files(here) == before
    assert "runs is not a writable folder (Not a" in refused("train", *PLAIN, cwd=here)
