"""Small models of every family, for the tests in this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jaxtyping
import pytest
import torch

from launch.schema import preset
from model import GPT, ModelConfig

CHOICES: dict[str, tuple[object, ...]] = {
    "norm": ("layernorm", "rmsnorm"),
    "position": ("learned", "rotary"),
    "mlp": ("gelu", "swiglu"),
    "qk_norm": (False, True),
    "bias": (False, True),
    "n_kv_heads": (None, 2),
}
# For each choice, which of its two values: GPT-2, seven more with which every two values of two
# choices occur together, Llama and Qwen3.
ROWS = [
    "000010",
    "001001",
    "010111",
    "011100",
    "100100",
    "101111",
    "110001",
    "111010",
    "111000",
    "111101",
]
FAMILIES = [
    {name: values[int(which)] for (name, values), which in zip(CHOICES.items(), row, strict=True)}
    for row in ROWS
]


def _name(family: dict[str, object]) -> str:
    return "-".join(map(str, family.values()))


@pytest.fixture(params=FAMILIES, ids=_name, scope="module")
def family(request: pytest.FixtureRequest) -> dict[str, object]:
    """Choices of the design, as in `ROWS`."""
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


@pytest.fixture
def no_shape_checks() -> Iterator[None]:
    """Disable the shape checks: torch.compile cannot trace them, and they read an item of every
    mapping. What was compiled is forgotten afterwards."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
    torch.compiler.reset()
