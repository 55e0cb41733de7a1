from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from contracts.examples import some_roster
from contracts.labelled_context import some_context
from thalweg.core.capabilities import CountsLabels, ExtraMetrics, Surveys
from thalweg.core.claims import Claim
from thalweg.core.config import from_dict, to_dict, with_overrides
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.core.types import Roster, Supplies
from thalweg.selection import CumulativeCounter, Dpcs, LabelPrivacy, WindowCounter

THREE = [[1, 0, 0], [0, 1, 0], [0.2, 0.3, 0.5]]
NAN = float("nan")


def roster_with(
    rows: Sequence[Sequence[float]], present: Sequence[int] | None = None, name: str = "label_mix"
) -> Roster:
    """Return a roster with the reports (N, C) of all clients; nan: no report."""
    known = {name: np.array(rows, dtype=np.float64)}
    return some_roster(range(len(rows)) if present is None else present, len(rows), known=known)


def probs(rule: Dpcs, roster: Roster) -> Any:
    draw = rule.draw_probabilities(roster)
    assert draw is not None
    return pytest.approx(draw.probs, abs=1e-6)


def chosen(rule: Dpcs, roster: Roster, seed: int = 0) -> list[int]:
    return [int(n) for n in rule.choose(roster, np.random.default_rng(seed))]


def draw_frequencies(rule: Dpcs, roster: Roster, rounds: int = 2000) -> Any:
    """Return (N,) how often each client is chosen. The probabilities are computed only once."""
    times, solved = np.zeros(roster.num_clients), rule.draw_probabilities(roster)
    with patch.object(Dpcs, "draw_probabilities", return_value=solved):
        for seed in range(rounds):
            times[chosen(rule, roster, seed)] += 1
    return times / rounds


# --- probabilities ---


def test_probabilities_minimise_the_distance_from_a_uniform_goal() -> None:
    assert probs(Dpcs(ridge=0.0), roster_with(THREE)) == [0.2, 0.133333, 0.666667]
    assert probs(Dpcs(ridge=0.0, norm="l1"), roster_with(THREE)) == [0.2, 0.133333, 0.666667]
    assert probs(Dpcs(ridge=0.001), roster_with(THREE)) == [0.200568, 0.134102, 0.665330]


def test_symmetric_clients_have_equal_probabilities() -> None:
    rows = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
    assert probs(Dpcs(), roster_with(rows)) == [1 / 3] * 3


def test_a_single_positive_probability_is_mixed_with_the_uniform_distribution() -> None:
    rows = [[0.6, 0.4], [0.9, 0.1], [0.7, 0.3]]
    roster = roster_with(rows)
    # a = (1, 0, 0), mixed with 0.05 / 3 each.
    assert probs(Dpcs(ridge=0.0), roster) == [0.966667, 0.016667, 0.016667]
    assert probs(Dpcs(ridge=0.0, fill="strict"), roster) == [1, 0, 0]
    metrics = Dpcs(ridge=0.0, fill="strict").extra_metrics(roster, np.array([0]))
    assert metrics["expected_mix_l2"] == pytest.approx(0.141421, abs=1e-6)
    assert metrics["expected_mix_l1"] == pytest.approx(0.2)


def test_the_goal_can_be_a_distribution() -> None:
    roster = roster_with([[1, 0], [0, 1]])
    assert probs(Dpcs(goal=(0.25, 0.75), ridge=0.0), roster) == [0.25, 0.75]


def test_with_the_mean_as_goal_and_all_clients_present_the_draw_is_uniform() -> None:
    rows = [[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [1.0, 0.0]]
    assert probs(Dpcs(goal="mean"), roster_with(rows)) == [0.25] * 4


def test_the_mean_goal_includes_absent_clients() -> None:
    # Of (1, 0), (0, 1), (0, 1), the mean is (1/3, 2/3); the third client is away.
    roster = roster_with([[1, 0], [0, 1], [0, 1], [NAN, NAN]], present=[0, 1, 3])
    assert probs(Dpcs(goal="mean", ridge=0.0), roster) == [1 / 3, 2 / 3]


def test_the_pooled_goal_weighs_clients_by_their_samples() -> None:
    # 3 + 9 samples of classes 0 and 1: the pool is (1/4, 3/4).
    roster = roster_with([[3, 0], [0, 9]], name="label_counts")
    assert probs(Dpcs(goal="pooled_counts", ridge=0.0), roster) == [0.25, 0.75]


# --- draw ---


def test_the_cohort_is_a_share_of_the_present_clients() -> None:
    rows = np.eye(10)[np.arange(20) % 10].tolist()
    assert len(chosen(Dpcs(0.3), roster_with(rows))) == 6
    assert len(chosen(Dpcs(0.3), roster_with(rows, present=range(10)))) == 3
    assert len(chosen(Dpcs(0.01), roster_with(rows))) == 1


def test_a_client_without_data_or_report_is_not_drawn() -> None:
    roster = roster_with([[1, 0], [0, 0], [0, 1], [NAN, NAN], [0.5, 0.5], [0.5, 0.5]])
    for seed in range(50):
        assert set(chosen(Dpcs(0.5), roster, seed)) <= {0, 2, 4, 5}


def test_all_clients_with_data_are_chosen_if_they_are_too_few() -> None:
    roster = roster_with([[1, 0], [0, 0], [0, 1], [NAN, NAN]])
    assert chosen(Dpcs(0.75), roster) == [0, 2]


def test_without_data_the_draw_is_uniform_among_present_clients() -> None:
    for roster in (
        some_roster([0, 2, 4, 5], 6),
        roster_with([[0, 0]] * 6, present=[0, 2, 4, 5]),
        roster_with([[NAN, NAN]] * 6, present=[0, 2, 4, 5]),
    ):
        times = draw_frequencies(Dpcs(0.5), roster, 1000)
        assert times[[1, 3]].tolist() == [0, 0]
        assert abs(times[[0, 2, 4, 5]] - 0.5).max() < 5 * 0.016


def test_clients_with_rare_labels_are_drawn_more_often() -> None:
    # Class 1 is held by one client of five: a is 1/2 for that one and 1/8 for the others.
    roster = roster_with([[0, 1], [1, 0], [1, 0], [1, 0], [1, 0]])
    assert probs(Dpcs(0.2, ridge=1e-9), roster) == [0.5, 0.125, 0.125, 0.125, 0.125]
    assert draw_frequencies(Dpcs(0.2, ridge=1e-9), roster)[0] == pytest.approx(0.5, abs=5 * 0.0112)
    # Two places: one by one it takes part with 1/2 + 1/2 * (1/2) / (7/8) = 0.785714, ...
    assert draw_frequencies(Dpcs(0.4, ridge=1e-9), roster)[0] == pytest.approx(
        0.785714, abs=5 * 0.0092
    )
    # ... and systematically always, so that the cohort's labels are balanced every time.
    assert draw_frequencies(Dpcs(0.4, ridge=1e-9, draw="systematic"), roster, 50)[0] == 1.0


def test_fill_applies_if_too_few_probabilities_are_positive() -> None:
    # The goal (1/2, 1/2) is out of reach; the two nearest clients share everything.
    roster = roster_with([[0.6, 0.4]] * 2 + [[1, 0]] * 3)
    sparse = Dpcs(0.6, fill="uniform_fill")
    assert probs(sparse, roster) == [0.5, 0.5, 0, 0, 0]
    times = draw_frequencies(sparse, roster, 600)
    assert times[:2].tolist() == [1, 1]
    assert abs(times[2:] - 1 / 3).max() < 5 * 0.02
    assert probs(Dpcs(0.6), roster) == [0.485, 0.485, 0.01, 0.01, 0.01]
    assert all(len(chosen(Dpcs(0.6), roster, seed)) == 3 for seed in range(50))
    assert probs(Dpcs(0.4), roster) == [0.5, 0.5, 0, 0, 0], "two of two are positive: no filling"
    with pytest.raises(ConfigError, match="needs 3 clients, but only 2 of 5 have a positive"):
        chosen(Dpcs(0.6, fill="strict"), roster)


# --- survey ---


def report(rule: Dpcs, labels: list[int], arrived: list[int] | None = None) -> Any:
    label_counts = rule.init_counts(3)
    if arrived is not None:
        label_counts = rule.count_labels(label_counts, np.array(arrived))
    _, uploads = rule.answer_survey(some_context(labels, label_counts=label_counts))
    return {name: vector.tolist() for name, vector in uploads.items()}


def test_all_present_clients_are_surveyed_without_models() -> None:
    rule = Dpcs()
    assert isinstance(rule, Surveys)
    assert isinstance(rule, CountsLabels)
    assert isinstance(rule, ExtraMetrics)
    assert not rule.sends_models
    assert rule.choose_surveyed(some_roster([1, 4], 6), np.random.default_rng(0)).tolist() == [1, 4]


def test_clients_report_counts_only_for_the_pooled_goal() -> None:
    assert report(Dpcs(), [0, 0, 2, 2]) == {"label_mix": [0.5, 0.0, 0.5]}
    assert report(Dpcs(goal="pooled_counts"), [0, 0, 2, 2]) == {"label_counts": [2.0, 0.0, 2.0]}
    assert report(Dpcs(), []) == {"label_mix": [0.0, 0.0, 0.0]}


def test_the_counter_determines_the_reported_mix() -> None:
    arrived = [0, 0, 0, 1, 2]
    assert report(Dpcs(), [2], arrived)["label_mix"] == [0, 0, 1]
    assert report(Dpcs(counter=CumulativeCounter()), [2], arrived)["label_mix"] == [0.6, 0.2, 0.2]
    assert report(Dpcs(counter=WindowCounter(2)), [2], arrived)["label_mix"] == [0, 0.5, 0.5]


def test_clients_report_the_epsilon_they_have_spent() -> None:
    rule = Dpcs(privacy=LabelPrivacy(epsilon=0.5))
    label_counts = rule.init_counts(3)
    for num_surveys in (1, 2, 3):
        label_counts, uploads = rule.answer_survey(
            some_context([0, 0, 2], label_counts=label_counts, seed=num_surveys)
        )
        assert uploads["epsilon_spent"].tolist() == [0.5 * num_surveys]
        assert uploads["label_mix"].sum() == pytest.approx(1.0)
        assert uploads["label_mix"].tolist() != [2 / 3, 0, 1 / 3]
    assert "epsilon_spent" not in report(Dpcs(), [0])


def test_disjoint_windows_spend_epsilon_only_once() -> None:
    rule = Dpcs(counter=WindowCounter(4), privacy=LabelPrivacy(epsilon=0.5))
    label_counts = rule.init_counts(3)
    for _ in range(3):
        label_counts = rule.count_labels(label_counts, np.array([0, 1, 2, 2]))
        label_counts, uploads = rule.answer_survey(some_context([], label_counts=label_counts))
    assert uploads["epsilon_spent"].tolist() == [0.5]


def test_a_suppressed_report_still_spends_epsilon() -> None:
    rule = Dpcs(privacy=LabelPrivacy(epsilon=1.0, min_count=1000))
    label_counts, uploads = rule.answer_survey(
        some_context([0, 1], label_counts=rule.init_counts(3))
    )
    assert uploads == {}
    assert label_counts.account.spent == 1.0


# --- metrics ---


def test_metrics_have_the_mix_of_the_cohort_and_its_distance_from_the_goal() -> None:
    metrics = Dpcs(ridge=0.0).extra_metrics(roster_with(THREE), np.array([0, 2]))
    assert metrics["cohort_mix"] == pytest.approx([0.6, 0.15, 0.25])
    # Minus a third each: 0.266667, -0.183333, -0.083333.
    assert metrics["cohort_mix_l1"] == pytest.approx(0.533333, abs=1e-6)
    assert metrics["cohort_mix_l2"] == pytest.approx(0.334166, abs=1e-6)
    assert metrics["expected_mix_l1"] == pytest.approx(0, abs=1e-5)
    assert "epsilon_spent_max" not in metrics


def test_metrics_have_the_largest_and_mean_epsilon_spent() -> None:
    spent = np.array([[0.5], [1.5], [NAN]])
    roster = some_roster(range(3), 3, known={"label_mix": np.array(THREE), "epsilon_spent": spent})
    metrics = Dpcs(privacy=LabelPrivacy(epsilon=0.5)).extra_metrics(roster, np.array([0]))
    assert (metrics["epsilon_spent_max"], metrics["epsilon_spent_mean"]) == (1.5, 1.0)


def test_there_are_no_metrics_without_a_known_mix() -> None:
    assert Dpcs().extra_metrics(some_roster([0, 1], 2), np.array([0])) == {}
    assert Dpcs().extra_metrics(roster_with(THREE), np.array([], dtype=np.int64)) == {}


# --- configuration ---


def test_all_parameters_can_be_set_by_overrides() -> None:
    rule = with_overrides(
        Dpcs(),
        [
            "goal=[0.5, 0.25, 0.25]",
            "counter=window",
            "counter.size=50",
            "privacy.epsilon=0.5",
            "privacy.neighbours=add_remove",
            "privacy.min_change=0.1",
            "privacy.min_count=5",
            "ridge=0.01",
        ],
    )
    assert rule == Dpcs(
        goal=(0.5, 0.25, 0.25),
        counter=WindowCounter(50),
        privacy=LabelPrivacy(0.5, "add_remove", 0.1, 5),
        ridge=0.01,
    )
    assert from_dict(Dpcs, to_dict(rule)) == rule
    assert with_overrides(rule, ["ridge=none", "goal=mean", "privacy.epsilon=none"]).goal == "mean"


@pytest.mark.parametrize("goal", [(), (0.5, 0.6), (1.5, -0.5), (NAN, 1.0), [0.5, 0.5]])
def test_a_goal_that_is_not_a_distribution_is_rejected(goal: Any) -> None:
    with pytest.raises(ConfigError, match="goal must be one of uniform, mean, pooled_counts, or"):
        Dpcs(goal=goal)


def test_a_goal_for_another_number_of_classes_is_rejected() -> None:
    with pytest.raises(ConfigError, match="goal has 2 entries, but the data has 3 classes"):
        Dpcs(goal=(0.5, 0.5)).init_counts(3)
    supplies = Supplies(np.zeros(2), np.zeros(2, dtype=bool), np.zeros(2))
    Dpcs(goal=(0.5, 0.5)).check_world(supplies, num_classes=2)
    with pytest.raises(ConfigError, match="goal has 2 entries, but the data has 3 classes"):
        Dpcs(goal=(0.5, 0.5)).check_world(supplies, num_classes=3)
    with pytest.raises(ConfigError, match="goal has 2 entries, but the data has 3 classes"):
        Dpcs(goal=(0.5, 0.5)).choose(roster_with(THREE), np.random.default_rng(0))


def test_invalid_parameters_are_rejected() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'uniform'"):
        Dpcs(goal="unifrom")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="participation must lie in"):
        Dpcs(participation=0.0)
    with pytest.raises(ConfigError, match="mix must lie in"):
        Dpcs(mix=0.0)
    with pytest.raises(ConfigError, match=r"ridge must lie in \[0, inf\), or none"):
        Dpcs(ridge=-1.0)
    with pytest.raises(ConfigError, match="a ridge needs norm=l2"):
        Dpcs(norm="l1", ridge=0.1)
    with pytest.raises(UnknownName, match="Did you mean 'mix'"):
        Dpcs(fill="mixed")  # type: ignore[arg-type]


def test_parameters_at_the_ends_of_their_ranges_are_accepted() -> None:
    Dpcs(participation=1.0, mix=1.0, ridge=0.0)
    Dpcs(norm="l1", ridge=0.0)
    Dpcs(goal=(0.0, 1.0))
    Dpcs(goal=(0.5, 0.5000005))
    for field, value in (("participation", 1.01), ("mix", 1.01), ("ridge", float("inf"))):
        with pytest.raises(ConfigError, match=f"{field} must"):
            Dpcs(**{field: value})
    for goal in ((0.5, 0.500002), (0.5, 0.499998), (float("inf"), 0.0)):
        with pytest.raises(ConfigError, match="goal must be"):
            Dpcs(goal=goal)


# --- limits of the rules ---


def test_as_many_clients_with_data_as_places_are_drawn_with_equal_probabilities() -> None:
    # Any other weights than 1/2 each would be nearer to the goal; two of two are chosen anyway.
    assert probs(Dpcs(1.0, ridge=0.0), roster_with([[1, 0], [0.5, 0.5]])) == [0.5, 0.5]
    assert probs(Dpcs(0.5, ridge=0.0), roster_with([[1, 0], [0.6, 0.4]])) == [0.025, 0.975]


def test_filling_starts_below_two_positive_probabilities_even_for_one_place() -> None:
    one_best = roster_with([[0.6, 0.4], [0.9, 0.1], [0.7, 0.3]])
    assert probs(Dpcs(0.3, ridge=0.0), one_best) == [0.966667, 0.016667, 0.016667]
    two_best = roster_with([[1, 0], [0, 1], [0.9, 0.1], [0.1, 0.9]])
    exact = Dpcs(0.25, ridge=0.0, norm="l1").draw_probabilities(two_best)
    assert exact is not None
    assert exact.probs.min() == pytest.approx(0, abs=1e-9), "two positive ones are not mixed"


def test_strict_accepts_exactly_as_many_positive_probabilities_as_places() -> None:
    roster = roster_with([[0.6, 0.4]] * 2 + [[1, 0]] * 3)
    assert probs(Dpcs(0.4, fill="strict"), roster) == [0.5, 0.5, 0, 0, 0]
    assert chosen(Dpcs(0.4, fill="strict"), roster) == [0, 1]


def test_probabilities_are_none_without_a_report_of_a_present_client() -> None:
    assert Dpcs().draw_probabilities(some_roster([0, 1], 2)) is None
    assert Dpcs().draw_probabilities(roster_with([[1, 0], [0, 1]], present=[])) is None


def test_metrics_average_over_the_known_members_of_the_cohort() -> None:
    roster = roster_with([[1, 0], [0, 1], [0, 0]])
    metrics = Dpcs(ridge=0.0).extra_metrics(roster, np.array([0, 2]))
    assert metrics["cohort_mix"] == [1.0, 0.0], "client 2 has no data"
    assert metrics["cohort_mix_l1"] == pytest.approx(1.0)
    assert Dpcs().extra_metrics(roster, np.array([2])) == {}


def test_there_are_no_epsilon_metrics_without_noise_or_without_a_report_of_it() -> None:
    known = {"label_mix": np.array(THREE), "epsilon_spent": np.array([[0.5], [1.5], [NAN]])}
    roster = some_roster(range(3), 3, known=known)
    assert "epsilon_spent_max" not in Dpcs().extra_metrics(roster, np.array([0]))
    noisy = Dpcs(privacy=LabelPrivacy(epsilon=0.5))
    assert "epsilon_spent_max" not in noisy.extra_metrics(roster_with(THREE), np.array([0]))


# --- validation of uploads ---


def rejection(rule: Dpcs, num_classes: int | None = 2, **uploads: list[float]) -> str | None:
    """Return why a survey response is rejected; None: it is accepted."""
    vectors = {name: np.array(values) for name, values in uploads.items()}
    return rule.validate_claim(Claim(vectors, 10, 1, num_classes=num_classes))


def test_a_label_mix_must_sum_to_one_or_be_all_zero() -> None:
    assert rejection(Dpcs(), label_mix=[0.25, 0.75]) is None
    assert rejection(Dpcs(), label_mix=[0.0, 0.0]) is None
    assert rejection(Dpcs(), label_mix=[0.5, 0.5000005]) is None
    assert rejection(Dpcs(), label_mix=[0.5, 0.500002]) == "label_mix sums to 1, not to 1."
    assert rejection(Dpcs(), label_mix=[0.5, 0.3]) == "label_mix sums to 0.8, not to 1."
    assert rejection(Dpcs(), label_mix=[1.5, -0.5]) is not None
    assert "0 to 1" in str(rejection(Dpcs(), label_mix=[1.5, 0.0])), "no share exceeds one"
    assert rejection(Dpcs(), label_counts=[1.0, 1.0]) is not None, "label_mix is missing"


def test_label_counts_need_not_sum_to_one_and_are_at_most_ten_million() -> None:
    pooled = Dpcs(goal="pooled_counts")
    assert rejection(pooled, label_counts=[3.0, 9.0]) is None
    assert rejection(pooled, label_counts=[0.0, 1e7]) is None
    assert rejection(pooled, label_counts=[0.0, 1e7 + 1]) is not None
    assert rejection(pooled, label_counts=[-1.0, 9.0]) is not None
    assert rejection(pooled, label_mix=[0.5, 0.5]) is not None, "label_counts is missing"


def test_a_label_mix_must_have_one_share_per_class() -> None:
    assert rejection(Dpcs(), num_classes=3, label_mix=[0.5, 0.5]) is not None
    assert rejection(Dpcs(), num_classes=None, label_mix=[0.5, 0.5]) is None
    own_goal = Dpcs(goal=(0.2, 0.3, 0.5))
    assert rejection(own_goal, num_classes=None, label_mix=[0.5, 0.5]) is not None
    assert rejection(own_goal, num_classes=None, label_mix=[0.5, 0.5, 0.0]) is None


def test_epsilon_spent_is_one_number_that_is_not_negative() -> None:
    mix = [0.5, 0.5]
    assert rejection(Dpcs(), label_mix=mix, epsilon_spent=[0.0]) is None
    assert rejection(Dpcs(), label_mix=mix, epsilon_spent=[-0.1]) is not None
    assert rejection(Dpcs(), label_mix=mix, epsilon_spent=[0.5, 0.5]) is not None
    assert rejection(Dpcs(), label_mix=mix, epsilon_spent=[NAN]) is not None
