"""Steps of one probe that have different texts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright import sync_api
from torch.utils.tensorboard import SummaryWriter

from tensorboard_attention import add_attention, encode, page
from tensorboard_attention.tests.conftest import Tab, causal_maps, tensorboard

pytestmark = pytest.mark.long

LOGGED = [(step, "abcabcabcabc" if step < 10 else "xyzxyzxy") for step in (0, 5, 10, 15, 20)]
PLACE = {"elsewhere": "4 tales"}


def given(step: int) -> dict[str, list[list[float]]]:
    """Both rise suddenly when the text changes; where `here` was measured is not known."""
    values = [[0.1 if step < 10 else 0.7] * 2] * 2
    return {"elsewhere": values, "here": values}


@pytest.fixture(scope="module", params=["logged", "exported"])
def tab(
    request: pytest.FixtureRequest,
    browser: sync_api.Browser,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Tab]:
    folder = tmp_path_factory.mktemp("texts")
    probes = [
        (step, causal_maps(step, n=len(text)), list(text), given(step), PLACE)
        for step, text in LOGGED
    ]
    if request.param == "exported":
        entries = [
            ("probe", step, encode(maps, tokens, scores, measured=measured))
            for step, maps, tokens, scores, measured in probes
        ]
        page(folder / "heads.html", entries)
        tab = Tab(browser, (folder / "heads.html").as_uri(), frame=False)
        yield tab
        tab.close()
        return
    with SummaryWriter(str(folder / "run")) as writer:
        for step, maps, tokens, scores, measured in probes:
            add_attention(writer, "probe", maps, tokens, step, scores, measured=measured)
    with tensorboard(folder) as url:
        tab = Tab(browser, f"{url}#attention")
        yield tab
        tab.close()


def steps(tab: Tab, score: str) -> list[int]:
    """How many steps each piece of a curve has."""
    pieces = tab[f"[data-score='{score}'] polyline"]
    pieces.first.wait_for(state="attached")
    points = pieces.evaluate_all("all => all.map(each => each.getAttribute('points').split(' '))")
    return [len(each) for each in points]


def test_a_curve_is_cut_where_the_text_changes(tab: Tab) -> None:
    for score in ("previous token", "first token", "entropy", "mean distance"):
        assert steps(tab, score) == [2, 3]
        assert tab[f"[data-score='{score}'] .differs"].inner_text() == (
            "cut at step 10, where the text changes"
        )
    assert steps(tab, "elsewhere") == [5], "measured on one text"
    assert tab["[data-score=elsewhere] .differs"].count() == 0


def test_a_rise_between_two_texts_is_not_named(tab: Tab) -> None:
    assert steps(tab, "elsewhere") == [5] and steps(tab, "here") == [2, 3]
    assert tab[".sudden"].all_inner_texts() == [
        "elsewhere rose from 0.10 to 0.70 between steps 5 and 10"
    ]
