"""Batches depend only on (seed, step), and each epoch contains every window once."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from data.batches import UNSCORED, Batches, EvalBatches


def counting(n: int, dtype: type = np.uint16) -> np.ndarray:
    """Return tokens that are equal to their positions."""
    return np.arange(n, dtype=dtype)


def test_a_batch_depends_only_on_seed_and_step() -> None:
    tokens = counting(1000)
    one = Batches(tokens, 8, 16, seed=3)
    forward = [torch.stack(one(step)) for step in range(40)]
    for step in reversed(range(40)):
        for batches in (one, Batches(tokens, 8, 16, seed=3)):
            assert torch.equal(torch.stack(batches(step)), forward[step])


@given(
    context_length=st.integers(1, 40),
    spare=st.integers(1, 300),
    batch_size=st.integers(1, 70),
    seed=st.integers(0, 2**63),
    step=st.integers(0, 10**9),
)
def test_rows_are_contiguous_and_targets_are_shifted_by_one(
    context_length: int, spare: int, batch_size: int, seed: int, step: int
) -> None:
    tokens = counting(context_length + spare)
    inputs, targets = Batches(tokens, batch_size, context_length, seed)(step)
    assert inputs.dtype == targets.dtype == torch.int64
    assert inputs.is_contiguous() and targets.is_contiguous()
    expected = inputs[:, :1] + torch.arange(context_length)
    assert inputs.shape == (batch_size, context_length) and torch.equal(inputs, expected)
    assert torch.equal(targets, expected + 1) and targets.max() < len(tokens)


@given(context_length=st.integers(1, 20), spare=st.integers(1, 400), batch_size=st.integers(1, 50))
def test_an_epoch_contains_every_window_once(
    context_length: int, spare: int, batch_size: int
) -> None:
    n = context_length + spare
    per_epoch = max(1, (n - 1) // context_length - 1)
    batches = Batches(counting(n), batch_size, context_length, seed=0)
    steps = -(-3 * per_epoch // batch_size)
    firsts = torch.cat([batches(step)[0][:, 0] for step in range(steps)]).tolist()
    for epoch in range(3):
        drawn = sorted(firsts[epoch * per_epoch : (epoch + 1) * per_epoch])
        assert drawn == list(range(drawn[0], drawn[0] + per_epoch * context_length, context_length))


@given(
    ends=st.sets(st.integers(0, 299), max_size=40),
    context_length=st.integers(1, 40),
    spare=st.integers(1, 250),
    step=st.integers(0, 50),
    n_ending=st.integers(1, 3),
)
def test_windows_begin_with_a_document_that_begins_shortly_before(
    ends: set[int], context_length: int, spare: int, step: int, n_ending: int
) -> None:
    """Half a window before, with all the tokens that end another document."""
    tokens = counting(context_length + spare)
    starts = np.array([0, *(end + 1 for end in sorted(ends))])
    plain, _ = Batches(tokens, 5, context_length, seed=1)(step)
    aligned = Batches(tokens, 5, context_length, 1, starts, n_ending)
    inputs, targets = aligned(step)
    for before, row, target in zip(plain.tolist(), inputs.tolist(), targets.tolist(), strict=True):
        expected = start = before[0]
        for place in range(start, -1, -1):
            is_near = place - (n_ending - 1) >= start - context_length // 2
            if place in ends and is_near:  # before the first token, as in evaluation
                expected = place
                break
        window = tokens[expected : expected + context_length + 1].tolist()
        assert (row, target) == (window[:-1], window[1:])


def test_an_epoch_is_not_that_of_another_seed() -> None:
    """Runs of different seeds are independent."""
    per_epoch = (200 - 1) // 8 - 1
    first = [Batches(counting(200), per_epoch, 8, seed)(0)[0][:, 0].tolist() for seed in range(4)]
    second = [Batches(counting(200), per_epoch, 8, seed)(1)[0][:, 0].tolist() for seed in range(4)]
    assert not any(one == other for one in first for other in second)


def test_too_few_tokens_raise() -> None:
    Batches(counting(9), 4, 8, seed=0)
    with pytest.raises(ValueError, match="8 tokens are too few for a window of 8"):
        Batches(counting(8), 4, 8, seed=0)


@pytest.mark.parametrize(("dtype", "largest"), [(np.uint16, 2**16 - 1), (np.uint32, 200_018)])
def test_large_token_ids_are_preserved(dtype: type, largest: int) -> None:
    tokens: np.ndarray = np.array([40_000, largest, 32_768] * 4, dtype=dtype)
    inputs, targets = Batches(tokens, 6, 3, seed=0)(0)
    assert {*inputs.flatten().tolist(), *targets.flatten().tolist()} == {40_000, largest, 32_768}
    inputs, _ = next(iter(EvalBatches(tokens, 3, 6)))
    assert inputs[0].tolist() == [40_000, largest, 32_768]


@st.composite
def splits(draw: st.DrawFn) -> tuple[int, np.ndarray | None]:
    """The number of tokens of a split, and where its documents start."""
    n = draw(st.integers(0, 200))
    if n == 0 or draw(st.booleans()):
        return n, None
    return n, np.array(sorted({0, *draw(st.sets(st.integers(0, n - 1), max_size=9))}))


def scored(windows: EvalBatches) -> list[tuple[int, list[int]]]:
    """Return each scored target with the inputs that it is predicted from, in order of targets."""
    found = []
    batches = list(windows)
    assert len(windows) == len(batches)
    for inputs, targets in batches:
        assert inputs.shape == targets.shape and inputs.dtype == targets.dtype == torch.int64
        for row, target in zip(inputs.tolist(), targets.tolist(), strict=True):
            found += [(t, row[: i + 1]) for i, t in enumerate(target) if t != UNSCORED]
    assert windows.n_targets == len(found)
    return sorted(found)


@given(
    split=splits(),
    context_length=st.integers(1, 30),
    batch_size=st.integers(1, 9),
    stride=st.integers(1, 30) | st.none(),
)
def test_windows_score_every_target_once_with_as_much_context_as_promised(
    split: tuple[int, np.ndarray | None], context_length: int, batch_size: int, stride: int | None
) -> None:
    n, starts = split
    if stride is not None:
        stride = min(stride, context_length)
    windows = EvalBatches(counting(n), context_length, batch_size, starts, stride)
    expected = []
    first = 1
    for target in range(0 if starts is not None else 1, n):
        if starts is not None and target in starts:
            first = target
        step = stride or (context_length if starts is None else (context_length + 1) // 2)
        # Windows begin at multiples of `step`; a target belongs to the first that contains it.
        begin = first + step * max(0, -(-(target - first - context_length + 1) // step))
        context = [place % n for place in range(begin - 1, target)]
        expected.append((target, context))
    assert scored(windows) == expected


@given(n=st.integers(2, 300), n_targets=st.integers(0, 400), context_length=st.integers(1, 20))
def test_a_part_is_fixed_and_evenly_spread(n: int, n_targets: int, context_length: int) -> None:
    whole = EvalBatches(counting(n), context_length, 4)
    part = whole.part(n_targets)
    found = scored(part)
    assert found == scored(whole.part(n_targets)) and found
    assert {target for target, _ in found} <= set(range(1, n))
    if n_targets >= n - 1:
        assert part is whole
    assert len(found) <= n_targets + context_length
    # No gap between two windows of the part is longer than its share allows.
    share = len(found) / (n - 1)
    gaps = np.diff([0, *(target for target, _ in found), n])
    assert gaps.max() <= context_length * (2 / share + 2)


@given(split=splits(), n_targets=st.integers(0, 400), context_length=st.integers(1, 20))
def test_a_part_of_documents_scores_whole_ones_and_has_their_bits(
    split: tuple[int, np.ndarray | None], n_targets: int, context_length: int
) -> None:
    n, starts = split
    assume(starts is not None)
    assert starts is not None
    bits = 2.0 ** -np.arange(len(starts))  # every sum is of one set of documents
    whole = EvalBatches(counting(n), context_length, 4, starts, bits=bits)
    assert whole.bits == math.fsum(bits)
    part = whole.part(n_targets)
    targets = {target for target, _ in scored(part)}
    lengths = np.diff([*starts, n])
    scored_bits = 0.0
    for start, length, own in zip(starts, lengths, bits, strict=True):
        document = set(range(start, start + length))
        assert document <= targets or not document & targets
        scored_bits += own if document <= targets else 0.0
    assert part.bits == scored_bits
    count = max(1, min(len(starts), len(starts) * n_targets // n))
    assert len(set(np.searchsorted(starts, [*targets], "right"))) == count
    chosen = whole.only(np.arange(len(whole.begins)) % 2 == 0)  # windows, not whole documents
    assert chosen.bits is None and chosen.part(chosen.n_targets // 2).bits is None
    # Without the bits of each document, those of a part are unknown.
    other = np.append(bits, 1.0)
    mismatched = EvalBatches(counting(n), context_length, 4, starts, bits=other)
    assert mismatched.bits == math.fsum(other)
    assert part is whole or mismatched.part(n_targets).bits is None
