"""Complete server rounds with a scripted federation and numbers that can be checked by hand.

Client n always sends the update n + 1 for a model of one parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from contracts.examples import some_roster, some_updates
from thalweg.aggregation import BySamples, ConstantDiscount, Equal, ShiftAware
from thalweg.core.capabilities import Broadcast
from thalweg.core.types import (
    Floats,
    Floats32,
    Ints,
    Job,
    Roster,
    Session,
    SurveyResponses,
    Updates,
)
from thalweg.federation import ServerState, new_server, run_server_round
from thalweg.memory import Replace
from thalweg.recipes import Recipe
from thalweg.sessions import Reset

NUM_CLIENTS = 4


@dataclass
class ScriptedFederation:
    """Four clients, all present. Records jobs and surveys; sends the rows of the script."""

    num_samples: Sequence[int] = (1, 2, 3, 4)
    scores: Sequence[float] | None = None  # reported to shift-aware weights
    values: Sequence[float] = (10.0, 40.0, 20.0, 30.0)  # survey responses
    sessions: Sequence[int] | None = None  # number of the session of each round
    rows: Sequence[Sequence[tuple[int, int]]] | None = None  # (client, trained in) per round
    surveyed: list[list[int]] = field(default_factory=list)
    cohorts: list[list[int]] = field(default_factory=list)
    started_from: list[float] = field(default_factory=list)

    def roster(self, rnd: int) -> Roster:
        roster = some_roster(range(NUM_CLIENTS), NUM_CLIENTS, rnd=rnd)
        if self.sessions is None:
            return roster
        return replace(roster, session=Session(self.sessions[rnd], 0, roster.present))

    def survey(self, clients: Ints, stage: str, bank: Floats32, rnd: int) -> SurveyResponses:
        assert stage == "selection"
        self.surveyed.append(clients.tolist())
        return {"value": np.array(self.values)[clients][:, None]}

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        self.cohorts.append([job.client for job in jobs])
        self.started_from.append(float(bank[0, 0]))
        rows = [(job.client, rnd) for job in jobs] if self.rows is None else self.rows[rnd]
        clients = [client for client, _ in rows]
        scores = self.scores
        updates = some_updates(
            clients,
            1,
            deltas=[[client + 1] for client in clients],
            num_samples=[self.num_samples[client] for client in clients],
            reports=None if scores is None else {"shift_score": [scores[n] for n in clients]},
        )
        return replace(updates, trained_in=np.array([then for _, then in rows], dtype=np.int64))


@dataclass(frozen=True)
class LargestValues:
    """Surveys some clients and chooses the two with the largest values."""

    surveyed: tuple[int, ...] = (0, 1, 3)
    sends_models: bool = False

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return np.array(self.surveyed)

    def answer_survey(self, view: Any) -> tuple[None, Mapping[str, Floats]]:
        raise AssertionError("the federation answers")

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        if "value" not in roster.known:
            return roster.present
        values = np.nan_to_num(roster.known["value"][:, 0], nan=-1.0)
        return np.argsort(-values)[:2]


@dataclass(frozen=True)
class InTurn:
    """Chooses the two clients whose last choice is the longest ago."""

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        last = roster.known.get("last", np.full(roster.num_clients, -1.0))
        return np.argsort(last, kind="stable")[:2]

    def record_choice(self, roster: Roster, chosen: Ints) -> Mapping[str, Floats]:
        last = roster.known.get("last", np.full(roster.num_clients, -1.0)).copy()
        last[chosen] = roster.rnd
        return {"last": last}


def run_rounds(
    recipe: Recipe, federation: ScriptedFederation, rounds: int = 1, start: float = 0.0
) -> tuple[ServerState, list[Updates]]:
    server = new_server(recipe, np.array([start], dtype=np.float32), NUM_CLIENTS)
    history = []
    for _ in range(rounds):
        server, updates = run_server_round(server, federation, recipe, seed=0)
        assert updates is not None
        history.append(updates)
    return server, history


def test_fedavg_adds_the_mean_update_by_samples() -> None:
    federation = ScriptedFederation()
    server, _ = run_rounds(Recipe("fedavg", Replace(), weights=BySamples()), federation, 2)
    assert federation.cohorts == [[0, 1, 2, 3]] * 2
    assert federation.surveyed == []
    # (1 * 1 + 2 * 2 + 3 * 3 + 4 * 4) / 10 = 3 in each round
    assert federation.started_from == pytest.approx([0.0, 3.0])
    assert server.bank.tolist() == [[pytest.approx(6.0)]]
    assert server.known["num_samples"].tolist() == [1, 2, 3, 4]
    assert server.times_present.tolist() == [2, 2, 2, 2]


def test_a_selection_finds_what_it_recorded_about_earlier_choices() -> None:
    federation = ScriptedFederation()
    server, _ = run_rounds(Recipe("in turn", Replace(), selection=InTurn()), federation, 3)
    assert federation.cohorts == [[0, 1], [2, 3], [0, 1]]
    assert server.known["last"].tolist() == [2, 2, 1, 1]
    assert server.known["num_samples"].tolist() == [1, 2, 3, 4], "reports are stored as well"


def test_the_selection_chooses_by_the_responses_of_surveyed_clients() -> None:
    federation = ScriptedFederation()
    recipe = Recipe("surveys", Replace(), selection=LargestValues(), weights=Equal())
    server, (updates,) = run_rounds(recipe, federation)
    assert federation.surveyed == [[0, 1, 3]]
    assert federation.cohorts == [[1, 3]], "without the survey all clients would be chosen"
    assert server.bank.tolist() == [[pytest.approx((2 + 4) / 2)]]
    assert server.known["value"].ravel().tolist() == pytest.approx(
        [10, 40, np.nan, 30], nan_ok=True
    )
    assert updates.extra_bytes_up == 3 * 8
    assert updates.bytes_down == 2 * 4, "a model of one float32 for each of two clients"


def test_shift_aware_weights_follow_the_reported_scores() -> None:
    federation = ScriptedFederation(scores=(0.0, 1.0, 2.0, 3.0))
    rule = ShiftAware()
    server, (updates,) = run_rounds(Recipe("saw", Replace(), weights=rule), federation)
    weights = rule.weigh(updates, federation.roster(0))
    assert weights.sum() == pytest.approx(1)
    assert len(set(weights.tolist())) > 1
    assert server.bank[0, 0] == pytest.approx(float(weights @ [1, 2, 3, 4]))
    assert server.known["shift_score"].tolist() == [0, 1, 2, 3]


def test_a_late_update_counts_with_its_discount() -> None:
    in_time = [(0, 0), (1, 0), (2, 0)]  # client 3 is late
    second = [(0, 1), (1, 1), (2, 1), (3, 0)]
    federation = ScriptedFederation(rows=[in_time, second])
    recipe = Recipe("late", Replace(), weights=Equal(), staleness=ConstantDiscount(0.5))
    server, (first, last) = run_rounds(recipe, federation, 2)
    assert first.extra_metrics == {"missing": 1}
    assert last.extra_metrics == {"missing": 1, "late": 1, "mean_staleness": 1.0}
    # round 1: (1 + 2 + 3) / 3 = 2; round 2: (1 + 2 + 3 + 0.5 * 4) / 4 = 2
    assert server.bank.tolist() == [[pytest.approx(4.0)]]
    assert server.open_requests.tolist() == [[3, 1]]


def test_a_session_starts_from_the_model_that_its_policy_chooses() -> None:
    federation = ScriptedFederation(sessions=(0, 0, 1))
    recipe = Recipe("sessions", Replace(), weights=Equal(), session_start=Reset())
    server, _ = run_rounds(recipe, federation, 3, start=7.0)
    assert federation.started_from == pytest.approx([7.0, 9.5, 7.0])
    assert server.session == 1
    assert server.bank.tolist() == [[pytest.approx(9.5)]]
