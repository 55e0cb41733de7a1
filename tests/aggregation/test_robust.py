"""Robust rules, with numbers that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from thalweg.aggregation import FedExp, Krum, Median, MultiKrum, NormClip, Robust, Step, TrimmedMean
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats32


def make_rows(*rows: list[float]) -> Floats32:
    return np.array(rows, dtype=np.float32)


FIVE = make_rows([1, 0], [2, 1], [3, 2], [4, 3], [1000, -1000])


def equal_weights(rows: Floats32) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.full(len(rows), 1 / len(rows))


def test_median_is_one_update_with_the_weight_of_all() -> None:
    left = Median().combine(FIVE, equal_weights(FIVE) / 2)
    assert left.deltas.tolist() == [[3, 1]]
    assert left.weights.tolist() == [0.5]


def test_weights_affect_median_and_trimmed_mean_only_with_weighted_true() -> None:
    claims = np.array([0.05, 0.05, 0.05, 0.05, 0.8])
    assert Median().combine(FIVE, claims).deltas.tolist() == [[3, 1]]
    assert Median(weighted=True).combine(FIVE, claims).deltas.tolist() == [[1000, -1000]]
    assert TrimmedMean().combine(FIVE, claims).deltas.tolist() == [[3, 1]]
    assert TrimmedMean(weighted=True).combine(FIVE, claims).deltas.tolist() == [[1000, -1000]]


def test_median_ignores_updates_of_weight_zero() -> None:
    left = Median().combine(FIVE, np.array([0.25, 0.25, 0.25, 0.25, 0.0]))
    assert left.deltas.tolist() == [[2.5, 1.5]]


def test_trimmed_mean_drops_the_largest_and_the_smallest() -> None:
    left = TrimmedMean(share=0.2).combine(FIVE, equal_weights(FIVE))
    assert left.deltas.tolist() == [[3, 1]]  # of 2, 3, 4 and of 0, 1, 2
    assert left.weights.tolist() == [pytest.approx(1.0)]


def test_norm_clip_shortens_updates_to_the_bound() -> None:
    rows = make_rows([3, 4], [0, 1], [6, 8])
    left = NormClip(bound=5.0).combine(rows, equal_weights(rows))
    np.testing.assert_allclose(left.deltas, [[3, 4], [0, 1], [3, 4]], rtol=1e-6)
    assert left.weights.tolist() == equal_weights(rows).tolist()
    assert left.extra_metrics == {"clipped": 1}


def test_norm_clip_without_a_bound_uses_a_multiple_of_the_median_length() -> None:
    rows = make_rows([3, 4], [0, 1], [6, 8], [0, 2], [1e30, 0])  # lengths 5, 1, 10, 2 and 1e30
    left = NormClip(factor=2.0).combine(rows, equal_weights(rows))
    np.testing.assert_allclose(left.deltas[4], [10, 0], rtol=1e-6)
    assert left.deltas[:4].tolist() == rows[:4].tolist()
    assert left.extra_metrics == {"clipped": 1}


@pytest.mark.parametrize(
    ("lengths", "bound"),
    [
        ([1.0, 1e6], 1.0),  # the smaller of two: the hostile one does not raise it
        ([1.0, 2.0, 3.0, 1e6], 2.0),
        ([1.0, 2.0, 3.0, 4.0, 1e6], 3.0),
        ([0.0, 0.0, 0.0, 2.0, 1e6], 2.0),  # clients without a step have no length
        ([1e6], 1e6),
        ([0.0, 0.0], 0.0),
    ],
)
def test_one_update_cannot_raise_the_median_length(lengths: list[float], bound: float) -> None:
    rows = make_rows(*([length, 0.0] for length in lengths))
    left = NormClip().combine(rows, equal_weights(rows))
    assert left.deltas[:, 0].tolist() == [min(length, bound) for length in lengths]


def test_krum_selects_the_update_closest_to_its_neighbours() -> None:
    left = Krum(hostile=0.2).combine(FIVE, equal_weights(FIVE))
    assert left.deltas.tolist() == [[2, 1]], "the first of two with the same score"
    assert left.weights.tolist() == [pytest.approx(1.0)]
    assert left.extra_metrics == {"left_out": 4}


def test_multi_krum_drops_as_many_updates_as_may_be_hostile() -> None:
    left = MultiKrum(hostile=0.2).combine(FIVE, equal_weights(FIVE))
    assert left.deltas.tolist() == FIVE[:4].tolist()
    assert left.weights.tolist() == [pytest.approx(0.25)] * 4
    assert left.extra_metrics == {"left_out": 1}


def test_multi_krum_keeps_at_most_all_but_the_hostile_ones() -> None:
    assert len(MultiKrum(kept=2).combine(FIVE, equal_weights(FIVE)).deltas) == 2
    assert len(MultiKrum(kept=5).combine(FIVE, equal_weights(FIVE)).deltas) == 4


def test_multi_krum_can_weight_the_kept_updates() -> None:
    claims = np.array([0.1, 0.1, 0.2, 0.4, 0.2])
    left = MultiKrum(weighted=True).combine(FIVE, claims)
    assert left.weights.tolist() == pytest.approx([0.125, 0.125, 0.25, 0.5])


@pytest.mark.parametrize("rule", [Krum(), MultiKrum()])
def test_krum_uses_the_median_if_there_are_too_few_updates(rule: Robust) -> None:
    rows = FIVE[1:]  # four updates, one of which may be hostile: Krum needs five
    left = rule.combine(rows, equal_weights(rows))
    assert left.deltas.tolist() == [[3.5, 1.5]]
    assert left.extra_metrics == {"too_few": 1}
    assert rule.combine(rows[:1], np.ones(1)).deltas.tolist() == [[2, 1]]


def test_krum_can_skip_rounds_with_too_few_updates() -> None:
    left = Krum(too_few="skip").combine(FIVE[1:], equal_weights(FIVE[1:]))
    assert len(left.deltas) == len(left.weights) == 0
    assert left.extra_metrics == {"too_few": 1}


def test_krum_needs_three_updates_if_no_client_is_hostile() -> None:
    rows = make_rows([0], [1], [5])
    assert (
        MultiKrum(hostile=0.0).combine(rows, equal_weights(rows)).deltas.tolist() == rows.tolist()
    )
    assert Krum(hostile=0.0).combine(rows, equal_weights(rows)).deltas.tolist() == [[0]]


def test_number_of_hostile_clients_is_not_raised_by_rounding_errors() -> None:
    rows = np.arange(35, dtype=np.float32)[:, None]
    assert MultiKrum(hostile=0.2).combine(rows, equal_weights(rows)).extra_metrics == {
        "left_out": 7
    }


def test_server_rules_accept_the_output_of_a_robust_rule() -> None:
    model = np.zeros(2, dtype=np.float32)
    left = Median().combine(FIVE, equal_weights(FIVE))
    assert Step(lr=0.5).step(None, model, left.deltas, left.weights)[1].tolist() == [1.5, 0.5]
    rule = FedExp()
    _, moved = rule.step(rule.init(2), model, left.deltas, left.weights)
    assert moved.tolist() == [3, 1], "an ordinary step: one update cannot disagree"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: TrimmedMean(share=0.5),
        lambda: Krum(hostile=-0.1),
        lambda: MultiKrum(kept=0),
        lambda: MultiKrum(too_few="guess"),  # type: ignore[arg-type]
        lambda: NormClip(bound=0.0),
        lambda: NormClip(factor=0.5),
    ],
)
def test_invalid_fields_are_rejected(wrong: object) -> None:
    with pytest.raises(ConfigError):
        wrong()  # type: ignore[operator]
