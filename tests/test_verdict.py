"""verdict.py: runs that are there are found, others are trained, and what is said of them."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from hydra import initialize_config_dir
from omegaconf import OmegaConf

import store.code
from data.corpora import open_corpus
from launch.cli import VERSION
from launch.idea import divide, open_side
from launch.pairs import Runs
from launch.quoting import CONFIGS
from store.code import code_sha256
from tests.conftest import (
    PLAIN,
    ROOT,
    begin,
    command,
    files,
    last_checkpoint,
    refused,
    succeed,
    wait_for,
)

BASE = f"base={' '.join(PLAIN)}"
IDEA = "optimizer.beta2=0.99"
LOSSES = (2.0, 2.1, 1.9, 2.05, 1.95)  # of the base, with seeds 1 to 5


def sides(*idea: str) -> tuple[Runs, Runs]:
    """The runs of base and idea, as verdict.py has them in this folder."""
    with initialize_config_dir(str(CONFIGS), **VERSION):
        base, other = map(open_side, divide(idea, " ".join(PLAIN)))
    text = open_corpus(base.data).fingerprint()
    return Runs(base, text, "base"), Runs(other, text, *other.beyond(base))


def put(tiny_run: Path, runs: Runs, seed: int, bpb: float) -> Path:
    """A finished run, with another seed, settings and result."""
    copy = runs.folder / f"seed={seed}"
    shutil.copytree(tiny_run, copy)
    config = OmegaConf.load(copy / "config.yaml")
    for name, value in (runs.side.settings | {"seed": seed}).items():
        OmegaConf.update(config, name, value)
    OmegaConf.save(config, copy / "config.yaml")
    summary = json.loads((copy / "summary.json").read_text())
    (copy / "summary.json").write_text(json.dumps({**summary, "val_bpb": bpb}))
    return copy


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_experiment_against_the_defaults() -> None:
    with initialize_config_dir(str(CONFIGS), **VERSION):
        idea = ["experiment=shakespeare_fast", "data=shakespeare"]
        found = [*map(open_side, divide(idea, "experiment=null"))]
    assert [side.settings["trainer.max_steps"] for side in found] == [1000, 60]
    assert [side.settings["data.name"] for side in found] == ["shakespeare"] * 2


@pytest.mark.parametrize(
    ("changes", "settings", "words"),
    [
        ((-0.021, -0.018, -0.022, -0.019, -0.020), [], "better by 0.99% ("),
        ((-0.002, -0.0021, -0.002, -0.0021, -0.002), [], "better by 0.10% (0.09 to 0.11%), less"),
        ((0.001, -0.002, 0.001, -0.001, 0.001), [], "no difference of more than 0.5%: "),
        ((0.001, -0.002, 0.001, -0.001, 0.001), ["margin=0.0001"], "not known after 5 pairs: "),
    ],
)
def test_what_is_said_of_finished_runs(
    here: Path, tiny_run: Path, changes: tuple[float, ...], settings: list[str], words: str
) -> None:
    base, idea = sides(IDEA)
    for seed, (loss, change) in enumerate(zip(LOSSES, changes, strict=True), 1):
        put(tiny_run, base, seed, loss)
        put(tiny_run, idea, seed, loss + change)
    before = files(here)
    arguments = (BASE, IDEA, "max_pairs=5", *settings)
    *_, pair, _, verdict = succeed("verdict", *arguments, cwd=here).splitlines()
    assert verdict.startswith(words)
    printed = command("verdict", *arguments, "json=true", cwd=here)
    found = json.loads(printed.stdout)
    n = found["pairs"]
    assert pair in printed.stderr and pair.startswith(
        f"pair {n}, seed {n}: {LOSSES[n - 1]:.4f} and"
    )
    assert verdict.startswith(found["verdict"] or "not known")
    assert found["low"] < found["difference"] < found["high"]
    assert found["difference"] == pytest.approx(np.mean(changes[:n]) / np.mean(LOSSES[:n]))
    assert found["runs"] == {"base": str(base.folder), "idea": str(idea.folder)}
    assert found["diverged"] == {"base": [], "idea": []}
    after = {name: data for name, data in files(here).items() if "curves" not in name}
    assert after == before, "nothing is trained again"


def test_a_verdict_is_given_without_its_curves(here: Path, tiny_run: Path) -> None:
    for side in sides(IDEA):
        for seed, loss in enumerate(LOSSES[:4], 1):
            put(tiny_run, side, seed, loss)
    (here / "runs/verdict/curves").write_text("a file of the user\n")
    printed = command("verdict", BASE, IDEA, "max_pairs=4", "json=true", cwd=here)
    assert json.loads(printed.stdout)["curves"] is None
    assert "note: the mean curves were not written" in printed.stderr


def test_a_base_that_a_verdict_with_other_words_has_begun_is_taken(
    here: Path, tiny_run: Path
) -> None:
    base, _ = sides(IDEA)
    same = Runs(base.side, open_corpus(base.side.data).fingerprint(), "other words")
    put(tiny_run, same, 1, 2.0)
    assert sides(IDEA)[0].folder == same.folder != base.folder


def test_a_verdict_is_stopped_and_continued(here: Path, tiny_run: Path) -> None:
    base, idea = sides(IDEA)
    for seed, loss in enumerate(LOSSES[:4], 1):
        put(tiny_run, base, seed, loss)
        if seed < 4:
            put(tiny_run, idea, seed, loss)
    arguments = (BASE, IDEA, "max_pairs=4")
    process = begin(str(ROOT / "verdict.py"), *arguments, cwd=here)
    run = idea.folder / "seed=4"
    assert wait_for((run / "config.yaml").is_file, process)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (130, "\nstopped\n"), output
    assert not (run / "summary.json").exists()
    assert "pair 4, seed 4: 2.0500 and " in succeed("verdict", *arguments, cwd=here)
    assert last_checkpoint(run).name == "step-000006"


def test_a_run_that_diverges_counts_as_worse(here: Path, tiny_run: Path) -> None:
    extreme = ("optimizer.lr=1e36", "optimizer.warmup_steps=0", "trainer.max_bad_steps=1")
    base, idea = sides(*extreme)
    for seed, loss in enumerate(LOSSES[:4], 1):
        put(tiny_run, base, seed, loss)
        if seed != 2:
            put(tiny_run, idea, seed, loss - 0.02)
    output = succeed("verdict", BASE, *extreme, "max_pairs=4", cwd=here)
    assert "pair 2, seed 2: 2.1000 and diverged; " in output
    *_, verdict = output.splitlines()
    assert verdict.startswith("not known after 4 pairs: +")
    assert verdict.endswith("; the idea diverged with seed 2, counted as 8 bits per byte")
    diverged = idea.folder / "seed=2"
    before = files(diverged)
    assert "diverged.json" in before and "summary.json" not in before
    assert succeed("verdict", BASE, *extreme, "max_pairs=4", cwd=here) == output
    assert files(diverged) == before, "it is not trained again"
    # Also as a run of the code from before an edit.
    earlier = shutil.copytree(idea.folder, here / "earlier")
    for code in earlier.glob("*/code.json"):
        code.write_text(json.dumps({"sha256": "another"}))
    for seed in (1, 2, 3, 4):
        shutil.rmtree(idea.folder / f"seed={seed}")
        put(tiny_run, idea, seed, LOSSES[seed - 1])
    against = (*PLAIN, *extreme, f"against={earlier}")
    printed = succeed("verdict", *against, "json=true", cwd=here)
    assert json.loads(printed)["diverged"] == {"base": [2], "idea": []}
    (earlier / "seed=1/code.json").write_text(json.dumps({"sha256": "a third"}))
    assert "has runs of different code" in refused("verdict", *against, cwd=here)
    shutil.copytree(earlier / "seed=3", earlier / "again")
    assert "has two runs of one seed" in refused("verdict", *against, cwd=here)
    shutil.rmtree(diverged)
    shutil.rmtree(base.folder / "seed=2")
    put(tiny_run, base, 5, LOSSES[4])
    done = command("verdict", f"{BASE} {' '.join(extreme)}", "seeds_from=2", IDEA, cwd=here)
    assert done.returncode == 2 and "diverged with seed 2 on both sides" in done.stderr


def test_runs_of_other_code_are_not_those_of_a_verdict(
    here: Path, tiny_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They can be what the code is judged against."""
    base, idea = sides(IDEA)
    for seed, loss in enumerate(LOSSES, 1):
        put(tiny_run, base, seed, loss)
        put(tiny_run, idea, seed, loss)
    line = refused("verdict", *PLAIN, f"against={base.folder}", cwd=here)
    assert "trained by the code as it is now" in line
    earlier = here / "earlier"
    base.folder.rename(earlier)
    for seed in range(1, 6):
        code = earlier / f"seed={seed}/code.json"
        code.write_text(json.dumps({**json.loads(code.read_text()), "sha256": "another"}))
        put(tiny_run, base, seed, LOSSES[seed - 1] + 0.02 + seed / 1e4)
    against = (*PLAIN, f"against={earlier}")
    assert "worse by 1." in succeed("verdict", *against, cwd=here)
    assert "pair 1, seed 2: " in succeed("verdict", *against, "seeds_from=2", cwd=here)
    line = refused("verdict", *against, IDEA, cwd=here)
    assert "other settings (optimizer.beta2=0.995)" in line
    shutil.rmtree(base.folder)
    earlier.rename(base.folder)
    assert "seed=1: has other settings or code" in refused("verdict", BASE, IDEA, cwd=here)
    # With other code, their folder is another.
    clone = here / "clone"
    clone.mkdir()
    (clone / "train.py").write_text("steps = 1\n")
    monkeypatch.setattr(store.code, "ROOT", clone)
    assert not {runs.folder for runs in sides(IDEA)} & {base.folder, idea.folder}


def test_the_checksum_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is another one after any change of what can be imported, and no other."""
    monkeypatch.setattr(store.code, "ROOT", tmp_path)
    (tmp_path / "train.py").write_text("a = 1\n")
    sums = [code_sha256()]

    def write(name: str, text: str = "a = 1\n") -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        sums.append(code_sha256())

    (tmp_path / "gone.py").symlink_to("nowhere")
    for name in ("ideas/loss.py", "ideas/mine/loss.py", "data/x.py"):
        write(name)
    write("train.py", "a = 2\n")
    (tmp_path / "ideas/loss.py").rename(tmp_path / "ideas/lost.py")
    sums.append(code_sha256())
    assert len({*sums}) == len(sums) == 6
    for name in ("tests/test_x.py", "docs/x.py", ".venv/x.py", "runs/x.py", "data/x.txt"):
        write(name)
    (tmp_path / "data/.#x.py").symlink_to("nowhere")
    write("env/pyvenv.cfg")
    write("env/lib/x.py")
    assert {*sums[6:]} == {sums[5]}


def test_code_that_changed_after_the_verdict_began_trains_nothing(tmp_path: Path) -> None:
    line = refused("train", *PLAIN, cwd=tmp_path, GLASSGPT_CODE="that of before")
    assert line.startswith("error: verdict.py: the code has changed since")
