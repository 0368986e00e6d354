"""The page as a file: it loads without a network, and shows hostile texts as text."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import pytest
import torch
from playwright import sync_api
from tokenizers import normalizers

from common.errors import UserError
from live.pack import MAX_BYTES, check_size
from live.page import can_have_page, check_page, run_title
from model import GPT
from tensorboard_attention.tests.conftest import HOSTILE
from tests.conftest import TINY, small_config, succeed
from tests.data.strings import trained
from tests.exchange.fast import imported
from tests.live.pages import Live, data_in


@pytest.mark.parametrize(
    ("name", "folder", "data", "title"),
    [
        ("tiny", "2026-01-02_03-04-05", "tales", "tiny"),
        (None, "2026-01-02_03-04-05", "tales", "tales, 1,000 steps"),
        (None, "2026-01-02_03-04-05-2", "text", "text, 1,000 steps"),
        (None, "0_model.d_model=64", "tales", "0_model.d_model=64"),
        (None, "2026-01-02_03-04-05", None, "2026-01-02_03-04-05"),
    ],
)
def test_a_title_is_no_date(name: str | None, folder: str, data: str | None, title: str) -> None:
    assert run_title(name, Path("runs", folder), data, 1000) == title


def test_the_page_can_request_nothing(site: str) -> None:
    """Nor can its worker, a Blob, which has the policy of the page."""
    page = Path(url2pathname(urlparse(site).path)).read_text("utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    assert dict(rule.split(" ", 1) for rule in policy.split("; ")) == {
        "default-src": "'none'",
        "script-src": "'unsafe-inline'",
        "worker-src": "blob:",
        "style-src": "'unsafe-inline'",
        "img-src": "blob: data:",
    }


def test_hostile_texts_are_only_texts(tmp_path: Path, browser: sync_api.Browser) -> None:
    """In tokens, in the first text and in the name of the run."""
    name = "run <img src=x onerror=document.title=3> &amp;"
    (tmp_path / "text.txt").write_text(f"A hen {HOSTILE} and \u202e a hat.\n" * 400)
    rest = [each for each in TINY if not each.startswith(("data", "trainer.max"))]
    text = ("data=text", "data.path=text.txt", "trainer.max_steps=1", f"name={name}")
    succeed("train", *rest, *text, cwd=tmp_path)
    succeed("look", f"run=runs/{name}", "html=live.html", cwd=tmp_path)
    file = tmp_path / "live.html"
    data = data_in(file)
    assert data["run"]["name"] == name
    live = Live(browser, file.as_uri())
    assert live.page.title() == name and live["h1"].inner_text() == name
    assert live["img"].count() == 0
    live.close()


def test_what_names_the_page_at_the_end_of_a_run() -> None:
    model = GPT(small_config(1, 1, 4, 8), 400)
    assert can_have_page(model, trained())
    with pytest.raises(UserError, match=r"^run: model\.mlp: relu2 is unknown to a live page"):
        check_page(GPT(small_config(1, 1, 4, 8, mlp="relu2"), 400), trained())
    normalizing = imported(trained(), normalizer=normalizers.NFC())
    assert not can_have_page(model, normalizing)
    with torch.device("meta"):
        assert not can_have_page(GPT(small_config(12, 12, 3072, 8), 50257), trained())


def test_a_page_that_is_too_large_is_refused() -> None:
    most = int(MAX_BYTES * 3 / 4 / 2)
    for n_checkpoints in (1, 5):
        check_size(most // n_checkpoints, n_checkpoints, "float16")
        check_size(2 * most // n_checkpoints, n_checkpoints, "int8")
        with pytest.raises(UserError, match=r"^weights: .* 201 MB, .* weights=int8"):
            check_size(most // n_checkpoints + 500_000 // n_checkpoints, n_checkpoints, "float16")
