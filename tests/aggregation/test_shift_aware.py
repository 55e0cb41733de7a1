from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from contracts.examples import some_outlook, some_roster, some_updates
from thalweg import theory
from thalweg.aggregation import MemorySummary, Reports, ShiftAware
from thalweg.aggregation.shift_aware import MIN_RENEWAL, SCORE
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats
from thalweg.memory import Dds

CLIENTS = ((0.5, 0.3, 0.2), (0.1, 0.1, 0.8), (1 / 3, 1 / 3, 1 / 3))  # state probabilities


def score(
    rule: ShiftAware, probs: Sequence[float], renewal: Sequence[float] | Floats, ticks: int = 5
) -> float:
    summary = MemorySummary(some_outlook(probs), np.asarray(renewal, dtype=np.float64), ticks)
    return rule.report(summary)[SCORE]


def weights(
    rule: ShiftAware,
    scores: Sequence[float],
    availability: Sequence[float],
    *,
    clients: Sequence[int] = (0, 1, 2),
    known: Sequence[float] | None = None,
    **about_the_round: Any,
) -> list[float]:
    updates = some_updates(clients, 2, reports={SCORE: [scores[n] for n in clients]})
    roster = some_roster(
        clients,
        len(availability),
        availability=availability,
        known=None if known is None else {SCORE: np.array(known)},
        **about_the_round,
    )
    return [float(p) for p in rule.weigh(updates, roster)]


def test_each_client_reports_one_number() -> None:
    assert isinstance(ShiftAware(), Reports)
    summary = MemorySummary(some_outlook(), np.full(3, 0.5), 5)
    assert list(ShiftAware().report(summary)) == [SCORE]


def test_scores_and_weights_of_three_clients_that_sample_by_dds() -> None:
    rule, slope, offset = ShiftAware(), Dds().slope, Dds().offset
    scores = []
    for probs in CLIENTS:
        outlook = some_outlook(probs)
        scores.append(score(rule, probs, theory.dds_ratios(*outlook, 0.5, slope, offset)))
    assert scores == pytest.approx((0.764378, 1.500833, 0.889977), abs=2e-6)
    expected = (0.354866, 0.299680, 0.345454)
    assert weights(rule, scores, [0.2] * 3) == pytest.approx(expected, abs=1e-6)


def test_a_uniform_memory_scores_worse_than_dds() -> None:
    assert score(ShiftAware(), CLIENTS[0], [0.5] * 3) == pytest.approx(0.840250, abs=1e-6)


def test_noise_shifts_all_scores_alike() -> None:
    quiet, noisy = (score(ShiftAware(noise=x), CLIENTS[0], [0.5] * 3) for x in (0.0, 0.25))
    assert noisy - quiet == pytest.approx(0.25)


def test_a_memory_that_never_changes_has_a_finite_score() -> None:
    still = score(ShiftAware(), CLIENTS[0], [0.0] * 3)
    barely = score(ShiftAware(), CLIENTS[0], [2 * MIN_RENEWAL] * 3)
    assert still == pytest.approx(barely, rel=1e-4)


def test_a_memory_that_is_all_new_has_the_score_of_its_states() -> None:
    # Nothing is retained, so only the heterogeneity of what is visited counts: 0.6.
    assert score(ShiftAware(), CLIENTS[0], [1.0] * 3) == pytest.approx(0.6)


def test_rare_clients_count_more_and_misleading_ones_less() -> None:
    # Before normalising: 5 - 1 + 0.5, 4 - 2 + 0.5, 10 - 3 + 0.5.
    got = weights(ShiftAware(), [1, 2, 3], [0.2, 0.25, 0.1])
    assert got == pytest.approx((4.5 / 14.5, 2.5 / 14.5, 7.5 / 14.5))


def test_only_participants_share_the_weight() -> None:
    got = weights(ShiftAware(), [1, 2, 3], [0.2, 0.25, 0.1], clients=[0, 2])
    assert got == pytest.approx((0.375, 0.625))


def test_a_client_that_misleads_too_much_has_no_say() -> None:
    assert weights(ShiftAware(offset=0.0), [1, 2, 4], [0.5] * 3) == [1.0, 0.0, 0.0]


def test_if_everybody_misleads_all_count_the_same() -> None:
    assert weights(ShiftAware(offset=0.0), [9, 8, 7], [0.5] * 3) == [1 / 3] * 3


def test_normalised_over_all_clients_the_step_shrinks() -> None:
    rule, q = ShiftAware(normalise="all"), [0.2, 0.25, 0.1]
    # Client 1 is away, and its last score is 2.
    got = weights(rule, [1, 2, 3], q, clients=[0, 2], known=[9, 2, np.nan])
    assert got == pytest.approx((4.5 / 14.5, 7.5 / 14.5))


@pytest.mark.parametrize("known", [None, [np.nan] * 3, [9, np.nan, np.nan]])
def test_a_client_never_heard_of_counts_as_the_average_of_the_others(known: Any) -> None:
    rule, q = ShiftAware(normalise="all"), [0.2, 0.25, 0.1]
    # The scores of this round replace what was known: the average of 1 and 3 is 2.
    got = weights(rule, [1, 2, 3], q, clients=[0, 2], known=known)
    assert got == pytest.approx((4.5 / 14.5, 7.5 / 14.5))


def test_what_was_known_is_not_overwritten() -> None:
    known = np.array([9, 2, np.nan])
    updates = some_updates([0, 2], 2, reports={SCORE: [1.0, 3.0]})
    roster = some_roster([0, 2], 3, known={SCORE: known})
    ShiftAware(normalise="all").weigh(updates, roster)
    assert known[:2].tolist() == [9, 2]


def test_availability_can_be_estimated_from_who_was_seen() -> None:
    # The fifth round; client 0 was always here, client 1 once before: 6/7 and 3/7.
    got = weights(
        ShiftAware(availability="estimated", slope=0.0, offset=0.0),
        [0, 0],
        [0.01, 0.01],
        clients=[0, 1],
        rnd=4,
        times_present=[4, 1],
    )
    assert got == pytest.approx((1 / 3, 2 / 3))


def test_in_the_first_round_nothing_is_estimated_but_the_prior() -> None:
    got = weights(
        ShiftAware(availability="estimated", slope=0.0),
        [0, 0, 0],
        [0.01, 0.5, 1.0],
        rnd=0,
        times_present=[0, 0, 0],
    )
    assert got == pytest.approx([1 / 3] * 3)


def test_exact_weights_minimise_the_bound() -> None:
    scores, q, noise = np.array([1.0, 1.01, 1.3]), np.array([0.2, 0.5, 0.1]), 0.05
    exact = weights(ShiftAware(exact=True, noise=noise), scores.tolist(), q.tolist())
    best = theory.b_term(exact, q, scores, noise)
    closed = weights(ShiftAware(noise=noise), scores.tolist(), q.tolist())
    assert best < theory.b_term(closed, q, scores, noise)
    rng = np.random.default_rng(0)
    for other in rng.dirichlet(np.ones(3), 200):
        assert best <= theory.b_term(other, q, scores, noise) + 1e-12


@pytest.mark.parametrize(
    "bad",
    [
        {"slope": -0.1},
        {"slope": float("inf")},
        {"offset": float("nan")},
        {"grad_bound": 0.0},
        {"grad_bound": float("inf")},
        {"noise": -0.1},
        {"noise": float("nan")},
        {"exact": True},
        {"exact": True, "noise": 0.1, "normalise": "all"},
        {"normalise": "al"},
        {"availability": "unknown"},
    ],
    ids=str,
)
def test_impossible_values_are_refused_where_the_rule_is_made(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=list(bad)[-1]):
        ShiftAware(**bad)


def kernel_score(embeddings: Any, mismatch: Any = "kme") -> float:
    summary = MemorySummary(some_outlook(CLIENTS[0]), np.full(3, 0.5), 5, embeddings)
    return ShiftAware(mismatch=mismatch).report(summary)[SCORE]


def test_states_without_anything_in_common_have_the_ordinary_score() -> None:
    plain = score(ShiftAware(), CLIENTS[0], [0.5] * 3)
    assert kernel_score(np.eye(3)) == pytest.approx(plain, abs=1e-12)
    assert kernel_score(None) == plain, "nothing is known of them"
    assert kernel_score(np.ones((3, 2)), "identity") == plain, "and by default nobody looks"


def test_states_that_are_all_alike_cannot_be_held_in_the_wrong_mixture() -> None:
    # Uniform ratios: mismatch 0.046667, weighted 2 * 0.19375.
    plain = score(ShiftAware(), CLIENTS[0], [0.5] * 3)
    assert kernel_score(np.ones((3, 1))) == pytest.approx(plain - 2 * 0.193750 * 0.0466667)


def test_the_kernel_score_is_that_of_the_theory() -> None:
    histograms = np.array([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0], [0.2, 0.2, 0.6]])
    outlook = some_outlook(CLIENTS[0])
    expected = theory.heterogeneity_score(
        outlook.probs,
        [0.5] * 3,
        outlook.importance,
        outlook.heterogeneity,
        0.5,
        5,
        gram=histograms @ histograms.T,
    )
    assert kernel_score(histograms) == pytest.approx(expected, abs=1e-12)
    # By hand: held - wanted = (1, -0.2, -0.8) / 6 moves the class mix by (0.34, 0.04, -0.38) / 6.
    away = (0.34**2 + 0.04**2 + 0.38**2) / 36
    plain = score(ShiftAware(), CLIENTS[0], [0.5] * 3)
    assert expected == pytest.approx(plain + 2 * 0.193750 * (away - 0.0466667), abs=1e-6)


def test_an_unknown_mismatch_is_refused() -> None:
    wrong: Any = "kmee"
    with pytest.raises(ConfigError, match="mismatch"):
        ShiftAware(mismatch=wrong)
