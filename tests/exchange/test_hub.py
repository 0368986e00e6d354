"""Models are fetched from the Hugging Face hub, without code."""

from __future__ import annotations

import shutil
from fnmatch import fnmatch
from pathlib import Path

import pytest
from huggingface_hub import constants

from common.errors import UserError
from exchange.hub import fetch, is_hub_name
from tests.conftest import command


def test_a_name_on_the_hub_is_fetched_without_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = tmp_path / "on the hub", tmp_path / "fetched"
    there.mkdir()
    (there / "config.json").write_text('{"model_type": "bert"}')
    (there / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    (there / "modeling.py").write_text("raise SystemExit")

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        assert name == "someone/small"
        here.mkdir()
        for file in there.iterdir():
            if any(fnmatch(file.name, pattern) for pattern in allow_patterns):
                shutil.copy(file, here)
        return str(here)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    done = command("convert", "source=someone/small", "to=imported", cwd=tmp_path)
    assert done.returncode == 2 and not (tmp_path / "imported").exists()
    assert "config.json: model_type: 'bert'" in done.stderr
    assert [file.name for file in here.iterdir()] == ["config.json"]


def test_a_network_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match=r"^source: someone/other .*, and could not be fetched: "):
        fetch("someone/other")


def test_names_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("openai-community/gpt2")
    (tmp_path / "models").mkdir()
    for path in ("models/gpt2", "runs/latest", "gpt2", "a/b/c", "/a", "../a", "a/b c", "ä/b"):
        assert not is_hub_name(path), path
