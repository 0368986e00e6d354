#!/usr/bin/env bash
# One would guess: tiktoken.load.load_tiktoken_bpe reads a vocabulary file on the disk each time, and caches only what it
# downloads. Instead, a local file is copied into the cache, too, under its path, and read from there ever after: a
# vocabulary that is trained anew into the same file is not noticed, unless the caller gives an expected_hash.
# It matters because the ids of the old vocabulary are valid in the new one, so that a model trains on wrong text.
# The product reads the files of its tokenizers itself and compares their checksums: data/tokenizer.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check tiktoken==0.14.0
cd "$folder"
TIKTOKEN_CACHE_DIR="$folder/cache" "$folder/venv/bin/python" - <<'END'
from base64 import b64encode
from pathlib import Path

import tiktoken
from tiktoken.load import load_tiktoken_bpe


def write(*merged: bytes) -> None:
    tokens = [*(bytes([byte]) for byte in range(256)), *merged]
    lines = [f"{b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)]
    Path("vocabulary.tiktoken").write_text("".join(lines))


def read() -> list[bytes]:
    ranks = load_tiktoken_bpe("vocabulary.tiktoken")
    return [token for token, rank in ranks.items() if rank >= 256]


print("tiktoken", tiktoken.__version__)
write(b"th", b"the")
print("first vocabulary: expected", [b"th", b"the"], "seen", read())
write(b"ca", b"cat", b"cats")
print("another in the same file: expected", [b"ca", b"cat", b"cats"], "seen", seen := read())
raise SystemExit(seen != [b"th", b"the"])
END
