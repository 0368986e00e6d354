#!/usr/bin/env bash
# One would guess: with all 256 bytes in its vocabulary, a byte-level BPE encodes any text, and tiktoken and tokenizers agree
# if vocabulary and pattern are the same. Instead, tiktoken drops what the pattern does not match, without an error, and
# tokenizers keeps it as pieces of their own.
# It matters to who ports a tokenizer between the two: a pattern such as \w+|\s+ is fine in one, and in the other the model
# never sees a full stop. The round trip decode(encode(text)) shows it, the ids alone do not.
# The product uses only patterns that match any text completely: data/pieces.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check tiktoken==0.14.0 tokenizers==0.23.3
"$folder/venv/bin/python" - <<'END'
import tiktoken
import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

PATTERN, TEXT = r"\w+|\s+", "Stop. Is it done? Yes!"
one = tiktoken.Encoding(
    "bytes",
    pat_str=PATTERN,
    mergeable_ranks={bytes([byte]): byte for byte in range(256)},
    special_tokens={},
)
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
other = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
other.pre_tokenizer = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
)
other.decoder = decoders.ByteLevel()
seen = one.decode(one.encode(TEXT)), other.decode(other.encode(TEXT).ids)
print("tiktoken", tiktoken.__version__, "tokenizers", tokenizers.__version__)
print("expected of both:", repr(TEXT))
print("seen of tiktoken:", repr(seen[0]))
print("seen of tokenizers:", repr(seen[1]))
raise SystemExit(seen != ("Stop Is it done Yes", TEXT))
END
