"""The page draws tokens from the distribution that sample.py draws them from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from inference.generation import sampling_probabilities, window_start
from launch.schema import preset
from tests.live.conftest import Call
from tests.live.drawn import build, ids_for, packed

MASK = 0xFFFFFFFF

numbers = st.floats(-40, 40, width=32)
temperatures = st.sampled_from([1e-6, 1.0]) | st.floats(0.01, 50)
PROBABILITIES = (
    "({ logits, ...settings }) => [...probabilities(Float32Array.from(logits), settings)]"
)


def probabilities(engine: Call, logits: list[float], **settings: object) -> np.ndarray:
    return np.array(engine(PROBABILITIES, {"logits": logits, **settings}))


@settings(max_examples=200)
@given(
    logits=st.lists(numbers, min_size=1, max_size=30),
    temperature=temperatures,
    k=st.none() | st.integers(1, 35),
    p=st.none() | st.sampled_from([1e-30, 0.5, 0.95, 1.0]) | st.floats(0.01, 1),
)
def test_top_k_and_top_p(
    engine: Call, logits: list[float], temperature: float, k: int | None, p: float | None
) -> None:
    """Ties with the last of the k most likely tokens are kept. What is left open: where the most
    likely tokens reach p to a rounding error, and which of those with the same probability do."""
    before = sampling_probabilities(torch.tensor([logits]), temperature, k)[0]
    if p is not None:
        sums = before.double().sort(descending=True).values.cumsum(0)
        assume(not ((sums - p).abs() < 1e-6).any() or p == 1)
        positive = before[before > 0]
        assume(len(positive.unique()) == len(positive))
    expected = sampling_probabilities(torch.tensor([logits]), temperature, k, p)[0]
    found = probabilities(engine, logits, temperature=temperature, topK=k or 0, topP=p or 1)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    if p is None:
        assert ((found > 0) == (expected.numpy() > 0)).all()


def sfc32(seed: int, count: int) -> list[int]:
    """PractRand's generator, written from its description: a sum of the state and a counter."""
    a, b, c, counter = 0, seed & MASK, seed >> 32 & MASK, 1
    values = []
    for _ in range(12 + count):
        values.append((a + b + counter) & MASK)
        rotated = (c << 21 | c >> 11) & MASK
        a, b, c = b ^ b >> 9, (c * 9) & MASK, (rotated + values[-1]) & MASK
        counter = (counter + 1) & MASK
    return values[12:]


CHOOSE = """({ logits, settings, seed, count }) => {
    const [random, values] = [new Random(seed), Float32Array.from(logits)];
    return Array.from({ length: count }, () => choose(values, settings, random));
}"""


@settings(max_examples=25)
@given(logits=st.lists(numbers, min_size=1, max_size=12), seed=st.integers(0, 2**53 - 1))
def test_tokens_are_drawn_from_the_distribution(
    engine: Call, logits: list[float], seed: int
) -> None:
    """Each uniform number falls into the interval of the token that it chooses."""
    drawn = {"temperature": 2, "topK": 8, "topP": 0.9}
    expected = probabilities(engine, logits, **drawn).astype(float)
    argument = {"logits": logits, "settings": drawn, "seed": seed, "count": 50}
    for uniform, token in zip(sfc32(seed, 50), engine(CHOOSE, argument), strict=True):
        start = expected[:token].sum()
        assert expected[token] > 0
        assert start - 1e-6 <= uniform / 2**32 <= start + expected[token] + 1e-6


def test_temperature_zero_takes_the_most_likely_token(engine: Call) -> None:
    argument = {"logits": [0, 3, -1, 3, 2], "settings": {"temperature": 0}, "seed": 1, "count": 3}
    assert engine(CHOOSE, argument) == [1, 1, 1], "the first of equal ones, as torch.argmax"


def test_the_window_is_that_of_python(engine: Call) -> None:
    code = "(length) => Array.from({ length: 60 }, (_, count) => windowStart(count, length))"
    for length in (1, 2, 3, 8, 17):
        assert engine(code, length) == [window_start(count, length) for count in range(60)]


@pytest.mark.parametrize("length", [3, 30])
def test_what_else_could_have_been_written(engine: Call, length: int) -> None:
    """With each token come the most likely ones there, through full contexts, and after a prompt
    that is longer than one; the same seed writes the same."""
    model = build(preset("model", "nano", d_model=32, context_length=12), 40, seed=1)
    code = """async ({ packed, ids, seed }) => {
        const reading = new Reading(await load(packed));
        const settings = { temperature: 1.5, topK: 20, topP: 0.9, seed };
        return [...generate(reading, ids, 20, settings, 40)].filter(Boolean);
    }"""
    prompt = ids_for(model, length, seed=2)
    found = engine(code, {"packed": packed(model), "ids": prompt, "seed": 7})
    assert len(found) == 20
    ids = [*prompt]
    for step in found:
        seen = torch.tensor([ids[window_start(len(ids), 12) :]])
        expected = model(seen)[0, -1].softmax(-1)
        assert [id for id, _ in step["top"]] == expected.argsort(descending=True).tolist()
        np.testing.assert_allclose(
            [p for _, p in step["top"]], expected.sort(descending=True)[0], atol=1e-4
        )
        ids.append(step["token"])
    assert engine(code, {"packed": packed(model), "ids": prompt, "seed": 7}) == found
    other = engine(code, {"packed": packed(model), "ids": prompt, "seed": 8})
    assert [each["token"] for each in other] != ids[length:]
