"""Checkpoints of a model that is sharded among CPU ranks, with the real torchrun."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.checkpoint import HuggingFaceStorageReader
from torch.distributed.checkpoint import load as load_distributed
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from errors import UserError
from files import find_damage, write_sums
from tests.conftest import ROOT, begin, command, files, finish, succeed
from tests.test_faults import damage
from tests.test_ranks import SETTINGS, children, launch, losses, stop_after, wait_until_free
from train import check_model_memory
from training.checkpoint import FILES, MODEL, OPTIMIZER
from training.ranks import Ranks
from training.tensors import Tensors
from training.weights import file_names

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")

# 12 sequences can be shared by 1, 2, 3 or 4 ranks.
SHARDED = (
    *(each for each in SETTINGS if "observe" not in each),
    *("trainer.batch_size=12", "trainer.grad_accumulation=1", "optimizer=adamw"),
    *("observe.attention.every=0", "observe.tensorboard=false", "trainer.parallel=fsdp"),
    # Large enough that what is wrong shows in the losses within a few steps.
    *("optimizer.lr=1e-2", "optimizer.warmup_steps=0", "cache_dir=../cache"),
)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a single rank."""
    folder = tmp_path_factory.mktemp("alone")
    succeed("train", *SHARDED, "run_dir=run", cwd=folder)
    return folder / "run"


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `parts`, on three ranks, with all its checkpoints; and of `whole`, the same run
    with its weights in one file, which PyTorch's own reader has put together."""
    folder = tmp_path_factory.mktemp("sharded")
    settings = (*SHARDED, "trainer.keep_checkpoints=9", "run_dir=parts")
    finish(launch(3, *settings, cwd=folder))
    shutil.copytree(folder / "parts", folder / "whole", symlinks=True)
    for checkpoint in (folder / "whole/checkpoints").glob("step-*"):
        tensors = read_by_torch(checkpoint)
        for each in checkpoint.glob("*-of-*"):
            each.unlink()
        save_file(
            {key: each for key, each in tensors.items() if "/" not in key}, checkpoint / MODEL
        )
        save_file(
            {key: each for key, each in tensors.items() if "/" in key}, checkpoint / OPTIMIZER
        )
        write_sums(checkpoint, FILES)
    return folder


def read_by_torch(checkpoint: Path) -> dict[str, Tensor]:
    """All tensors of a sharded checkpoint but the scalars, which PyTorch's reader cannot read."""
    metadata = HuggingFaceStorageReader(str(checkpoint)).read_metadata().state_dict_metadata
    tensors = {
        name: torch.empty(each.size, dtype=each.properties.dtype)
        for name, each in metadata.items()
        if isinstance(each, TensorStorageMetadata) and each.size
    }
    reader = HuggingFaceStorageReader(str(checkpoint))
    load_distributed(tensors, storage_reader=reader, no_dist=True)
    for name in file_names(checkpoint, OPTIMIZER):
        stored = load_file(checkpoint / name)
        tensors |= {key: each for key, each in stored.items() if not each.ndim}
    return tensors


def assert_equal(run: Path, alone: Path) -> None:
    """Assert that two runs have the same losses, to float tolerance."""
    mine, theirs = losses(run), losses(alone)
    assert [line["step"] for line in mine] == [line["step"] for line in theirs]
    for one, other in zip(mine, theirs, strict=True):
        assert one == pytest.approx(other, rel=1e-4), one["step"]
    assert losses(run)[0]["train_loss"] - losses(run)[-2]["train_loss"] > 0.1  # it has learned


@pytest.mark.long
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
def test_any_number_of_ranks_trains_as_one(alone: Path, tmp_path: Path, n_ranks: int) -> None:
    finish(launch(n_ranks, *SHARDED, "run_dir=run", cwd=tmp_path))
    assert_equal(tmp_path / "run", alone)
    last = tmp_path / "run/checkpoints/last"
    assert subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=last).returncode == 0
    for part in (MODEL, OPTIMIZER):
        expected = load_file(alone / "checkpoints/last" / part)
        paths = [last / name for name in file_names(last, part)]
        assert len(paths) == n_ranks
        total = sum(each.nbytes for each in expected.values())
        for path in paths:  # each rank has its share; small tensors cannot be shared evenly
            share = sum(each.nbytes for each in load_file(path).values())
            assert 0.8 * total / n_ranks < share < 1.2 * total / n_ranks
        found = dict(Tensors(paths))
        assert found.keys() == expected.keys()
        for name, each in found.items():
            torch.testing.assert_close(each, expected[name], rtol=1e-2, atol=1e-3)
    if n_ranks > 1:
        theirs = read_by_torch(last)
        for part in (MODEL, OPTIMIZER):
            for name, each in Tensors(last / name for name in file_names(last, part)).items():
                assert torch.equal(each, theirs.pop(name)), name
        assert not theirs


@pytest.mark.long
def test_bfloat16_is_as_exact_as_that_of_ddp(tmp_path: Path) -> None:
    """Also if blocks are computed again, with the same dropout."""
    settings = (*SHARDED, "trainer.precision=bf16", "model.dropout=0.1")
    shards = ("trainer.parallel=fsdp", "trainer.activation_checkpointing=true")
    finish(launch(2, *settings, *shards, "run_dir=run", cwd=tmp_path))
    finish(launch(2, *settings, "trainer.parallel=ddp", "run_dir=ddp", cwd=tmp_path))
    for one, other in zip(losses(tmp_path / "run"), losses(tmp_path / "ddp"), strict=True):
        key = "train_loss" if "train_loss" in other else "val_loss"
        assert one[key] == pytest.approx(other[key], rel=1e-3), one["step"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "after", "parallel"),
    [(2, 4, "fsdp"), (3, 2, "fsdp"), (4, 1, "fsdp"), (2, 2, "ddp")],
)
def test_a_sharded_run_resumes_on_other_ranks(
    alone: Path, tmp_path: Path, before: int, after: int, parallel: str
) -> None:
    stop_after(before, 4, *SHARDED, "trainer.eval_every=0", "run_dir=run", cwd=tmp_path)
    resume = ("resume=run", f"trainer.parallel={parallel}", "trainer.eval_every=6")
    finish(launch(after, *resume, cwd=tmp_path))
    assert_equal(tmp_path / "run", alone)


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [
        ("sample", "max_new_tokens=20", "seed=3"),
        ("sample", "max_new_tokens=20", "temperature=0", "checkpoint=best"),
        ("evaluate",),
        ("look", "html=hen.html", "checkpoints=all"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_scripts_read_shards(sharded: Path, arguments: tuple[str, ...]) -> None:
    outputs = []
    for run in ("parts", "whole"):
        done = command(arguments[0], f"run={run}", *arguments[1:], cwd=sharded)
        assert done.returncode == 0 and "damaged" not in done.stderr, done.stderr
        page = sharded / "hen.html"
        outputs.append(done.stdout.replace(run, ""))
        if page.exists():
            outputs[-1] += page.read_text().replace(run, "")
            page.unlink()
    assert outputs[0] == outputs[1]


@pytest.mark.long
@pytest.mark.parametrize("target", ["folder", "model.gguf"])
def test_shards_are_converted(sharded: Path, tmp_path: Path, target: str) -> None:
    for run in ("parts", "whole"):
        (tmp_path / run).mkdir()
        to = tmp_path / run / target
        succeed("convert", f"source={sharded / run}", f"to={to}", cwd=sharded)
    mine, theirs = files(tmp_path / "parts"), files(tmp_path / "whole")
    cards = [each.pop("folder/README.md", None) for each in (mine, theirs)]
    assert mine == theirs and len(cards) == 2


@pytest.mark.long
def test_a_run_begins_with_the_weights_of_shards(sharded: Path, tmp_path: Path) -> None:
    steps = ("trainer.max_steps=2", "trainer.eval_every=1", "data.n_bytes=60000")
    for run in ("parts", "whole"):
        base = f"init_from={sharded / run}"
        succeed("train", base, *steps, f"run_dir={run}", "cache_dir=../cache", cwd=tmp_path)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


@pytest.mark.long
@pytest.mark.parametrize("how", ["missing", "truncated", "flipped"])
@pytest.mark.parametrize(
    "name", ["model-00002-of-00003.safetensors", "optimizer-00003-of-00003.safetensors"]
)
def test_a_damaged_shard_is_named_and_the_previous_checkpoint_used(
    sharded: Path, tmp_path: Path, name: str, how: str
) -> None:
    shutil.copytree(sharded / "parts", tmp_path / "run", symlinks=True)
    damage(tmp_path / "run/checkpoints/step-000012" / name, how)
    done = command("sample", "run=run", "max_new_tokens=5", "checkpoint=last", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (warning,) = done.stderr.splitlines()
    assert f"step-000012/{name}" in warning and warning.endswith("; using step-000008")


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    while process.poll() is None and not condition():
        time.sleep(0.0005)


@pytest.mark.long
@pytest.mark.parametrize("in_background", ["false", "true"])
@pytest.mark.parametrize("victims", ["all", "one"])
def test_ranks_that_are_killed_while_they_save(
    alone: Path, tmp_path: Path, victims: str, in_background: str
) -> None:
    """Nothing that is half written is taken, and the run ends as if nothing had happened."""
    run, saves = tmp_path / "run", "trainer.checkpoint_every=1"
    background = f"trainer.async_checkpoint={in_background}"
    process = launch(2, *SHARDED, saves, background, "run_dir=run", cwd=tmp_path)
    checkpoints = run / "checkpoints"
    wait_for(lambda: (checkpoints / "last").exists(), process)
    wait_for(lambda: any(checkpoints.glob(".step-*/*.safetensors")), process)
    ranks = children(process)
    for rank in ranks if victims == "all" else ranks[-1:]:
        os.kill(rank, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode != 0
    wait_until_free(run)
    for checkpoint in checkpoints.glob("step-*"):
        names = [*file_names(checkpoint, MODEL), *file_names(checkpoint, OPTIMIZER), "state.json"]
        assert len(names) == 5 and find_damage(checkpoint, names) is None
    finish(launch(2, "resume=run", cwd=tmp_path))
    assert_equal(run, alone)
    assert not [*checkpoints.glob(".step-*")]


# Rank 1 alone cannot write files of more than a few bytes.
LIMITED = """
import os, resource, runpy, sys

if os.environ["RANK"] == "1":
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.long
@pytest.mark.parametrize("in_background", ["false", "true"])
def test_a_full_disk_of_one_rank_ends_all(
    sharded: Path, tmp_path: Path, in_background: str
) -> None:
    shutil.copytree(sharded / "parts", tmp_path / "run", symlinks=True)
    before = files(tmp_path / "run/checkpoints")
    (tmp_path / "limited.py").write_text(LIMITED)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "limited.py")
    background = f"trainer.async_checkpoint={in_background}"
    resume = ("resume=run", "trainer.max_steps=1000", "trainer.keep_checkpoints=9", background)
    cache = f"cache_dir={sharded.parent / 'cache'}"
    process = begin(*torchrun, str(ROOT / "train.py"), *resume, cache, cwd=tmp_path)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    (line,) = (line for line in errors.splitlines() if line.startswith("error: "))
    assert "File too large" in line and "earlier ones are intact" in line
    assert "[rank" not in errors, "no rank has a traceback"
    assert files(tmp_path / "run/checkpoints") == before
    assert losses(tmp_path / "run")[-1]["step"] < 30, "it does not go on without checkpoints"


def launch_nodes(*settings: str, cwd: Path) -> list[subprocess.Popen[str]]:
    """Two nodes of two ranks each: two agents of torchrun, which find each other on a port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torchrun = ("-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=2", "--rdzv_id=1")
    meet = ("--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{port}")
    script = (str(ROOT / "train.py"), *settings)
    return [begin(*torchrun, *meet, *script, cwd=cwd) for _ in range(2)]


@pytest.mark.long
def test_two_nodes_that_each_shard_the_model(alone: Path, tmp_path: Path) -> None:
    """Every row is written once, although two ranks hold it."""
    for process in launch_nodes(*SHARDED, "trainer.parallel=hsdp", "run_dir=run", cwd=tmp_path):
        finish(process)
    assert_equal(tmp_path / "run", alone)
    checkpoint = tmp_path / "run/checkpoints/last"
    stored = [load_file(checkpoint / name) for name in file_names(checkpoint, MODEL)]
    expected = load_file(alone / "checkpoints/best" / MODEL)
    rows = dict.fromkeys(expected, 0)
    for shard in stored:
        for name, each in shard.items():
            rows[name] += len(each)
    assert len(stored) == 4
    assert rows == {name: len(each) for name, each in expected.items()}


@pytest.mark.parametrize(
    ("on_this_node", "nodes"), [("2", (2, 2)), ("4", (1, 4)), ("1", (4, 1)), (None, (1, 4))]
)
def test_nodes_are_those_of_torchrun(
    monkeypatch: pytest.MonkeyPatch, on_this_node: str | None, nodes: tuple[int, int]
) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if on_this_node is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", on_this_node)
    assert Ranks(world_size=4).equal_nodes() == nodes


@pytest.mark.parametrize(
    ("on_this_node", "nodes"), [("3", "2"), ("1", "2"), ("1", "3"), ("2", "3")]
)
def test_nodes_that_are_not_equal_are_rejected(
    monkeypatch: pytest.MonkeyPatch, on_this_node: str, nodes: str
) -> None:
    """On every node, so that none waits for the others."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", on_this_node)
    monkeypatch.setenv("GROUP_WORLD_SIZE", nodes)
    with pytest.raises(UserError, match=r"trainer\.parallel: hsdp needs nodes with equally many"):
        Ranks(world_size=4).equal_nodes()


IDS = 80_000 * 16 / 1e9  # GB
LOGITS = 0.268 + IDS


@pytest.mark.parametrize(
    ("world_size", "on_this_node", "parallel", "gigabytes"),
    [
        (1, 1, "ddp", 2.0 * 3 + 8.0 + LOGITS),
        # On CPUs, the ranks of a node share its memory.
        (4, 4, "ddp", 4 * (2.0 * 3 + 2.0 + LOGITS)),
        (4, 4, "fsdp", 2.0 * 3 + 8.0 + 4 * LOGITS),
        (8, 2, "fsdp", 2 * (2.0 * 3 / 8 + 1.0 + LOGITS)),
        (8, 2, "hsdp", 2 * (2.0 * 3 / 2 + 1.0 + LOGITS)),
    ],
)
def test_the_memory_that_is_needed_is_that_of_the_ranks(
    monkeypatch: pytest.MonkeyPatch,
    world_size: int,
    on_this_node: int,
    parallel: str,
    gigabytes: float,
) -> None:
    """Weights of 2 GB, and for one of two parts of the whole batch, inputs of blocks of 8 GB and
    more logits than are in memory at once."""
    asked: list[float] = []
    monkeypatch.setattr("train.check_memory", lambda needed, *_: asked.append(needed))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(on_this_node))
    monkeypatch.setenv("GROUP_WORLD_SIZE", str(world_size // on_this_node))
    config: Any = SimpleNamespace(
        tokenizer=SimpleNamespace(vocab_size=50_000),
        model=SimpleNamespace(
            context_length=1000, n_layers=50, d_model=1000, n_weights=lambda _: 500_000_000
        ),
        trainer=SimpleNamespace(
            parallel=parallel, batch_size=80, grad_accumulation=2, compile=False
        ),
    )
    check_model_memory(config, Ranks(world_size=world_size))
    config.trainer.compile = True
    check_model_memory(config, Ranks(world_size=world_size))
    assert asked[0] == pytest.approx(gigabytes * 1e9, rel=1e-3)
    compiled = 40_000 * 50_000 * 2 / world_size * on_this_node / 1e9
    assert asked[1] - asked[0] == pytest.approx((compiled - on_this_node * LOGITS) * 1e9, rel=1e-2)
