"""Compare the loss from hidden states with PyTorch's cross entropy of the whole logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from model import GPT, cross_entropy, linear_cross_entropy, loss
from tests.conftest import small_config

N, WIDTH = 37, 16


@pytest.fixture(params=["whole", "parts"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the loss is computed in parts of a few tokens."""
    if request.param == "parts":
        monkeypatch.setattr(loss, "PART_BYTES", 8 * 4 * 19)
    return request.param == "parts"


def draw(vocab: int, batch: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states, a weight and targets, of which some are not scored."""
    generator = torch.Generator().manual_seed(vocab)
    hidden = torch.randn(batch, N, WIDTH, generator=generator)
    weight = torch.randn(vocab, WIDTH, generator=generator)
    targets = torch.randint(vocab, (batch, N), generator=generator)
    targets[:, ::5] = -100
    return hidden, weight, targets


def reference(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
) -> torch.Tensor:
    logits = F.linear(hidden, weight).flatten(0, 1).to(hidden.dtype)
    return F.cross_entropy(logits, targets.flatten(), reduction=reduction)


def differentiated(
    value: Callable[..., torch.Tensor],
    start: Sequence[torch.Tensor],
    *rest: Any,
    dtype: torch.dtype | None = None,
    scale: float = 1.0,
) -> list[torch.Tensor]:
    """A loss, with products in a dtype, and its gradients, divided by the scale of the loss."""
    leaves = [each.clone().requires_grad_() for each in start]
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        loss = value(*leaves, *rest)
    gradients = torch.autograd.grad(loss * scale, leaves)
    return [loss.detach(), *(gradient / scale for gradient in gradients)]


@given(
    vocab=st.integers(1, 100),
    batch=st.integers(1, 3),
    rows=st.integers(1, 3 * N),  # of a part
    reduction=st.sampled_from(["mean", "sum"]),
)
def test_values_and_gradients_are_those_of_the_logits(
    vocab: int, batch: int, rows: int, reduction: str
) -> None:
    hidden, weight, targets = draw(vocab, batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss, "PART_BYTES", 4 * vocab * rows)
        start = (hidden, weight)
        found = differentiated(linear_cross_entropy, start, targets, reduction, scale=3.0)
    exact = differentiated(reference, (hidden.double(), weight.double()), targets, reduction)
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


def test_products_in_bfloat16_have_a_loss_in_float32(parts: bool) -> None:
    """As close to float64 as the logits in bfloat16 are, and closer than bfloat16 rounds."""
    *start, targets = draw(300, batch=9)
    expected, found = (
        differentiated(value, start, targets, dtype=torch.bfloat16)
        for value in (reference, linear_cross_entropy)
    )
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=0)
    for one, other in zip(found[1:], expected[1:], strict=True):
        assert (one - other).norm() <= 1e-2 * other.norm()


def test_in_float16_the_scale_of_the_loss_reaches_its_gradient(parts: bool) -> None:
    """No row of the gradient is 0 where that of the logits is not, and a smaller scale mends what
    overflows."""
    half: dict[str, Any] = {"dtype": torch.float16}
    hidden, weight, targets = draw(5000)
    weight *= 2  # the least likely tokens have 1e-12
    exact = differentiated(reference, (hidden.double(), weight.double()), targets)[2]
    errors = []
    for value in (reference, linear_cross_entropy):
        found = differentiated(value, (hidden, weight), targets, **half, scale=2.0**16)[2]
        assert found.ne(0).any(dim=1).all()
        errors.append(((found - exact).norm(dim=1) / exact.norm(dim=1)).median().item())
    assert errors[1] == pytest.approx(errors[0], rel=0.05)

    start = torch.full((1, 1200, WIDTH), 60.0), weight[:300] / 1000
    single = torch.zeros(1, 1200, dtype=torch.int64)
    for scale, is_finite in ((2.0**17, False), (2.0**10, True)):
        found = differentiated(linear_cross_entropy, start, single, **half, scale=scale)[2]
        assert bool(found.isfinite().all()) == (is_finite or parts)


def test_what_cannot_be_scored() -> None:
    hidden, weight, targets = draw(19)
    for reduction in ("none", "avg"):
        with pytest.raises(ValueError, match=f"reduction: '{reduction}' is unknown"):
            linear_cross_entropy(hidden, weight, targets, reduction)
    for wrong in (targets.int(), targets[:, :-1], targets.repeat(2, 1), targets.flatten()):
        with pytest.raises((ValueError, TypeError), match=r"targets"):
            linear_cross_entropy(hidden, weight, wrong)


def test_targets_of_which_none_is_scored(parts: bool) -> None:
    """The mean of nothing is NaN, as in PyTorch; the sum is zero."""
    hidden, weight, targets = draw(19)
    nothing = torch.full_like(targets, -100)
    assert linear_cross_entropy(hidden, weight, nothing).isnan()
    assert linear_cross_entropy(hidden, weight, nothing, "sum") == 0


@pytest.mark.parametrize(("tied", "cap"), [(True, None), (False, None), (True, 0.1)])
def test_the_loss_of_the_model_is_that_of_its_logits(
    parts: bool, tied: bool, cap: float | None
) -> None:
    torch.manual_seed(0)
    model = GPT(small_config(1, 2, 16, 8, tied_embeddings=tied, logit_softcap=cap), 19)
    tokens = torch.randint(19, (2, 9))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    losses = (model(inputs, targets=targets), cross_entropy(model(inputs), targets))
    torch.testing.assert_close(*losses)
    with torch.no_grad():
        torch.testing.assert_close(model(inputs, targets=targets), losses[1])
    for one, other in zip(
        *(torch.autograd.grad(each, [*model.parameters()]) for each in losses), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_no_tensor_is_as_large_as_the_logits(parts: bool) -> None:
    class Sizes(TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(
            self, function: Any, types: Any, arguments: Any = (), names: Any = None
        ) -> Any:
            result = function(*arguments, **(names or {}))
            if isinstance(result, torch.Tensor):
                self.largest = max(self.largest, result.numel())
            return result

    hidden, weight, targets = draw(500, batch=4)
    with Sizes() as sizes:
        linear_cross_entropy(hidden.requires_grad_(), weight.requires_grad_(), targets).backward()
    n_logits = targets.numel() * 500
    assert (sizes.largest < n_logits / 3) == parts
