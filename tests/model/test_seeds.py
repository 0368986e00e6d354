"""Five small studies of attention, recomputed with the model's own functions.

Each study printed its inputs or named its random seed, and printed what came out. The figures
stand here as they were printed (four decimals unless more are shown). Two studies had a fault in
their result; those tests show that the model does not share it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from model import GPT, ModelConfig, causal_mask, explicit_attention, fused_attention
from model.attention import AttentionSteps, CausalSelfAttention, join_heads, split_heads

INF = math.inf


def assert_printed(
    actual: Tensor, printed: Sequence | Tensor, atol: float = 6e-5, rtol: float = 0.0
) -> None:
    """Equal at four printed decimals."""
    torch.testing.assert_close(
        actual.double(), torch.as_tensor(printed).double(), atol=atol, rtol=rtol
    )


def attention_over(scores: Tensor) -> AttentionSteps:
    """Our formula made to see given scaled scores: the keys are the unit vectors."""
    size = scores.shape[-1]
    unit = torch.eye(size, dtype=scores.dtype).expand_as(scores)
    query = scores.masked_fill(scores.isinf(), 0) * math.sqrt(size)
    return explicit_attention(query, unit, unit, causal_mask(size, size))


class TestMaskedScores:
    """Study 000: the shapes of eight heads of 64, and weights from masked scores."""

    MASKED = torch.tensor(
        [
            [96.8332, -INF, -INF, -INF],
            [32.7087, 94.9597, -INF, -INF],
            [32.5465, 30.7693, 99.3592, -INF],
            [26.6260, 34.8210, 28.1737, 100.3393],
        ]
    )
    WEIGHTS = torch.tensor(
        [
            [1.0000e00, 0.0000e00, 0.0000e00, 0.0000e00],
            [9.2196e-28, 1.0000e00, 0.0000e00, 0.0000e00],
            [9.6297e-30, 1.6285e-30, 1.0000e00, 0.0000e00],
            [9.6996e-33, 3.5139e-29, 4.5595e-32, 1.0000e00],
        ]
    )

    def test_the_mask(self):
        hidden = [
            [False, True, True, True],
            [False, False, True, True],
            [False, False, False, True],
            [False, False, False, False],
        ]
        assert (~causal_mask(4, 4)).tolist() == hidden

    def test_masked_scores_and_weights(self):
        steps = attention_over(self.MASKED[None, None].double())
        assert_printed(steps.masked[0, 0], self.MASKED)
        # The scores' fourth decimal is half a unit off at most, and a weight is exp of a
        # difference of two: 1e-4 of its size.
        assert_printed(steps.weights[0, 0], self.WEIGHTS, atol=0, rtol=1.1e-4)

    def test_the_chain_of_shapes(self):
        query, key, value = (split_heads(part, 64) for part in torch.randn(3, 1, 4, 512))
        assert query.shape == key.shape == value.shape == (1, 8, 4, 64)
        steps = explicit_attention(query, key, value, causal_mask(4, 4))
        assert steps.scores.shape == steps.scaled.shape == steps.weights.shape == (1, 8, 4, 4)
        assert steps.context.shape == (1, 8, 4, 64)
        assert steps.context.transpose(1, 2).shape == (1, 4, 8, 64)
        assert join_heads(steps.context).shape == (1, 4, 512)

    @pytest.mark.parametrize("scale", [1.0, 100.0])
    def test_no_row_of_the_output_is_nan(self, scale):
        """There, the second and third row of the (1, 4, 512) output were NaN."""
        torch.manual_seed(0)
        config = ModelConfig(
            n_layers=1, n_heads=8, d_model=512, context_length=4, qk_norm=False, position="learned"
        )
        attention = CausalSelfAttention(config)
        x = scale * torch.randn(1, 4, 512)
        assert attention(x).shape == (1, 4, 512)
        assert attention(x).isfinite().all()
        assert GPT(config, vocab_size=7)(torch.tensor([[1, 2, 3, 4]])).isfinite().all()


class TestTwoHeadsOfOne:
    """Study 001: six tokens of three numbers, two heads of one number, from keys to context."""

    INPUTS = torch.tensor(
        [
            [-0.3406, 2.0035, -0.4027],
            [0.4818, 0.3113, 0.0386],
            [-0.7591, -0.7128, -0.5769],
            [0.7443, -0.1105, -0.0138],
            [0.7773, 0.2322, -1.0294],
            [0.7965, 0.8256, 0.8181],
        ]
    )
    KEYS = torch.tensor(
        [
            [0.1446, 0.8069],
            [-0.2327, -0.1224],
            [0.0879, -0.0064],
            [-0.4420, -0.4205],
            [-0.9495, -0.5462],
            [0.0216, 0.0837],
        ]
    )
    MASKED = torch.tensor(
        [
            [
                [-0.0527, -INF, -INF, -INF, -INF, -INF],
                [-0.0153, 0.0246, -INF, -INF, -INF, -INF],
                [0.0197, -0.0316, 0.0120, -INF, -INF, -INF],
                [-0.0101, 0.0163, -0.0062, 0.0309, -INF, -INF],
                [-0.0391, 0.0629, -0.0238, 0.1196, 0.2569, -INF],
                [-0.0185, 0.0297, -0.0112, 0.0564, 0.1212, -0.0028],
            ],
            [
                [-0.2159, -INF, -INF, -INF, -INF, -INF],
                [-0.1774, 0.0269, -INF, -INF, -INF, -INF],
                [0.2699, -0.0409, -0.0021, -INF, -INF, -INF],
                [-0.1970, 0.0299, 0.0016, 0.1027, -INF, -INF],
                [-0.3347, 0.0508, 0.0026, 0.1744, 0.2266, -INF],
                [-0.2773, 0.0421, 0.0022, 0.1445, 0.1877, -0.0288],
            ],
        ]
    )
    WEIGHTS = torch.tensor(
        [
            [
                [1.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],
                [0.4900, 0.5100, 0.0000, 0.0000, 0.0000, 0.0000],
                [0.3399, 0.3229, 0.3373, 0.0000, 0.0000, 0.0000],
                [0.2455, 0.2521, 0.2465, 0.2558, 0.0000, 0.0000],
                [0.1773, 0.1964, 0.1801, 0.2078, 0.2384, 0.0000],
                [0.1587, 0.1666, 0.1599, 0.1711, 0.1825, 0.1612],
            ],
            [
                [1.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],
                [0.4491, 0.5509, 0.0000, 0.0000, 0.0000, 0.0000],
                [0.4009, 0.2938, 0.3054, 0.0000, 0.0000, 0.0000],
                [0.2073, 0.2601, 0.2528, 0.2797, 0.0000, 0.0000],
                [0.1372, 0.2017, 0.1923, 0.2283, 0.2405, 0.0000],
                [0.1235, 0.1700, 0.1633, 0.1883, 0.1966, 0.1583],
            ],
        ]
    )
    CONTEXT = torch.tensor(
        [
            [-0.6197, -0.6902],
            [-0.3749, -0.4036],
            [-0.1447, -0.2254],
            [-0.1095, -0.1181],
            [-0.0953, -0.1280],
            [-0.1446, -0.1698],
        ]
    )

    def test_keys_are_a_projection_of_the_inputs(self):
        config = ModelConfig(
            n_layers=1, n_heads=2, d_head=1, d_model=3, context_length=6, position="learned"
        )
        attention = CausalSelfAttention(config)
        # Six tokens over-determine the three weights of each key.
        weight = torch.linalg.lstsq(self.INPUTS, self.KEYS).solution.T
        assert weight.shape == attention.key.weight.shape == (2, 3)
        with torch.no_grad():
            attention.key.weight.copy_(weight)
        batch = torch.stack((self.INPUTS, self.INPUTS))
        keys = attention.key(batch)
        assert keys.shape == (2, 6, 2)
        assert_printed(keys[1], self.KEYS, atol=2e-4)
        assert attention(batch).shape == (2, 6, 3)

    def test_keys_split_into_heads(self):
        keys = split_heads(torch.stack((self.KEYS, self.KEYS)), 1)
        assert keys.shape == (2, 2, 6, 1)
        for sequence in keys:
            assert_printed(sequence[0, :, 0], [0.1446, -0.2327, 0.0879, -0.4420, -0.9495, 0.0216])
            assert_printed(sequence[1, :, 0], [0.8069, -0.1224, -0.0064, -0.4205, -0.5462, 0.0837])

    def test_the_mask(self):
        assert torch.equal(causal_mask(6, 6), ~torch.ones(6, 6).triu(1).bool())

    def test_weights_from_the_masked_scores(self):
        steps = attention_over(torch.stack((self.MASKED, self.MASKED)))
        for sequence in steps.weights:
            assert_printed(sequence, self.WEIGHTS, atol=1e-4)

    def test_from_queries_keys_and_values_to_the_context(self):
        """Queries and values were not printed, but the scores and the context give them away."""
        key = split_heads(self.KEYS[None], 1)
        query = (self.MASKED[:, :, 0] / key[0, :, 0])[None, :, :, None]
        context = split_heads(self.CONTEXT[None], 1)
        value = torch.linalg.solve_triangular(self.WEIGHTS[None], context, upper=False)
        steps = explicit_attention(query, key, value, causal_mask(6, 6))
        assert_printed(steps.masked[0], self.MASKED, atol=5e-4)
        assert_printed(steps.weights[0], self.WEIGHTS, atol=3e-4)
        assert_printed(join_heads(steps.context)[0], self.CONTEXT, atol=5e-4)
        assert_printed(join_heads(fused_attention(query, key, value))[0], self.CONTEXT, atol=5e-4)


class TestProjectionPerHead:
    """Study 002, seed 0: batched products, and one matrix that projects to every head."""

    def test_the_shape_of_the_context(self):
        torch.manual_seed(0)
        query, key, value = (torch.randn(2, 4, 5, 3) for _ in range(3))
        assert fused_attention(query, key, value).shape == (2, 4, 5, 3)

    def test_scores_are_the_batched_matrix_product(self):
        torch.manual_seed(0)
        a, b = (torch.randn(2, 4, 5, 3) for _ in range(2))
        unrolled = torch.bmm(a.view(8, 5, 3), b.view(8, 5, 3).transpose(1, 2))
        steps = explicit_attention(a, b, b, torch.ones(5, 5, dtype=torch.bool))
        torch.testing.assert_close(steps.scores, unrolled.view(2, 4, 5, 5))

    def test_one_linear_layer_projects_to_every_head(self):
        torch.manual_seed(0)
        x = torch.randn(1, 5, 3)
        per_head = torch.empty(2, 3, 2).uniform_(-((1 / 3) ** 0.5), (1 / 3) ** 0.5)
        assert_printed(
            x[0],
            [
                [1.5410, -0.2934, -2.1788],
                [0.5684, -1.0845, -1.3986],
                [0.4033, 0.8380, -0.7193],
                [-0.4033, -0.5966, 0.1820],
                [-0.8567, 1.1006, -1.0712],
            ],
        )
        assert_printed(
            per_head,
            [
                [[-0.3742, -0.2658], [-0.4034, -0.5407], [-0.3370, 0.4963]],
                [[0.2576, 0.2798], [0.0304, -0.2960], [0.0977, -0.5391]],
            ],
        )
        attention = CausalSelfAttention(
            ModelConfig(n_layers=1, n_heads=2, d_head=2, d_model=3, context_length=5)
        )
        with torch.no_grad():
            attention.query.weight.copy_(torch.cat([matrix.T for matrix in per_head]))
        assert_printed(
            attention.query.weight.T,
            [
                [-0.3742, -0.2658, 0.2576, 0.2798],
                [-0.4034, -0.5407, 0.0304, -0.2960],
                [-0.3370, 0.4963, 0.0977, -0.5391],
            ],
        )
        projected = attention.query(x)
        assert_printed(
            projected[0],
            [
                [0.2760, -1.3322, 0.1753, 1.6926],
                [0.6961, -0.2588, -0.0231, 1.2340],
                [-0.2466, -0.9173, 0.0591, 0.2525],
                [0.3303, 0.5202, -0.1042, -0.0344],
                [0.2377, -0.8991, -0.2919, 0.0119],
            ],
        )
        heads = split_heads(projected, 2)
        first, second = heads[0]
        assert_printed(
            first,
            [
                *([0.2760, -1.3322], [0.6961, -0.2588], [-0.2466, -0.9173]),
                *([0.3303, 0.5202], [0.2377, -0.8991]),
            ],
        )
        assert_printed(
            second,
            [
                *([0.1753, 1.6926], [-0.0231, 1.2340], [0.0591, 0.2525]),
                *([-0.1042, -0.0344], [-0.2919, 0.0119]),
            ],
        )
        for head, matrix in zip(heads[0], per_head, strict=True):
            torch.testing.assert_close(head, x[0] @ matrix)


class TestOneQuery:
    """Study 003, seed 123: six inputs that are their own queries, keys and values, unscaled."""

    SCORES = (
        (0.4179, 0.4602, 0.1397, 0.5509, 0.2036, 0.3884),
        (0.4602, 1.2304, 0.2611, 1.1189, 0.3408, 1.0023),
        (0.1397, 0.2611, 0.0630, 0.2580, 0.0887, 0.2193),
        (0.5509, 1.1189, 0.2580, 1.0992, 0.3343, 0.8977),
        (0.2036, 0.3408, 0.0887, 0.3343, 0.1445, 0.3155),
        (0.3884, 1.0023, 0.2193, 0.8977, 0.3155, 0.8600),
    )
    EXPONENTIALS = (
        (1.5187, 1.5844, 1.1499, 1.7348, 1.2258, 1.4747),
        (1.5844, 3.4227, 1.2984, 3.0615, 1.4061, 2.7247),
        (1.1499, 1.2984, 1.0651, 1.2943, 1.0928, 1.2452),
        (1.7348, 3.0615, 1.2943, 3.0018, 1.3970, 2.4540),
        (1.2258, 1.4061, 1.0928, 1.3970, 1.1555, 1.3709),
        (1.4747, 2.7247, 1.2452, 2.4540, 1.3709, 2.3632),
    )
    # Normed down the columns: column j is the distribution of query j.
    COLUMN_WEIGHTS = (
        (0.1748, 0.1174, 0.1609, 0.1340, 0.1603, 0.1268),
        (0.1824, 0.2536, 0.1817, 0.2365, 0.1838, 0.2342),
        (0.1324, 0.0962, 0.1490, 0.1000, 0.1429, 0.1070),
        (0.1997, 0.2268, 0.1811, 0.2319, 0.1827, 0.2110),
        (0.1411, 0.1042, 0.1529, 0.1079, 0.1511, 0.1179),
        (0.1697, 0.2019, 0.1743, 0.1896, 0.1793, 0.2032),
    )
    # The context as printed, with those columns used as rows.
    COLUMN_CONTEXT = (
        (0.3150, 0.2043, 0.4230),
        (0.5332, 0.2701, 0.7136),
        (0.2522, 0.1631, 0.3466),
        (0.5071, 0.2725, 0.6718),
        (0.2716, 0.1740, 0.3734),
        (0.4460, 0.2396, 0.6048),
    )

    @pytest.fixture
    def inputs(self) -> Tensor:
        torch.manual_seed(123)
        return torch.rand(6, 3)

    @pytest.fixture
    def steps(self, inputs):
        """Our formula with its scaling undone and nothing masked."""
        x = inputs[None, None]
        return explicit_attention(x * math.sqrt(3), x, x, torch.ones(6, 6, dtype=torch.bool))

    def test_inputs(self, inputs):
        assert_printed(inputs[0], [0.2961, 0.5166, 0.2517])
        assert_printed(inputs[1], [0.6886, 0.0740, 0.8665])
        exponentials = inputs[0].exp()
        assert_printed(exponentials / exponentials.sum(), [0.3122, 0.3892, 0.2986])
        assert_printed(inputs[0].softmax(dim=0), [0.3122, 0.3892, 0.2986])

    def test_scores(self, inputs, steps):
        assert_printed(steps.scaled[0, 0], self.SCORES)
        one_query = torch.stack([torch.dot(inputs[1], each) for each in inputs])
        assert_printed(one_query, self.SCORES[1])
        shares = one_query / one_query.sum()
        assert_printed(shares, [0.1043, 0.2788, 0.0592, 0.2535, 0.0772, 0.2271])

    def test_naive_and_stable_softmax(self, steps):
        exponentials = steps.scaled[0, 0].exp()
        assert_printed(exponentials, self.EXPONENTIALS)
        sums = [8.6883, 13.4977, 7.1457, 12.9435, 7.6481, 11.6328]
        assert_printed(exponentials.sum(dim=1), sums)
        assert_printed(exponentials / exponentials.sum(dim=0), self.COLUMN_WEIGHTS)
        assert_printed(steps.weights[0, 0].T, self.COLUMN_WEIGHTS)
        assert_printed(steps.weights[0, 0, 1], [0.1174, 0.2536, 0.0962, 0.2268, 0.1042, 0.2019])

    def test_ours_is_the_stable_one(self, inputs, steps):
        """A number added to every score changes no weight, where the naive form overflows."""
        naive = (steps.scaled + 200).exp()
        assert (naive / naive.sum(dim=-1, keepdim=True)).isnan().all()
        # One more component, the same in every key, adds the same to every score.
        query = torch.cat((inputs * 2, torch.full((6, 1), 400.0)), dim=1)[None, None]
        key = torch.cat((inputs, torch.ones(6, 1)), dim=1)[None, None]
        shifted = explicit_attention(query, key, key, torch.ones(6, 6, dtype=torch.bool))
        torch.testing.assert_close(shifted.scaled, steps.scaled + 200)
        assert_printed(shifted.weights[0, 0].T, self.COLUMN_WEIGHTS, atol=1e-4)

    def test_context(self, inputs, steps):
        assert_printed(steps.context[0, 0, 1], [0.4762, 0.2052, 0.6228])
        assert_printed(steps.weights[0, 0].T @ inputs, self.COLUMN_CONTEXT)

    def test_each_query_has_its_own_distribution(self, steps):
        """There, the full matrix was normed down its columns, so the context's rows mixed them."""
        torch.testing.assert_close(steps.weights.sum(dim=-1), torch.ones(1, 1, 6))
        printed = torch.tensor(self.COLUMN_CONTEXT)
        assert ((steps.context[0, 0] - printed).abs() > 0.01).any(dim=1).all()


class TestKeysOfTheirOwn:
    """Study 004: two heads of four, where keys were projected with the query's matrix."""

    @pytest.fixture
    def attention(self) -> CausalSelfAttention:
        torch.manual_seed(0)
        return CausalSelfAttention(
            ModelConfig(
                n_layers=1,
                n_heads=2,
                d_model=8,
                context_length=4,
                qk_norm=False,
                position="learned",
            )
        )

    @staticmethod
    def scores(attention: CausalSelfAttention, x: Tensor) -> Tensor:
        query, key = (split_heads(layer(x), 4) for layer in (attention.query, attention.key))
        return explicit_attention(query, key, key, causal_mask(4, 4)).scores

    def test_the_chain_of_shapes(self, attention):
        x = torch.randn(1, 4, 8)
        layers = (attention.query, attention.key, attention.value)
        projected = [layer(x) for layer in layers]
        assert [part.shape for part in projected] == [(1, 4, 8)] * 3
        query, key, value = (split_heads(part, 4) for part in projected)
        assert query.shape == key.shape == value.shape == (1, 2, 4, 4)
        context = fused_attention(query, key, value)
        assert context.shape == (1, 2, 4, 4)
        assert join_heads(context).shape == attention(x).shape == (1, 4, 8)

    def test_keys_are_not_projected_with_the_querys_matrix(self, attention):
        x = torch.randn(1, 4, 8)
        assert attention.key.weight.data_ptr() != attention.query.weight.data_ptr()
        assert not torch.allclose(attention.key(x), attention.query(x))

        # What i asks of j is not what j asks of i; with one matrix for both it would be.
        scores = self.scores(attention, x)
        assert not torch.allclose(scores, scores.transpose(-2, -1))
        with torch.no_grad():
            attention.key.weight.copy_(attention.query.weight)
        scores = self.scores(attention, x)
        torch.testing.assert_close(scores, scores.transpose(-2, -1))
