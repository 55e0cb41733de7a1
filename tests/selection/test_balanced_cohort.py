from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.examples import some_roster
from contracts.labelled_context import some_context
from thalweg.core.capabilities import CountsLabels, ExtraMetrics, RecordsChoices, Surveys
from thalweg.core.claims import Claim
from thalweg.core.config import from_dict, to_dict, with_overrides
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Ints, Roster, Supplies
from thalweg.selection import BalancedCohort, LabelPrivacy, WindowCounter, balanced_cohort
from thalweg.selection.balanced_cohort import draw_cohorts

NAN = float("nan")
TWO_KINDS = [[1, 0], [1, 0], [0, 1], [0, 1]]
NO_LABELS = Supplies(np.zeros(2), np.zeros(2, dtype=bool), np.zeros(2))


def roster_with(
    rows: Sequence[Sequence[float]],
    present: Sequence[int] | None = None,
    losses: Sequence[float] | None = None,
    **known: Sequence[float],
) -> Roster:
    """Return a roster with the label mixes (N, C) and losses (N,) of all clients; nan: unknown."""
    tables: dict[str, Any] = {"label_mix": rows, **known}
    if losses is not None:
        tables["loss"] = losses
    return some_roster(
        range(len(rows)) if present is None else present,
        len(rows),
        known={name: np.array(table, dtype=np.float64) for name, table in tables.items()},
    )


def chosen(rule: BalancedCohort, roster: Roster, seed: int = 0) -> list[int]:
    return [int(n) for n in rule.choose(roster, np.random.default_rng(seed))]


def scores(rule: BalancedCohort, roster: Roster, *cohorts: list[int]) -> Any:
    found = rule.compute_scores(rule.find_candidates(roster), np.array(cohorts))
    return pytest.approx(found.tolist(), abs=1e-12)


def draw_frequencies(rule: BalancedCohort, roster: Roster, rounds: int = 1500) -> Floats:
    times = np.zeros(roster.num_clients)
    for seed in range(rounds):
        times[chosen(rule, roster, seed)] += 1
    return times / rounds


# --- score ---


def test_the_score_is_the_distance_of_the_mean_mix_from_the_goal() -> None:
    roster = roster_with([[1, 0, 0], [0, 1, 0], [0.2, 0.3, 0.5]])
    # (1/2, 1/2, 0) and (0.6, 0.15, 0.25) minus a third each.
    assert scores(BalancedCohort(), roster, [0, 1], [0, 2]) == [
        1 / 6 + 1 / 6 + 1 / 3,
        0.6 - 1 / 3 + 1 / 3 - 0.15 + 1 / 3 - 0.25,
    ]


def test_only_classes_that_occur_belong_to_the_balanced_goal() -> None:
    roster = roster_with([[1, 0, 0], [0, 0, 1]])
    assert BalancedCohort().find_candidates(roster).goal.tolist() == [0.5, 0, 0.5]
    assert scores(BalancedCohort(), roster, [0, 1], [0, 0]) == [0, 1]


def test_the_goal_can_be_the_mean_mix_of_all_clients_also_absent_ones() -> None:
    # Of (1, 0), (0, 1), (0, 1), the mean is (1/3, 2/3); the third client is away.
    roster = roster_with([[1, 0], [0, 1], [0, 1], [NAN, NAN], [0, 0]], present=[0, 1])
    goal = BalancedCohort(goal="population").find_candidates(roster).goal
    assert goal.tolist() == [1 / 3, 2 / 3]


def test_high_losses_lower_the_score() -> None:
    # The mean is 2; relative to it the losses are -0.5, 0.5, 0.
    roster = roster_with([[1, 0], [0, 1], [0.5, 0.5]], losses=[1, 3, 2])
    assert scores(BalancedCohort(loss_weight=0.4), roster, [0, 1], [1, 2], [0, 2]) == [
        0,
        0.5 - 0.4 * 0.25,
        0.5 + 0.4 * 0.25,
    ]


def test_clients_without_a_loss_count_with_the_mean() -> None:
    roster = roster_with([[0.5, 0.5]] * 3, losses=[1, NAN, 3])
    assert BalancedCohort().find_candidates(roster).losses.tolist() == [-0.5, 0, 0.5]
    roster = roster_with([[0.5, 0.5]] * 2, losses=[NAN, NAN])
    assert BalancedCohort().find_candidates(roster).losses.tolist() == [0, 0]
    assert BalancedCohort().find_candidates(roster_with([[1, 0]] * 2)).losses.tolist() == [0, 0]


def test_loss_of_a_client_that_was_chosen_recently_does_not_count() -> None:
    # Two of five clients are chosen, so that a uniform draw chooses each in every third round.
    roster = roster_with([[0.5, 0.5]] * 5, losses=[9, 9, 1, 3, NAN], rounds_waited=[0, 1, 2, 3, 4])
    losses = BalancedCohort(0.4).find_candidates(roster).losses
    assert losses.tolist() == [0, 0, -0.5, 0.5, 0]


def test_losses_may_be_negative_or_zero() -> None:
    # The mean is -1 and the mean size 2: 1.5 times the mean size above and below.
    roster = roster_with([[0.5, 0.5]] * 2, losses=[-3, 1])
    assert BalancedCohort().find_candidates(roster).losses.tolist() == [-1, 1]
    roster = roster_with([[0.5, 0.5]] * 2, losses=[0, 0])
    assert BalancedCohort().find_candidates(roster).losses.tolist() == [0, 0]


def test_clients_without_a_label_mix_count_with_the_mean_mix() -> None:
    roster = roster_with([[1, 0], [0.5, 0.5], [NAN, NAN]])
    assert BalancedCohort().find_candidates(roster).mixes.tolist() == [
        [1, 0],
        [0.5, 0.5],
        [0.75, 0.25],
    ]


# --- choice ---


def test_the_best_of_many_cohorts_is_balanced() -> None:
    rule = BalancedCohort(0.5)
    for seed in range(30):
        first, second = chosen(rule, roster_with(TWO_KINDS), seed)
        assert first in (0, 1)
        assert second in (2, 3)


def test_of_equally_balanced_cohorts_that_with_the_highest_losses_is_chosen() -> None:
    roster = roster_with(TWO_KINDS, losses=[1, 2, 2, 1])
    assert all(chosen(BalancedCohort(0.5), roster, seed) == [1, 2] for seed in range(30))


def test_a_large_loss_weight_chooses_the_clients_with_the_highest_losses() -> None:
    roster = roster_with(TWO_KINDS, losses=[1, 1, 2, 2])
    greedy = BalancedCohort(0.5, loss_weight=100.0)
    assert all(chosen(greedy, roster, seed) == [2, 3] for seed in range(30))


def test_a_single_try_is_a_uniform_draw() -> None:
    rows = [[0, 1], [1, 0], [1, 0], [1, 0], [1, 0]]
    times = draw_frequencies(BalancedCohort(0.4, tries=1), roster_with(rows))
    assert abs(times - 0.4).max() < 5 * 0.0127
    assert draw_frequencies(BalancedCohort(0.4), roster_with(rows), 100)[0] == 1


def test_the_cohort_is_a_share_of_the_present_clients() -> None:
    rows = np.eye(10)[np.arange(20) % 10].tolist()
    assert len(chosen(BalancedCohort(0.3), roster_with(rows))) == 6
    assert len(chosen(BalancedCohort(0.3), roster_with(rows, present=range(10)))) == 3
    assert len(chosen(BalancedCohort(0.01), roster_with(rows))) == 1
    assert chosen(BalancedCohort(1.0), roster_with(rows)) == list(range(20))


def test_clients_without_data_are_not_chosen_while_others_have_some() -> None:
    roster = roster_with([[1, 0], [0, 0], [0, 1], [NAN, NAN], [0.5, 0.5], [0.5, 0.5]])
    found = {client for seed in range(50) for client in chosen(BalancedCohort(0.5), roster, seed)}
    assert found == {0, 2, 3, 4, 5}
    assert chosen(BalancedCohort(0.9), roster) == [0, 2, 3, 4, 5]


def test_clients_without_data_are_chosen_if_places_are_left_or_they_have_waited() -> None:
    """Samples may arrive after the report."""
    roster = roster_with([[1, 0], [0, 0], [0, 1], [0, 0]])
    assert chosen(BalancedCohort(1.0), roster) == [0, 1, 2, 3]
    assert {tuple(chosen(BalancedCohort(0.75), roster, seed)) for seed in range(20)} == {
        (0, 1, 2),
        (0, 2, 3),
    }
    late = roster_with([[1, 0], [0, 0], [0, 1], [0, 0]], rounds_waited=[0, 0, 0, 5])
    assert 3 in chosen(BalancedCohort(0.5), late)  # 3 * 4 / 2 = 6 rounds


def test_without_data_or_reports_the_draw_is_uniform_among_present_clients() -> None:
    for roster in (
        some_roster([0, 2, 4, 5], 6),
        roster_with([[0, 0]] * 6, present=[0, 2, 4, 5]),
        roster_with([[NAN, NAN]] * 6, present=[0, 2, 4, 5]),
    ):
        times = draw_frequencies(BalancedCohort(0.5), roster, 1000)
        assert times[[1, 3]].tolist() == [0, 0]
        assert abs(times[[0, 2, 4, 5]] - 0.5).max() < 5 * 0.016


def test_the_choice_is_the_best_cohort_of_the_draw() -> None:
    rng = np.random.default_rng(3)
    mixes, losses = rng.dirichlet([0.3] * 4, 9), rng.random(9)
    rule, roster = BalancedCohort(0.3, tries=500), roster_with(mixes.tolist(), losses=losses)
    cohorts = np.array(list(combinations(range(9), 3)))  # 84: all are among 500 draws
    best = cohorts[rule.compute_scores(rule.find_candidates(roster), cohorts).argmin()]
    assert chosen(rule, roster) == best.tolist()


def draw_all(num: int, size: int, tries: int) -> Ints:
    return np.concatenate(list(draw_cohorts(num, size, tries, np.random.default_rng(0))))


def test_cohorts_do_not_depend_on_the_parts_in_which_they_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = draw_all(10, 3, 50)
    permuted = np.random.default_rng(0).permuted(np.tile(np.arange(10), (17, 1)), axis=1)
    assert np.array_equal(together, permuted[:, :9].reshape(-1, 3)[:50])
    for most in (1, 10, 25, 160):
        monkeypatch.setattr(balanced_cohort, "MAX_GATHERED", most)
        assert np.array_equal(draw_all(10, 3, 50), together)


def test_the_memory_of_a_choice_does_not_grow_with_the_tries() -> None:
    """64 tries of 30,000 clients at once need 38 MB."""
    roster, rule = roster_with([[0.5, 0.5]] * 100_000), BalancedCohort(0.3, tries=64)
    tracemalloc.start()
    try:
        assert len(chosen(rule, roster)) == 30_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20e6, peak


def test_a_permutation_is_cut_into_cohorts_without_common_positions() -> None:
    cohorts = draw_all(10, 3, 7)
    assert cohorts.shape == (7, 3)
    for block in (cohorts[:3], cohorts[3:6], cohorts[6:]):
        assert len(np.unique(block)) == block.size
    small = draw_all(1_000_000, 5, 64)
    assert small.shape == (64, 5)
    assert len(np.unique(small)) == 320


def test_all_cohorts_are_drawn_equally_often() -> None:
    times = dict.fromkeys(combinations(range(5), 2), 0)
    for cohort in np.sort(draw_all(5, 2, 10_000), axis=1).tolist():
        times[tuple(cohort)] += 1
    assert max(abs(count - 1000) for count in times.values()) < 5 * 30


def test_the_choice_does_not_depend_on_the_parts_in_which_scores_are_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(3)
    rule = BalancedCohort(0.3, tries=50)
    roster = roster_with(rng.dirichlet([0.3] * 4, 9).tolist(), losses=rng.random(9))
    expected = chosen(rule, roster)
    monkeypatch.setattr(balanced_cohort, "MAX_GATHERED", 10)
    assert chosen(rule, roster) == expected


# --- no client is starved ---


def test_a_client_that_has_waited_too_long_is_chosen_with_certainty() -> None:
    # One of four clients per round and patience 2: at least once in 8 rounds.
    rule = BalancedCohort(0.25, patience=2.0, loss_weight=100.0)
    losses = [0, 0, 0, 9]
    roster = roster_with([[1, 0]] * 4, losses=losses, rounds_waited=[6, 6, 6, 3])
    assert chosen(rule, roster) == [3]
    roster = roster_with([[1, 0]] * 4, losses=losses, rounds_waited=[6, 7, 6, 0])
    assert chosen(rule, roster) == [1]


def test_the_client_whose_last_choice_is_the_longest_ago_goes_first() -> None:
    rule = BalancedCohort(0.5, patience=1.0)
    roster = roster_with(TWO_KINDS, rounds_waited=[9, 9, 9, 9], last_chosen=[3, 1, 2, 4])
    assert chosen(rule, roster) == [1, 2]
    never = roster_with(TWO_KINDS, rounds_waited=[9, 9, 9, 1], last_chosen=[3, 1, -1, 4])
    assert chosen(rule, never) == [1, 2]
    ties = roster_with(TWO_KINDS, rounds_waited=[9, 9, 9, 9])
    assert len({tuple(chosen(rule, ties, seed)) for seed in range(40)}) == 6


def test_the_other_places_complement_the_overdue_clients() -> None:
    roster = roster_with(TWO_KINDS, rounds_waited=[0, 9, 0, 0])
    for seed in range(20):
        first, second = chosen(BalancedCohort(0.5), roster, seed)
        assert first == 1
        assert second in (2, 3)


def test_the_wait_counts_rounds_in_which_the_client_was_present() -> None:
    rule = BalancedCohort()
    assert isinstance(rule, RecordsChoices)
    roster = roster_with(TWO_KINDS, present=[0, 1, 3])
    known = rule.record_choice(roster, np.array([1]))
    assert known["rounds_waited"].tolist() == [1, 0, 0, 1]
    assert known["last_chosen"].tolist() == [-1, roster.rnd, -1, -1]
    later = replace(roster, rnd=7, known={**roster.known, **known})
    again = rule.record_choice(later, np.array([3]))
    assert again["rounds_waited"].tolist() == [2, 1, 0, 0]
    assert again["last_chosen"].tolist() == [-1, roster.rnd, -1, 7]
    assert known["rounds_waited"].tolist() == [1, 0, 0, 1], "stored numbers do not change"


@st.composite
def histories(draw: st.DrawFn) -> tuple[BalancedCohort, int, list[list[int]], int]:
    num_clients = draw(st.integers(1, 8))
    rule = BalancedCohort(
        participation=draw(st.sampled_from([0.1, 0.3, 0.5, 0.9])),
        tries=draw(st.sampled_from([1, 8])),
        loss_weight=draw(st.sampled_from([0.0, 100.0])),
        patience=draw(st.sampled_from([1.0, 1.5, 3.0])),
    )
    clients = st.lists(st.integers(0, num_clients - 1), unique=True)
    pattern = draw(st.lists(st.one_of(st.just(list(range(num_clients))), clients), min_size=1))
    return rule, num_clients, [sorted(each) for each in pattern * 12], draw(st.integers(0, 99))


@given(histories())
def test_no_client_is_starved(history: tuple[BalancedCohort, int, list[list[int]], int]) -> None:
    """The bound of the docstring; some clients are favoured, come and go, or report no data."""
    rule, num_clients, rounds, seed = history
    favoured = [[1.0, 0.0] if client == 0 else [0.0, 1.0] for client in range(num_clients)]
    favoured[-1] = [0.0, 0.0]
    known = roster_with(favoured, losses=list(range(num_clients))).known
    waited, longest, least = np.zeros(num_clients), 1, num_clients
    waits = []
    for rnd, present in enumerate(rounds):
        roster = some_roster(present, num_clients, rnd=rnd, known=known)
        cohort = rule.choose(roster, np.random.default_rng([seed, rnd]))
        known = {**known, **rule.record_choice(roster, cohort)}
        waited[present] += 1
        waits.append(waited.max())
        waited[cohort] = 0
        if present:
            longest = max(longest, math.ceil(rule.patience * len(present) / len(cohort)))
            least = min(least, len(cohort))
    assert max(waits) <= longest + (num_clients - 1) // least


def test_without_the_guarantee_a_client_would_be_starved() -> None:
    """The bound is not void: the score alone never chooses the client with the worst labels."""
    known = roster_with([[1, 0], [0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]).known
    for patience, expected in ((1000.0, 0), (3.0, 25)):
        rule = BalancedCohort(0.25, patience=patience)
        state, times = dict(known), 0
        for rnd in range(300):
            roster = some_roster(range(4), 4, rnd=rnd, known=state)
            cohort = rule.choose(roster, np.random.default_rng(rnd))
            state |= rule.record_choice(roster, cohort)
            times += int(0 in cohort)
        assert times == expected  # once in 12 rounds


# --- survey ---


def test_all_present_clients_report_their_label_mix_without_models() -> None:
    rule = BalancedCohort()
    for protocol in (Surveys, CountsLabels, ExtraMetrics):
        assert isinstance(rule, protocol)
    assert not rule.sends_models
    assert rule.choose_surveyed(some_roster([1, 4], 6), np.random.default_rng(0)).tolist() == [1, 4]
    context = some_context([0, 0, 2, 2], label_counts=rule.init_counts(3))
    assert rule.answer_survey(context)[1]["label_mix"].tolist() == [0.5, 0, 0.5]


def test_private_counts_spend_epsilon_and_are_not_exact() -> None:
    rule = BalancedCohort(privacy=LabelPrivacy(epsilon=0.5))
    assert rule.adds_noise
    assert rule.survey_cost.laplace == {0.5: 1}
    label_counts = rule.init_counts(3)
    for num_surveys in (1, 2):
        label_counts, uploads = rule.answer_survey(
            some_context([0, 0, 2], label_counts=label_counts, seed=num_surveys)
        )
        assert uploads["epsilon_spent"].tolist() == [0.5 * num_surveys]
        assert uploads["label_mix"].sum() == pytest.approx(1)
        assert uploads["label_mix"].tolist() != [2 / 3, 0, 1 / 3]
    assert not BalancedCohort().adds_noise


def test_the_counter_determines_the_reported_mix() -> None:
    rule = BalancedCohort(counter=WindowCounter(2))
    label_counts = rule.count_labels(rule.init_counts(3), np.array([0, 0, 0, 1, 2]))
    _, uploads = rule.answer_survey(some_context([2], label_counts=label_counts))
    assert uploads["label_mix"].tolist() == [0, 0.5, 0.5]


def test_a_label_mix_must_sum_to_one_or_be_all_zero() -> None:
    def rejection(*mix: float) -> str | None:
        claim = Claim(
            {"label_mix": np.array(mix, dtype=np.float64)},
            10,
            0,
            num_classes=2,
            is_survey_response=True,
        )
        return BalancedCohort().validate_claim(claim)

    assert rejection(0.25, 0.75) is None
    assert rejection(0, 0) is None
    assert rejection(0.5, 0.3) == "label_mix sums to 0.8, not to 1."
    assert rejection(1.5, -0.5) is not None
    assert rejection(1.0) is not None


# --- data without classes ---


def test_without_classes_nothing_is_reported_and_only_losses_count() -> None:
    rule = BalancedCohort(0.5)
    label_counts = rule.init_counts(1)
    after, uploads = rule.answer_survey(
        some_context([0, 0], num_classes=1, label_counts=label_counts)
    )
    assert after is label_counts
    assert uploads == {}
    roster = some_roster(range(4), 4, known={"loss": np.array([3.0, 1.0, 1.0, 2.0])})
    assert all(chosen(rule, roster, seed) == [0, 3] for seed in range(20))


def test_settings_without_effect_are_rejected_if_there_are_no_classes() -> None:
    BalancedCohort().check_world(NO_LABELS, num_classes=1)
    BalancedCohort(loss_weight=0.0, goal="population").check_world(NO_LABELS, num_classes=2)
    with pytest.raises(ConfigError, match=r"only losses count.*Set selection\.loss_weight to more"):
        BalancedCohort(loss_weight=0.0).check_world(NO_LABELS, num_classes=1)
    for rule, name in (
        (BalancedCohort(goal="population"), "goal"),
        (BalancedCohort(counter=WindowCounter(5)), "counter"),
        (BalancedCohort(privacy=LabelPrivacy(epsilon=1.0)), "privacy"),
    ):
        with pytest.raises(ConfigError, match=rf"selection\.{name} has no effect"):
            rule.check_world(NO_LABELS, num_classes=1)


# --- metrics ---


def test_metrics_have_the_mix_of_the_cohort_and_its_distance_from_the_goal() -> None:
    roster = roster_with([[1, 0, 0], [0, 1, 0], [0.2, 0.3, 0.5]], rounds_waited=[99, 99, 0])
    metrics = BalancedCohort(0.6).extra_metrics(roster, np.array([0, 2]))
    assert metrics["cohort_mix"] == pytest.approx([0.6, 0.15, 0.25])
    assert metrics["cohort_mix_l1"] == pytest.approx(0.533333, abs=1e-6)
    assert metrics["cohort_mix_l2"] == pytest.approx(0.334166, abs=1e-6)
    assert metrics["overdue"] == 1
    assert "epsilon_spent_max" not in metrics


def test_metrics_leave_out_clients_without_a_known_mix() -> None:
    roster = roster_with([[1, 0], [0, 1], [0, 0], [NAN, NAN]])
    metrics = BalancedCohort().extra_metrics(roster, np.array([0, 2, 3]))
    assert metrics["cohort_mix"] == [1, 0]
    assert metrics["cohort_mix_l1"] == 1
    assert BalancedCohort().extra_metrics(roster, np.array([3])) == {"overdue": 0}


def test_metrics_have_the_largest_and_mean_epsilon_spent() -> None:
    roster = roster_with(TWO_KINDS, epsilon_spent=[0.5, 1.5, NAN, 1.0])
    metrics = BalancedCohort(privacy=LabelPrivacy(epsilon=0.5)).extra_metrics(roster, np.array([0]))
    assert (metrics["epsilon_spent_max"], metrics["epsilon_spent_mean"]) == (1.5, 1.0)


# --- configuration ---


def test_all_parameters_can_be_set_by_overrides() -> None:
    rule = with_overrides(
        BalancedCohort(),
        [
            *("goal=population", "tries=8", "loss_weight=0.25", "patience=2"),
            *("counter=window", "counter.size=50", "privacy.epsilon=0.5"),
        ],
    )
    assert rule == BalancedCohort(
        tries=8,
        goal="population",
        loss_weight=0.25,
        patience=2.0,
        counter=WindowCounter(50),
        privacy=LabelPrivacy(0.5),
    )
    assert from_dict(BalancedCohort, to_dict(rule)) == rule


@pytest.mark.parametrize(
    "field, value",
    [
        ("participation", 0.0),
        ("participation", 1.01),
        ("tries", 0),
        ("tries", 1_000_001),
        ("loss_weight", -0.1),
        ("loss_weight", float("inf")),
        ("patience", 0.99),
        ("goal", "uniform"),
    ],
)
def test_parameters_outside_their_ranges_are_rejected(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{field}"):
        BalancedCohort(**{field: value})


def test_parameters_at_the_ends_of_their_ranges_are_accepted() -> None:
    BalancedCohort(participation=1.0)
    BalancedCohort(tries=1, loss_weight=0.0, patience=1.0)
    BalancedCohort(tries=1_000_000)


@pytest.mark.parametrize(
    "settings",
    [
        {"tries": 5},
        {"goal": "population"},
        {"loss_weight": 0.0},
        {"patience": 1.0},
        {"counter": WindowCounter(5)},
        {"privacy": LabelPrivacy(epsilon=1.0)},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_without_effect_are_rejected_if_all_clients_take_part(settings: Any) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match=rf"selection\.{name}=.* has no effect with part"):
        BalancedCohort(participation=1.0, **settings)
    BalancedCohort(participation=0.99, **settings)
