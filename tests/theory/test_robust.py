from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from thalweg.theory import (
    clip_rows,
    krum,
    krum_scores,
    row_norms,
    squared_distances,
    trimmed_mean,
    weighted_median,
)
from thalweg.theory import robust as module

NUMBERS = st.floats(-1e6, 1e6, width=32)
TABLES = hnp.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 5)), elements=NUMBERS)


def columns(*rows: list[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.array(rows, dtype=np.float32)


def test_weighted_median_is_computed_per_coordinate() -> None:
    values = columns([1, 30], [2, 10], [300, 20])
    assert weighted_median(values, np.ones(3)).tolist() == [2, 20]


@given(TABLES)
def test_equal_weights_give_the_plain_median(
    values: np.ndarray[tuple[int, int], np.dtype[np.float32]],
) -> None:
    expected = np.median(values.astype(np.float64), axis=0)
    found = weighted_median(values, np.full(len(values), 0.1))
    np.testing.assert_array_equal(found, expected.astype(np.float32))


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([1, 1, 1, 1], 2.5),
        ([3, 1, 1, 1], 1.5),  # half of the weight ends with the first: between it and the second
        ([4, 1, 1, 1], 1.0),
        ([1, 1, 1, 4], 9.0),
        ([1, 0, 0, 1], 5.0),  # zero weights are ignored
        ([0.1, 0.2, 0.3, 0.6], 6.0),  # 0.1 + 0.2 + 0.3 counts as 0.6 despite rounding
    ],
)
def test_weighted_median_splits_the_weight_in_half(weights: list[float], expected: float) -> None:
    values = columns([1], [2], [3], [9])
    assert weighted_median(values, np.array(weights, dtype=float)).tolist() == [expected]


def test_weight_two_equals_two_clients() -> None:
    once, twice = columns([1], [5], [6]), columns([1], [5], [6], [6])
    assert weighted_median(once, np.array([1.0, 1, 2])) == weighted_median(twice, np.ones(4))


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.0, 20.0),
        (0.1, 14 / 3),  # half a client is rounded up to one
        (0.2, 14 / 3),
        (0.21, 5.0),
        (0.49, 5.0),
    ],
)
def test_trimmed_mean_removes_whole_clients(share: float, expected: float) -> None:
    values = columns([1], [3], [5], [6], [85])
    assert trimmed_mean(values, np.ones(5), share).tolist() == [pytest.approx(expected, rel=1e-6)]


def test_trimmed_mean_removes_at_least_the_share_of_weight() -> None:
    values = columns([0], [10], [20], [30])
    # Total weight 10: 2 are removed at each end, which removes the first and the last client.
    assert trimmed_mean(values, np.array([3.0, 2, 3, 2]), 0.2).tolist() == [
        pytest.approx((2 * 10 + 3 * 20) / 5)
    ]


def test_trimmed_mean_of_one_or_two_values_is_their_median() -> None:
    assert trimmed_mean(columns([7]), np.ones(1), 0.2).tolist() == [7]
    assert trimmed_mean(columns([7], [9]), np.ones(2), 0.2).tolist() == [8]


@given(TABLES, st.floats(0, 0.49))
def test_trimmed_mean_lies_within_the_values(
    values: np.ndarray[tuple[int, int], np.dtype[np.float32]], share: float
) -> None:
    mean = trimmed_mean(values, np.ones(len(values)), share)
    slack = 1e-3 * (1 + np.abs(values).max(axis=0))
    assert (values.min(axis=0) - slack <= mean).all()
    assert (mean <= values.max(axis=0) + slack).all()


def test_trimmed_mean_removes_huge_finite_values() -> None:
    values = columns([1], [2], [3], [4], [3e38])
    assert trimmed_mean(values, np.ones(5), 0.2).tolist() == [3]
    assert np.isfinite(trimmed_mean(values, np.ones(5), 0.0)).all()


def test_weighted_median_with_zero_weights_is_rejected() -> None:
    with pytest.raises(ValueError, match="all updates have zero weight"):
        weighted_median(columns([1], [2]), np.zeros(2))


def test_blockwise_results_equal_results_on_the_whole_array(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = np.random.default_rng(0).normal(size=(5, 23)).astype(np.float32)
    weights = np.array([0.1, 0.4, 0.2, 0.2, 0.1])
    whole = [f(values) for f in (row_norms, squared_distances)]
    means = weighted_median(values, weights), trimmed_mean(values, weights, 0.2)
    monkeypatch.setattr(module, "BLOCK", 4)
    np.testing.assert_allclose(row_norms(values), whole[0])
    np.testing.assert_allclose(squared_distances(values), whole[1])
    assert weighted_median(values, weights).tolist() == means[0].tolist()
    assert trimmed_mean(values, weights, 0.2).tolist() == means[1].tolist()


def test_clip_rows_shortens_only_long_rows() -> None:
    values = columns([3, 4], [0.3, 0.4], [-6, 8])
    rows, cut = clip_rows(values, bound=5.0)
    np.testing.assert_allclose(rows, [[3, 4], [0.3, 0.4], [-3, 4]], rtol=1e-6)
    assert cut.tolist() == [2]
    assert clip_rows(values, bound=10.0)[0] is values


def test_huge_rows_are_clipped_without_overflow() -> None:
    values = columns([3e38, 3e38], [1, 0])
    assert np.isfinite(row_norms(values)).all()
    rows, _ = clip_rows(values, bound=1.0)
    assert row_norms(rows).tolist() == pytest.approx([1, 1])


def test_krum_matches_hand_computed_scores() -> None:
    # K = 5, f = 1: the score uses the two nearest updates.
    values = columns([0, 0], [0, 1], [1, 0], [1, 1], [10, 10])
    assert krum_scores(values, 1).tolist() == [2, 2, 2, 2, 162 + 181]
    assert krum(values, 1).tolist() == [0]
    assert krum(values, 1, num_kept=4).tolist() == [0, 1, 2, 3]


def test_krum_with_too_few_updates_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"more than f \+ 2 updates, got 3 with f = 1"):
        krum_scores(np.zeros((3, 2), dtype=np.float32), 1)


def test_krum_excludes_two_identical_outliers() -> None:
    values = columns([0.0], [0.1], [0.2], [0.3], [0.4], [50.0], [50.0])
    assert krum(values, 2, num_kept=5).tolist() == [0, 1, 2, 3, 4]
