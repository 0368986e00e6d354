"""The role and the floor of every token of a tale."""

from __future__ import annotations

import numpy as np
import pytest

from configs.schema import preset
from data.batches import UNSCORED
from data.roles import ROLES, tale_roles, token_roles
from data.tales import Tales
from data.tokenizer import Tokenizer, fixed_tokenizer, train_bpe

TALES = Tales(preset("data", "tales"))


def test_the_roles_of_a_sentence_by_hand():
    tokens = ["Mia", " ", "had", " a", " ha", "t", ".", " Mi", "a", "'s", " hat", " san", "g", "."]
    text = "".join(tokens)
    mentions = [
        ("hero", text.index("Mia"), text.index("Mia") + 3),
        ("object", text.index("hat"), text.index("hat") + 3),
        ("hero", text.rindex("Mia"), text.rindex("Mia") + 3),
        ("object", text.rindex("hat"), text.rindex("hat") + 3),
        ("sung.0", text.index("sang"), text.index("sang") + 4),
    ]
    expected = {
        "names again": [" Mi"],
        "objects again": [" hat"],
        "song": [" san"],
        "first choices": ["Mia", " ha"],
        "sentence forms": [" ", "had", " a", ".", "'s", "."],
        "spelling within a word": ["t", "a", "g"],
    }
    roles = token_roles(text, [*map(len, tokens)], mentions)
    for index, name in enumerate(ROLES):
        got = [token for token, role in zip(tokens, roles.tolist(), strict=True) if role == index]
        assert got == expected[name], name


@pytest.mark.parametrize(
    "tokenizer", [fixed_tokenizer("byte"), train_bpe(TALES.pieces("val"), 600)], ids=["byte", "bpe"]
)
def test_the_floor_of_whole_tales(tokenizer: Tokenizer) -> None:
    found = tale_roles(TALES, tokenizer, 6, 2000)
    assert found is not None
    assert ((found.roles == UNSCORED) == (found.targets == UNSCORED)).all()
    scored = found.targets != UNSCORED
    assert (found.floor[scored] >= -1e-6).all() and not found.floor[~scored].any()
    for row, tale in zip(range(6), TALES.tales("val"), strict=False):
        text = tokenizer.decode(found.targets[row][scored[row]].tolist())
        assert text == tale.text + "\n\n"
        assert found.floor[row].sum() == pytest.approx(tale.bits, abs=1e-6)
    assert {*np.unique(found.roles[scored])} == {*range(len(ROLES))}


def test_tales_that_are_cut():
    whole, cut = (tale_roles(TALES, fixed_tokenizer("byte"), 3, n) for n in (2000, 50))
    assert whole is not None and cut is not None and cut.inputs.shape == (3, 50)
    for part, full in zip(cut, whole, strict=True):
        assert (part == full[:, :50]).all()


def test_few_tales_and_a_short_context() -> None:
    tales = Tales(preset("data", "tales", n_bytes=10_000, val_fraction=0.01))
    found = tale_roles(tales, fixed_tokenizer("byte"), 16, 2000)
    assert found is not None and len(found.inputs) == len([*tales.tales("val")]) == 1
    short = tale_roles(tales, fixed_tokenizer("byte"), 16, 1)
    assert short is not None and short.inputs.shape == (1, 1)
    assert (short.targets == UNSCORED).all()
