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


def compute_score(
    rule: ShiftAware, probs: Sequence[float], renewal: Sequence[float] | Floats, ticks: int = 5
) -> float:
    summary = MemorySummary(some_outlook(probs), np.asarray(renewal, dtype=np.float64), ticks)
    return rule.report(summary)[SCORE]


def compute_weights(
    rule: ShiftAware,
    scores: Sequence[float],
    availability: Sequence[float],
    *,
    clients: Sequence[int] = (0, 1, 2),
    known: Sequence[float] | None = None,
    **roster_fields: Any,
) -> list[float]:
    updates = some_updates(clients, 2, reports={SCORE: [scores[n] for n in clients]})
    roster = some_roster(
        clients,
        len(availability),
        availability=availability,
        known=None if known is None else {SCORE: np.array(known)},
        **roster_fields,
    )
    return [float(p) for p in rule.weigh(updates, roster)]


def test_each_client_reports_one_number() -> None:
    assert isinstance(ShiftAware(), Reports)
    summary = MemorySummary(some_outlook(), np.full(3, 0.5), 5)
    assert list(ShiftAware().report(summary)) == [SCORE]


def test_scores_and_weights_of_three_clients_with_dds_memories() -> None:
    rule, slope, offset = ShiftAware(), Dds().slope, Dds().offset
    scores = []
    for probs in CLIENTS:
        outlook = some_outlook(probs)
        scores.append(
            compute_score(rule, probs, theory.dds_ratios(*outlook[:3], 0.5, slope, offset))
        )
    assert scores == pytest.approx((0.764378, 1.500833, 0.889977), abs=2e-6)
    expected = (0.354866, 0.299680, 0.345454)
    assert compute_weights(rule, scores, [0.2] * 3) == pytest.approx(expected, abs=1e-6)


def test_a_uniform_memory_scores_worse_than_dds() -> None:
    assert compute_score(ShiftAware(), CLIENTS[0], [0.5] * 3) == pytest.approx(0.840250, abs=1e-6)


def test_noise_adds_a_constant_to_the_score() -> None:
    quiet, noisy = (compute_score(ShiftAware(noise=x), CLIENTS[0], [0.5] * 3) for x in (0.0, 0.25))
    assert noisy - quiet == pytest.approx(0.25)


def test_score_of_a_memory_that_never_changes_is_finite() -> None:
    still = compute_score(ShiftAware(), CLIENTS[0], [0.0] * 3)
    barely = compute_score(ShiftAware(), CLIENTS[0], [2 * MIN_RENEWAL] * 3)
    assert still == pytest.approx(barely, rel=1e-4)


def test_score_of_a_memory_that_is_replaced_whole() -> None:
    # Nothing is retained, so only the heterogeneity of the visited states counts: 0.6.
    assert compute_score(ShiftAware(), CLIENTS[0], [1.0] * 3) == pytest.approx(0.6)


def test_weights_rise_with_rarity_and_fall_with_the_score() -> None:
    # Before normalising: 5 - 1 + 0.5, 4 - 2 + 0.5, 10 - 3 + 0.5.
    got = compute_weights(ShiftAware(), [1, 2, 3], [0.2, 0.25, 0.1])
    assert got == pytest.approx((4.5 / 14.5, 2.5 / 14.5, 7.5 / 14.5))


def test_weights_are_normalised_over_the_participants() -> None:
    got = compute_weights(ShiftAware(), [1, 2, 3], [0.2, 0.25, 0.1], clients=[0, 2])
    assert got == pytest.approx((0.375, 0.625))


def test_weight_is_zero_for_a_large_score() -> None:
    assert compute_weights(ShiftAware(offset=0.0), [1, 2, 4], [0.5] * 3) == [1.0, 0.0, 0.0]


def test_weights_are_equal_if_all_scores_are_too_large() -> None:
    assert compute_weights(ShiftAware(offset=0.0), [9, 8, 7], [0.5] * 3) == [1 / 3] * 3


def test_weights_normalised_over_all_clients_count_absent_clients() -> None:
    rule, q = ShiftAware(normalise="all"), [0.2, 0.25, 0.1]
    # Client 1 is absent, and its last score is 2.
    got = compute_weights(rule, [1, 2, 3], q, clients=[0, 2], known=[9, 2, np.nan])
    assert got == pytest.approx((4.5 / 14.5, 7.5 / 14.5))


def test_late_update_beside_a_newer_one_counts_separately_over_all_clients() -> None:
    # Client 0 has a late update (score 2) and a new one (score 1), client 1 is absent (score 3).
    # Before normalising: 5 - 2 + 0.5 and 5 - 1 + 0.5 for client 0, 4 - 3 + 0.5 for client 1.
    updates = some_updates([0, 0], 2, reports={SCORE: [2.0, 1.0]})
    roster = some_roster([0], 2, availability=[0.2, 0.25], known={SCORE: np.array([9.0, 3.0])})
    weights = ShiftAware(normalise="all").weigh(updates, roster)
    assert weights.tolist() == pytest.approx([3.5 / 9.5, 4.5 / 9.5])


def test_two_late_updates_and_an_absent_client_count_separately() -> None:
    # psi = 1 / q - score + 0.5: 3.5 and 4.5 for client 0, 1.5 and 4.5 for client 1, and 1.5 for
    # client 2, which is absent with a known score of 1.
    updates = some_updates([0, 0, 1, 1], 2, reports={SCORE: [2.0, 1.0, 3.0, 0.0]})
    known = {SCORE: np.array([9.0, 9.0, 1.0])}
    roster = some_roster([0, 1], 3, availability=[0.2, 0.25, 0.5], known=known)
    weights = ShiftAware(normalise="all").weigh(updates, roster)
    assert weights.tolist() == pytest.approx([3.5 / 15.5, 4.5 / 15.5, 1.5 / 15.5, 4.5 / 15.5])


def test_late_updates_use_the_availability_of_their_own_client() -> None:
    # Clients 0 and 1 have a late update each; all scores are zero, so psi is 1 / q + 0.5.
    updates = some_updates([0, 0, 1, 1], 2, reports={SCORE: [0.0] * 4})
    roster = some_roster([0, 1], 2, availability=[0.5, 0.1], known={SCORE: np.zeros(2)})
    weights = ShiftAware(normalise="all").weigh(updates, roster)
    assert weights.tolist() == pytest.approx([2.5 / 26, 2.5 / 26, 10.5 / 26, 10.5 / 26])


@pytest.mark.parametrize("known", [None, [np.nan] * 3, [9, np.nan, np.nan]])
def test_client_without_a_score_gets_the_mean_score_of_the_others(known: Any) -> None:
    rule, q = ShiftAware(normalise="all"), [0.2, 0.25, 0.1]
    # The scores of this round replace the known ones: the mean of 1 and 3 is 2.
    got = compute_weights(rule, [1, 2, 3], q, clients=[0, 2], known=known)
    assert got == pytest.approx((4.5 / 14.5, 7.5 / 14.5))


def test_known_scores_are_not_changed() -> None:
    known = np.array([9, 2, np.nan])
    updates = some_updates([0, 2], 2, reports={SCORE: [1.0, 3.0]})
    roster = some_roster([0, 2], 3, known={SCORE: known})
    ShiftAware(normalise="all").weigh(updates, roster)
    assert known[:2].tolist() == [9, 2]


def test_availability_is_estimated_from_past_presence() -> None:
    # The fifth round: client 0 was always present, client 1 once before: 6/7 and 3/7.
    got = compute_weights(
        ShiftAware(availability="estimated", slope=0.0, offset=0.0),
        [0, 0],
        [0.01, 0.01],
        clients=[0, 1],
        rnd=4,
        times_present=[4, 1],
    )
    assert got == pytest.approx((1 / 3, 2 / 3))


def test_estimated_availability_has_a_uniform_prior() -> None:
    # The fifth round: client 0 was present in all rounds, client 1 once, client 2 never.
    roster = some_roster([0, 1], 3, rnd=4, times_present=[4, 1, 0])
    estimated = ShiftAware(availability="estimated")._availability(roster)
    assert estimated.tolist() == [6 / 7, 3 / 7, 1 / 7]


def test_estimated_availability_is_equal_for_all_in_the_first_round() -> None:
    got = compute_weights(
        ShiftAware(availability="estimated", slope=0.0),
        [0, 0, 0],
        [0.01, 0.5, 1.0],
        rnd=0,
        times_present=[0, 0, 0],
    )
    assert got == pytest.approx([1 / 3] * 3)


def test_exact_weights_minimise_the_bound() -> None:
    scores, q, noise = np.array([1.0, 1.01, 1.3]), np.array([0.2, 0.5, 0.1]), 0.05
    exact = compute_weights(ShiftAware(exact=True, noise=noise), scores.tolist(), q.tolist())
    best = theory.b_term(exact, q, scores, noise)
    closed = compute_weights(ShiftAware(noise=noise), scores.tolist(), q.tolist())
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
def test_invalid_fields_are_rejected(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=list(bad)[-1]):
        ShiftAware(**bad)


def kernel_score(embeddings: Any, mismatch: Any = "kme") -> float:
    summary = MemorySummary(some_outlook(CLIENTS[0]), np.full(3, 0.5), 5, embeddings)
    return ShiftAware(mismatch=mismatch).report(summary)[SCORE]


def test_kernel_score_equals_the_plain_score_for_orthogonal_states() -> None:
    plain = compute_score(ShiftAware(), CLIENTS[0], [0.5] * 3)
    assert kernel_score(np.eye(3)) == pytest.approx(plain, abs=1e-12)
    assert kernel_score(None) == plain, "no embeddings"
    assert kernel_score(np.ones((3, 2)), "identity") == plain, "the default ignores embeddings"


def test_kernel_score_has_no_mismatch_if_all_states_are_alike() -> None:
    # Uniform ratios: mismatch 0.046667, weighted 2 * 0.19375.
    plain = compute_score(ShiftAware(), CLIENTS[0], [0.5] * 3)
    assert kernel_score(np.ones((3, 1))) == pytest.approx(plain - 2 * 0.193750 * 0.0466667)


def test_kernel_score_of_a_worked_example() -> None:
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
    # held - goal = (1, -0.2, -0.8) / 6 changes the class mix by (0.34, 0.04, -0.38) / 6.
    mismatch = (0.34**2 + 0.04**2 + 0.38**2) / 36
    plain = compute_score(ShiftAware(), CLIENTS[0], [0.5] * 3)
    assert expected == pytest.approx(plain + 2 * 0.193750 * (mismatch - 0.0466667), abs=1e-6)


def test_unknown_mismatch_is_rejected() -> None:
    wrong: Any = "kmee"
    with pytest.raises(ConfigError, match="mismatch"):
        ShiftAware(mismatch=wrong)


def test_shift_aware_weights_declare_that_they_use_the_forecast() -> None:
    assert ShiftAware.uses_forecast  # otherwise clients report the score of a uniform outlook
