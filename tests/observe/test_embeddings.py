"""Token embeddings, as served by TensorBoard's projector plugin."""

from __future__ import annotations

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
from tests.conftest import last_checkpoint


def test_the_projector_shows_a_finished_run(tiny: Path, tiny_run: Path) -> None:
    logs, run = str(tiny / "runs"), tiny_run.name
    runs = EventMultiplexer().AddRunsFromDirectory(logs).Reload()
    context = TBContext(logdir=logs, data_provider=MultiplexerDataProvider(runs, logs))
    routes = ProjectorPlugin(context).get_plugin_apps()

    def get(route: str, **query: str) -> TestResponse:
        return Client(routes[route]).get("/", query_string=query)

    (embedding,) = get("/info", run=run).get_json()["embeddings"]
    name = embedding["tensorName"]
    flat = np.frombuffer(get("/tensor", run=run, name=name).data, dtype=np.float32)
    points = flat.reshape(embedding["tensorShape"])
    labels = get("/metadata", run=run, name=name).text.splitlines()
    weights = load_file(last_checkpoint(tiny_run) / "model.safetensors")["token_embedding.weight"]
    np.testing.assert_allclose(points, weights, atol=6e-6)
    tokenizer = Tokenizer.load(tiny_run / "tokenizer")
    assert len(labels) == tokenizer.vocab_size == len(weights)
    assert labels[ord("a")] == "a" and labels[ord("\n")] == "⏎" and labels[0xFF] == r"\xff"
    assert labels[tokenizer.encode(" the")[0]].startswith("·")


@given(st.lists(st.one_of(st.binary(max_size=4), st.text(max_size=200).map(str.encode))))
def test_every_label_is_one_visible_word(tokens: list[bytes]) -> None:
    """A label is not empty, and has no newline or tab to start another line or column."""
    for label in projector_labels(tokens):
        assert label.split() == [label]
