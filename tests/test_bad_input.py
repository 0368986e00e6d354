"""Every user error exits with status 2, prints one line and changes nothing on disk."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.cli import one_line_errors
from tests.conftest import ROOT, TINY, command, files, succeed

# (script, arguments, words that the error line must contain). `{tiny}` is replaced by the
# directory of a trained run, `{here}` by the current directory of the command.
MISTAKES: list[tuple[str, list[str], list[str]]] = [
    # Unknown names
    ("train", ["model.n_layer=4"], ["model.n_layer: no such setting", "model.n_layers?"]),
    ("train", ["max_steps=4"], ["max_steps: no such setting", "trainer.max_steps?"]),
    ("train", ["lr=1e-3"], ["lr: no such setting", "optimizer.lr?"]),
    ("train", ["n_heads=2"], ["n_heads: no such setting", "model.n_heads?"]),
    ("train", ["+model.n_layer=4"], ["model.n_layer: no such setting", "model.n_layers?"]),
    ("train", ["data.path=notes.txt"], ["data.path", "no such setting", "data=text"]),
    ("train", ["data=text", "data.n_bytes=9"], ["data.n_bytes", "no such setting", "data=tales"]),
    ("train", ["optimizer=lamb"], ["lamb", "adamw"]),
    ("train", ["model=huge"], ["huge", "nano"]),
    ("train", ["data=wiki"], ["wiki", "tales"]),
    ("train", ["tokenizer=words"], ["words", "bpe"]),
    ("train", ["--max_steps=5"], ["--max_steps=5", "trainer.max_steps"]),
    ("train", ["nonsense"], ["nonsense", "setting=value"]),
    ("train", ["trainer.max_steps=10,20"], ["trainer.max_steps"]),
    ("train", ["+trainer.speed=9"], ["trainer.speed", "no such setting"]),
    ("train", ["+colour=red"], ["colour", "no such setting"]),
    ("train", ["["], ["[", "setting=value"]),
    ("train", ["=3"], ["=3", "setting=value"]),
    ("train", ["model="], ["model"]),
    ("train", ["~model"], ["~model", "setting=value"]),
    ("sample", ["temp=1"], ["temp: no such setting; did you mean temperature?"]),
    ("train", ["model={a: 1}"], ["model"]),
    ("train", ["-x"], ["-x", "unrecognized"]),
    ("train", ["seed=1,2"], ["seed=1,2"]),
    ("train", ["seed=range(1,3)"], ["seed=range(1,3)"]),
    ("compare", ["a/seed=3"], ["runs: a/seed=3 contains no run"]),
    ("sample", ["model@data=nano"], ["model@data"]),
    ("train", ["-m", "seed=1,2", "hydra.sweep.dir=/proc/x"], ["/proc/x", "cannot be"]),
    ("train", ["--cfg=nope"], ["--cfg", "choose from 'job'"]),
    ("train", ["--cfg"], ["--cfg", "expected one argument"]),
    ("train", ["--config-name=nope"], ["--config-name", "unrecognized"]),
    ("train", ["--experimental-rerun=nope"], ["--experimental-rerun", "unrecognized"]),
    ("sample", ["-m", "run={tiny}", "seed=1,2"], ["-m", "train.py"]),
    # Values of the wrong kind
    ("train", ["trainer.max_steps=many"], ["trainer.max_steps: ", "'many'"]),
    ("train", ["optimizer.lr=fast"], ["optimizer.lr: ", "'fast'"]),
    ("train", ["model.bias=perhaps"], ["model.bias: ", "'perhaps'"]),
    ("train", ["model.d_model=null"], ["model.d_model: "]),
    ("train", ["model=null"], ["model"]),
    ("train", ["data=3"], ["data"]),
    ("train", ["--resolve"], ["--resolve", "unrecognized"]),
    ("train", ["-m", "seed=1,2", "--cfg", "job"], ["--multirun", "--cfg"]),
    ("train", ["seed=${nowhere}"], ["seed", "nowhere"]),
    # Bytes that are not UTF-8
    ("sample", ["run={tiny}", "prompt=\udcff"], ["prompt", "UTF-8"]),
    ("train", ["run_dir=\udcff"], ["run_dir", "UTF-8"]),
    ("train", ["\udcff=1"], ["UTF-8"]),
    # Values out of range
    ("train", [f"data.n_bytes={10**30}"], ["data.n_bytes", "out of range"]),
    ("train", [f"optimizer.lr={10**400}"], ["optimizer.lr", "too large"]),
    ("train", ["model.d_model=999999937", "model.n_heads=2"], ["model.n_heads", "choose 1,"]),
    ("shapes", [f"model.d_model={10**30}"], ["model.d_model", "out of range"]),
    ("shapes", [f"model.d_mlp={10**30}"], ["model.d_mlp", "out of range"]),
    ("shapes", [f"model.context_length={10**30}"], ["model.context_length", "out of range"]),
    ("shapes", ["model.d_model=1000000000"], ["model", "GB", "smaller"]),
    ("shapes", ["model.context_length=1048577"], ["model.context_length", "at most 1048576"]),
    ("shapes", ["model=gpt2", "model.d_model=120000000"], ["model", "GB"]),
    ("sample", ["run={tiny}", "top_p=1e-320"], ["top_p", "1e-320"]),
    ("train", ["trainer.max_steps=0"], ["trainer.max_steps", "at least 1"]),
    ("train", ["trainer.batch_size=-1"], ["trainer.batch_size", "at least 1"]),
    ("train", ["trainer.batch_size=9", "trainer.grad_accumulation=2"], ["trainer.grad_acc", "9"]),
    ("train", ["trainer.eval_every=-1"], ["trainer.eval_every"]),
    ("train", ["trainer.checkpoint_every=-1"], ["trainer.checkpoint_every"]),
    ("train", ["trainer.log_every=0"], ["trainer.log_every"]),
    ("train", ["trainer.max_grad_norm=0"], ["trainer.max_grad_norm"]),
    ("train", ["trainer.device=tpu"], ["trainer.device", "tpu", "cuda"]),
    ("train", ["trainer.precision=fp8"], ["trainer.precision", "fp8", "bf16"]),
    ("train", ["optimizer.lr=0"], ["optimizer.lr", "more than 0"]),
    ("train", ["optimizer.lr=nan"], ["optimizer.lr", "nan"]),
    ("train", ["optimizer.weight_decay=-0.1"], ["optimizer.weight_decay"]),
    ("train", ["optimizer.beta2=1"], ["optimizer.beta2"]),
    ("train", ["optimizer.warmup_steps=-5"], ["optimizer.warmup_steps"]),
    ("train", ["optimizer.decay_fraction=2"], ["optimizer.decay_fraction"]),
    ("train", ["optimizer=adamw", "optimizer.momentum=0.9"], ["optimizer.momentum", "=sgd"]),
    (
        "train",
        ["experiment=shakespeare_fast", "optimizer=sgd"],
        ["optimizer.adamw_lr", "add optimizer=muon"],
    ),
    ("train", ["model.n_heads=7"], ["model.n_heads", "96"]),
    ("train", ["model.n_kv_heads=3"], ["model.n_kv_heads", "n_heads"]),
    ("train", ["model.d_model=0"], ["model.d_model"]),
    ("train", ["model.d_model=100000000"], ["model", "GB", "smaller"]),
    ("train", ["model.n_layers=100000000"], ["model.n_layers", "1000"]),
    ("train", ["trainer.batch_size=1000000000"], ["trainer.batch_size", "GB"]),
    ("train", ["model.d_head=31"], ["model.d_head", "even"]),
    ("train", ["model.dropout=1"], ["model.dropout"]),
    ("train", ["model.norm=batchnorm"], ["model.norm", "rmsnorm"]),
    ("train", ["model.position=absolute"], ["model.position", "rotary"]),
    ("train", ["model.mlp=relu"], ["model.mlp", "swiglu"]),
    ("train", ["tokenizer.vocab_size=256"], ["tokenizer.vocab_size", "257"]),
    ("train", ["tokenizer=byte", "tokenizer.vocab_size=300"], ["tokenizer.vocab_size", "byte"]),
    ("train", ["data.n_bytes=0"], ["data.n_bytes"]),
    ("train", ["data.name=text"], ["data.n_bytes"]),
    ("train", ["cache_dir="], ["cache_dir", "empty"]),
    ("train", ["trainer.max_steps=99999999999999999999"], ["trainer.max_steps"]),
    ("train", ["data.val_fraction=1"], ["data.val_fraction"]),
    ("train", ["seed=-1"], ["seed"]),
    (
        "train",
        ["observe.wandb=true", "observe.tensorboard=false"],
        ["observe.wandb", "tensorboard"],
    ),
    ("train", ["observe.attention.every=-1"], ["observe.attention.every"]),
    ("train", ["observe.attention.every=-1"], ["observe.attention.every"]),
    ("train", ["observe.attention.probe="], ["observe.attention.probe"]),
    ("train", ["observe.histograms.every=-1"], ["observe.histograms.every"]),
    ("train", ["observe.profile.steps=-1"], ["observe.profile.steps"]),
    ("train", ["observe.profile.skip_first=0"], ["observe.profile.skip_first"]),
    ("train", ["observe.samples.max_new_tokens=0"], ["observe.samples.max_new_tokens"]),
    ("train", ["observe.samples.temperature=-1"], ["observe.samples.temperature"]),
    ("train", ["observe.samples.top_p=0"], ["observe.samples.top_p"]),
    ("train", ["observe.samples.temperature=1e-9"], ["observe.samples.temperature"]),
    ("train", ["observe.samples.seed=-1"], ["observe.samples.seed"]),
    ("train", ["observe.samples.max_new_tokens=9999999999"], ["observe.samples.max_new_tokens"]),
    # Files
    *(
        (script, [*arguments, f"{setting}={'n' * 300}"], ["n" * 40])
        for script, arguments, setting in (
            ("train", [], "run_dir"),
            ("train", [], "resume"),
            ("train", ["data=text"], "data.path"),
            ("train", ["data=shakespeare"], "data.cache_dir"),
            ("train", [*TINY], "cache_dir"),
            ("sample", [], "run"),
            ("sample", ["run={tiny}"], "prompt_file"),
            ("look", ["run={tiny}", "text=a"], "html"),
        )
    ),
    ("train", ["data=text", "data.path=~nouser/x"], ["data.path", "~nouser"]),
    ("evaluate", ["run={tiny}", "data=text", "data.path=~nouser/x"], ["data.path", "~nouser"]),
    ("train", ["data=text", f"data.path=/{'*/' * 2000}"], ["data.path", "too many"]),
    ("train", ["data=text", "data.path=*.bin"], ["data.path", "binary.bin", "not UTF-8"]),
    ("train", ["cache_dir=~nouser/x"], ["cache_dir", "~nouser", "user"]),
    ("train", ["data=shakespeare", "data.cache_dir=~nouser/x"], ["data.cache_dir", "~nouser"]),
    ("look", ["run={tiny}", "text=a", "html=/proc/x"], ["html", "/proc/x", "created"]),
    ("sample", ["run={tiny}", "prompt_file=/dev/zero"], ["prompt_file", "/dev/zero", "shorter"]),
    ("train", ["data=text"], ["data.path"]),
    ("train", ["data=text", "data.path=nowhere.txt"], ["data.path", "nowhere.txt"]),
    ("train", ["data=text", "data.path=empty.txt"], ["empty.txt", "empty"]),
    ("train", ["data=text", "data.path=binary.bin"], ["binary.bin", "UTF-8"]),
    ("train", ["data=text", "data.path=empty_folder"], ["data.path", "empty_folder"]),
    ("train", ["data=text", "data.path=*.none"], ["data.path", "*.none"]),
    ("train", ["data=text", "data.path=http://a/b.txt"], ["data.path", "data=dataset"]),
    ("train", ["data=dataset"], ["data.path", "hub"]),
    ("train", ["data=dataset", "data.path=*.bin"], ["data.path", ".jsonl"]),
    (
        "train",
        ["data=shakespeare", "data.path=short.txt", "data.url=http://x"],
        ["data.url: has no effect"],
    ),
    (
        "evaluate",
        ["run={tiny}", "data=text", "data.path=short.txt", "data.val_fraction=0.5"],
        ["data.val_fraction: has no effect", "split=val"],
    ),
    ("train", ["data=text", "data.path=short.txt"], ["model.context_length", "train split"]),
    ("train", ["data=shakespeare", "data.path=short.txt"], ["data.path", "short.txt"]),
    ("train", ["data=shakespeare", "data.url=http://127.0.0.1:9/"], ["data.path"]),
    ("train", ["cache_dir=short.txt"], ["cache_dir", "short.txt"]),
    # Runs
    ("train", ["run_dir={here}"], ["run_dir", "exists"]),
    ("train", ["run_dir=short.txt"], ["run_dir", "exists; choose another folder"]),
    ("train", ["run_dir=short.txt/run"], ["run_dir", "short.txt"]),
    ("train", ["resume=nowhere"], ["resume", "nowhere", "not a run"]),
    ("train", ["resume={tiny}", "model.n_layers=3"], ["resume: model.n_layers cannot change"]),
    ("train", ["resume={tiny}", "data.n_bytes=70001"], ["resume: data.n_bytes cannot change"]),
    ("train", ["resume={tiny}", "seed=7", "trainer.max_steps=9"], ["resume", "seed"]),
    ("train", ["resume={tiny}", "run_dir=elsewhere"], ["run_dir"]),
    ("train", ["resume={tiny}", "optimizer=adamw"], ["resume", "optimizer.name"]),
    ("train", ["resume={tiny}", "experiment=shakespeare_fast"], ["experiment", "leave"]),
    ("train", ["resume=auto"], ["resume: auto", "add run_dir="]),
    ("train", ["resume=auto", "run_dir={here}"], ["run_dir", "exists"]),
    (
        "train",
        ["resume=auto", "run_dir={tiny}", "model.n_layers=3"],
        ["other settings (", "model.n_layers"],
    ),
    (
        "train",
        ["resume=auto", "run_dir={tiny}", "experiment=shakespeare_fast"],
        ["run_dir: ", "other settings (", "experiment"],
    ),
    (
        "train",
        ["resume=auto", "run_dir={tiny}", "init_from={tiny}"],
        ["other settings (", "init_from"],
    ),
    ("train", ["init_from=gpt2"], ["init_from", "convert.py source="]),
    ("convert", ["source=gpt2", "to=new"], ["source", "openai-community/gpt2"]),
    ("train", ["experiment=slow"], ["slow", "shakespeare_fast"]),
    ("train", ["run_dir=runs/latest"], ["run_dir", "runs/latest"]),
    ("train", ["name=a/b"], ["name: 'a/b' is not the name of a folder"]),
    ("train", ["name=.x"], ["name: '.x' is not the name of a folder"]),
    ("train", ["name="], ["name: ''"]),
    ("train", ["name=latest"], ["run_dir", "runs/latest"]),
    ("train", ["run_dir="], ["run_dir"]),
    ("sample", [], ["run", "latest is not a run"]),
    ("sample", ["run={here}"], ["run", "not a run"]),
    ("sample", ["run={tiny}", "checkpoint=first"], ["checkpoint", "first", "best"]),
    ("sample", ["run={tiny}", "temperature=-1"], ["temperature"]),
    ("sample", ["run={tiny}", "temperature=1e-7"], ["temperature"]),
    ("sample", ["run={tiny}", "top_k=0"], ["top_k"]),
    ("sample", ["run={tiny}", "top_k=99999999999"], ["top_k"]),
    ("sample", ["run={tiny}", "top_p=1.5"], ["top_p"]),
    ("sample", ["run={tiny}", "num_samples=0"], ["num_samples"]),
    ("sample", ["run={tiny}", "max_new_tokens=0"], ["max_new_tokens"]),
    ("sample", ["run={tiny}", "prompt_file=nowhere.txt"], ["prompt_file", "nowhere.txt"]),
    (
        "sample",
        ["run={tiny}", "prompt_file=binary.bin"],
        ["prompt_file: binary.bin is not UTF-8 ("],
    ),
    ("sample", ["run={tiny}", "prompt_file=short.txt", "prompt=a"], ["prompt_file", "prompt"]),
    ("sample", ["run={tiny}", "device=cuda:9"], ["device", "cuda:9"]),
    ("sample", ["run={tiny}", "precision=auto"], ["precision", "auto", "fp32, bf16"]),
    ("sample", ["run={tiny}", "promt=a"], ["promt", "no such setting"]),
    ("evaluate", ["run=nowhere"], ["run", "nowhere"]),
    ("evaluate", ["run={tiny}", "split=test"], ["split", "train, val"]),
    ("evaluate", ["run={tiny}", "batch_size=0"], ["batch_size"]),
    ("evaluate", ["run={tiny}", "precision=half"], ["precision", "bf16"]),
    ("evaluate", ["run={tiny}", "data=text", "data.path=nowhere.txt"], ["data.path", "nowhere"]),
    ("evaluate", ["run={tiny}", "data=text", "data.path=one_letter.txt"], ["1 token, but needs 2"]),
    ("shapes", ["model=huge"], ["huge"]),
    ("shapes", ["model.n_heads=7"], ["model.n_heads"]),
    ("train", ["model=nan"], ["model", "nan"]),
    ("train", ["optimizer=-inf"], ["optimizer", "inf"]),
    # Attention of a text
    ("look", ["run={tiny}"], ["text", "missing", "html=FILE"]),
    ("look", ["run={tiny}", "text="], ["text", "empty"]),
    ("look", ["run={tiny}", "text=a", "steps=3"], ["steps", "last, all"]),
    ("look", ["run=nowhere", "text=a hen"], ["run", "not a run"]),
    ("look", ["run={tiny}", "text=a", "html=short.txt"], ["html", "exists"]),
    ("look", ["run={tiny}", "text=a", "html=nowhere/a.html"], ["html", "nowhere", "folder"]),
    ("look", ["run={tiny}", "text=a\udcff"], ["text", "UTF-8"]),
    # The page in which the model runs
    ("look", ["run={tiny}", "html=short.txt"], ["html", "exists"]),
    ("look", ["run={tiny}", "html=nowhere/a.html"], ["html", "nowhere", "folder"]),
    ("look", ["run={tiny}", "html=/proc/x"], ["html", "/proc/x", "created"]),
    ("look", ["run={tiny}", "html=a", "weights=int4"], ["weights", "int4", "float16, int8"]),
    ("look", ["run={tiny}", "html=a", "checkpoints=best"], ["checkpoints", "best", "one, all"]),
    ("look", ["run={tiny}", "weights=int8"], ["text", "missing", "html=FILE"]),
    ("look", ["run={tiny}", "text=a", "weights=int8"], ["weights", "leave it out"]),
    ("look", ["run={tiny}", "text=a", "html=a", "weights=int8"], ["weights", "without text"]),
    ("look", ["run={tiny}", "html=a", "steps=all", "weights=int8"], ["weights", "steps"]),
    ("look", ["run={tiny}", "text=a", "checkpoints=all"], ["checkpoints", "leave it out"]),
    ("look", ["run={tiny}", "html=a", "steps=all", "checkpoints=one"], ["checkpoints", "steps"]),
    (
        "look",
        ["run={tiny}", "html=a", "checkpoints=all", "checkpoint=best"],
        ["checkpoints", "checkpoint=best", "one of them"],
    ),
    # Branches
    ("train", ["trainer.device=tpu"], ["choose one of auto, cpu, cuda, mps"]),
]


def prepare_folder(folder: Path) -> None:
    """Create files, each of which is invalid in one way."""
    (folder / "empty.txt").touch()
    (folder / "empty_folder").mkdir()
    (folder / "binary.bin").write_bytes(bytes(range(256)) * 40)
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
    filled = [each.replace("{tiny}", str(tiny_run)).replace("{here}", ".") for each in arguments]
    done = command(script, *filled, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0]
    assert done.stdout == ""
    assert files(tmp_path) == before, "the command changed its folder"
    assert files(tiny_run) == run_before, "the command changed the run"


HEAD = "# @package _global_\n"
EXPERIMENTS = {
    HEAD + "trainer:\n\tmax_steps: 3\n": ["mine.yaml", "line 3", "cannot start any token"],
    HEAD + "trainer:\n  max_steps: [3\n": ["mine.yaml", "line 4", "expected"],
    HEAD + "trainer:\n  seed: 3\n  seed: 4\n": ["mine.yaml", "line 4", "duplicate key seed"],
    HEAD + "trainer:\n  max_step: 3\n": ["trainer.max_step: no such setting", "max_steps?"],
    HEAD + "trainr:\n  max_steps: 3\n": ["trainr: no such setting", "trainer?"],
    HEAD + "trainer:\n  max_grad_norm: many\n": ["trainer.max_grad_norm: ", "'many'"],
    HEAD + "trainer: 3\n": ["trainer"],
    HEAD + "- 3\n": ["experiment/mine", "ListConfig"],
    HEAD + "defaults:\n  - override /optimizer: lamb\n": ["lamb", "adamw"],
    HEAD + "seed: ${nowhere}\n": ["seed", "nowhere"],
    "trainer:\n  max_steps: 3\n": ["experiment: ", "first line", "# @package _global_"],
    "": ["experiment: ", "first line", "# @package _global_"],
}


@pytest.mark.parametrize("text", EXPERIMENTS)
def test_a_mistake_in_an_experiment_ends_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine/experiment").mkdir(parents=True)
    (tmp_path / "mine/experiment/mine.yaml").write_text(text)
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


DAMAGES = [
    ("sample", "run", "config.yaml", b"model: ["),
    ("sample", "run", "config.yaml", b"data: {name: tales, n_bytes: 9}"),
    ("sample", "run", "tokenizer/tokenizer.json", b"{}"),
    ("sample", "run", "tokenizer/tokenizer.tiktoken", b"AA== 0\n"),
    ("train", "resume", "data.json", b"{}"),
]


@pytest.mark.parametrize(("script", "setting", "name", "damage"), DAMAGES)
def test_damaged_runs(
    tiny_run: Path, tmp_path: Path, script: str, setting: str, name: str, damage: bytes
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run, symlinks=True)
    (run / name).write_bytes(damage)
    before = files(run)
    longer = ["trainer.max_steps=9"] if script == "train" else []
    done = command(script, f"{setting}={run}", *longer, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert name.rpartition("/")[2].rpartition(".")[0] in done.stderr
    assert files(run) == before


def test_training_that_diverges_ends_in_one_line(tmp_path: Path) -> None:
    done = command("train", *TINY, "optimizer.lr=1e9", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "optimizer.lr" in done.stderr
    assert "diverged" in done.stderr


SMALL = (*TINY, "tokenizer=byte", "tokenizer.vocab_size=null", "observe.attention.every=0")


def in_new_interpreter(
    script: str, *arguments: str, cwd: Path | bytes, limit: str = ":", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a script as a shell does, with a `limit` for the shell's ulimit."""
    line = ["sh", "-c", f'{limit}; exec "$@"', "sh", sys.executable, str(ROOT / f"{script}.py")]
    return subprocess.run(
        [*line, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=300,
        env={**os.environ, **environment},
    )


def assert_one_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for word in ("error: ", *words):
        assert word in done.stderr


@pytest.mark.parametrize(
    ("script", "arguments", "word"),
    [
        ("train", ["trainer.max_steps=0"], "trainer.max_steps"),
        ("sample", ["run=nowhere"], "nowhere"),
        ("evaluate", ["run=nowhere"], "nowhere"),
        ("look", ["run=nowhere", "text=hen"], "nowhere"),
        ("convert", ["source=nowhere", "to=x"], "nowhere"),
        ("shapes", ["model=huge"], "huge"),
    ],
)
def test_a_mistake_in_a_new_process(
    tmp_path: Path, script: str, arguments: list[str], word: str
) -> None:
    """Started as users start them; the other tests call the scripts inside the test process."""
    done = in_new_interpreter(script, *arguments, cwd=tmp_path)
    assert_one_line(done, word)
    assert done.stdout == "" and files(tmp_path) == {}


def test_a_working_folder_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = in_new_interpreter("shapes", cwd=gone, limit=f"rmdir '{gone}'")
    assert_one_line(done, "working folder")


@pytest.mark.parametrize("name", [b"a${x}b", pytest.param(b"a\xffb", marks=pytest.mark.long)])
def test_every_script_runs_in_any_working_folder(tmp_path: Path, name: bytes) -> None:
    """As users start them: in new processes, which print no warning."""
    folder = os.path.join(os.fsencode(tmp_path), name)  # noqa: PTH118 (bytes)
    os.mkdir(folder)  # noqa: PTH102
    with open(os.path.join(folder, b"hens.txt"), "w") as file:  # noqa: PTH118, PTH123
        file.write("Once there was a hen. " * 200)
    text = ("data=text", "data.path=hens.txt")
    small = [each for each in SMALL if not each.startswith("data.")]
    for script, *arguments in (
        ("train", *small, *text),
        ("train", "resume=runs/latest", "trainer.max_steps=8", *text),
        ("sample", "max_new_tokens=3"),
        ("evaluate",),
        ("look", "text=hen"),
        ("convert", "to=there"),
        ("shapes",),
    ):
        done = in_new_interpreter(script, *arguments, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert done.stderr == "" or script == "sample"  # which says what it does


@pytest.mark.parametrize("others", [{}, {"RANK": "a", "WORLD_SIZE": "1"}])
def test_ranks_that_torchrun_did_not_start(tmp_path: Path, others: dict[str, str]) -> None:
    done = command("train", *SMALL, cwd=tmp_path, LOCAL_RANK="0", **others)
    assert_one_line(done, "LOCAL_RANK")
    assert files(tmp_path) == {}


@pytest.mark.long
def test_a_limit_of_memory(tmp_path: Path, tiny_run: Path) -> None:
    many = ("max_new_tokens=1000", "num_samples=1000000")
    done = in_new_interpreter(
        "sample", f"run={tiny_run}", *many, cwd=tmp_path, limit="ulimit -v 4000000"
    )
    assert_one_line(done, "out of memory")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("std::bad_alloc")])
def test_python_without_memory(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit, one_line_errors():
        raise error
    assert exit.value.code == 2
    assert capsys.readouterr().err.startswith("error: out of memory")


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        ("ENOSPC", "free some disk space"),
        ("EACCES", "permissions"),
        ("EMFILE", "ulimit -n"),
        *((name, "another file or folder") for name in ("ESTALE", "ENOLCK", "EBUSY", "ETIMEDOUT")),
    ],
)
@pytest.mark.parametrize("name", ["ä/notes.txt", "ä/notes.txt".encode(), None, 3])
def test_what_a_system_refuses_is_one_line(
    number: str, advice: str, name: object, capsys: pytest.CaptureFixture[str]
) -> None:
    code = getattr(errno, number)
    file = "standard output or a file" if name in (None, 3) else "ä/notes.txt"
    with pytest.raises(SystemExit) as exit, one_line_errors():
        raise OSError(code, os.strerror(code), name)
    assert exit.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {file}: cannot be read or written ({os.strerror(code)}); ")
    assert advice in line and ("space" in line) == (number == "ENOSPC")


@pytest.mark.parametrize(
    ("refuse", "name"),
    [
        # Not even root can; the error of a read names no file.
        (lambda: Path("/proc/self/mem").read_bytes(), "standard output or a file"),
        (lambda: Path("file").mkdir(exist_ok=True), "file"),
        (lambda: Path("file/below").write_text(""), "file/below"),
    ],
)
def test_a_refusal_names_its_file(
    refuse: Callable[[], object],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(SystemExit), one_line_errors():
        refuse()
    assert capsys.readouterr().err.startswith(f"error: {name}: cannot be read or written (")


def test_a_bug_keeps_its_traceback(tmp_path: Path) -> None:
    """Only user errors are reduced to one line; a bug must not be hidden."""
    with pytest.raises(ZeroDivisionError), one_line_errors():
        _ = 1 / 0
