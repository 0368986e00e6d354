"""Tiny Shakespeare: 1.1 MB of his plays, downloaded once, or a local copy.

Promises: whatever is read has the SHA-256 of the settings, and nothing but a verified file is ever
cached. Knows nothing of tokens; reading and splitting are those of `data.text`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from data.cache import publish
from data.text import Text, TextConfig
from errors import UserError

_LARGEST = 1 << 26
_TIMEOUT = 30  # seconds without a byte


@dataclass
class ShakespeareConfig:
    """Where tiny Shakespeare comes from: `path` if it is set, else `url`, kept in `cache_dir`."""

    name: str = "shakespeare"
    path: str | None = None
    url: str = (
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
    )
    sha256: str = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
    cache_dir: str = ".cache"
    val_fraction: float = 0.1

    document_end: ClassVar[str | None] = TextConfig.document_end

    def __post_init__(self) -> None:
        TextConfig(val_fraction=self.val_fraction)


def open_shakespeare(config: ShakespeareConfig) -> Text:
    """The corpus, downloaded first if there is neither a local path nor a cached file.

    Raises UserError, naming `data.path` or `data.url`, if the text cannot be had or is another.
    """
    if config.path:
        corpus = _open(config, config.path)
        if corpus.sha256() != config.sha256:
            raise UserError(
                f"data.path: {config.path} is not tiny Shakespeare (its SHA-256 differs); "
                f"to train on it use data=text data.path={config.path}"
            )
        return corpus
    folder = Path(config.cache_dir).expanduser() / f"shakespeare-{config.sha256[:16]}"
    file = folder / "input.txt"
    if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != config.sha256:
        text = _download(config.url, config.sha256)
        with publish(folder) as temporary:
            (temporary / file.name).write_bytes(text)
    return _open(config, str(file))


def _open(config: ShakespeareConfig, path: str) -> Text:
    return Text(TextConfig(path=path, val_fraction=config.val_fraction))


def _download(url: str, sha256: str) -> bytes:
    import http.client
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
            text = response.read(_LARGEST)
            announced = int(response.headers.get("Content-Length") or len(text))
        if len(text) < announced:
            raise ValueError(f"the connection broke off after {len(text)} of {announced} bytes")
        if hashlib.sha256(text).hexdigest() != sha256:
            raise ValueError("its SHA-256 is not that of data.sha256")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise UserError(
            f"data.url: {url} gave no tiny Shakespeare ({error}); "
            "try again, or give a local copy with data.path=FILE"
        ) from error
    return text
