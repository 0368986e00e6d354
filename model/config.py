"""What a model is: its sizes and its design choices, checked when they are set.

Promises: a `ModelConfig` that exists can be built. The defaults of a training are in
configs/model/; those here are for models that were converted from other formats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Annotated

from common.errors import check_choice, check_range
from common.settings import CAN_BE_NULL, check_types
from model.layers import MLPS, NORMS, POSITIONS

MAX_LAYERS = 1000  # more would take minutes to build, and is probably a typo
MAX_SIZE = 10**9
MAX_CONTEXT = 1 << 20  # the weights of a model with rotary positions do not bound it
CHOICES: dict[str, Mapping[str, object]] = {"norm": NORMS, "position": POSITIONS, "mlp": MLPS}
# What the other implementations of the model know: Hugging Face transformers, GGUF, the live page,
# and sampling on a CPU (inference/packed.py).
# Of a setting with a default they know that alone, apart from those of training.
KNOWN = {
    "norm": ("layernorm", "rmsnorm"),
    "position": ("learned", "rotary"),
    "mlp": ("gelu", "swiglu"),
}
TRAINING = ("attention_dropout",)

Derived = Annotated[int, CAN_BE_NULL]  # null is replaced in `__post_init__`


@dataclass
class ModelConfig:
    """Sizes and design of a decoder-only transformer.

    layernorm + learned + gelu + bias + tied embeddings is GPT-2 (Radford et al. 2019);
    rmsnorm + rotary + swiglu is Llama (Touvron et al. 2023), and with qk_norm the dense Qwen3 block
    (Yang et al. 2025).

    Raises `ValueError("field: what is wrong; what to do")` for a value of another type or out of
    range.
    """

    n_layers: int
    n_heads: int
    d_model: int
    context_length: int
    n_kv_heads: Derived
    """Heads of keys and values, each shared by n_heads / n_kv_heads queries; None: n_heads."""
    d_head: Derived
    """Width of one head; None: d_model / n_heads."""
    d_mlp: Derived
    """Hidden width of the MLP; None: `_mlp_width`."""
    dropout: float
    norm: str
    position: str
    mlp: str
    qk_norm: bool
    """An RMSNorm over each head of the queries and keys (Henry et al. 2020)."""
    bias: bool
    """Biases in every linear layer and in LayerNorm."""
    tied_embeddings: bool
    """One matrix both embeds tokens and computes logits (Press & Wolf 2017)."""
    rope_theta: float
    norm_eps: float
    attention_dropout: float | None = None
    """Dropout probability of attention weights; None: dropout. Zero is faster, since PyTorch's
    fused kernels for CPUs do not support dropout."""
    window: int | None = None
    """How many of the newest tokens a token attends to, its own among them; None: to all."""
    logit_softcap: float | None = None
    """Logits are between -logit_softcap and logit_softcap; None: unbounded."""

    def __post_init__(self) -> None:
        check_types(self)
        check_range("n_layers", self.n_layers, 1, MAX_LAYERS)
        check_range("n_heads", self.n_heads, 1, MAX_SIZE)
        check_range("d_model", self.d_model, 1, MAX_SIZE)
        check_range("context_length", self.context_length, 1, MAX_CONTEXT)
        for name, known in CHOICES.items():
            check_choice(name, getattr(self, name), known)
        self._derive_sizes()
        for name in ("n_kv_heads", "d_head", "d_mlp"):
            check_range(name, getattr(self, name), 1, 3 * MAX_SIZE)
        self._check_heads()
        check_range("dropout", self.dropout, least=0, below=1)
        if self.attention_dropout is not None:
            check_range("attention_dropout", self.attention_dropout, least=0, below=1)
        if self.window is not None:
            check_range("window", self.window, 1, MAX_CONTEXT)
        if self.logit_softcap is not None:
            check_range("logit_softcap", self.logit_softcap, above=0, most=1e6)
        check_range("rope_theta", self.rope_theta, above=1)
        check_range("norm_eps", self.norm_eps, above=0, below=1)

    def n_weights(self, vocab_size: int) -> int:
        """A lower bound of the number of weights: those of the matrices of each layer, without key
        and value projections, which can be small, and one embedding matrix."""
        widths = 2 * self.n_heads * self.d_head + 2 * self.d_mlp
        return self.d_model * (vocab_size + self.n_layers * widths)

    def check_known(self, where: str) -> None:
        """Raise ValueError, naming a setting, unless another implementation of the model, `where`,
        knows its value."""
        for field in fields(self):
            value, known = getattr(self, field.name), KNOWN.get(field.name, (field.default,))
            if known != (MISSING,) and field.name not in TRAINING and value not in known:
                names = ", ".join("null" if option is None else str(option) for option in known)
                raise ValueError(
                    f"model.{field.name}: {value} is unknown to {where}; it knows only {names}"
                )

    def _derive_sizes(self) -> None:
        if self.n_kv_heads is None:
            self.n_kv_heads = self.n_heads
        if self.d_head is None:
            if self.d_model % self.n_heads:
                raise ValueError(
                    f"n_heads: {self.n_heads} does not divide d_model={self.d_model}; "
                    f"choose {_divisors(self.d_model)}, or set d_head"
                )
            self.d_head = self.d_model // self.n_heads
        if self.d_mlp is None:
            self.d_mlp = self._mlp_width()

    def _mlp_width(self) -> int:
        """4 d_model (Vaswani et al. 2017); for swiglu 8/3 d_model, since it has three matrices
        instead of two (Shazeer 2020), rounded up to a multiple of 32."""
        return 32 * math.ceil(8 * self.d_model / 96) if self.mlp == "swiglu" else 4 * self.d_model

    def _check_heads(self) -> None:
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_kv_heads: {self.n_kv_heads} does not divide n_heads={self.n_heads}; "
                f"choose {_divisors(self.n_heads)}"
            )
        if self.position == "rotary" and self.d_head % 2:
            raise ValueError(
                f"d_head: {self.d_head} is odd, and rotary positions rotate pairs; "
                "make d_head (or d_model / n_heads) even, or choose position=learned"
            )


def _divisors(number: int) -> str:
    return ", ".join(str(n) for n in range(1, min(number, 256) + 1) if number % n == 0)
