"""What several test modules use."""

from __future__ import annotations

import json
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, trainers

from tests.exchange.fast import (
    STRINGS,
)


def sentence_piece() -> Any:
    """As Llama 2's: spaces are visible, and bytes stand for unknown characters."""
    fast = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    fast.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    fast.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False)
    fast.train_from_iterator(["a hen had a hat"] * 20 + STRINGS[1:40:2], trainer)
    metadata = json.loads(fast.to_str())
    metadata["added_tokens"] = metadata["added_tokens"][:3]  # bytes are ordinary tokens
    return tokenizers.Tokenizer.from_str(json.dumps(metadata))
