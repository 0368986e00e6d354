"""Small models of every family, for the tests in this folder."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from configs.schema import preset
from model import GPT, ModelConfig

CHOICES: dict[str, tuple[object, ...]] = {
    "norm": ("layernorm", "rmsnorm"),
    "position": ("learned", "rotary"),
    "mlp": ("gelu", "swiglu"),
    "qk_norm": (False, True),
    "bias": (False, True),
    "n_kv_heads": (None, 2),
}
FAMILIES = [
    dict(zip(CHOICES, values, strict=True)) for values in itertools.product(*CHOICES.values())
]


def _name(family: dict[str, object]) -> str:
    return "-".join(
        str(value) if isinstance(value, str) else f"{field}={value}"
        for field, value in family.items()
        if value
    )


@pytest.fixture(params=FAMILIES, ids=_name, scope="module")
def family(request: pytest.FixtureRequest) -> dict[str, object]:
    """Each combination of the design choices."""
    return request.param


@pytest.fixture(scope="session")
def make_config() -> Callable[..., ModelConfig]:
    def make(**settings: object) -> ModelConfig:
        sizes = {"n_layers": 2, "n_heads": 4, "d_model": 16, "context_length": 8}
        return preset("model", "nano", **{**sizes, **settings})

    return make


@pytest.fixture(scope="session")
def make_model(make_config: Callable[..., ModelConfig]) -> Callable[..., GPT]:
    """Build a small model in which every parameter is random, including biases and norms."""

    def make(vocab_size: int = 13, seed: int = 0, **settings: object) -> GPT:
        torch.manual_seed(seed)
        model = GPT(make_config(**settings), vocab_size)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(mean=1.0 if parameter.dim() == 1 else 0.0, std=0.4)
        return model.eval()

    return make
