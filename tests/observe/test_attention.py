"""Attention maps are logged at the configured steps, with what is said of the probe; images show
every value in its cell, and the label of every token."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from common.errors import token_label
from data.corpora import open_corpus
from data.corpus import text_of
from data.floor import Floor
from data.tales import Tales, TalesConfig
from launch.schema import preset
from model import GPT
from observe.attention import (
    MAX_IMAGE_TOKENS,
    MIN_SAID,
    N_PROBE_TOKENS,
    N_SEARCHED_TOKENS,
    AttentionConfig,
    Probe,
    default_probe,
)
from observe.figures import CELL, GAP, GREY, colours, draw_heads
from observe.tensorboard import open_events
from tests.conftest import logged, small_config
from tests.observe.conftest import TOKENIZER, dataset_of, log_maps, random_model, run_context


def model() -> GPT:
    torch.manual_seed(0)
    return GPT(small_config(2, 3, 12, 64, dropout=0.5, d_head=4), vocab_size=256)


def test_maps_and_images_are_logged_at_the_configured_steps_and_the_last(tmp_path: Path) -> None:
    context = run_context(tmp_path, "trainer.max_steps=6", model=model())
    maps = log_maps(context, "2", range(7))
    assert [*logged(tmp_path)] == [0, 2, 4, 6]
    events = EventAccumulator(str(tmp_path)).Reload()
    tags = events.Tags()["images"]
    assert tags == ["maps/layer 0", "maps/layer 1"]
    assert [[event.step for event in events.Images(tag)] for tag in tags] == [[2, 6]] * 2
    assert len(maps.probe.labels) == MAX_IMAGE_TOKENS


def test_edges_to_heads_are_logged(tmp_path: Path) -> None:
    context = run_context(tmp_path, "trainer.max_steps=6", model=model())
    text = np.tile(context.dataset.val[:9], 20)  # it repeats itself
    context = replace(context, dataset=replace(context.dataset, val=text))
    maps = log_maps(context, "4", [0])
    ((header, _),) = logged(tmp_path).values()
    assert maps.heads and header["measured"]["wiring"] == maps.heads.documents.where
    shares = maps.heads.wiring()
    assert shares is not None and header["wiring"]
    for way, _, head, _, writer, share in header["wiring"]:
        assert share == pytest.approx(shares[way, 1, head, 0, writer].item(), abs=1e-4)


def test_what_can_come_next_is_said_though_the_model_rules_it_out(tmp_path: Path) -> None:
    gpt, tokens = model().eval(), [1, 2, 3]
    with torch.no_grad():
        gpt.get_parameter("final_norm.weight").mul_(100)
        chances = gpt(torch.tensor([tokens]))[0].softmax(-1)
    known = chances.argmin(-1).tolist()
    floor = Floor(np.array([0.0, 1.0, 1.0]), [{token: 1.0} for token in known])
    with open_events(tmp_path) as writer, torch.no_grad():
        probe = Probe(writer, gpt, TOKENIZER, tokens, "a", floor)
        guesses = probe.guesses(gpt.hidden(probe.tokens))
    assert guesses and chances.amin() < MIN_SAID
    for rows, token, likely in zip(guesses.next_tokens, known, chances.argmax(-1), strict=True):
        assert rows[-1][::2] == (bytes([token]), 1.0) and rows[0][0] == bytes([int(likely)])
        assert all(max(p, q) >= MIN_SAID for _, p, q in rows)


def test_by_default_maps_are_logged_often_while_heads_form() -> None:
    config = AttentionConfig("auto", None)

    def steps(last: int, *checkpoints: int) -> list[int]:
        return [step for step in range(last + 1) if config.has_maps(step, last, *checkpoints)]

    early = [0, 10, *range(20, 201, 20)]
    assert steps(2000) == [*early, *range(300, 2001, 100)]
    assert steps(250) == sorted([*early, 25, 75, 250])
    assert steps(100_000) == [*early, *range(5000, 100_001, 5000)]
    assert steps(2000, 100) == steps(2000, 99) == steps(2000), "the latter are too many"
    assert {*steps(1000, 250)} == {*steps(1000), 250, 750}
    assert config.is_on and not replace(config, every="0").is_on


@pytest.mark.parametrize(
    ("adds_eos", "text", "start"),
    [
        (False, "ord is cut ", "is cut "),
        (False, "Word\n\n  is not known to be whole ", "is not known"),
        (True, "ord is cut ", "is cut "),
        (True, "Word of a document ", "Word of a document "),
        (True, "世界 of a document ", "世界 of a document "),
        (False, "世界" * 99, "世界" * 10),  # without a space
    ],
)
def test_the_default_probe_begins_with_a_word(
    tmp_path: Path, adds_eos: bool, text: str, start: str
) -> None:
    """Where the split has no documents that are known to be whole."""
    corpus = Tales(TalesConfig("tales", n_bytes=10_000, seed=2, val_fraction=0.5))
    corpus.adds_eos = adds_eos
    dataset = dataset_of([text + "and so on" * 99], is_divided=False)
    context = run_context(tmp_path, model=model())
    probe = default_probe(replace(context, dataset=dataset, corpus=corpus))
    assert len(probe) == N_PROBE_TOKENS
    assert bytes(probe).decode(errors="ignore").startswith(start)


@pytest.mark.parametrize(("context_length", "whole"), [(1024, True), (64, False)])
def test_the_default_probe_of_tales_is_a_short_whole_tale(
    tmp_path: Path, context_length: int, whole: bool
) -> None:
    corpus = open_corpus(preset("data", "tales", n_bytes=60_000))
    text = "".join(text_of(corpus, "val"))
    dataset = dataset_of([f"{tale}\n\n" for tale in text.split("\n\n")[:-1]])
    context = run_context(tmp_path, model=random_model(1, 1, 4, context_length))
    probe = default_probe(replace(context, dataset=dataset))
    first = text[:N_SEARCHED_TOKENS].split("\n\n")[:-1]
    expected = min(first, key=len) + "\n\n" if whole else text[:N_PROBE_TOKENS]
    assert bytes(probe).decode() == expected


@pytest.mark.parametrize(
    ("n_heads", "columns", "rows"), [(1, 1, 1), (2, 2, 1), (3, 2, 2), (4, 2, 2), (12, 4, 3)]
)
def test_every_weight_is_drawn_in_its_cell(n_heads: int, columns: int, rows: int) -> None:
    """The pixel in the middle of each cell has the expected colour."""
    n = 6
    weights = np.random.default_rng(0).dirichlet(np.ones(n), size=(n_heads, n)).astype(np.float32)
    weights[0, 3, 1] = np.nan  # of a run that diverges: drawn as 0
    labels = [f"t{i}" for i in range(n)]
    image = draw_heads(labels, weights)
    assert image.dtype == np.uint8
    height, width = (image.shape[0] - GAP) // rows, (image.shape[1] - GAP) // columns
    for head in range(n_heads):
        row, column = divmod(head, columns)
        bottom = (row + 1) * height - (width - GAP - n * CELL)
        right = (column + 1) * width - GAP
        for query in range(n):
            for key in range(n):
                y = bottom - (n - query) * CELL + CELL // 2
                x = right - (n - key) * CELL + CELL // 2
                value = np.sqrt(np.nan_to_num(weights[head, query, [key]]))
                expected = GREY if key > query else colours(value)[0]
                np.testing.assert_array_equal(image[y, x], expected)


@pytest.mark.parametrize(
    ("token", "label"),
    [
        (b" the", "·the"),
        (b"\n\n", "⏎⏎"),
        (b"a\xff", r"a\xff"),
        ("é中😀".encode(), "é中😀"),
        (b"incomprehensible", "incomprehensi…"),
        (b"\x00a", r"\x00a"),
    ],
)
def test_token_labels(token: bytes, label: str) -> None:
    assert token_label(token) == label
