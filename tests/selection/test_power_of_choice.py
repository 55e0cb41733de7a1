from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contracts.examples import some_roster
from contracts.labelled_context import some_context
from thalweg.core.capabilities import Surveys
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.core.types import Roster
from thalweg.selection import PowerOfChoice

NAN = float("nan")


def answered(losses: dict[int, float], num_clients: int, present: Any = None) -> Roster:
    """Return a roster in which some clients were surveyed and reported a loss."""
    column = np.full((num_clients, 1), NAN)
    column[list(losses), 0] = list(losses.values())
    roster = some_roster(
        range(num_clients) if present is None else present,
        num_clients,
        known={"candidate_loss": column},
    )
    return replace(roster, surveyed=np.array(sorted(losses), dtype=np.int64))


def chosen(rule: PowerOfChoice, roster: Roster, seed: int = 0) -> list[int]:
    return [int(n) for n in rule.choose(roster, np.random.default_rng(seed))]


def asked(rule: PowerOfChoice, roster: Roster, seed: int = 0) -> list[int]:
    return [int(n) for n in rule.choose_surveyed(roster, np.random.default_rng(seed))]


def test_the_candidates_with_the_largest_losses_are_chosen() -> None:
    roster = answered({0: 0.9, 2: 1.4, 3: 0.2, 5: 1.1}, 6)
    assert chosen(PowerOfChoice(participation=2 / 6), roster) == [2, 5]


def test_only_the_surveyed_clients_of_this_round_are_candidates() -> None:
    roster = answered({n: 10.0 - n for n in range(6)}, 6)
    roster = replace(roster, surveyed=np.array([3, 4, 5]))
    assert chosen(PowerOfChoice(participation=2 / 6), roster) == [3, 4]


def test_ties_are_broken_at_random() -> None:
    roster = answered({0: 1.0, 1: 2.0, 2: 1.0, 3: 1.0}, 4)
    times = np.zeros(4)
    for seed in range(900):
        times[chosen(PowerOfChoice(participation=0.5), roster, seed)] += 1
    assert times[1] == 900
    assert abs(times[[0, 2, 3]] - 300).max() < 5 * 14.1


def test_a_candidate_without_data_ranks_last() -> None:
    label_counts, uploads = PowerOfChoice().answer_survey(some_context([]))
    assert label_counts is None
    no_data = uploads["candidate_loss"][0]
    assert np.isfinite(no_data), "an upload is a finite number"
    roster = answered({0: no_data, 1: 0.0, 2: no_data, 3: 0.0}, 4)
    assert all(chosen(PowerOfChoice(participation=0.5), roster, s) == [1, 3] for s in range(20))


def test_twice_the_cohort_is_surveyed_by_default() -> None:
    roster = some_roster(range(20), 20)
    assert len(asked(PowerOfChoice(0.3), roster)) == 12
    assert len(asked(PowerOfChoice(0.3, candidates=8), roster)) == 8
    assert len(asked(PowerOfChoice(0.3, candidates=2), roster)) == 6, "at least the cohort"
    assert len(asked(PowerOfChoice(0.3, candidates=99), roster)) == 20, (
        "at most all present clients"
    )
    assert len(asked(PowerOfChoice(0.8), roster)) == 20


def test_candidates_are_drawn_in_proportion_to_their_samples() -> None:
    known = {"num_samples": np.array([10.0, 30.0, 0.0, NAN])}
    times = np.zeros(4)
    for seed in range(4000):
        rule = PowerOfChoice(0.25, candidates=1)
        times[asked(rule, some_roster(range(4), 4, known=known), seed)] += 1
    # No samples count as one; an unknown number, as the mean (10 + 30 + 0) / 3.
    expected = 4000 * np.array([10, 30, 1, 40 / 3]) / (41 + 40 / 3)
    assert (abs(times - expected) < 5 * np.sqrt(expected)).all()


def test_large_reported_sizes_count_as_the_median_if_they_are_limited() -> None:
    roster = some_roster(range(5), 5, known={"num_samples": np.array([1e6, 9.0, 10.0, 10.0, 20.0])})
    for max_size, expected in ((None, 400), (1.0, 80)):
        rule = PowerOfChoice(participation=0.2, candidates=1, max_size=max_size)
        drawn = sum(asked(rule, roster, seed) == [0] for seed in range(400))
        assert abs(drawn - expected) < 25, "one of five clients with the limit"
    with pytest.raises(ConfigError, match="max_size must"):
        PowerOfChoice(max_size=0.5)


def test_without_known_sizes_candidates_are_drawn_uniformly() -> None:
    times = np.zeros(5)
    for seed in range(2000):
        times[asked(PowerOfChoice(0.2, candidates=2), some_roster([0, 1, 3, 4], 5), seed)] += 1
    assert times[2] == 0
    assert abs(times[[0, 1, 3, 4]] - 1000).max() < 5 * 22.4


def test_a_candidate_reports_its_mean_loss_over_its_memory() -> None:
    context = some_context([0, 1, 2], losses=[1.0, 2.0, 6.0])
    _, uploads = PowerOfChoice(batch=2).answer_survey(context)
    assert uploads["candidate_loss"].tolist() == [3.0]
    assert context.model.asked == [[0, 1, 2]]


def test_a_candidate_reports_how_much_new_samples_change_its_loss() -> None:
    rule = PowerOfChoice(measure_change=True)
    context = replace(some_context([0, 1, 2, 0], losses=[1.0, 2.0, 3.0, 6.0]), num_held=3)
    _, uploads = rule.answer_survey(context)
    assert uploads["candidate_loss"].tolist() == [2.0]
    assert uploads["candidate_loss_change"].tolist() == [0.5]  # from 2 to 12 / 4
    _, uploads = rule.answer_survey(replace(context, capacity=3))  # the oldest sample is dropped
    assert uploads["candidate_loss_change"].tolist() == pytest.approx([(11 / 3 - 2) / 2])
    _, uploads = rule.answer_survey(some_context([0, 1, 2], losses=[1.0, 2.0, 6.0]))
    assert uploads["candidate_loss_change"].tolist() == [0.0], "nothing arrives"
    assert "candidate_loss_change" not in PowerOfChoice().answer_survey(context)[1]
    assert "candidate_loss_change" not in rule.answer_survey(some_context([]))[1], "no memory"


def test_the_change_of_the_loss_is_a_mean_over_the_candidates() -> None:
    rule = PowerOfChoice(measure_change=True)
    roster = some_roster(
        range(4), 4, known={"candidate_loss_change": np.array([[0.2], [9.0], [0.4], [NAN]])}
    )
    roster = replace(roster, surveyed=np.array([0, 2, 3]))
    assert rule.extra_metrics(roster, np.array([0])) == {"loss_change": pytest.approx(0.3)}
    assert PowerOfChoice().extra_metrics(roster, np.array([0])) == {}


def test_cpow_d_uses_one_mini_batch() -> None:
    context = some_context([0] * 10, losses=list(range(10)))
    _, uploads = PowerOfChoice(form="cpow-d", batch=4).answer_survey(context)
    (rows,) = context.model.asked
    assert len(set(rows)) == 4
    assert uploads["candidate_loss"].tolist() == [np.mean(rows)]
    _, few = PowerOfChoice(form="cpow-d", batch=64).answer_survey(
        some_context([0, 0], losses=[1.0, 2.0])
    )
    assert few["candidate_loss"].tolist() == [1.5]


def test_rpow_d_surveys_no_client_and_uses_the_last_training_loss() -> None:
    rule = PowerOfChoice(0.4, candidates=5, form="rpow-d")
    known = {
        "loss": np.array([0.5, 2.0, NAN, 1.0, 9.0]),
        "num_samples": np.array([5.0, 5.0, NAN, 5.0, 0.0]),
    }
    roster = some_roster(range(5), 5, known=known)
    assert isinstance(rule, Surveys)
    assert asked(rule, roster) == []
    assert not rule.sends_models
    # Client 2 never reported a loss and ranks first; client 4 had no data and ranks last.
    assert chosen(rule, replace(roster, surveyed=np.array([], dtype=np.int64))) == [1, 2]
    without_client_2 = replace(roster, present=np.array([0, 1, 3, 4]))
    assert chosen(PowerOfChoice(0.75, candidates=4, form="rpow-d"), without_client_2) == [0, 1, 3]


def test_pow_d_and_cpow_d_send_the_model() -> None:
    assert PowerOfChoice().sends_models
    assert PowerOfChoice(form="cpow-d").sends_models


def test_as_many_candidates_as_places_gives_random_sampling() -> None:
    losses = np.array([9.0, 1.0, 1.0, 1.0])
    rule, times = PowerOfChoice(0.5, candidates=2), np.zeros(4)
    for seed in range(1000):
        surveyed = asked(rule, some_roster(range(4), 4), seed)
        times[chosen(rule, answered({n: losses[n] for n in surveyed}, 4), seed)] += 1
    assert abs(times - 500).max() < 5 * 15.8


def test_invalid_parameters_are_rejected() -> None:
    with pytest.raises(ConfigError, match="participation must lie in"):
        PowerOfChoice(participation=1.2)
    with pytest.raises(ConfigError, match="candidates must be at least 1, or none"):
        PowerOfChoice(candidates=0)
    with pytest.raises(ConfigError, match="batch must be at least 1"):
        PowerOfChoice(batch=0)
    with pytest.raises(ConfigError, match="set form=pow-d, got form=rpow-d"):
        PowerOfChoice(form="rpow-d", measure_change=True)
    with pytest.raises(UnknownName, match="Did you mean 'pow-d'"):
        PowerOfChoice(form="powd")  # type: ignore[arg-type]
