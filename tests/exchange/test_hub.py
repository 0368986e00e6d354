"""Models are fetched from the Hugging Face hub: here from a server that answers as the hub does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from exchange.hub import is_hub_name
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


def fetch(name: str, address: str, cwd: Path) -> str:
    """The error of a conversion that fetches a model."""
    where = environment(address, cwd / "cache")
    done = command("convert", f"source={name}", "to=imported", cwd=cwd, **where)
    assert done.returncode == 2 and not (cwd / "imported").exists()
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("error: ")]
    return line


def test_a_name_on_the_hub_is_fetched_without_code(tmp_path: Path, hub: Hub) -> None:
    assert "config.json: model_type: 'bert'" in fetch("someone/small", hub.address, tmp_path)
    assert hub.fetched == ["config.json"]


def test_a_model_that_is_not_there(tmp_path: Path, hub: Hub) -> None:
    assert "could not be fetched" in fetch("someone/other", hub.address, tmp_path)


def test_no_network(tmp_path: Path) -> None:
    assert "could not be fetched" in fetch("someone/small", "http://127.0.0.1:9", tmp_path)


def test_names_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("openai-community/gpt2")
    (tmp_path / "models").mkdir()
    for path in ("models/gpt2", "runs/latest", "gpt2", "a/b/c", "/a", "../a", "a/b c", "ä/b"):
        assert not is_hub_name(path), path
