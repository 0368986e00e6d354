"""Each score, on patterns whose value is known in closed form."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from tensorboard_attention import scores

LENGTHS = st.integers(2, 12)


def uniform(n: int) -> Tensor:
    """Every query spreads evenly over all keys up to itself."""
    return (torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None])[None, None]


def pointing(targets: list[int]) -> Tensor:
    """Every query attends to one key alone."""
    return torch.eye(len(targets))[targets][None, None]


def mean(values: list[float]) -> Tensor:
    return torch.tensor([sum(values) / len(values)])


@given(LENGTHS)
def test_uniform_causal_attention(n: int) -> None:
    maps, shares = uniform(n), [1 / (query + 1) for query in range(n)]
    assert_close(scores.entropy(maps), mean(torch.arange(1, n + 1).double().log2().tolist()))
    assert_close(scores.mean_distance(maps), torch.tensor([(n - 1) / 4]))
    assert_close(scores.same_token(maps), mean(shares))
    assert_close(scores.previous_token(maps), mean(shares[1:]))
    assert_close(scores.first_token(maps), mean(shares[1:]))


@given(LENGTHS)
def test_heads_that_do_one_thing(n: int) -> None:
    """Several heads in one map, each of which does one thing alone."""
    patterns = {
        "previous_token": [max(0, query - 1) for query in range(n)],
        "first_token": [0] * n,
        "same_token": list(range(n)),
    }
    maps = torch.cat([pointing(targets) for targets in patterns.values()], 1)
    for head, name in enumerate(patterns):
        assert getattr(scores, name)(maps)[head] == 1
    assert_close(scores.entropy(maps), torch.zeros(3))
    assert_close(scores.mean_distance(maps), torch.tensor([(n - 1) / n, (n - 1) / 2, 0]))


@given(st.integers(2, 8))
def test_copying_heads_on_a_repeated_sequence(n: int) -> None:
    tokens = torch.randperm(50)[:n].repeat(2)[None]
    induction = pointing([*range(n), *(query - n + 1 for query in range(n, 2 * n))])
    duplicate = pointing([*range(n), *(query - n for query in range(n, 2 * n))])
    maps = torch.cat([induction, duplicate], 1)
    assert_close(scores.induction(maps, tokens), torch.tensor([1.0, 0.0]))
    assert_close(scores.duplicate_token(maps, tokens), torch.tensor([0.0, 1.0]))


@pytest.mark.parametrize("score", [scores.induction, scores.duplicate_token])
def test_where_no_token_comes_again_there_is_no_score(
    score: Callable[[Tensor, Tensor], Tensor],
) -> None:
    assert score(uniform(4), torch.arange(4)[None]).isnan().all()


def test_texts_of_a_batch_are_averaged() -> None:
    maps = torch.cat([pointing([0, 0, 0]), pointing([0, 1, 2])])
    assert_close(scores.first_token(maps), torch.tensor([0.5]))
