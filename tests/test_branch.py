"""Branches: a new run that continues a checkpoint of another, also without some of its heads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
import yaml
from safetensors.torch import load_file

from configs.schema import TrainConfig, build, load_run_config
from data import load_dataset
from inference import open_run
from inference.branch import MEAN_TOKENS
from model import record_attention
from tensorboard_attention.index import Index
from tests.conftest import command, files, last_step, metrics, succeed
from training.data import training_data
from training.weights import load_weights

CONSTANT = "blocks.1.attention.hold.constants.0"
QUIET = ("observe.terminal=false", "observe.tensorboard=false")
TENSORS = ("model.safetensors", "optimizer.safetensors")


def branch(cwd: Path, *arguments: str) -> Path:
    """A branch of the run in `tiny`, in a folder of its own."""
    succeed("train", "run_dir=branch", *QUIET, *arguments, cwd=cwd)
    return cwd / "branch"


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run / f"checkpoints/step-{step:06d}/model.safetensors")


def test_a_branch_is_the_trunk_bit_for_bit(tmp_path: Path, tiny: Path, tiny_run: Path) -> None:
    before = files(tiny_run)
    made = branch(tmp_path, f"branch={tiny_run}", "step=3", f"cache_dir={tiny}/.cache")
    assert files(tiny_run) == before
    for name in TENSORS:
        for step in ("step-000003", "step-000006"):
            ours, trunk = (run / "checkpoints" / step / name for run in (made, tiny_run))
            assert ours.read_bytes() == trunk.read_bytes()
    # From the evaluation at its first step on.
    expected = [
        line
        for line in metrics(tiny_run)
        if line["step"] > 3 or (line["step"] == 3 and "val_loss" in line)
    ]
    assert metrics(made) == expected
    stored = yaml.safe_load((made / "config.yaml").read_text())
    assert (stored["branch"], stored["step"]) == (str(tiny_run), 3)
    assert stored["hold_off"] is stored["model"]["hold_off"] is None
    assert f"branching off from {tiny_run} at step 3" in (made / "train.log").read_text()


def test_a_branch_can_change_what_a_resume_can(tmp_path: Path, tiny: Path, run: Path) -> None:
    """By default it continues the last checkpoint, beyond the end of the trunk."""
    shutil.copytree(run, tmp_path / "resumed", symlinks=True)
    more = ("trainer.max_steps=9", "optimizer.lr=0.01", f"cache_dir={tiny}/.cache")
    made = branch(tmp_path, "branch=run", *more)
    succeed("train", "resume=resumed", *more, *QUIET, cwd=tmp_path)
    ours, resumed = weights(made, 9), weights(tmp_path / "resumed", 9)
    assert all(torch.equal(resumed[name], tensor) for name, tensor in ours.items())


def test_held_off_heads_are_their_mean(tmp_path: Path, tiny: Path, tiny_run: Path) -> None:
    """In the trunk, over the training batches that come next; and training changes it no more."""
    made = branch(
        tmp_path, f"branch={tiny_run}", "step=3", "hold_off=L1H0", f"cache_dir={tiny}/.cache"
    )
    assert last_step(made) == 6
    first, last, trunk = weights(made, 3), weights(made, 6), weights(tiny_run, 3)
    assert first.keys() == last.keys() == {*trunk, CONSTANT}
    assert torch.equal(first[CONSTANT], last[CONSTANT])
    assert all(torch.equal(first[other], tensor) for other, tensor in trunk.items())

    config = build(load_run_config(tiny_run / "config.yaml"), TrainConfig)
    opened = open_run(tiny_run, "last")
    load_weights(opened.model, tiny_run / "checkpoints/step-000003")
    _, dataset = load_dataset(config.data, opened.tokenizer, tiny / ".cache", 32)
    batches = training_data(dataset, config).batches
    gathered = []
    for step in range(3, 3 + MEAN_TOKENS // (4 * 32)):
        with torch.no_grad(), record_attention(opened.model, keep="context") as contexts:
            opened.model(batches(step)[0])
        gathered.append(contexts[1][:, 0])
    mean = torch.cat(gathered).double().mean((0, 1)).float()
    torch.testing.assert_close(first[CONSTANT], mean, rtol=1e-5, atol=1e-7)


def test_a_run_without_some_heads(tmp_path: Path, tiny: Path, run: Path) -> None:
    """It is resumed, branched off from again, sampled and evaluated without them."""
    cache = f"cache_dir={tiny}/.cache"
    start = ("branch=run", "step=3", "hold_off=L1H0", cache)
    made = branch(tmp_path, *start, "observe.tensorboard=true")
    index = Index(str(made))
    assert index.refresh() and index.steps()["."]["attention"] == [3, 6]
    note = json.loads(index.maps(".", "attention", 3)[0])["note"]
    assert note == "Held off, and so without any effect: L1H0."
    assert open_run(made, "best").model.config.hold_off == "L1H0"
    first, trunk = metrics(made)[0], metrics(run)[1]
    assert first["step"] == trunk["step"] == 3 and first["val_loss"] != trunk["val_loss"]

    again = ("branch=branch", "step=3", "hold_off=L0H1,L1H1", "run_dir=again")
    succeed("train", *again, "trainer.max_steps=5", cache, *QUIET, cwd=tmp_path)
    succeed("train", "resume=again", "trainer.max_steps=7", cache, *QUIET, cwd=tmp_path)
    assert torch.equal(weights(tmp_path / "again", 7)[CONSTANT], weights(made, 3)[CONSTANT])
    assert open_run(tmp_path / "again", "last").model.config.hold_off == "L1H0,L0H1,L1H1"
    refused = command("train", "branch=again", "step=6", "hold_off=L1H1", cwd=tmp_path)
    assert refused.stderr == "error: hold_off: again already does without L1H1; leave it out\n"

    loss = json.loads((made / "summary.json").read_text())["val_loss"]
    evaluated = succeed("evaluate", "run=branch", "checkpoint=last", cache, cwd=tmp_path)
    assert f"val: {loss:.4f} nats" in evaluated
    assert succeed("sample", "run=branch", "max_new_tokens=5", cwd=tmp_path)
    others = {"convert": ("source=branch", "to=hf"), "look": ("run=branch", "html=a")}
    for script, arguments in others.items():
        refused = command(script, *arguments, cwd=tmp_path)
        assert refused.returncode == 2 and "model.hold_off: L1H0 is unknown to" in refused.stderr


def test_all_branches_of_a_sweep_have_the_same_trunk(tmp_path: Path, tiny: Path, run: Path) -> None:
    start = ("branch=runs/latest", "step=3", f"cache_dir={tiny}/.cache", *QUIET)
    succeed("train", "branch=run", *start[1:], "name=trunk", cwd=tmp_path)
    heads = ("-m", "hold_off=L0H1,L1H0", "hydra.sweep.dir=sweep")
    succeed("train", *heads, *start, cwd=tmp_path)
    files = sorted(tmp_path.glob("sweep/*/config.yaml"))
    stored = [yaml.safe_load(file.read_text()) for file in files]
    assert [each["hold_off"] for each in stored] == ["L0H1", "L1H0"]
    assert {each["branch"] for each in stored} == {str(tmp_path / "runs/trunk")}


def test_a_branch_without_its_first_weights(tmp_path: Path, tiny: Path, run: Path) -> None:
    """It was killed before it had saved them: a resume does not begin with other weights."""
    made = branch(tmp_path, "branch=run", "step=3", f"cache_dir={tiny}/.cache")
    shutil.rmtree(made / "checkpoints")
    (made / "summary.json").unlink()
    refused = command("train", "resume=branch", f"cache_dir={tiny}/.cache", cwd=tmp_path)
    assert refused.returncode == 2 and f"branch={tmp_path}/run" in refused.stderr
