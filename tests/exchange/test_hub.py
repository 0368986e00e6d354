"""Models are fetched from the Hugging Face hub: here from a server that answers as the hub does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from common.errors import UserError
from exchange.hub import fetch, is_hub_name
from tests.conftest import command
from tests.exchange.hub import Hub, environment, serve


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = tmp_path / "on the hub"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    (folder / "modeling.py").write_text("raise SystemExit")
    with serve("someone/small", folder) as hub:
        yield hub


def test_a_name_on_the_hub_is_fetched_without_code(tmp_path: Path, hub: Hub) -> None:
    where = environment(hub.address, tmp_path / "cache")
    done = command("convert", "source=someone/small", "to=imported", cwd=tmp_path, **where)
    assert done.returncode == 2 and not (tmp_path / "imported").exists()
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("error: ")]
    assert "config.json: model_type: 'bert'" in line
    assert hub.fetched == ["config.json"]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_model_or_a_network_that_is_not_there(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", hub.address if is_there else "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match=r"^source: someone/other .*, and could not be fetched: "):
        fetch("someone/other")


def test_names_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("openai-community/gpt2")
    (tmp_path / "models").mkdir()
    for path in ("models/gpt2", "runs/latest", "gpt2", "a/b/c", "/a", "../a", "a/b c", "ä/b"):
        assert not is_hub_name(path), path
