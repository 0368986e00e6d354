"""What encodes text for a `data.tokenizer.Tokenizer` that the project offers: tiktoken."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import tiktoken
from jaxtyping import UInt32

from data.merges import BytePairs
from data.patterns import BY_SPELLING

MOST_TOKENS = 1 << 20  # the largest vocabularies in use have a quarter of it
END = "<|endoftext|>"  # GPT-2's name of the token between two documents


class Tiktoken:
    """The engine of the tokenizers that the project offers; `data.imported.HuggingFace` is the
    other one.

    file: the name of the file with its content. about: what else is stored, for JSON; two engines
        of which both are equal give the same tokens.
    special: the ids of tokens that no text is encoded to, by their names.
    tokens: the bytes of all other tokens.
    cuts_at_spaces: the tokens of any text are those of its words, each with the space before it.
    """

    file = "tokenizer.tiktoken"
    cuts_at_spaces = True

    def __init__(self, encoding: tiktoken.Encoding) -> None:
        self.encoding, self.name = encoding, encoding.name
        self.special = encoding._special_tokens
        self.tokens = {rank: token for token, rank in encoding._mergeable_ranks.items()}
        self.about: dict[str, Any] = {"pattern": encoding._pat_str, "special_tokens": self.special}

    def encode(self, text: str) -> list[int]:
        return self.encoding.encode_ordinary(text)

    def encode_array(self, text: str) -> UInt32[np.ndarray, " tokens"]:
        """As `encode`, without the global interpreter lock."""
        try:
            return self._for_arrays.encode_to_numpy(text, disallowed_special=())
        except UnicodeEncodeError:  # a lone surrogate
            return np.array(self.encode(text), np.uint32)

    @cached_property
    def _for_arrays(self) -> tiktoken.Encoding:
        """The same encoding, with a special token if it has none: `encode_to_numpy` searches for
        special tokens, and searching for none takes as long as everything else."""
        return self.encoding if self.special else self.with_special(END, max(self.tokens) + 1)

    def with_special(self, name: str, token: int) -> tiktoken.Encoding:
        """The encoding with another special token."""
        return tiktoken.Encoding(
            self.name,
            pat_str=self.encoding._pat_str,
            mergeable_ranks=self.encoding._mergeable_ranks,
            special_tokens={**self.special, name: token},
        )

    def content(self) -> str:
        """What is saved in `file`, in tiktoken's own format: a line for each token, its bytes in
        base64, a space, its rank."""
        return "".join(
            f"{base64.b64encode(token).decode()} {rank}\n"
            for rank, token in sorted(self.tokens.items())
        )

    def byte_pairs(self) -> BytePairs:
        """The merges, for programs that encode by themselves."""
        pattern, ranks = BY_SPELLING[self.encoding._pat_str], self.encoding._mergeable_ranks
        return BytePairs(pattern, ranks, self.special)

    @classmethod
    def load(cls, about: Mapping[str, Any], content: str) -> Tiktoken:
        """Raises ValueError, KeyError or TypeError for damaged content, on which tiktoken panics,
        and for a pattern that is not in use: matching an arbitrary one can take for ever."""
        lines = [line.split() for line in content.splitlines()]
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in lines}
        special = {str(name): int(token) for name, token in about["special_tokens"].items()}
        ids = [*ranks.values(), *special.values()]
        if not 0 <= min(ids) <= max(ids) < MOST_TOKENS or len({*ids}) < len(lines) + len(special):
            raise ValueError("the id of a token is out of range, or that of another one")
        if any(bytes([byte]) not in ranks for byte in range(256)):
            raise ValueError("a single byte is missing")
        pattern = BY_SPELLING[about["pattern"]].tiktoken
        name = str(about["name"])
        return cls(
            tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
        )
