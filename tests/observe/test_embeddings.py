"""Token embeddings, as served by TensorBoard's projector plugin."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
from werkzeug.test import Client, TestResponse

from data.tokenizer import Tokenizer
from observe.tensorboard import projector_labels
from tests.conftest import last_checkpoint, succeed


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
    np.testing.assert_allclose(points, weights, atol=6e-6)
    tokenizer = Tokenizer.load(tiny_run / "tokenizer")
    assert len(labels) == tokenizer.vocab_size == len(weights)
    assert labels[ord("a")] == "a" and labels[ord("\n")] == "⏎" and labels[0xFF] == r"\xff"
    assert labels[tokenizer.encode(" the")[0]].startswith("·")


def test_a_resumed_run_that_was_moved_shows_its_last_embeddings(
    tiny_run: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run, tmp_path / "runs/run", symlinks=True)
    cache = f"cache_dir={tiny_run.parent.parent / '.cache'}"
    succeed("train", "resume=runs/run", "trainer.max_steps=8", cache, cwd=tmp_path)
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    points, _ = Projector(tmp_path / "elsewhere").points("run")
    last = last_checkpoint(tmp_path / "elsewhere/run") / "model.safetensors"
    np.testing.assert_allclose(points, load_file(last)["token_embedding.weight"], atol=6e-6)


@given(st.lists(st.one_of(st.binary(max_size=4), st.text(max_size=200).map(str.encode))))
def test_every_label_is_one_visible_word(tokens: list[bytes]) -> None:
    """A label is not empty, and has no newline or tab to start another line or column."""
    for label in projector_labels(tokens):
        assert label.split() == [label]


def test_a_token_without_bytes_is_shown_by_its_id() -> None:
    assert projector_labels([b"a", b""]) == ["a", "<token·1>"]
