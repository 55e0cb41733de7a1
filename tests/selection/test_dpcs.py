from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from contracts.examples import some_roster
from contracts.labelled_context import some_context
from thalweg.core.capabilities import CountsLabels, ExtraMetrics, Surveys
from thalweg.core.config import from_dict, to_dict, with_overrides
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.core.types import Roster, Supplies
from thalweg.selection import CumulativeCounter, Dpcs, LabelPrivacy, WindowCounter

THREE = [[1, 0, 0], [0, 1, 0], [0.2, 0.3, 0.5]]
NAN = float("nan")


def heard(
    rows: Sequence[Sequence[float]], present: Sequence[int] | None = None, name: str = "label_mix"
) -> Roster:
    """A round in which everybody has said a row of numbers; nan: nothing."""
    known = {name: np.array(rows, dtype=np.float64)}
    return some_roster(range(len(rows)) if present is None else present, len(rows), known=known)


def probs(rule: Dpcs, roster: Roster) -> Any:
    chances = rule.draw_probabilities(roster)
    assert chances is not None
    return pytest.approx(chances.probs, abs=1e-6)


def chosen(rule: Dpcs, roster: Roster, seed: int = 0) -> list[int]:
    return [int(n) for n in rule.choose(roster, np.random.default_rng(seed))]


def often(rule: Dpcs, roster: Roster, rounds: int = 2000) -> Any:
    times = np.zeros(roster.num_clients)
    for seed in range(rounds):
        times[chosen(rule, roster, seed)] += 1
    return times / rounds


# --- probabilities ---


def test_the_worked_example_with_and_without_a_ridge() -> None:
    assert probs(Dpcs(ridge=0.0), heard(THREE)) == [0.2, 0.133333, 0.666667]
    assert probs(Dpcs(ridge=0.0, norm="l1"), heard(THREE)) == [0.2, 0.133333, 0.666667]
    assert probs(Dpcs(ridge=0.001), heard(THREE)) == [0.200568, 0.134102, 0.665330]


def test_clients_that_mirror_each_other_are_equally_likely() -> None:
    rows = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
    assert probs(Dpcs(), heard(rows)) == [1 / 3] * 3


def test_one_best_client_is_not_drawn_for_ever() -> None:
    rows = [[0.6, 0.4], [0.9, 0.1], [0.7, 0.3]]
    roster = heard(rows)
    # a = (1, 0, 0), mixed with 0.05 / 3 each.
    assert probs(Dpcs(ridge=0.0), roster) == [0.966667, 0.016667, 0.016667]
    assert probs(Dpcs(ridge=0.0, fill="strict"), roster) == [1, 0, 0]
    remark = Dpcs(ridge=0.0, fill="strict").extra_metrics(roster, np.array([0]))
    assert remark["expected_mix_l2"] == pytest.approx(0.141421, abs=1e-6)
    assert remark["expected_mix_l1"] == pytest.approx(0.2)


def test_a_goal_of_ones_own() -> None:
    roster = heard([[1, 0], [0, 1]])
    assert probs(Dpcs(goal=(0.25, 0.75), ridge=0.0), roster) == [0.25, 0.75]


def test_with_the_mean_as_goal_and_everybody_here_the_method_does_nothing() -> None:
    rows = [[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [1.0, 0.0]]
    assert probs(Dpcs(goal="mean"), heard(rows)) == [0.25] * 4


def test_the_mean_is_everybodys_also_of_those_who_are_away() -> None:
    # Of (1, 0), (0, 1), (0, 1), the mean is (1/3, 2/3); the third client is away.
    roster = heard([[1, 0], [0, 1], [0, 1], [NAN, NAN]], present=[0, 1, 3])
    assert probs(Dpcs(goal="mean", ridge=0.0), roster) == [1 / 3, 2 / 3]


def test_pooled_counts_weigh_clients_by_their_samples() -> None:
    # 3 + 9 samples of classes 0 and 1: the pool is (1/4, 3/4).
    roster = heard([[3, 0], [0, 9]], name="label_counts")
    assert probs(Dpcs(goal="pooled_counts", ridge=0.0), roster) == [0.25, 0.75]


# --- who is drawn ---


def test_a_share_of_the_clients_that_are_here() -> None:
    rows = np.eye(10)[np.arange(20) % 10].tolist()
    assert len(chosen(Dpcs(0.3), heard(rows))) == 6
    assert len(chosen(Dpcs(0.3), heard(rows, present=range(10)))) == 3
    assert len(chosen(Dpcs(0.01), heard(rows))) == 1


def test_a_client_without_data_or_word_cannot_be_drawn() -> None:
    roster = heard([[1, 0], [0, 0], [0, 1], [NAN, NAN], [0.5, 0.5], [0.5, 0.5]])
    for seed in range(50):
        assert set(chosen(Dpcs(0.5), roster, seed)) <= {0, 2, 4, 5}


def test_fewer_clients_with_data_than_wanted_means_all_of_them() -> None:
    roster = heard([[1, 0], [0, 0], [0, 1], [NAN, NAN]])
    assert chosen(Dpcs(0.75), roster) == [0, 2]


def test_if_nobody_has_data_the_draw_is_uniform_among_those_who_are_here() -> None:
    for roster in (
        some_roster([0, 2, 4, 5], 6),
        heard([[0, 0]] * 6, present=[0, 2, 4, 5]),
        heard([[NAN, NAN]] * 6, present=[0, 2, 4, 5]),
    ):
        times = often(Dpcs(0.5), roster, 1000)
        assert times[[1, 3]].tolist() == [0, 0]
        assert abs(times[[0, 2, 4, 5]] - 0.5).max() < 5 * 0.016


def test_rare_labels_take_part_more_often_than_under_uniform_drawing() -> None:
    # Class 1 is held by one client of five: a is 1/2 for that one and 1/8 for the others.
    roster = heard([[0, 1], [1, 0], [1, 0], [1, 0], [1, 0]])
    assert probs(Dpcs(0.2, ridge=1e-9), roster) == [0.5, 0.125, 0.125, 0.125, 0.125]
    assert often(Dpcs(0.2, ridge=1e-9), roster)[0] == pytest.approx(0.5, abs=5 * 0.0112)
    # Two places: one by one it takes part with 1/2 + 1/2 * (1/2) / (7/8) = 0.785714, ...
    assert often(Dpcs(0.4, ridge=1e-9), roster)[0] == pytest.approx(0.785714, abs=5 * 0.0092)
    # ... and systematically always, so that the cohort's labels are balanced every time.
    assert often(Dpcs(0.4, ridge=1e-9, draw="systematic"), roster, 50)[0] == 1.0


def test_what_happens_if_too_few_have_a_positive_probability() -> None:
    # The goal (1/2, 1/2) is out of reach; the two nearest clients share everything.
    roster = heard([[0.6, 0.4]] * 2 + [[1, 0]] * 3)
    sparse = Dpcs(0.6, fill="uniform_fill")
    assert probs(sparse, roster) == [0.5, 0.5, 0, 0, 0]
    times = often(sparse, roster, 600)
    assert times[:2].tolist() == [1, 1]
    assert abs(times[2:] - 1 / 3).max() < 5 * 0.02
    assert probs(Dpcs(0.6), roster) == [0.485, 0.485, 0.01, 0.01, 0.01]
    assert all(len(chosen(Dpcs(0.6), roster, seed)) == 3 for seed in range(50))
    assert probs(Dpcs(0.4), roster) == [0.5, 0.5, 0, 0, 0], "two of two: nothing is filled"
    with pytest.raises(ConfigError, match="needs 3 clients, but only 2 of 5 have a positive"):
        chosen(Dpcs(0.6, fill="strict"), roster)


# --- what is asked and answered ---


def answered(rule: Dpcs, labels: list[int], arrived: list[int] | None = None) -> Any:
    label_counts = rule.init_counts(3)
    if arrived is not None:
        label_counts = rule.count_labels(label_counts, np.array(arrived))
    _, uploads = rule.answer_survey(some_context(labels, label_counts=label_counts))
    return {name: vector.tolist() for name, vector in uploads.items()}


def test_everybody_who_is_here_is_asked_and_no_model_is_shown() -> None:
    rule = Dpcs()
    assert isinstance(rule, Surveys)
    assert isinstance(rule, CountsLabels)
    assert isinstance(rule, ExtraMetrics)
    assert not rule.sends_models
    assert rule.choose_surveyed(some_roster([1, 4], 6), np.random.default_rng(0)).tolist() == [1, 4]


def test_clients_say_frequencies_and_counts_only_where_the_goal_needs_them() -> None:
    assert answered(Dpcs(), [0, 0, 2, 2]) == {"label_mix": [0.5, 0.0, 0.5]}
    assert answered(Dpcs(goal="pooled_counts"), [0, 0, 2, 2]) == {"label_counts": [2.0, 0.0, 2.0]}
    assert answered(Dpcs(), []) == {"label_mix": [0.0, 0.0, 0.0]}


def test_the_counter_decides_what_is_counted() -> None:
    arrived = [0, 0, 0, 1, 2]
    assert answered(Dpcs(), [2], arrived)["label_mix"] == [0, 0, 1]
    assert answered(Dpcs(counter=CumulativeCounter()), [2], arrived)["label_mix"] == [0.6, 0.2, 0.2]
    assert answered(Dpcs(counter=WindowCounter(2)), [2], arrived)["label_mix"] == [0, 0.5, 0.5]


def test_noise_is_paid_for_and_the_bill_is_sent_along() -> None:
    rule = Dpcs(privacy=LabelPrivacy(epsilon=0.5))
    label_counts = rule.init_counts(3)
    for looks in (1, 2, 3):
        label_counts, uploads = rule.answer_survey(
            some_context([0, 0, 2], label_counts=label_counts, seed=looks)
        )
        assert uploads["epsilon_spent"].tolist() == [0.5 * looks]
        assert uploads["label_mix"].sum() == pytest.approx(1.0)
        assert uploads["label_mix"].tolist() != [2 / 3, 0, 1 / 3]
    assert "epsilon_spent" not in answered(Dpcs(), [0])


def test_disjoint_windows_are_paid_for_once() -> None:
    rule = Dpcs(counter=WindowCounter(4), privacy=LabelPrivacy(epsilon=0.5))
    label_counts = rule.init_counts(3)
    for _ in range(3):
        label_counts = rule.count_labels(label_counts, np.array([0, 1, 2, 2]))
        label_counts, uploads = rule.answer_survey(some_context([], label_counts=label_counts))
    assert uploads["epsilon_spent"].tolist() == [0.5]


def test_a_client_that_says_nothing_still_remembers_what_it_spent() -> None:
    rule = Dpcs(privacy=LabelPrivacy(epsilon=1.0, min_count=1000))
    label_counts, uploads = rule.answer_survey(
        some_context([0, 1], label_counts=rule.init_counts(3))
    )
    assert uploads == {}
    assert label_counts.account.spent == 1.0


# --- remarks ---


def test_the_remark_tells_the_mix_of_the_cohort_and_how_far_it_is_from_the_goal() -> None:
    remark = Dpcs(ridge=0.0).extra_metrics(heard(THREE), np.array([0, 2]))
    assert remark["cohort_mix"] == pytest.approx([0.6, 0.15, 0.25])
    # Minus a third each: 0.266667, -0.183333, -0.083333.
    assert remark["cohort_mix_l1"] == pytest.approx(0.533333, abs=1e-6)
    assert remark["cohort_mix_l2"] == pytest.approx(0.334166, abs=1e-6)
    assert remark["expected_mix_l1"] == pytest.approx(0, abs=1e-5)
    assert "epsilon_spent_max" not in remark


def test_the_remark_tells_the_largest_bill_and_the_mean() -> None:
    spent = np.array([[0.5], [1.5], [NAN]])
    roster = some_roster(range(3), 3, known={"label_mix": np.array(THREE), "epsilon_spent": spent})
    remark = Dpcs(privacy=LabelPrivacy(epsilon=0.5)).extra_metrics(roster, np.array([0]))
    assert (remark["epsilon_spent_max"], remark["epsilon_spent_mean"]) == (1.5, 1.0)


def test_nothing_is_remarked_if_nothing_is_known() -> None:
    assert Dpcs().extra_metrics(some_roster([0, 1], 2), np.array([0])) == {}
    assert Dpcs().extra_metrics(heard(THREE), np.array([], dtype=np.int64)) == {}


# --- configuration ---


def test_every_setting_is_within_reach_of_an_override() -> None:
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
def test_a_goal_that_is_no_distribution_is_refused(goal: Any) -> None:
    with pytest.raises(ConfigError, match="goal must be one of uniform, mean, pooled_counts, or"):
        Dpcs(goal=goal)


def test_a_goal_for_another_number_of_classes_is_refused_before_the_first_round() -> None:
    with pytest.raises(ConfigError, match="goal has 2 entries, but the data has 3 classes"):
        Dpcs(goal=(0.5, 0.5)).init_counts(3)
    nothing = Supplies(np.zeros(2), np.zeros(2, dtype=bool), np.zeros(2))
    Dpcs(goal=(0.5, 0.5)).check_world(nothing, num_classes=2)
    with pytest.raises(ConfigError, match="goal has 2 entries, but the data has 3 classes"):
        Dpcs(goal=(0.5, 0.5)).check_world(nothing, num_classes=3)
    with pytest.raises(ConfigError, match="goal has 2 entries, but the data has 3 classes"):
        Dpcs(goal=(0.5, 0.5)).choose(heard(THREE), np.random.default_rng(0))


def test_other_slips_are_refused() -> None:
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
