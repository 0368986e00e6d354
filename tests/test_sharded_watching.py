"""A model that is sharded over several ranks is watched as one on a single rank is."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from observe.embeddings import FOLDER
from tests.conftest import ROOT, TINY_MODEL, begin, command, finish, succeed
from tests.test_ranks import launch, losses
from tests.test_sharded import launch_nodes

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="needs torchrun on Linux"),
]

SETTINGS = (
    *TINY_MODEL,
    "data.n_bytes=60000",
    "optimizer=adamw",
    "optimizer.lr=0.01",
    "trainer.max_steps=12",
    "trainer.batch_size=12",
    "trainer.eval_every=6",
    "trainer.checkpoint_every=4",
    "observe.attention.every=6",
    "observe.attention.images_every=6",
    "observe.histograms.every=6",
    "observe.samples.every=6",
    "observe.samples.max_new_tokens=70",  # more than the context, which is then read again
    "run_dir=run",
)
FSDP = "trainer.parallel=fsdp"
OTHER_PARTS = (
    "model.tied_embeddings=false",
    "model.position=learned",
    "model.n_kv_heads=1",
    "model.bias=true",
)


def events(run: Path) -> EventAccumulator:
    assert len([*run.glob("events.*")]) == 1, "only the main process writes events"
    kinds = ("scalars", "images", "histograms", "tensors")
    return EventAccumulator(str(run), size_guidance=dict.fromkeys(kinds, 0)).Reload()


def maps(logged: EventAccumulator) -> list[tuple[int, dict, np.ndarray]]:
    """The step, the header and the packed weights, which are bytes, of all logged maps."""
    return [
        (each.step, json.loads(header), np.frombuffer(zlib.decompress(packed), np.uint8))
        for each in logged.Tensors("attention")
        for header, packed in [make_ndarray(each.tensor_proto)]
    ]


def assert_same_maps(one: EventAccumulator, other: EventAccumulator) -> None:
    first, _, last = maps(one)
    assert np.abs(first[2].astype(int) - last[2]).max() > 10, "training changes the maps"
    for mine, theirs in zip(maps(one), maps(other), strict=True):
        assert mine[0] == theirs[0]
        assert np.abs(mine[2].astype(int) - theirs[2]).max() <= 1
        scores, others = (each[1].pop("scores") for each in (mine, theirs))
        assert scores.keys() == others.keys() and "importance" in scores
        for name, heads in scores.items():
            # Importance is of the order of 0.01 here.
            close = {"rel": 0.02, "abs": 2e-5} if "importance" in name else {"abs": 2e-3}
            for mine_, theirs_ in zip(heads, others[name], strict=True):
                assert mine_ == pytest.approx(theirs_, **close, nan_ok=True), name
        assert mine[1]["tokens"] == theirs[1]["tokens"]
        assert mine[1]["measured"] == theirs[1]["measured"]


def train_sharded(ranks: int, *settings: str, cwd: Path) -> str:
    """Train under fsdp; four ranks are two nodes of two, under hsdp. Returns what is printed."""
    if ranks < 4:
        return finish(launch(ranks, *settings, FSDP, cwd=cwd))
    nodes = launch_nodes(*settings, "trainer.parallel=hsdp", cwd=cwd)
    return "".join(map(finish, nodes))


@pytest.mark.parametrize(("ranks", "choices"), [(2, ()), (3, OTHER_PARTS), (4, ())])
def test_events_of_a_sharded_model_are_those_of_one_rank(
    tmp_path: Path, ranks: int, choices: tuple[str, ...]
) -> None:
    folders = [tmp_path / name for name in ("alone", "sharded")]
    for folder in folders:
        folder.mkdir()
    output = succeed("train", *SETTINGS, *choices, cwd=folders[0])
    shown = train_sharded(ranks, *SETTINGS, *choices, cwd=folders[1])
    cost = r"\nWatching +[\d.]+ s of [\d.]+ s \([\d.]+%\); observe\.sharded=false"
    assert len(re.findall(cost, shown)) == 1 and not re.search(cost, output)
    text, other = (each.partition("Sample:\n")[2].partition("Next:")[0] for each in (output, shown))
    assert text == other and len(text) > 20
    assert re.search(r"maps, scores.* took [\d.]+ s of", (folders[1] / "run/train.log").read_text())

    one, two = (events(folder / "run") for folder in folders)
    for kind in ("scalars", "images", "histograms", "tensors"):
        new = {"speed/tokens_per_second_per_device"} if kind == "scalars" else set()
        assert {*one.Tags()[kind], *new} == {*two.Tags()[kind]} != new, kind
    assert_same_maps(one, two)
    for tag in one.Tags()["histograms"]:
        for mine, theirs in zip(one.Histograms(tag), two.Histograms(tag), strict=True):
            squares = (each.histogram_value.sum_squares for each in (mine, theirs))
            assert next(squares) == pytest.approx(next(squares), rel=1e-2, abs=1e-8), tag
            assert mine.step == theirs.step
    for tag in one.Tags()["scalars"]:
        if tag.startswith("score "):
            for mine, theirs in zip(one.Scalars(tag), two.Scalars(tag), strict=True):
                assert mine.step == theirs.step
                assert mine.value == pytest.approx(theirs.value, rel=2e-2, abs=2e-3), tag
    samples = [
        [(each.step, make_ndarray(each.tensor_proto)[0]) for each in logged.Tensors(tag)]
        for logged in (one, two)
        for tag in ["sample/text_summary"]
    ]
    assert samples[0] == samples[1] and [step for step, _ in samples[0]] == [6, 12]
    for tag in one.Tags()["images"]:
        for mine, theirs in zip(one.Images(tag), two.Images(tag), strict=True):
            pictures = [
                np.asarray(Image.open(io.BytesIO(each.encoded_image_string))).astype(int)
                for each in (mine, theirs)
            ]
            assert mine.step == theirs.step
            assert np.abs(pictures[0] - pictures[1]).mean() < 1, tag
    files = [folder / "run" / FOLDER / "token_embedding.tsv" for folder in folders]
    points, others = map(np.loadtxt, files)
    np.testing.assert_allclose(points, others, rtol=1e-3, atol=1e-4)


def test_watching_a_sharded_model_does_not_change_it(tmp_path: Path) -> None:
    """Also the switch: without `observe.sharded` there is nothing that all ranks must take part
    in."""
    settings = (*SETTINGS, FSDP, "observe.samples.every=1", "observe.attention.every=1")
    for sharded in ("true", "false"):
        run = f"run_dir={sharded}"
        output = finish(launch(2, *settings, f"observe.sharded={sharded}", run, cwd=tmp_path))
    assert "(no sample: observe.sharded=false; use sample.py)" in output
    assert "On a phone" not in output and "Watching  " not in output
    watched, blind = (tmp_path / name for name in ("true", "false"))
    shards, others = (
        {path.name: path.read_bytes() for path in (run / "checkpoints/last").glob("*.safetensors")}
        for run in (watched, blind)
    )
    assert len(shards) == 4 and shards == others
    tags = events(blind).Tags()
    assert "attention" not in tags["tensors"] and not tags["histograms"]
    assert "loss/val" in tags["scalars"] and not (blind / FOLDER).exists()


WITHOUT_END = (
    *SETTINGS,
    FSDP,
    "trainer.max_steps=100000",
    "trainer.checkpoint_every=0",
    "trainer.log_every=1",
    "observe.attention.every=1",  # most of the time is spent on maps
)


def wait_for_steps(run: Path) -> None:
    while not (run / "metrics.jsonl").exists() or len(losses(run)) < 3:
        time.sleep(0.01)


def test_a_signal_stops_ranks_that_watch_together(tmp_path: Path) -> None:
    process = launch(2, *WITHOUT_END, cwd=tmp_path)
    wait_for_steps(tmp_path / "run")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    (stopped,) = re.findall(r"stopped by SIGTERM after step (\d+)", errors)
    state = json.loads((tmp_path / "run/checkpoints/last/state.json").read_text())
    assert state["step"] == int(stopped) == losses(tmp_path / "run")[-1]["step"]


def begin_ranks(*settings: str, cwd: Path) -> list[subprocess.Popen[str]]:
    """Two ranks without torchrun, which would end the second when the first fails."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    return [
        begin(
            str(ROOT / "train.py"),
            *settings,
            cwd=cwd,
            **where,
            RANK=str(each),
            LOCAL_RANK=str(each),
        )
        for each in range(2)
    ]


@pytest.mark.parametrize("dying", [0, 1])
def test_a_rank_does_not_wait_for_one_that_died(tmp_path: Path, dying: int) -> None:
    processes = begin_ranks(*WITHOUT_END, cwd=tmp_path)
    wait_for_steps(tmp_path / "run")
    os.kill(processes[dying].pid, signal.SIGKILL)
    _, errors = processes[1 - dying].communicate(timeout=60)
    assert processes[1 - dying].returncode == 2
    assert "stopped, because another rank failed" in errors


def test_a_rank_does_not_wait_for_a_main_process_that_cannot_write(tmp_path: Path) -> None:
    settings = (*WITHOUT_END, "observe.terminal=false")
    processes = begin_ranks(*settings, cwd=tmp_path)
    wait_for_steps(tmp_path / "run")
    (tmp_path / "run/metrics.jsonl").unlink()
    (tmp_path / "run/metrics.jsonl").mkdir()
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode != 0
    assert "stopped, because another rank failed" in errors


def test_older_runs_have_the_setting(tmp_path: Path) -> None:
    run = tmp_path / "run"
    succeed("train", *SETTINGS, "trainer.max_steps=2", cwd=tmp_path)
    config = run / "config.yaml"
    text = config.read_text()
    assert "  sharded: true\n" in text
    config.write_text(text.replace("  sharded: true\n", ""))
    done = command("train", "resume=run", "trainer.max_steps=4", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
