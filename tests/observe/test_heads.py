"""What heads do is measured over whole documents of the validation split."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from model import GPT, record_attention
from observe.attention import AttentionConfig, AttentionMaps
from observe.evidence import EvidenceFile
from observe.heads import HeadNames, documents_of, spell
from observe.tensorboard import open_events
from tensorboard_attention.naming import Measure, name_heads
from tensorboard_attention.patterns import Text
from tensorboard_attention.scores import MEANINGS, NEED
from tests.conftest import logged, small_config
from tests.observe.conftest import (
    TOKENIZER,
    dataset_of,
    log_maps,
    random_model,
    run_context,
    trainer_at,
)

TALES = [f"Ada saw a {animal}. Oh, a {animal}, said Ada.\n" for animal in ("cat", "dog", "hen")]
SPELLED = spell(TOKENIZER, 256)


def model(context_length: int = 64) -> GPT:
    return random_model(2, 3, 12, context_length, dropout=0.5, d_head=4)


def test_documents_are_whole() -> None:
    """Also where windows of training are not, such as those of a folder of texts; and of many, as
    many as are needed are looked at."""
    texts = dataset_of(TALES * 20)
    for dataset in (texts, replace(texts, is_aligned=False), dataset_of(TALES * 2000)):
        found = documents_of(model(), dataset, 400)
        read = [bytes(window.targets.tolist()).decode() for window in found.windows]
        assert 8 <= len(read) <= 12 and {*read} == {*TALES}
        assert found.n_tokens == sum(map(len, read)) >= 400
        assert found.where == f"{len(read)} validation documents ({found.n_tokens} tokens)"
        assert [window.begin % len(TALES[0]) for window in found.windows] == [0] * len(read)


@pytest.mark.parametrize(
    ("lengths", "context_length"),
    [
        ([9_000] * 3, 64),
        ([9_000] * 3, 4096),
        ([20, 9_000], 64),
        ([9_000], 64),
        ([30] * 99 + [9_000], 64),
        ([90] * 20 + [9_000] * 20, 64),
    ],
)
def test_documents_of_any_length_give_about_so_many_tokens(
    lengths: list[int], context_length: int
) -> None:
    """Of all documents the first parts come first, and each token is scored once."""
    found = documents_of(model(context_length), dataset_of([chr(65) * n for n in lengths]), 1000)
    assert found.n_tokens == sum((window.targets >= 0).sum() for window in found.windows)
    assert 900 <= found.n_tokens < 1500
    scored = [0, 0]
    places: list[int] = []
    for window in found.windows:
        scored[window.half] += (window.targets >= 0).sum()
        places += (window.begin + np.flatnonzero(window.targets >= 0)).tolist()
    assert min(scored) > 300
    assert len(places) == len({*places}) == found.n_tokens
    counts = np.histogram(places, [*np.cumsum([0, *lengths])])[0]
    read = counts[counts > 0]
    assert len(read) == len(lengths) or not counts[len(read) :].any()
    whole = (read == lengths[: len(read)]).all()
    said = f"{'' if whole else 'parts of '}{len(read)} validation documents"
    if len(lengths) > 1:
        assert found.where == f"{said} ({found.n_tokens:,} tokens)"


@pytest.mark.parametrize("n_tokens", [3, 40, 100_000])
def test_a_text_that_is_not_divided_is_evenly_spread(n_tokens: int) -> None:
    text = dataset_of(["".join(map(chr, range(32, 127))) * 40], is_divided=False)
    text = replace(text, val=text.val[:n_tokens])
    found = documents_of(model(), text, 1000)
    assert len(found.windows) >= 2, "there are two halves"
    assert found.n_tokens == sum((window.targets >= 0).sum() for window in found.windows)
    if n_tokens > 1000:
        places = [window.begin for window in found.windows]
        assert sorted(places)[0] < 500 and sorted(places)[-1] > len(text.val) - 500
        assert 0.9 < found.n_tokens / 1000 < 1.1


def test_heads_whose_maps_are_too_large_are_named_by_the_probe(tmp_path: Path) -> None:
    gpt = GPT(small_config(1, 1, 4, 2**15), 256)
    with pytest.raises(ValueError, match="too large"):
        documents_of(gpt, dataset_of(TALES), 100)
    context = run_context(tmp_path, "trainer.max_steps=1", model=gpt)
    maps = AttentionMaps(AttentionConfig("1", "a b"), context, writer := open_events(tmp_path))
    assert maps.heads is None
    state = SimpleNamespace(step=0)
    maps.on_step(cast(Any, SimpleNamespace(state=state, config=context.config.trainer)))
    writer.close()
    ((header, _),) = logged(tmp_path).values()
    assert {*header["measured"].values()} == {"this text"}


def test_the_windows_of_one_document_are_in_one_half() -> None:
    found = documents_of(model(16), dataset_of(TALES * 3), 10_000)
    halves: dict[int, set[int]] = {}
    for window in found.windows:
        halves.setdefault(window.begin // len(TALES[0]), set()).add(window.half)
    assert [halves[document] for document in range(9)] == [{0}, {1}] * 4 + [{0}]
    assert len(found.windows) > len(halves) == 9


def test_heads_are_measured_on_the_maps_of_every_window_alone() -> None:
    """Shorter windows are padded in their batch, and dropout is off."""
    gpt, texts = model().train(), [tale * (1 + n % 2) for n, tale in enumerate(TALES * 4)]
    documents = documents_of(gpt, dataset_of(texts), 10_000)
    found = HeadNames(gpt, SPELLED, documents).measure([])
    assert gpt.training
    gpt.eval()
    parts, maps = [], []
    for window in documents.windows:
        spelled = [chr(id) for id in window.ids]
        following = int(window.targets[-1])
        parts.append(Text(window.ids, spelled, window.half, following, window.targets >= 0))
        with torch.no_grad(), record_attention(gpt) as layers:
            gpt(torch.from_numpy(window.ids)[None])
        maps.append(torch.cat(layers, 1)[0].numpy())
    expected = Measure(parts)(maps)
    assert [*chain.from_iterable(found.names)] == name_heads(expected)
    for name, values in found.scores.items():
        column = expected.share[:, expected.names.index(name)]
        assert np.concatenate(values) == pytest.approx(column, abs=1e-6, nan_ok=True)
    assert {*found.scores} == {*MEANINGS} - {NEED, "entropy", "mean distance"}


def test_wiring_is_measured_where_a_passage_repeats() -> None:
    heads = HeadNames(model(), SPELLED, documents_of(model(), dataset_of(TALES), 1000))
    (text,) = {
        bytes([*window.ids, window.targets[-1]]).decode()
        for window in heads.documents.windows
        if np.array_equal(window.ids, heads.wired)
    }
    repeats = [
        query
        for query in range(1, len(text) - 1)
        if text[query - 1 : query + 2] in text[: query + 1]
    ]
    assert np.flatnonzero(heads.copying).tolist() == repeats and repeats
    assert heads.wiring() is not None
    plain = dataset_of(["abcdefgh\n", "ijklmnop\n"])
    assert HeadNames(model(), SPELLED, documents_of(model(), plain, 1000)).wiring() is None


def test_names_and_scores_are_logged_with_the_maps(tmp_path: Path) -> None:
    context = run_context(tmp_path, "trainer.max_steps=20", model=model())
    context = replace(context, dataset=dataset_of(TALES * 20))
    maps = log_maps(context, "4", range(21))
    headers = {step: header for step, (header, _) in logged(tmp_path).items()}
    assert [*headers] == [0, 4, 8, 12, 16, 20]
    assert maps.heads
    documents = maps.heads.documents
    for header in headers.values():
        assert header["scores"].keys() == {*MEANINGS} - {NEED}
        assert header["measured"]["copies"] == documents.where
        assert header["measured"]["entropy"] == "this text"
    expected = maps.heads.measure([])
    for layer, names in enumerate(expected.names):
        assert headers[20]["roles"][layer] == [[name.label, name.pattern] for name in names]
        assert headers[20]["details"][layer] == [name.details for name in names]
        assert [said for said, *_ in headers[20]["sentences"][layer]] == [
            name.headline for name in names
        ]
    for score, layers in expected.scores.items():
        found = np.array(headers[20]["scores"][score], float)
        np.testing.assert_allclose(found, layers, atol=1e-5)
        assert headers[20]["counts"][score] == expected.counts[score]


def test_names_go_on_after_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = Mock(wraps=HeadNames.measure)
    monkeypatch.setattr(HeadNames, "measure", lambda *given: measure(*given))
    context = run_context(tmp_path, "trainer.max_steps=20", model=model())
    maps = AttentionMaps(AttentionConfig("4", "ab"), context, writer := open_events(tmp_path))
    named = {}
    for step in (4, 8, 12):
        maps.on_step(trainer_at(context, step))
        named[step] = maps.names
    writer.close()
    EvidenceFile(context, maps).on_finish(trainer_at(context, 12))
    assert [call.args[1] for call in measure.call_args_list] == [[], *named.values()]
    (tmp_path / "evidence.json").write_text("{}")  # names go on from those of the log
    for step, last in ((12, 12), (11, 8), (8, 8)):
        resumed = AttentionMaps(maps.config, context, writer := open_events(tmp_path))
        resumed.on_start(trainer_at(context, step))
        writer.close()
        assert resumed.names == named[last]
    with open_events(tmp_path / "other") as writer:
        context = replace(context, folder=tmp_path / "other")
        resumed = AttentionMaps(maps.config, context, writer)
        resumed.on_start(trainer_at(context, 12))
        assert not resumed.names, "maps were not logged before"
    for damage in (OSError, ValueError):
        monkeypatch.setattr("store.results.open_log", Mock(side_effect=damage))
        resumed.on_start(trainer_at(context, 12))
    assert not resumed.names
