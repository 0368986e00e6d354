"""Reproduce the printed results of five small attention notebooks with the model's own functions.

Printed numbers have four decimals unless more are shown. Each notebook gave its inputs or its
random seed, or its inputs follow from the printed results. Three notebooks had a bug; their tests
show that the model does not have it.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from configs.schema import preset
from model import GPT, causal_mask, explicit_attention, fused_attention
from model.attention import AttentionSteps, CausalSelfAttention, join_heads, split_heads


def assert_printed(actual: Tensor, printed: object, atol: float = 6e-5, rtol: float = 0.0) -> None:
    """Assert equality with printed values, to the last decimal."""
    expected = torch.as_tensor(printed, dtype=torch.float64)
    torch.testing.assert_close(actual.double(), expected, atol=atol, rtol=rtol)


@pytest.mark.parametrize("shape", [(1, 8, 4, 64), (2, 2, 6, 1), (2, 4, 5, 3), (1, 2, 4, 4)])
def test_shapes_from_split_heads_to_joined_context(shape: tuple[int, int, int, int]) -> None:
    batch, heads, tokens, d_head = shape
    projected = torch.randn(3, batch, tokens, heads * d_head)
    query, key, value = (split_heads(each, d_head) for each in projected)
    assert query.shape == key.shape == value.shape == shape
    steps = explicit_attention(query, key, value, causal_mask(tokens, tokens))
    assert steps.scores.shape == steps.weights.shape == (batch, heads, tokens, tokens)
    assert steps.context.shape == fused_attention(query, key, value).shape == shape
    assert join_heads(steps.context).shape == (batch, tokens, heads * d_head)


class TestMaskedScores:
    """Notebook 000: weights from masked scores. Its bug: the output had rows of NaN."""

    def test_weights_of_masked_scores(self) -> None:
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

    @pytest.mark.parametrize("scale", [1.0, 100.0])
    def test_no_row_of_the_output_is_nan(self, scale: float) -> None:
        """In the notebook, the second and third rows of the (1, 4, 512) output were NaN."""
        torch.manual_seed(0)
        config = preset(
            "model",
            "nano",
            n_layers=1,
            n_heads=8,
            d_model=512,
            context_length=4,
            qk_norm=False,
            position="learned",
        )
        output = CausalSelfAttention(config)(scale * torch.randn(1, 4, 512))
        assert output.shape == (1, 4, 512) and output.isfinite().all()
        assert GPT(config, vocab_size=7)(torch.tensor([[1, 2, 3, 4]])).isfinite().all()


class TestTwoHeads:
    """Notebook 001: six tokens of width 3, projected to the keys of two heads of width 1."""

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

    def test_keys_are_a_projection_split_into_heads(self) -> None:
        config = preset(
            "model",
            "nano",
            n_layers=1,
            n_heads=2,
            d_head=1,
            d_model=3,
            context_length=6,
            position="learned",
        )
        attention = CausalSelfAttention(config)
        inputs, keys = torch.tensor(self.INPUTS), torch.tensor(self.KEYS)
        with torch.no_grad():
            # The matrix was not printed, but six tokens overdetermine its three rows.
            attention.key.weight.copy_(torch.linalg.lstsq(inputs, keys.T).solution.T)
        found = split_heads(attention.key(torch.stack((inputs, inputs))), 1)
        assert found.shape == (2, 2, 6, 1)
        assert_printed(found[1, :, :, 0], self.KEYS, atol=2e-4)

    def test_scores_and_weights_of_the_last_token(self) -> None:
        """All six scores in `SCORES[head]` belong to one query, which was not printed."""
        key, scores = torch.tensor(self.KEYS), torch.tensor(self.SCORES)
        query = scores[:, 4:5] / key[:, 4:5]
        steps = explicit_attention(
            query[None, :, :, None], key[None, :, :, None], key[None, :, :, None], causal_mask(1, 6)
        )
        assert_printed(steps.scaled[0, :, 0], self.SCORES, atol=2e-4)
        assert_printed(steps.weights[0, :, 0], self.WEIGHTS, atol=1e-4)


class TestProjectionPerHead:
    """Notebook 002, seed 0: batched products, and one matrix that projects to every head."""

    def test_scores_are_the_batched_matrix_product(self) -> None:
        torch.manual_seed(0)
        a, b = (torch.randn(2, 4, 5, 3) for _ in range(2))
        unrolled = torch.bmm(a.view(8, 5, 3), b.view(8, 5, 3).transpose(1, 2))
        scores = explicit_attention(a, b, b, causal_mask(5, 5)).scores
        torch.testing.assert_close(scores, unrolled.view(2, 4, 5, 5))

    def test_one_linear_layer_projects_to_every_head(self) -> None:
        torch.manual_seed(0)
        x = torch.randn(1, 5, 3)
        per_head = torch.empty(2, 3, 2).uniform_(-((1 / 3) ** 0.5), (1 / 3) ** 0.5)
        attention = CausalSelfAttention(
            preset("model", "nano", n_layers=1, n_heads=2, d_head=2, d_model=3, context_length=5)
        )
        with torch.no_grad():
            attention.query.weight.copy_(torch.cat([matrix.T for matrix in per_head]))
        heads = split_heads(attention.query(x), 2)
        torch.testing.assert_close(heads[0], x @ per_head)
        assert_printed(
            heads[0],
            [
                [
                    *([0.2760, -1.3322], [0.6961, -0.2588], [-0.2466, -0.9173]),
                    *([0.3303, 0.5202], [0.2377, -0.8991]),
                ],
                [
                    *([0.1753, 1.6926], [-0.0231, 1.2340], [0.0591, 0.2525]),
                    *([-0.1042, -0.0344], [-0.2919, 0.0119]),
                ],
            ],
        )


class TestOneQuery:
    """Notebook 003, seed 123: unscaled attention whose inputs are queries, keys and values."""

    SCORES = (0.4602, 1.2304, 0.2611, 1.1189, 0.3408, 1.0023)
    WEIGHTS = (0.1174, 0.2536, 0.0962, 0.2268, 0.1042, 0.2019)
    CONTEXT = (0.4762, 0.2052, 0.6228)
    # The context of the same query with the notebook's bug: a softmax over columns.
    WRONG_CONTEXT = (0.5332, 0.2701, 0.7136)

    @pytest.fixture
    def inputs(self) -> Tensor:
        torch.manual_seed(123)
        return torch.rand(6, 3)

    @staticmethod
    def attend(query: Tensor, key: Tensor, value: Tensor) -> AttentionSteps:
        """The explicit formula without scaling and without a mask."""
        query = query * math.sqrt(query.shape[-1])
        mask = torch.ones(6, 6, dtype=torch.bool)
        return explicit_attention(query[None, None], key[None, None], value[None, None], mask)

    def test_from_scores_to_context(self, inputs: Tensor) -> None:
        steps = self.attend(inputs, inputs, inputs)
        assert_printed(steps.scaled[0, 0, 1], self.SCORES)
        assert_printed(steps.weights[0, 0, 1], self.WEIGHTS)
        assert_printed(steps.context[0, 0, 1], self.CONTEXT)

    def test_each_query_has_its_own_distribution(self, inputs: Tensor) -> None:
        """A softmax over columns mixes the distributions of all queries into each context."""
        steps = self.attend(inputs, inputs, inputs)
        torch.testing.assert_close(steps.weights.sum(dim=-1), torch.ones(1, 1, 6))
        by_columns = steps.scaled[0, 0].softmax(dim=0) @ inputs
        assert_printed(by_columns[1], self.WRONG_CONTEXT)
        assert ((steps.context[0, 0] - by_columns).abs() > 0.01).any(dim=1).all()

    def test_softmax_is_numerically_stable(self, inputs: Tensor) -> None:
        """Large scores, at which the plain softmax formula overflows, do not change the weights."""
        # An extra component, the same in every key, adds a constant to every score.
        query = torch.cat((inputs, torch.full((6, 1), 200.0)), dim=1)
        key = torch.cat((inputs, torch.ones(6, 1)), dim=1)
        steps = self.attend(query, key, key)
        naive = steps.scaled.exp() / steps.scaled.exp().sum(dim=-1, keepdim=True)
        assert naive.isnan().all()
        assert_printed(steps.weights[0, 0, 1], self.WEIGHTS, atol=1e-4)


class TestSeparateKeyProjection:
    """Notebook 004: two heads of width 4. Its bug: keys were projected with the query matrix."""

    def test_keys_are_not_projected_with_the_query_matrix(self) -> None:
        torch.manual_seed(0)
        config = preset(
            "model",
            "nano",
            n_layers=1,
            n_heads=2,
            d_model=8,
            context_length=4,
            qk_norm=False,
            position="learned",
        )
        attention, x = CausalSelfAttention(config), torch.randn(1, 4, 8)

        def scores() -> Tensor:
            query, key = (split_heads(layer(x), 4) for layer in (attention.query, attention.key))
            return explicit_attention(query, key, key, causal_mask(4, 4)).scores

        # If query and key share one matrix, the scores are symmetric.
        assert not torch.allclose(scores(), scores().mT)
        with torch.no_grad():
            attention.key.weight.copy_(attention.query.weight)
        torch.testing.assert_close(scores(), scores().mT)
