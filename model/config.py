"""What a model is: its sizes and its six choices of design, checked when they are set.

Promises: a `ModelConfig` that exists can be built. Knows nothing of Hydra, of vocabularies or of
how a model is trained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NORMS = ("layernorm", "rmsnorm")
POSITIONS = ("learned", "rotary")
MLPS = ("gelu", "swiglu")
MAX_LAYERS = 1000  # more is a slip of the finger, and would take minutes to build


@dataclass
class ModelConfig:
    """Sizes and design of a decoder-only transformer.

    layernorm + learned + gelu + bias + tied embeddings is GPT-2 (Radford et al. 2019);
    rmsnorm + rotary + swiglu + qk_norm is the dense Qwen3 block (Yang et al. 2025).

    Raises `ValueError("field: what is wrong; what to do")` for a value out of range.
    """

    n_layers: int
    n_heads: int
    d_model: int
    context_length: int
    n_kv_heads: int | None = None
    """Heads of keys and values, each shared by n_heads / n_kv_heads queries; None: n_heads."""
    d_head: int | None = None
    """Width of one head; None: d_model / n_heads."""
    d_mlp: int | None = None
    """Hidden width of the MLP; None: see `mlp_width`."""
    dropout: float = 0.0
    norm: str = "rmsnorm"
    position: str = "rotary"
    mlp: str = "swiglu"
    qk_norm: bool = True
    """An RMSNorm over each head of the queries and keys (Henry et al. 2020)."""
    bias: bool = False
    """Biases in every linear layer and in LayerNorm."""
    tied_embeddings: bool = True
    """One matrix both embeds tokens and gives logits (Press & Wolf 2017)."""
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        self._check_sizes()
        self._check_heads()
        for field, known in (("norm", NORMS), ("position", POSITIONS), ("mlp", MLPS)):
            if getattr(self, field) not in known:
                raise ValueError(
                    f"{field}: {getattr(self, field)!r} is unknown; choose {' or '.join(known)}"
                )
        if not 0 <= self.dropout < 1:
            raise ValueError(
                f"dropout: {self.dropout} is no probability below 1; choose 0 (off) to 0.5"
            )
        if not 1 < self.rope_theta < math.inf:
            raise ValueError(f"rope_theta: {self.rope_theta} is out of range; 10000 is usual")
        if not 0 < self.norm_eps < 1:
            raise ValueError(f"norm_eps: {self.norm_eps} is not between 0 and 1; 1e-5 is usual")

    def _check_sizes(self) -> None:
        for field in (
            *("n_layers", "n_heads", "d_model", "context_length"),
            *("n_kv_heads", "d_head", "d_mlp"),
        ):
            size = getattr(self, field)
            if size is not None and size < 1:
                raise ValueError(f"{field}: {size} is below 1; choose a positive whole number")
        if self.n_layers > MAX_LAYERS:
            raise ValueError(f"n_layers: {self.n_layers} is over {MAX_LAYERS}; choose fewer")

    def _check_heads(self) -> None:
        if self.d_head is None and self.d_model % self.n_heads:
            raise ValueError(
                f"n_heads: {self.n_heads} does not divide d_model={self.d_model}; "
                f"choose {_divisors(self.d_model)}, or set d_head"
            )
        if self.n_heads % self.kv_heads:
            raise ValueError(
                f"n_kv_heads: {self.kv_heads} does not divide n_heads={self.n_heads}; "
                f"choose {_divisors(self.n_heads)}"
            )
        if self.position == "rotary" and self.head_width % 2:
            raise ValueError(
                f"d_head: {self.head_width} is odd, and rotary positions turn pairs; "
                "make d_head (or d_model / n_heads) even, or choose position=learned"
            )

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_heads if self.d_head is None else self.d_head

    @property
    def mlp_width(self) -> int:
        """Hidden width of the MLP.

        By default 4 d_model for gelu (Vaswani et al. 2017). swiglu has three matrices where gelu
        has two, so 8/3 d_model costs the same (Shazeer 2020), here rounded up to a multiple of 32.
        """
        if self.d_mlp is not None:
            return self.d_mlp
        if self.mlp == "gelu":
            return 4 * self.d_model
        return 32 * math.ceil(8 * self.d_model / (3 * 32))


def _divisors(number: int) -> str:
    return ", ".join(str(n) for n in range(1, number + 1) if number % n == 0)
