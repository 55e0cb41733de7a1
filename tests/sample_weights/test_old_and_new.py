from dataclasses import replace

import numpy as np
import pytest

import thalweg
from contracts.examples import some_roster
from contracts.survey_contexts import FakeSurveyContext
from thalweg.core.errors import ConfigError
from thalweg.core.types import SampleAges, Supplies
from thalweg.sample_weights import OldAndNew
from thalweg.sample_weights.old_and_new import BOUNDS


def roster(total, historical, rounds=None, known=None, present=(0, 1, 2, 3)):
    rounds = [10.0] * len(total) if rounds is None else rounds
    supplies = Supplies(np.array(total, float), np.array(historical), np.array(rounds, float))
    return replace(some_roster(present, len(total)), supplies=supplies, known=known or {})


ROSTER = roster([10, 30, 30, 30], [True, True, False, False])


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (0.4, [0.25, 0.75, 0, 0]),
        (0.6, [0.186603, 0.559808, 0.126795, 0.126795]),
        (1.0, [0.145227, 0.435680, 0.209547, 0.209547]),
    ],
)
def test_strategy_ours_minimises_the_bound(ratio, expected):
    assigned = OldAndNew(ratio=ratio).assign_weights(ROSTER, num_params=21)
    np.testing.assert_allclose(10 * assigned, expected, atol=1e-6)  # over ten rounds


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (OldAndNew("uniform"), [0.1, 0.3, 0.3, 0.3]),
        (OldAndNew("historical"), [0.25, 0.75, 0, 0]),
        (OldAndNew("fresh"), [0, 0, 0.5, 0.5]),
        (OldAndNew("mass", mass=0.2), [0.05, 0.15, 0.4, 0.4]),
    ],
)
def test_the_other_strategies_weigh_clients_by_size(policy, expected):
    np.testing.assert_allclose(10 * policy.assign_weights(ROSTER, 21), expected, atol=1e-12)


def test_strategy_uniform_counts_every_sample_of_the_run_the_same():
    # Two historical clients of 50 samples for ten rounds, a fresh one with 20 a round: a third of
    # the weight for the first two.
    present = roster([50, 50, 200], [True, True, False], present=(0, 1, 2))
    assigned = OldAndNew("uniform").assign_weights(present, 21)
    np.testing.assert_allclose(assigned[:2].sum() / assigned.sum(), 1 / 3)


def test_sample_weights_are_importance_over_memory_size():
    # Memories of 100, 100 and 20 with p = (.25, .25, .5) weigh 1 : 1 : 10 a sample.
    def each(held, assigned):
        return OldAndNew().weigh(SampleAges(np.ones(held, int), np.zeros(held, int), assigned))[0]

    assert each(20, 0.5) / each(100, 0.25) == pytest.approx(10)


def test_the_importance_is_spread_over_the_rounds_of_presence():
    short = roster([50, 50], [False, False], rounds=[10, 1], present=(0, 1))
    assigned = OldAndNew("uniform").assign_weights(short, 21)
    assert assigned[1] == pytest.approx(10 * assigned[0])


def test_historical_clients_are_surveyed_once_if_the_ratio_is_unknown():
    rng = np.random.default_rng(0)
    assert OldAndNew().choose_surveyed(ROSTER, rng).tolist() == [0, 1]
    assert OldAndNew(ratio=0.1).choose_surveyed(ROSTER, rng).tolist() == []
    assert OldAndNew("uniform").choose_surveyed(ROSTER, rng).tolist() == []
    answered = replace(ROSTER, known={BOUNDS: np.zeros((4, 3))})
    assert OldAndNew().choose_surveyed(answered, rng).tolist() == []


def test_a_client_reports_distance_gradient_norm_and_loss():
    # Each step of the probe shrinks its parameters, which are their own gradient, by a tenth.
    _, uploads = OldAndNew(steps=2).answer_survey(FakeSurveyContext(lr=0.1))
    length = np.sqrt(5)  # of (1, 2)
    distance, max_gradient, max_loss = uploads[BOUNDS]
    assert distance == pytest.approx(0.19 * length, rel=1e-6)
    assert max_gradient == pytest.approx(length)
    assert max_loss == pytest.approx(FakeSurveyContext().probe_model().loss)
    assert OldAndNew().answer_survey(FakeSurveyContext(has_data=False)) == (None, {})


def test_the_learning_rate_of_the_survey_can_differ_from_that_of_training():
    _, uploads = OldAndNew(steps=1, lr=0.3).answer_survey(FakeSurveyContext(lr=0.1))
    assert uploads[BOUNDS][0] == pytest.approx(0.3 * np.sqrt(5), rel=1e-6)  # three tenths


@pytest.mark.parametrize("recipe", ["stream-historical", "stream-fresh"])
def test_clients_of_weight_zero_are_not_contacted_and_results_are_equal(recipe, monkeypatch):
    def run():
        return thalweg.run(recipe, "streams-synthetic", rounds=3, overrides=["prequential=0"])

    few = run()
    monkeypatch.setattr(OldAndNew, "skips_unweighted", False)
    everyone = run()
    assert few.model.tobytes() == everyone.model.tobytes()
    assert {row["cohort"] for row in everyone.metrics} == {11}
    assert {row["cohort"] for row in few.metrics} == {10 if recipe == "stream-historical" else 1}
    assert few.metrics[0]["bytes_down"] < everyone.metrics[0]["bytes_down"]
    assert few.metrics[0]["bytes_up"] < everyone.metrics[0]["bytes_up"]


def test_the_ratio_is_estimated_from_the_largest_reports():
    # (B + sqrt(d/N)) / (G D sqrt(fresh)) with two fresh clients.
    bounds = np.full((4, 3), np.nan)
    bounds[0], bounds[1] = (1.0, 0.5, 2.0), (0.5, 1.0, 1.0)
    known = replace(ROSTER, known={BOUNDS: bounds})
    ratio = (2.0 + np.sqrt(21 / 100)) / (1.0 * 1.0 * np.sqrt(2))
    expected = OldAndNew(ratio=ratio).assign_weights(ROSTER, 21)
    np.testing.assert_allclose(OldAndNew().assign_weights(known, 21), expected)


def test_before_the_survey_clients_are_weighted_by_size():
    np.testing.assert_allclose(10 * OldAndNew().assign_weights(ROSTER, 21), [0.1, 0.3, 0.3, 0.3])


def test_the_bound_counts_fresh_clients_present_at_the_same_time():
    # 100 fresh clients, each here for one round of ten: ten at once, so that stored data win at a
    # ratio at which 100 at once would have a share.
    total, historical = [20.0] + [0.8] * 100, [True] + [False] * 100
    present = roster(total, historical, rounds=[10.0] + [1.0] * 100, present=range(101))
    for policy, expected in (
        (OldAndNew(ratio=0.1), 1.0),
        (OldAndNew(ratio=0.1, fresh_clients="all"), 0.4),
    ):
        assigned = policy.assign_weights(present, 21) * present.supplies.rounds
        assert assigned[0] / assigned.sum() == pytest.approx(expected, abs=0.2)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"ratio": 0.0}, "ratio must be positive"),
        ({"strategy": "mass"}, "strategy=mass needs a mass"),
        ({"mass": 0.5}, "strategy=mass needs a mass"),
        ({"strategy": "mass", "mass": 1.5}, r"mass must lie in \[0, 1\]"),
        ({"fraction": 0.0}, "fraction must lie"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"lr": 0.0}, "lr must be positive"),
        ({"strategy": "best"}, "strategy"),
    ],
)
def test_invalid_parameters_are_rejected(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        OldAndNew(**kwargs)


def test_a_roster_without_supplies_is_rejected():
    with pytest.raises(ConfigError, match="does not provide it"):
        OldAndNew("uniform").assign_weights(some_roster([0], 2), 21)


def test_a_run_without_samples_is_rejected():
    with pytest.raises(ConfigError, match="no client will ever have a sample"):
        OldAndNew("uniform").assign_weights(roster([0, 0], [True, False], present=(0,)), 21)


def test_without_fresh_clients_weights_are_by_size():
    stored = roster([10, 30], [True, True], present=(0, 1))
    np.testing.assert_allclose(10 * OldAndNew(ratio=0.5).assign_weights(stored, 21), [0.25, 0.75])


@pytest.mark.parametrize(
    ("policy", "total", "historical"),
    [
        (OldAndNew("historical"), [5, 5], [False, False]),
        (OldAndNew("historical"), [0, 5], [True, False]),  # stored, but nothing
        (OldAndNew("fresh"), [5, 5], [True, True]),
        (OldAndNew("mass", mass=0.3), [5, 5], [True, True]),
        (OldAndNew("mass", mass=0.3), [5, 5], [False, False]),
    ],
)
def test_a_fixed_share_for_a_missing_group_is_rejected(policy, total, historical):
    supplies = roster(total, historical, present=(0, 1)).supplies
    with pytest.raises(ConfigError, match=r"of the run to clients with .* none.*ours or uniform"):
        policy.check_world(supplies, 10)


def test_strategies_without_a_share_for_a_missing_group_fit():
    streaming = roster([5, 5], [False, False], present=(0, 1)).supplies
    for policy in (
        OldAndNew(),
        OldAndNew("uniform"),
        OldAndNew("mass", mass=0.0),
        OldAndNew("fresh"),
    ):
        policy.check_world(streaming, 10)
    both = roster([5, 5], [True, False], present=(0, 1)).supplies
    for policy in (OldAndNew("historical"), OldAndNew("fresh"), OldAndNew("mass", mass=0.3)):
        policy.check_world(both, 10)
