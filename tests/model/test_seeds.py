"""Reproduce the printed results of small attention notebooks with the model's own functions.

Printed numbers have four decimals unless more are shown. Each notebook gave its inputs or its
random seed, or its inputs follow from the printed results.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from model import causal_mask, explicit_attention
from model.attention import CausalSelfAttention, split_heads
from tests.conftest import small_config


def assert_printed(actual: Tensor, printed: object, atol: float = 6e-5, rtol: float = 0.0) -> None:
    """Assert equality with printed values, to the last decimal."""
    expected = torch.as_tensor(printed, dtype=torch.float64)
    torch.testing.assert_close(actual.double(), expected, atol=atol, rtol=rtol)


def test_weights_of_masked_scores() -> None:
    """Notebook 000."""
    scores = torch.tensor(
        [
            [96.8332, -math.inf, -math.inf, -math.inf],
            [32.7087, 94.9597, -math.inf, -math.inf],
            [32.5465, 30.7693, 99.3592, -math.inf],
            [26.6260, 34.8210, 28.1737, 100.3393],
        ],
        dtype=torch.float64,
    )
    weights = [
        [1.0000e00, 0.0000e00, 0.0000e00, 0.0000e00],
        [9.2196e-28, 1.0000e00, 0.0000e00, 0.0000e00],
        [9.6297e-30, 1.6285e-30, 1.0000e00, 0.0000e00],
        [9.6996e-33, 3.5139e-29, 4.5595e-32, 1.0000e00],
    ]
    # If the keys are unit vectors, the components of a query are its scores.
    keys = torch.eye(4, dtype=torch.float64)[None, None]
    query = scores.masked_fill(scores.isinf(), 0)[None, None] * math.sqrt(4)
    steps = explicit_attention(query, keys, keys, causal_mask(4, 4))
    assert_printed(steps.masked[0, 0], scores)
    # A weight is the exponential of a difference of two scores, each rounded to within 5e-5.
    assert_printed(steps.weights[0, 0], weights, atol=0, rtol=1.1e-4)


# Notebook 001: six tokens of width 3, projected to the keys of two heads of width 1.
INPUTS = (
    *((-0.3406, 2.0035, -0.4027), (0.4818, 0.3113, 0.0386), (-0.7591, -0.7128, -0.5769)),
    *((0.7443, -0.1105, -0.0138), (0.7773, 0.2322, -1.0294), (0.7965, 0.8256, 0.8181)),
)
KEYS = (
    (0.1446, -0.2327, 0.0879, -0.4420, -0.9495, 0.0216),
    (0.8069, -0.1224, -0.0064, -0.4205, -0.5462, 0.0837),
)
# For the last token, which attends to all six.
SCORES = (
    (-0.0185, 0.0297, -0.0112, 0.0564, 0.1212, -0.0028),
    (-0.2773, 0.0421, 0.0022, 0.1445, 0.1877, -0.0288),
)
WEIGHTS = (
    (0.1587, 0.1666, 0.1599, 0.1711, 0.1825, 0.1612),
    (0.1235, 0.1700, 0.1633, 0.1883, 0.1966, 0.1583),
)


def test_keys_are_a_projection_split_into_heads() -> None:
    attention = CausalSelfAttention(small_config(1, 2, 3, 6, d_head=1, position="learned"))
    inputs, keys = torch.tensor(INPUTS), torch.tensor(KEYS)
    with torch.no_grad():
        # The matrix was not printed, but six tokens overdetermine its three rows.
        attention.key.weight.copy_(torch.linalg.lstsq(inputs, keys.T).solution.T)
    found = split_heads(attention.key(torch.stack((inputs, inputs))), 1)
    assert found.shape == (2, 2, 6, 1)
    assert_printed(found[1, :, :, 0], KEYS, atol=2e-4)


def test_scores_and_weights_of_the_last_token() -> None:
    """All six scores of a head belong to one query, which was not printed."""
    key = torch.tensor(KEYS)[None, :, :, None]
    query = torch.tensor(SCORES)[None, :, 4:5, None] / key[:, :, 4:5]
    steps = explicit_attention(query, key, key, causal_mask(1, 6))
    assert_printed(steps.scaled[0, :, 0], SCORES, atol=2e-4)
    assert_printed(steps.weights[0, :, 0], WEIGHTS, atol=1e-4)


def test_one_linear_layer_projects_to_every_head() -> None:
    """Notebook 002, seed 0."""
    torch.manual_seed(0)
    x = torch.randn(1, 5, 3)
    per_head = torch.empty(2, 3, 2).uniform_(-((1 / 3) ** 0.5), (1 / 3) ** 0.5)
    attention = CausalSelfAttention(small_config(1, 2, 3, 5, d_head=2))
    with torch.no_grad():
        attention.query.weight.copy_(torch.cat([matrix.T for matrix in per_head]))
    heads = split_heads(attention.query(x), 2)
    torch.testing.assert_close(heads[0], x @ per_head)
    printed = [
        *([0.2760, -1.3322], [0.6961, -0.2588], [-0.2466, -0.9173]),
        *([0.3303, 0.5202], [0.2377, -0.8991]),
        *([0.1753, 1.6926], [-0.0231, 1.2340], [0.0591, 0.2525]),
        *([-0.1042, -0.0344], [-0.2919, 0.0119]),
    ]
    assert_printed(heads[0].flatten(0, 1), printed)


def test_from_scores_to_context() -> None:
    """Notebook 003, seed 123: unscaled, and the inputs are queries, keys and values."""
    torch.manual_seed(123)
    inputs = torch.rand(6, 3)[None, None]
    every = torch.ones(6, 6, dtype=torch.bool)
    steps = explicit_attention(inputs * math.sqrt(3), inputs, inputs, every)
    assert_printed(steps.scaled[0, 0, 1], (0.4602, 1.2304, 0.2611, 1.1189, 0.3408, 1.0023))
    assert_printed(steps.weights[0, 0, 1], (0.1174, 0.2536, 0.0962, 0.2268, 0.1042, 0.2019))
    assert_printed(steps.context[0, 0, 1], (0.4762, 0.2052, 0.6228))
