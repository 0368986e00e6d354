"""Tiny Shakespeare: 1.1 MB of plays, downloaded once, or a local copy.

Promises: the text has the SHA-256 of the settings, and only a verified file is ever cached.
`data.text` reads and splits the file.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from common.errors import UserError, check_folder, check_range
from common.files import sha256
from data.cache import publish
from data.corpus import CorpusConfig
from data.files import local_path, readable
from data.text import TextFile, Texts

_TIMEOUT = 30  # seconds without a byte


@dataclass
class ShakespeareConfig(CorpusConfig):
    """Where tiny Shakespeare comes from: `path` if it is set, else `url`, cached in `cache_dir`.
    Without a `url`, only a cached file is used."""

    path: str | None
    url: str | None
    sha256: str
    cache_dir: str
    val_fraction: float

    def __post_init__(self) -> None:
        check_folder("cache_dir", self.cache_dir)
        check_range("val_fraction", self.val_fraction, above=0, most=1)

    def undivided(self) -> ShakespeareConfig:
        return replace(self, val_fraction=1.0)

    def without_trust(self) -> ShakespeareConfig:
        return replace(self, url=None)


def open_shakespeare(config: ShakespeareConfig) -> Texts:
    """The corpus, downloaded first if there is neither a local path nor a cached file.

    Raises UserError, naming `data.path` or `data.url`, if the text cannot be read or differs.
    """
    folder = Path(config.cache_dir).expanduser() / f"shakespeare-{config.sha256[:16]}"
    file = local_path(config.path) if config.path else folder / "input.txt"
    if config.path:
        with readable(file):
            found = sha256(file)
        if found != config.sha256:
            raise UserError(
                f"data.path: {config.path} is not tiny Shakespeare (its SHA-256 differs); "
                f"to train on it use data=text data.path={config.path}"
            )
    elif not file.is_file() or sha256(file) != config.sha256:
        if config.url is None:
            raise UserError(
                f"data.url: {folder} does not contain tiny Shakespeare; download it with "
                "data=shakespeare, or give a local copy with data.path=FILE"
            )
        play = _download(config.url, config.sha256)
        with publish(folder) as temporary:
            (temporary / file.name).write_bytes(play)
    return Texts([TextFile(file, file.stat().st_size, config.sha256)], config.val_fraction)


def _download(url: str, expected: str) -> bytes:
    import http.client
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
            text = response.read()
        if hashlib.sha256(text).hexdigest() != expected:
            raise ValueError("its SHA-256 differs from data.sha256")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise UserError(
            f"data.url: {url} did not return tiny Shakespeare ({error}); "
            "try again, or give a local copy with data.path=FILE"
        ) from error
    return text
