"""Session starts that the clients choose among candidate models."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from contracts.session_start import fail_probe_round, vector
from thalweg.core.claims import Claim
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Roster
from thalweg.sessions import Judged
from thalweg.sessions.judged import LATEST, LOSSES, MAX_LOSS, MEAN, PILOT, JudgedState

A, B, C = 0.0, 10.0, 30.0  # distributions, by the model that suits them


def losses_at(goal: float, candidates: Any) -> Floats:
    """Return the losses of two clients: the distance to their distribution, and a little more."""
    distance = np.abs(candidates[:, 0] - goal)
    return np.stack([distance + 0.1, distance + 0.2])


def play(rule: Judged, goals: list[float], step: float = 0.9) -> tuple[JudgedState, list[float]]:
    """Run sessions whose clients move the model towards their goal; return the first models."""
    state, last, starts = rule.init(vector(5), []), vector(5), []
    for goal in goals:
        state, candidates = rule.propose_models(state, last)
        losses = losses_at(goal, candidates) if len(candidates) > 1 else np.empty((0, 1))
        state, start = rule.choose_model(state, candidates, losses)
        starts.append(float(start[0]))
        last = start + np.float32(step) * (np.float32(goal) - start)
    return state, starts


def test_candidates_are_the_latest_model_the_stored_ones_their_mean_and_the_pilot() -> None:
    rule = Judged(history=2)
    state = rule.init(vector(0), [])
    for last, names, values in (
        (0, [LATEST], [0]),  # the initial model
        (6, [LATEST], [6]),  # the pilot is the latest model
        (2, [LATEST, "session 0", MEAN], [2, 6, 4]),
        (4, [LATEST, "session 1", MEAN, PILOT], [4, 2, 3, 6]),
    ):
        state, candidates = rule.propose_models(state, vector(last))
        assert (state.names, candidates.ravel().tolist()) == (names, values)
        state, _ = rule.choose_model(state, candidates, np.empty((0, len(candidates))))


def test_pilot_is_the_mean_of_the_pilot_sessions() -> None:
    rule = Judged(pilot_sessions=2)
    state = rule.init(vector(0), [])
    for last in (0, 6, 2):
        state, candidates = rule.propose_models(state, vector(last))
    assert state.pilot.tolist() == [4]
    assert state.names == [LATEST, "session 0", MEAN], "the pilot is the mean"
    state, candidates = rule.propose_models(state, vector(7))
    assert state.names == [LATEST, "session 0", "session 1", MEAN, PILOT]
    assert candidates.ravel().tolist() == [7, 6, 2, 5, 4]


def test_lowest_mean_loss_wins_and_ties_go_to_the_latest_model() -> None:
    rule = Judged(pilot_sessions=0)
    state = rule.init(vector(0), [])
    for last in (0, 8, 2):
        state, candidates = rule.propose_models(state, vector(last))
    losses = np.array([[3.0, 1.0, 9.0], [3.0, 4.0, 0.0]])  # means 3, 2.5, 4.5
    assert rule.choose_model(state, candidates, losses)[1].tolist() == [8]
    assert rule.choose_model(state, candidates, np.ones((1, 3)))[1].tolist() == [2]


@pytest.mark.parametrize("losses", [np.empty((0, 3)), np.full((2, 3), np.nan)], ids=["none", "nan"])
def test_without_responses_the_latest_model_is_chosen(losses: Floats) -> None:
    rule = Judged(pilot_sessions=0)
    state = rule.init(vector(0), [])
    for last in (0, 8, 2):
        state, candidates = rule.propose_models(state, vector(last))
    after, start = rule.choose_model(state, candidates, losses)
    assert start.tolist() == [2]
    (decision,) = rule.extra_metrics(after)["decisions"]
    assert decision["reason"] == "no client evaluated the 3 candidates"
    row = np.array([[np.inf, 1.0, 2.0], [0.5, 3.0, 1.0]])  # the first client does not count
    assert rule.choose_model(state, candidates, row)[1].tolist() == [2]


def test_returning_clients_get_their_model_back() -> None:
    _, starts = play(Judged(), [A, B, A, B])
    # Sessions end at 0.5, 9.05, 0.05 and 9.905.
    assert starts == pytest.approx([5, 0.5, 0.5, 9.05])


def test_store_keeps_one_model_per_distribution() -> None:
    state, _ = play(Judged(), [A, B, A, B])
    assert state.numbers.tolist() == [0, 1, 2], "the final model of A was added"
    state, _ = play(Judged(), [A, B, A, B, A])
    assert state.numbers.tolist() == [1, 2, 3], "session 2 is as good as 0 for these clients"
    state, starts = play(Judged(), [A, B] * 20)
    assert len(state.models) == 2
    assert starts[-2:] == pytest.approx([A, B])


def test_clients_of_a_new_distribution_replace_no_model() -> None:
    state, starts = play(Judged(), [A, B, A, B, A, B, C, A, B, C])
    assert starts[-3:] == pytest.approx([A, B, C], abs=3.1)
    assert len(state.models) <= 4
    assert sorted(round(float(model[0]) / 10) for model in state.models)[-1] == 3


def test_models_that_no_client_finds_good_are_not_merged() -> None:
    rule = Judged(pilot_sessions=0)
    state = rule.init(vector(0), [])
    for last in (0, 8, 2):
        state, candidates = rule.propose_models(state, vector(last))
    after, _ = rule.choose_model(state, candidates, np.array([[5.0, 5.1, 5.05]]))
    assert (len(after.models), after.same) == (2, -1), "the largest is not twice the smallest"
    after, _ = rule.choose_model(state, candidates, np.array([[1.0, 1.1, 5.0]]))
    assert (after.numbers.tolist(), after.same) == ([1], 0), "within 0.4 of the smallest"
    assert after.home_losses.tolist() == [1.0]


def test_the_model_that_was_unused_for_most_sessions_is_dropped() -> None:
    rule = Judged(history=2, pilot_sessions=0)
    state = rule.init(vector(0), [])
    for last in (0, 8, 2):
        state, candidates = rule.propose_models(state, vector(last))
    state, _ = rule.choose_model(state, candidates, np.array([[3.0, 1.0, 2.5]]))  # session 0 wins
    state, candidates = rule.propose_models(state, vector(9))
    assert state.names == [LATEST, "session 0", MEAN], "session 1 was used before session 0"


def test_a_session_of_several_models_is_skipped() -> None:
    rule = Judged()
    state, _ = play(rule, [A, B, A, B, A])
    assert state.same >= 0
    skipped = rule.skip_session(state)
    assert (skipped.same, skipped.sessions) == (-1, state.sessions + 1)
    assert rule.extra_metrics(skipped) == {}
    following, _ = rule.propose_models(skipped, vector(7))
    assert len(following.models) == len(state.models) + 1, "its final model replaces no other"


def test_metrics_record_candidates_losses_and_the_decision() -> None:
    rule = Judged(pilot_sessions=0)
    state = rule.init(vector(0), [])
    for last in (0, 8, 2):
        state, candidates = rule.propose_models(state, vector(last))
    state, _ = rule.choose_model(state, candidates, np.array([[3.0, 1.0, 9.0], [3.0, 4.0, 0.0]]))
    found = rule.extra_metrics(state)
    assert found["judged"] == {
        "candidates": [LATEST, "session 0", MEAN],
        "losses": [3.0, 2.5, 4.5],
        "chosen": "session 0",
        "clients": 2,
        "stored": 2,
    }
    assert found["decisions"] == [
        {
            "what": "choose-start",
            "reason": "the loss of the final model of session 0 at 2 clients, 2.5, is the lowest "
            "of 3 candidates (latest model: 3)",
            "candidate": "the final model of session 0",
            "clients": 2,
            "loss": 2.5,
            "latest_loss": 3.0,
        }
    ]


def test_a_lying_judge_chooses_among_models_of_the_run_only() -> None:
    """The losses of two judges are 0.1 and 2 or more; the third one reverses them."""
    rule = Judged(pilot_sessions=0)
    state = rule.init(vector(0), [])
    for last in (0.0, 8.0, 2.0):
        state, candidates = rule.propose_models(state, vector(last))
    honest = np.array([[0.1, 2.0, 3.0]] * 2)
    for lie in ([23.0, 0.0, 23.0], [23.0, 23.0, 0.0]):
        _, start = rule.choose_model(state, candidates, np.vstack([honest, lie]))
        assert start.tolist() == candidates[np.argmin(lie)].tolist()
    assert {float(each) for each in candidates[:, 0]} == {2.0, 8.0, 5.0}


def test_without_a_survey_it_starts_with_the_latest_model() -> None:
    rule = Judged()
    state = rule.init(vector(0), [])
    for last in (0, 8, 2):
        state, start = rule.choose_start(state, vector(last), fail_probe_round)
        assert start.tolist() == [last]


def test_models_of_another_net_are_rejected() -> None:
    rule = Judged()
    state, _ = play(rule, [A, B])
    with pytest.raises(ConfigError, match="expected a model with 1 parameters"):
        rule.propose_models(state, vector(1, 2))


# The survey


def roster(cohort: Any) -> Roster:
    numbers = np.zeros(40, dtype=np.int64)
    return Roster(0, np.arange(40), np.ones(40), numbers, cohort=cohort)


def test_at_most_some_clients_of_the_cohort_are_surveyed() -> None:
    cohort, rng = np.arange(5, 25), np.random.default_rng(0)
    judges = Judged(judges=3).choose_surveyed(roster(cohort), rng)
    assert len(judges) == 3
    assert (np.diff(judges) > 0).all()
    assert np.isin(judges, cohort).all()
    assert Judged(judges=None).choose_surveyed(roster(cohort), rng) is cohort
    assert Judged(judges=20).choose_surveyed(roster(cohort), rng) is cohort


class FakeProbe:
    """The loss of a row is the row number times the factor of the model."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def losses(self, rows: Any) -> Any:
        return (self.factor * rows).astype(np.float32)


def view(held: list[int], newest: list[int], factors: list[float]) -> Any:
    return SimpleNamespace(
        held=np.array(held, dtype=np.int64),
        newest=np.array(newest, dtype=np.int64),
        num_models=len(factors),
        probe_model=lambda model: FakeProbe(factors[model]),
    )


def test_memory_and_newest_samples_have_the_same_weight() -> None:
    _, response = Judged().answer_survey(view([1, 2, 3], [10], [1.0, 0.5]))
    assert response[LOSSES].tolist() == [6.0, 3.0]  # (2 + 10) / 2
    _, response = Judged().answer_survey(view([], [10], [1.0]))
    assert response[LOSSES].tolist() == [10.0]
    assert Judged().answer_survey(view([], [], [1.0]))[1] == {}


def test_losses_that_are_not_finite_are_large() -> None:
    _, response = Judged().answer_survey(view([1], [1], [np.inf, np.nan, 1e30, 1.0]))
    assert response[LOSSES].tolist() == [MAX_LOSS, MAX_LOSS, MAX_LOSS, 1.0]


def test_a_response_has_one_loss_per_candidate() -> None:
    def reason(*losses: float) -> str | None:
        claim = Claim({LOSSES: np.array(losses)}, 7, 2, is_survey_response=True)
        return Judged().validate_claim(claim)

    assert reason(0.5, 1.0) is None
    assert reason(0.5) == "candidate_losses has 1 numbers, not 2."
    assert reason(-1.0, 0.5) == (
        "candidate_losses goes from -1 to 0.5, but only 0 to inf is possible."
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"judges": 0}, "judges must be at least 1, or none"),
        ({"history": 31}, r"history must lie in \[1, 30\]"),
        ({"agreement": 1.0}, r"agreement must lie in \[0, 1\)"),
        ({"pilot_sessions": -1}, "pilot_sessions must not be negative"),
    ],
)
def test_settings_out_of_range_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Judged(**settings)
