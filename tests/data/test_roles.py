"""The role and the floor of every token of a tale."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from data.batches import UNSCORED
from data.roles import ROLES, tale_roles, token_roles
from data.tales import Tales
from data.tokenizer import Tokenizer, fixed_tokenizer, train_bpe
from launch.schema import preset
from tests.data.strings import PATTERNED
from tests.exchange.fast import imported

TALES = Tales(preset("data", "tales"))


def test_the_roles_of_a_sentence_by_hand():
    tokens = ["Mia", " ", "had", " a", " ha", "t", ".", " Mi", "a", "'s", " hat", " san", "g", "."]
    tokens += [" It", " lay", " un", "der", " a", " log", "."]
    text = "".join(tokens)
    mentions = [
        ("hero", text.index("Mia"), text.index("Mia") + 3),
        ("object", text.index("hat"), text.index("hat") + 3),
        ("hero", text.rindex("Mia"), text.rindex("Mia") + 3),
        ("object", text.rindex("hat"), text.rindex("hat") + 3),
        ("sung.0", text.index("sang"), text.index("sang") + 4),
        ("place", text.index("under"), text.index("under a log") + len("under a log")),
    ]
    expected = {
        "names again": [" Mi"],
        "objects again": [" hat"],
        "song": [" san"],
        "first choices": ["Mia", " ha", " un", " a", " log"],
        "sentence forms": [" ", "had", " a", ".", "'s", ".", " It", " lay", "."],
        "spelling within a word": ["t", "a", "g", "der"],
    }
    roles = token_roles(text, np.array([*map(len, tokens)]), mentions)
    for index, name in enumerate(ROLES):
        got = [token for token, role in zip(tokens, roles.tolist(), strict=True) if role == index]
        assert got == expected[name], name


TOKENIZERS = {"bpe": train_bpe(TALES.pieces("val"), 600), "byte": fixed_tokenizer("byte")}


@pytest.mark.parametrize("tokenizer", (TOKENIZERS | PATTERNED).values(), ids=TOKENIZERS | PATTERNED)
def test_the_floor_of_whole_tales(tokenizer: Tokenizer) -> None:
    """Their tokens are those of the corpus, and the floor of these adds up to that of the tale."""
    found = tale_roles(TALES, tokenizer, 6, 2000)
    assert found is not None
    assert ((found.roles == UNSCORED) == (found.targets == UNSCORED)).all()
    scored = found.targets != UNSCORED
    assert (found.floor[scored] >= -1e-9).all()
    assert np.abs(found.floor[~scored]).max(initial=0) < 1e-12
    corpus = "".join(islice(TALES.pieces("val"), 6)) + "Once"
    own = found.targets[scored].tolist()
    assert tokenizer.encode(corpus)[: len(own)] == own and corpus.startswith(tokenizer.decode(own))
    for row, tale in zip(range(6), TALES.tales("val"), strict=False):
        assert tokenizer.decode(found.targets[row][scored[row]].tolist()) == tale.text + "\n\n"
        assert found.floor[row].sum() == pytest.approx(tale.bits, abs=1e-9)
    assert {*np.unique(found.roles[scored])} == {*range(len(ROLES))}


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
def test_tales_that_are_cut(tokenizer: Tokenizer) -> None:
    whole, cut = (tale_roles(TALES, tokenizer, 3, n) for n in (2000, 50))
    assert whole is not None and cut is not None and cut.inputs.shape == (3, 50)
    for part, full in zip(cut, whole, strict=True):
        assert (part == full[:, :50]).all()


def test_the_floor_of_tokens_that_cross_spaces_is_not_known() -> None:
    tokenizer = imported(TOKENIZERS["bpe"], in_text=["Once upon"])
    assert tale_roles(TALES, tokenizer, 1, 50) is None


def test_few_tales_and_a_short_context() -> None:
    tales = Tales(preset("data", "tales", n_bytes=10_000, val_fraction=0.01))
    found = tale_roles(tales, fixed_tokenizer("byte"), 16, 2000)
    assert found is not None and len(found.inputs) == len([*tales.tales("val")]) == 1
    short = tale_roles(tales, fixed_tokenizer("byte"), 16, 1)
    assert short is not None and short.inputs.shape == (1, 1)
    assert (short.targets == UNSCORED).all()
