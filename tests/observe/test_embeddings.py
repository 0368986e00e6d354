"""Token embeddings, as served by TensorBoard's projector plugin."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
from werkzeug.test import Client, TestResponse

from data.tokenizer import Tokenizer
from observe.embeddings import FOLDER, Embeddings, projector_labels
from tests.conftest import last_checkpoint, succeed
from tests.observe.conftest import run_context, trainer_at


class Projector:
    """A client of the projector plugin for a folder of runs."""

    def __init__(self, logdir: Path) -> None:
        runs = EventMultiplexer().AddRunsFromDirectory(str(logdir)).Reload()
        provider = MultiplexerDataProvider(runs, str(logdir))
        context = TBContext(logdir=str(logdir), data_provider=provider)
        self.apps = ProjectorPlugin(context).get_plugin_apps()

    def get(self, route: str, **query: str) -> TestResponse:
        response = Client(self.apps[route]).get("/", query_string=query)
        assert response.status_code == 200, response.text
        return response

    def points(self, run: str) -> tuple[np.ndarray, list[str]]:
        (embedding,) = self.get("/info", run=run).get_json()["embeddings"]
        query = {"run": run, "name": embedding["tensorName"]}
        flat = np.frombuffer(self.get("/tensor", **query).data, dtype=np.float32)
        labels = self.get("/metadata", **query).text.splitlines()
        return flat.reshape(embedding["tensorShape"]), labels


def test_the_projector_shows_a_finished_run(tiny: Path, tiny_run: Path) -> None:
    projector = Projector(tiny / "runs")
    assert projector.get("/runs").get_json() == [tiny_run.name]
    points, labels = projector.points(tiny_run.name)
    weights = load_file(last_checkpoint(tiny_run) / "model.safetensors")["token_embedding.weight"]
    np.testing.assert_allclose(points, weights, rtol=1e-4)
    tokenizer = Tokenizer.load(tiny_run / "tokenizer")
    assert len(labels) == tokenizer.vocab_size == len(weights)
    assert labels[ord("a")] == "a" and labels[ord("\n")] == "⏎" and labels[0xFF] == r"\xff"
    assert labels[tokenizer.encode(" the")[0]].startswith("·")


def test_a_resumed_run_that_was_moved_has_one_set_of_files(tiny_run: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run, tmp_path / "runs/run", symlinks=True)
    cache = f"cache_dir={tiny_run.parent.parent / '.cache'}"
    succeed("train", "resume=runs/run", "trainer.max_steps=8", cache, cwd=tmp_path)
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    points, _ = Projector(tmp_path / "elsewhere").points("run")
    last = last_checkpoint(tmp_path / "elsewhere/run") / "model.safetensors"
    np.testing.assert_allclose(points, load_file(last)["token_embedding.weight"], rtol=1e-4)
    assert len(list((tmp_path / "elsewhere/run" / FOLDER).iterdir())) == 3


@pytest.mark.parametrize("event", ["on_start", "on_checkpoint"])
def test_embeddings_are_those_of_the_last_checkpoint(tmp_path: Path, event: str) -> None:
    """Also of a run that was killed after its last checkpoint and has no step left."""
    context = run_context(tmp_path)
    context.writer.close()
    embedding, embeddings = context.model.token_embedding, Embeddings(context)
    embeddings.on_start(trainer_at(context, 0))
    embeddings.on_end(trainer_at(context, 0))
    assert not (tmp_path / FOLDER).exists()  # stopped before there was a checkpoint
    getattr(embeddings, event)(trainer_at(context, 3), *[tmp_path][event == "on_start" :])
    saved = embedding.weight.detach().clone()
    with torch.no_grad():
        embedding.weight.fill_(torch.nan)
    embeddings.on_end(trainer_at(context, 4))
    points, labels = Projector(tmp_path).points(".")
    np.testing.assert_allclose(points, saved, rtol=1e-4)
    assert labels[ord("0") : ord("6")] == list("012345")


def test_a_large_vocabulary_is_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("observe.embeddings.MAX_TOKENS", 100)
    context = run_context(tmp_path)
    embeddings, trainer = Embeddings(context), trainer_at(context, 1)
    embeddings.on_checkpoint(trainer, tmp_path)
    embeddings.on_end(trainer)
    for name in ("token_embedding.tsv", "token_labels.tsv"):
        assert len((tmp_path / FOLDER / name).read_text().splitlines()) == 100


@given(st.lists(st.one_of(st.binary(max_size=4), st.text(max_size=200).map(str.encode))))
def test_every_label_is_one_visible_word(tokens: list[bytes]) -> None:
    """A label is not empty, and has no newline or tab to start another line or column."""
    for label in projector_labels(tokens):
        assert label.split() == [label]


def test_a_token_without_bytes_is_shown_by_its_id() -> None:
    assert projector_labels([b"a", b""]) == ["a", "<token·1>"]
