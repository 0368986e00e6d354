"""Logged head scores are those of the recorded maps, each on the texts that it needs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from data.roles import copy_targets, tale_texts
from data.tales import Tales
from data.tokenizer import fixed_tokenizer, train_bpe
from launch.schema import preset
from model import GPT, record_attention
from observe.attention import AttentionConfig, AttentionMaps
from observe.heads import (
    SONG,
    Texts,
    count_of,
    first_places,
    measure_heads,
    random_ids,
    repeated_tokens,
    score_texts,
    wired_text,
)
from observe.tensorboard import open_events
from tensorboard_attention import scores
from tests.conftest import small_config
from tests.observe.conftest import run_context, trainer_at

NAMES = {score.name for score in scores.SCORES}


def model(vocab_size: int = 256) -> GPT:
    torch.manual_seed(0)
    return GPT(small_config(2, 3, 12, 64, dropout=0.5, d_head=4), vocab_size)


def test_copy_targets_by_hand() -> None:
    #         0      1     2      3        4      5      6    (the second name spans two tokens)
    spelled = ["Ida", " met", " Bo", "bby", ". Ida", " met", " Bo", "bby"]
    lengths = [len(each) for each in spelled]
    text = "".join(spelled)
    assert text == "Ida met Bobby. Ida met Bobby"
    mentions = [("hero", 0, 3), ("friend", 8, 13), ("hero", 15, 18), ("friend", 23, 28)]
    targets = copy_targets(lengths, mentions)
    expected = np.zeros((8, 8), dtype=bool)
    expected[3, 0] = True  # "bby" predicts ". Ida"
    expected[5, [2, 3]] = True  # " met" predicts " Bo"
    assert np.array_equal(targets, expected)
    assert np.array_equal(copy_targets(lengths[:5], mentions), expected[:5, :5])


def test_copy_scores_by_hand() -> None:
    targets = copy_targets([1, 1, 1, 1], [("a", 0, 1), ("a", 2, 3), ("a", 3, 4)])
    maps = np.zeros((1, 2, 4, 4))
    maps[0, 0, :, 0] = 1  # always the first mention
    maps[0, 1, range(4), range(4)] = 1  # always itself
    assert scores.share(maps, targets)[0] == pytest.approx(1.0)
    # Row 2 is a mention and predicts another one, so attending to itself counts as copying.
    assert scores.share(maps, targets)[1] == pytest.approx(0.5)


@pytest.mark.parametrize("vocab", [256, 900])
def test_songs_are_marked_where_the_song_predicts_the_next_word(vocab: int) -> None:
    corpus = Tales(preset("data", "tales", n_bytes=300_000))
    tokenizer = fixed_tokenizer("byte") if vocab == 256 else train_bpe(corpus.pieces("val"), vocab)
    found = tale_texts(corpus, tokenizer, 8, 10_000)
    assert found is not None
    for text, songs, recalled in zip(found.tokens, found.songs, found.recalled, strict=True):
        spelled = [tokenizer.decode([token]) for token in text.tolist()]
        (song,) = re.findall(r'"Oh, ([^"]*)!"', "".join(spelled))
        assert "".join(spelled[place] for place in songs.nonzero()[0]).strip() == song
        repeated = []
        for place in recalled.nonzero()[0].tolist():
            repeated.append(spelled[place][: vocab == 256 and spelled[place] == " "])
            repeated.append(spelled[place + 1])
        words = [verse.split(" ")[1:] for verse in song.split(", ")]
        assert "".join(repeated).split() == list(chain.from_iterable(words))


def test_a_perfect_head_has_a_score_of_one_on_songs(tmp_path: Path) -> None:
    """It attends from a word to what came after it the last time."""
    gpt = GPT(small_config(1, 1, 4, 1024), 256)
    tales = Tales(preset("data", "tales", n_bytes=10_000))
    texts, where = score_texts(replace(run_context(tmp_path, model=gpt), corpus=tales))
    assert where["tokens"] == "the songs of 4 tales"
    (songs,) = [each for each in texts if "tokens" in each.inputs]
    (ids,) = songs.inputs["tokens"]
    n = songs.tokens.shape[1]
    maps = np.zeros((len(ids), 2, n, n))
    for row, text in enumerate(songs.tokens.tolist()):
        for query in range(n):
            earlier = [key for key in range(query) if text[key] == text[query]]
            maps[row, 0, query, (earlier[-1] + 1) if earlier else 0] = 1
            maps[row, 1, query, earlier[-1] if earlier else 0] = 1
    assert songs.queries is not None
    counted = [maps * songs.queries[:, None, :, None]]
    found = scores.measure("tokens", counted, ids)
    # Letters can be doubled, so that the two patterns meet.
    assert found["induction"][0][0] == pytest.approx(1) and found["induction"][0][1] < 0.1
    assert found["duplicate token"][0][1] == pytest.approx(1)
    assert found["duplicate token"][0][0] < 0.1
    wired = wired_text(texts, where)
    assert wired and wired.where == SONG
    length = len(wired.tokens)
    row = songs.tokens[:, :length].tolist().index(wired.tokens.tolist())
    assert wired.queries.tolist() == songs.queries[row, :length].tolist()
    assert wired.queries.sum() == songs.queries.sum(1).max() > 0


def test_tokens_are_drawn_by_their_frequency_and_repeated() -> None:
    text = torch.tensor([0] * 500 + [*range(1, 100)] * 2)
    tokens = repeated_tokens(text, 32)
    assert tokens is not None and tokens.shape == (4, 64)
    assert torch.equal(tokens[:, :32], tokens[:, 32:])
    rows = tokens[:, :32].tolist()
    assert all(0 in row and len({*row}) == 32 for row in rows) and rows[0] != rows[1]


def test_letters_that_recur_are_no_repeats() -> None:
    """In a repeated text of three letters, only attention to the same place of the first half, or
    to the next one, is what the scores mean."""
    tokens = torch.tensor([list(b"abacabacab") * 2])
    n = tokens.shape[1]
    after = np.eye(n, k=1 - n // 2, dtype=np.float32)
    uniform = np.tri(n, dtype=np.float32) / np.arange(1, n + 1)[:, None]
    maps = np.stack([after, uniform])[None]
    found = scores.measure("tokens", [maps], first_places(tokens))
    expected = np.mean([1 / (query + 1) for query in range(n // 2, n)])
    assert found["induction"][0] == pytest.approx([1, expected])
    assert found["duplicate token"][0] == pytest.approx([0, expected])
    assert expected < 0.1


@pytest.mark.parametrize("context_length", [1, 3, 16])
@pytest.mark.parametrize("with_tales", [False, True])
def test_a_context_of_any_length_has_scores(
    tmp_path: Path, with_tales: bool, context_length: int
) -> None:
    context = run_context(tmp_path, model=GPT(small_config(1, 1, 4, context_length), 256))
    if with_tales:
        context = replace(context, corpus=Tales(preset("data", "tales", n_bytes=10_000)))
    maps = AttentionMaps(AttentionConfig("1", None), context, open_events(tmp_path))
    maps.on_start(trainer_at(context, 0))
    found = maps.scores.measure()
    assert maps.scores.measured.keys() >= found.keys() >= {"entropy", "importance"}
    assert maps.scores.counts.keys() == found.keys()
    assert all(
        (maps.scores.counts[name] > 0) == np.isfinite(found[name]).any()
        for name in found
        if "error" not in name
    )
    assert ("induction, random ids" in found) == (context_length > 3)


def test_scores_match_the_recorded_maps() -> None:
    gpt = model().train()
    texts, again = torch.randint(256, (2, 20)), random_ids(256, 32)
    assert torch.equal(again[:, :32], again[:, 32:])
    tokens, targets = texts[:1], np.tril(np.ones((1, 20, 20), dtype=bool), -3)
    some = np.arange(64) % 3 > 0
    measured = [
        Texts(texts, {"maps": ()}),
        Texts(again, {"random ids": (again.numpy(),)}),
        Texts(again, {"tokens": (again.numpy(),)}, np.tile(some, (4, 1))),
        Texts(tokens, {"targets": (targets,)}),
    ]
    found, counts = measure_heads(gpt, measured), count_of(measured)
    assert found.keys() == NAMES - {"importance", "importance, error"} and gpt.training
    gpt.eval()
    for inputs, name in (
        (texts, "entropy"),
        (again, "induction, random ids"),
        (again, "induction"),
        (tokens, "copy"),
    ):
        with torch.no_grad(), record_attention(gpt) as maps:
            gpt(inputs)
        for layer, weights in enumerate(maps):
            for head in range(3):
                total = count = 0.0
                for text, one in zip(
                    inputs.tolist(), weights[:, head].double().tolist(), strict=True
                ):
                    for query, row in enumerate(one):
                        if name == "induction" and not some[query]:
                            continue
                        if name == "entropy":
                            total -= sum(p * np.log2(p) for p in row if p > 0)
                        elif name.startswith("induction"):
                            keys = [k + 1 for k in range(query) if text[k] == text[query]]
                            total += sum(row[key] for key in keys)
                            if not keys:
                                continue
                        else:
                            total += sum(row[: max(0, query - 2)])
                            if query < 3:
                                continue
                        count += 1
                assert found[name][layer, head] == pytest.approx(total / count, rel=1e-4)
                assert counts[name] == count


def test_logged_tags(tmp_path: Path) -> None:
    context = run_context(tmp_path, "trainer.max_steps=5", model=model())
    maps = AttentionMaps(
        AttentionConfig("5", "ab"),
        context,
        writer := open_events(tmp_path),
    )
    maps.on_start(trainer_at(context, 0))
    for step in range(1, 6):
        maps.on_step(trainer_at(context, step))
    writer.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert {*events.Tags()["images"]} == {"maps/layer 0", "maps/layer 1"}
    logged = NAMES - {"copy"}
    assert not events.Tags()["scalars"]
    assert [each.step for each in events.Tensors("attention")] == [0, 5]
    # Every head is in the header of the maps, which the Attention tab reads.
    for event in events.Tensors("attention"):
        scores = json.loads(make_ndarray(event.tensor_proto)[0])["scores"]
        assert scores.keys() == logged | {"copy"}  # of the probe itself
        assert all(len(heads) == 3 for name in logged for heads in scores[name])
