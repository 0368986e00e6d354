"""Logged head scores are those of the recorded maps, each on the texts that it needs."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from configs.schema import preset
from data import open_corpus
from data.mentions import copy_targets, copy_texts
from data.tales import Tales
from data.tokenizer import fixed_tokenizer
from model import GPT, record_attention
from observe.attention import AttentionConfig, AttentionMaps
from observe.heads import Texts, measure_heads, repeated
from tensorboard_attention import scores
from tests.conftest import small_config
from tests.observe.conftest import observed_run

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


def test_copy_texts_of_tales_mark_repeated_words() -> None:
    corpus, tokenizer = (
        open_corpus(preset("data", "tales", n_bytes=100_000)),
        fixed_tokenizer("byte"),
    )
    found = copy_texts(corpus, tokenizer, 4, 10_000)
    assert found is not None
    tokens, targets = found
    seen = 0
    for text, marked in zip(tokens, targets, strict=True):
        spelled = tokenizer.decode(text.tolist())
        for row in marked.any(-1).nonzero()[0].tolist():
            earlier = marked[row].nonzero()[0].tolist()
            word = spelled[earlier[0] : earlier[0] + 1]
            while len(word) < len(earlier) and earlier[len(word)] == earlier[0] + len(word):
                word = spelled[earlier[0] : earlier[0] + len(word) + 1]
            # Only the start of the word, if the text is cut off there.
            repeated_word = spelled[row + 1 : row + 1 + len(word)]
            assert word.lower().startswith(repeated_word.lower())
            seen += 1
    assert seen > 25
    assert copy_texts(open_corpus(preset("data", "text", path=__file__)), tokenizer, 4, 64) is None


def test_scores_match_the_recorded_maps() -> None:
    gpt = model().train()
    texts, again = torch.randint(256, (2, 20)), repeated(256, 64)
    assert torch.equal(again[:, :32], again[:, 32:])
    tokens, targets = texts[:1], np.tril(np.ones((1, 20, 20), dtype=bool), -3)
    by_need = {"maps": Texts(texts), "tokens": Texts(again), "targets": Texts(tokens, targets)}
    found = measure_heads(gpt, by_need)
    assert found.keys() == NAMES - {"importance"} and gpt.training
    gpt.eval()
    for inputs, name in ((texts, "entropy"), (again, "induction"), (tokens, "copy")):
        with torch.no_grad(), record_attention(gpt) as maps:
            gpt(inputs)
        for layer, weights in enumerate(maps):
            for head in range(3):
                total = count = 0.0
                for text, one in zip(
                    inputs.tolist(), weights[:, head].double().tolist(), strict=True
                ):
                    for query, row in enumerate(one):
                        if name == "entropy":
                            total -= sum(p * np.log2(p) for p in row if p > 0)
                        elif name == "induction":
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


def test_logged_tags(tmp_path: Path) -> None:
    observed = observed_run(tmp_path, model())
    maps = AttentionMaps(AttentionConfig(5, 10, "ab"), observed)
    maps.on_start(0)
    for step in range(1, 6):
        maps.on_step(step, None)
    observed.events.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    images = {tag for tag in events.Tags()["images"] if not tag.startswith("attention")}
    logged = NAMES - {"copy"}
    assert images == {f"scores/{name}" for name in logged}
    assert {*events.Tags()["scalars"]} == {
        f"score {name}/layer {layer}, largest head" for name in logged for layer in range(2)
    }
    assert [each.step for each in events.Images("scores/entropy")] == [0, 5]
    # Every head is in the header of the maps, which the Attention tab reads.
    for event in events.Tensors("attention"):
        scores = json.loads(make_ndarray(event.tensor_proto)[0])["scores"]
        assert scores.keys() == logged | {"copy"}  # of the probe itself
        for name, layers in ((name, scores[name]) for name in sorted(logged)):
            for layer, heads in enumerate(layers):
                assert len(heads) == 3
                largest = events.Scalars(f"score {name}/layer {layer}, largest head")
                (value,) = [each.value for each in largest if each.step == event.step]
                assert value == pytest.approx(max(heads), abs=1e-5)
    # These texts repeat no token, but the repeated texts repeat every token.
    duplicate = "score duplicate token/layer 0, largest head"
    assert 0 <= events.Scalars(duplicate)[0].value <= 1


def test_mentions_are_all_occurrences_of_the_words() -> None:
    for tale in islice(Tales(preset("data", "tales", n_bytes=20_000)).tales("val"), 10):
        words: dict[str, str] = {}
        for name, start, end in tale.mentions:
            word = words.setdefault(name, tale.text[start:end])
            assert tale.text[start:end].lower() == word.lower()
        for name in ("hero", "friend"):
            if name in words:
                spans = [match.span() for match in re.finditer(rf"\b{words[name]}\b", tale.text)]
                assert spans == [(start, end) for each, start, end in tale.mentions if each == name]
