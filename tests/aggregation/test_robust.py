"""What each robust rule does, with numbers that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from thalweg.aggregation import FedExp, Krum, Median, MultiKrum, NormClip, Robust, Step, TrimmedMean
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats32


def updates(*rows: list[float]) -> Floats32:
    return np.array(rows, dtype=np.float32)


FIVE = updates([1, 0], [2, 1], [3, 2], [4, 3], [1000, -1000])


def equally(rows: Floats32) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.full(len(rows), 1 / len(rows))


def test_the_median_is_one_update_that_counts_for_all() -> None:
    left = Median().combine(FIVE, equally(FIVE) / 2)
    assert left.deltas.tolist() == [[3, 1]]
    assert left.weights.tolist() == [0.5]


def test_a_client_that_claims_much_counts_much_only_if_it_is_believed() -> None:
    claims = np.array([0.05, 0.05, 0.05, 0.05, 0.8])
    assert Median().combine(FIVE, claims).deltas.tolist() == [[3, 1]]
    assert Median(weighted=True).combine(FIVE, claims).deltas.tolist() == [[1000, -1000]]
    assert TrimmedMean().combine(FIVE, claims).deltas.tolist() == [[3, 1]]
    assert TrimmedMean(weighted=True).combine(FIVE, claims).deltas.tolist() == [[1000, -1000]]


def test_an_update_of_no_weight_has_no_say_in_the_median() -> None:
    left = Median().combine(FIVE, np.array([0.25, 0.25, 0.25, 0.25, 0.0]))
    assert left.deltas.tolist() == [[2.5, 1.5]]


def test_the_trimmed_mean_is_without_the_largest_and_the_smallest() -> None:
    left = TrimmedMean(share=0.2).combine(FIVE, equally(FIVE))
    assert left.deltas.tolist() == [[3, 1]]  # of 2, 3, 4 and of 0, 1, 2
    assert left.weights.tolist() == [pytest.approx(1.0)]


def test_no_update_is_longer_than_the_bound() -> None:
    rows = updates([3, 4], [0, 1], [6, 8])
    left = NormClip(bound=5.0).combine(rows, equally(rows))
    np.testing.assert_allclose(left.deltas, [[3, 4], [0, 1], [3, 4]], rtol=1e-6)
    assert left.weights.tolist() == equally(rows).tolist()
    assert left.extra_metrics == {"clipped": 1}


def test_without_a_bound_it_is_a_multiple_of_the_median_length() -> None:
    rows = updates([3, 4], [0, 1], [6, 8], [0, 2], [1e30, 0])  # 5, 1, 10, 2, and one that is absurd
    left = NormClip(factor=2.0).combine(rows, equally(rows))
    np.testing.assert_allclose(left.deltas[4], [10, 0], rtol=1e-6)
    assert left.deltas[:4].tolist() == rows[:4].tolist()
    assert left.extra_metrics == {"clipped": 1}


def test_krum_takes_the_update_in_the_midst_of_the_others() -> None:
    left = Krum(hostile=0.2).combine(FIVE, equally(FIVE))
    assert left.deltas.tolist() == [[2, 1]], "as near to its two nearest as the third, and first"
    assert left.weights.tolist() == [pytest.approx(1.0)]
    assert left.extra_metrics == {"left_out": 4}


def test_multi_krum_leaves_out_as_many_as_may_be_hostile() -> None:
    left = MultiKrum(hostile=0.2).combine(FIVE, equally(FIVE))
    assert left.deltas.tolist() == FIVE[:4].tolist()
    assert left.weights.tolist() == [pytest.approx(0.25)] * 4
    assert left.extra_metrics == {"left_out": 1}


def test_multi_krum_may_keep_fewer_but_never_one_that_may_be_hostile() -> None:
    assert len(MultiKrum(kept=2).combine(FIVE, equally(FIVE)).deltas) == 2
    assert len(MultiKrum(kept=5).combine(FIVE, equally(FIVE)).deltas) == 4


def test_those_that_multi_krum_keeps_may_count_as_the_recipe_says() -> None:
    claims = np.array([0.1, 0.1, 0.2, 0.4, 0.2])
    left = MultiKrum(weighted=True).combine(FIVE, claims)
    assert left.weights.tolist() == pytest.approx([0.125, 0.125, 0.25, 0.5])


@pytest.mark.parametrize("rule", [Krum(), MultiKrum()])
def test_with_too_few_for_krum_the_median_takes_its_place(rule: Robust) -> None:
    rows = FIVE[1:]  # four, one of which may be hostile: five would be needed
    left = rule.combine(rows, equally(rows))
    assert left.deltas.tolist() == [[3.5, 1.5]]
    assert left.extra_metrics == {"too_few": 1}
    assert rule.combine(rows[:1], np.ones(1)).deltas.tolist() == [[2, 1]]


def test_or_the_round_is_skipped() -> None:
    left = Krum(too_few="skip").combine(FIVE[1:], equally(FIVE[1:]))
    assert len(left.deltas) == len(left.weights) == 0
    assert left.extra_metrics == {"too_few": 1}


def test_if_nobody_is_hostile_three_are_enough_for_krum() -> None:
    rows = updates([0], [1], [5])
    assert MultiKrum(hostile=0.0).combine(rows, equally(rows)).deltas.tolist() == rows.tolist()
    assert Krum(hostile=0.0).combine(rows, equally(rows)).deltas.tolist() == [[0]]


def test_a_share_of_five_that_is_one_is_not_taken_for_two() -> None:
    rows = np.arange(35, dtype=np.float32)[:, None]
    assert MultiKrum(hostile=0.2).combine(rows, equally(rows)).extra_metrics == {"left_out": 7}


def test_any_server_rule_goes_on_from_what_is_left() -> None:
    model = np.zeros(2, dtype=np.float32)
    left = Median().combine(FIVE, equally(FIVE))
    assert Step(lr=0.5).step(None, model, left.deltas, left.weights)[1].tolist() == [1.5, 0.5]
    rule = FedExp()
    _, moved = rule.step(rule.init(2), model, left.deltas, left.weights)
    assert moved.tolist() == [3, 1], "one update agrees with itself: an ordinary step"


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
def test_nonsense_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError):
        wrong()  # type: ignore[operator]
