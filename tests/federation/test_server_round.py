from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import round_trip, to_comparable
from contracts.examples import some_roster, some_updates
from thalweg.aggregation import Adaptive, BySamples, FedExp, ShiftAware
from thalweg.bank import BankAssignment, FedDrift, require_cohort
from thalweg.bank.feddrift import COSTS, SAMPLES
from thalweg.core.capabilities import Broadcast
from thalweg.core.errors import ConfigError, Diverged, ShapeMismatch
from thalweg.core.types import Floats, Floats32, Ints, Job, Roster, SurveyResponses, Updates
from thalweg.federation import (
    ServerState,
    get_served_models,
    new_server,
    run_server_round,
    validate_updates,
)
from thalweg.memory import Replace
from thalweg.recipes import Recipe
from thalweg.selection import Uniform

PLAIN = Recipe("plain", Replace())
MODEL = np.zeros(3, dtype=np.float32)


@dataclass
class Fake:
    """Three clients that always send the same: client n moves parameter n by one."""

    present: Sequence[Sequence[int]] = ((0, 1, 2),)  # in each round; then again from the first
    availability: Sequence[float] = (0.5, 0.5, 0.5)
    num_steps: Sequence[int] = (1, 1, 1)
    num_samples: Sequence[int] = (10, 10, 10)
    models: Sequence[int] = (0, 0, 0)
    scores: Sequence[float] | None = None
    losses: Sequence[Sequence[float]] = ((0.1,), (0.1,), (0.1,))  # of each client under each model
    orders: list[tuple[list[Job], int]] = field(default_factory=list)
    surveys: list[tuple[list[int], str, int]] = field(default_factory=list)

    def roster(self, rnd: int) -> Roster:
        present = self.present[rnd % len(self.present)]
        return some_roster(
            present, 3, rnd=rnd, availability=self.availability, times_present=[0] * 3
        )

    def survey(self, clients: Ints, stage: str, bank: Floats32, rnd: int) -> SurveyResponses:
        self.surveys.append((clients.tolist(), stage, rnd))
        losses = np.array([[self.losses[n][m] for m in range(len(bank))] for n in clients])
        return {COSTS: losses, SAMPLES: np.full((len(clients), 1), 10.0)}

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        self.orders.append((list(jobs), rnd))
        who = [job.client for job in jobs]
        updates = some_updates(
            who,
            3,
            deltas=np.eye(3)[who].tolist(),
            num_steps=[self.num_steps[n] for n in who],
            num_samples=[self.num_samples[n] for n in who],
            reports=None if self.scores is None else {"shift_score": [self.scores[n] for n in who]},
        )
        return replace(updates, models=np.array(self.models)[who])


@dataclass(frozen=True)
class Notes:
    """Weights that note which roster they were shown."""

    rosters: list[Roster] = field(default_factory=list)

    def report(self, age: Any) -> dict[str, float]:
        return {}

    def weigh(self, updates: Updates, roster: Roster) -> Floats:
        self.rosters.append(roster)
        return np.full(len(updates), 1 / len(updates))


@dataclass(frozen=True)
class Chooses:
    ids: tuple[int, ...]

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return np.array(self.ids)


@dataclass(frozen=True)
class CountsSteps:
    """A server rule with a memory: the number of steps, added to the model."""

    def init(self, num_params: int) -> int:
        return 0

    def step(
        self, state: int, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[int, Floats32]:
        return state + 1, model + np.float32(state + 1)


def run_rounds(
    federation: Fake, recipe: Recipe = PLAIN, rounds: int = 1, seed: int = 0
) -> tuple[ServerState, Updates | None]:
    server, updates = new_server(recipe, MODEL, 3), None
    for _ in range(rounds):
        server, updates = run_server_round(server, federation, recipe, seed)
    return server, updates


def test_new_server_has_a_copy_of_one_model() -> None:
    model = MODEL.copy()
    server = new_server(PLAIN, model, num_clients=3)
    model += 1
    assert server.bank.tolist() == [[0, 0, 0]]
    assert server.rnd == 0
    assert server.times_present.tolist() == [0, 0, 0]
    assert server.known == {}


def test_round_adds_the_weighted_mean_to_the_model() -> None:
    federation = Fake(present=[(0, 2)])
    server, updates = run_rounds(federation)
    assert server.bank.tolist() == [[0.5, 0.0, 0.5]]
    assert federation.orders == [([Job(0), Job(2)], 0)]
    assert updates is not None
    assert updates.clients.tolist() == [0, 2]


def test_round_without_clients_counts_and_keeps_the_model() -> None:
    federation = Fake(present=[()])
    server, updates = run_rounds(federation, rounds=3)
    assert updates is None
    assert server.rnd == 3
    assert server.bank.tolist() == [[0, 0, 0]]
    assert federation.orders == []


def test_weights_are_normalised_over_the_participants() -> None:
    recipe = replace(PLAIN, weights=ShiftAware())
    scores, q = (1.0, 2.0, 3.0), (0.2, 0.25, 0.1)
    server, _ = run_rounds(Fake(availability=q, scores=scores), recipe)
    assert server.bank[0] == pytest.approx((0.310345, 0.172414, 0.517241), abs=1e-6)
    server, _ = run_rounds(Fake(present=[(0, 2)], availability=q, scores=scores), recipe)
    assert server.bank[0] == pytest.approx((0.375, 0.0, 0.625), abs=1e-6)


def test_round_does_not_modify_the_previous_server_state() -> None:
    recipe, federation = replace(PLAIN, server=CountsSteps()), Fake(scores=(1, 2, 3))
    server, _ = run_rounds(federation, recipe)
    before = to_comparable(server)
    run_server_round(server, federation, recipe, seed=0)
    assert to_comparable(server) == before


def test_presence_is_counted_for_clients_outside_the_cohort() -> None:
    recipe = replace(PLAIN, selection=Uniform(0.5))
    server, updates = run_rounds(Fake(present=[(0, 1), (0, 2), (0, 1)]), recipe, rounds=3)
    assert updates is not None
    assert len(updates) == 1
    assert server.times_present.tolist() == [3, 2, 1]


def test_weights_receive_the_reports_of_earlier_rounds() -> None:
    recorder = Notes()
    recipe = replace(PLAIN, weights=recorder)
    server, _ = run_rounds(Fake(present=[(0, 1), (2,)], scores=(1, 2, 3)), recipe, rounds=2)
    first, second = recorder.rosters
    assert (first.rnd, second.rnd) == (0, 1)
    assert first.known == {}
    assert first.times_present.tolist() == [0, 0, 0]
    assert second.known["shift_score"].tolist() == pytest.approx([1, 2, np.nan], nan_ok=True)
    assert second.times_present.tolist() == [1, 1, 0]
    assert server.known["shift_score"].tolist() == [1, 2, 3]


def test_newest_report_of_a_client_is_stored() -> None:
    federation = Fake(scores=(1, 2, 3))
    server, _ = run_rounds(federation)
    federation.scores, federation.present = (9, 9, 9), [(1,)]
    server, _ = run_server_round(server, federation, PLAIN, seed=0)
    assert server.known["shift_score"].tolist() == [1, 9, 3]


def test_client_without_a_step_is_not_in_the_mean() -> None:
    server, updates = run_rounds(Fake(num_steps=(1, 0, 1)))
    assert server.bank.tolist() == [[0.5, 0.0, 0.5]]
    assert updates is not None
    assert len(updates) == 3, "but it did take part"


def test_model_is_unchanged_if_no_client_made_a_step() -> None:
    recipe = replace(PLAIN, weights=BySamples(), server=CountsSteps())
    server, _ = run_rounds(Fake(num_steps=(0, 0, 0), num_samples=(0, 0, 0)), recipe)
    assert server.bank.tolist() == [[0, 0, 0]]
    assert server.rules == [0]


def test_state_of_the_server_rule_is_kept_between_rounds() -> None:
    server, _ = run_rounds(Fake(), replace(PLAIN, server=CountsSteps()), rounds=3)
    assert server.rules == [3]
    assert server.bank.tolist() == [[6, 6, 6]]


@dataclass(frozen=True)
class Keeps:
    """A bank that does not change; clients train the given models."""

    models: tuple[int, ...]
    mix: tuple[tuple[float, ...], ...] = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    is_new: tuple[bool, ...] = (False, False, False)

    def init(self, num_clients: int, num_classes: int) -> int:
        return 0

    def assign(
        self, state: int, roster: Roster, responses: SurveyResponses, num_models: int
    ) -> BankAssignment:
        cohort = require_cohort(roster)
        models = np.array(self.models)[cohort]
        return BankAssignment(state + 1, np.array(self.mix), np.array(self.is_new), cohort, models)

    def shares(self, state: int, num_models: int) -> Floats:
        return np.full(num_models, 1 / num_models)


def test_each_model_of_a_bank_is_updated_by_its_own_clients() -> None:
    recipe = replace(PLAIN, server=CountsSteps(), bank=Keeps((0, 1, 1)))
    server = new_server(recipe, MODEL, 3)._replace(
        bank=np.array([[0, 0, 0], [5, 5, 5], [9, 9, 9]], dtype=np.float32), rules=[0, 7, 0]
    )
    server, _ = run_server_round(server, Fake(models=(0, 1, 1)), recipe, seed=0)
    assert server.bank[:, 0].tolist() == [1, 13, 9]
    assert server.rules == [1, 8, 0]
    assert server.bank_state == 1


def test_models_can_be_mixed_and_reset() -> None:
    bank = Keeps((0, 0, 1), mix=((0.5, 0.5, 0), (0, 0, 1)), is_new=(False, True))
    recipe = replace(PLAIN, server=CountsSteps(), bank=bank)
    server = new_server(recipe, MODEL, 3)._replace(
        bank=np.array([[0, 0, 0], [4, 4, 4], [9, 9, 9]], dtype=np.float32), rules=[3, 7, 5]
    )
    server, _ = run_server_round(
        server, Fake(models=(0, 0, 1), num_steps=(0, 0, 0)), recipe, seed=0
    )
    assert server.bank.tolist() == [[2, 2, 2], [9, 9, 9]]
    assert server.rules == [3, 0]


def test_invalid_bank_assignment_is_rejected() -> None:
    recipe = replace(PLAIN, bank=Keeps((0, 0, 1)))
    with pytest.raises(ConfigError, match=r"Keeps\.assign must mix the 1 models"):
        run_rounds(Fake(), recipe)


def test_bank_with_a_survey_receives_responses_before_training() -> None:
    federation = Fake(losses=((0.1,), (0.1,), (0.1,)))
    server, updates = run_rounds(federation, replace(PLAIN, bank=FedDrift()))
    assert federation.surveys == [([0, 1, 2], "bank", 0)]
    assert server.bank_state.previous.tolist() == [0.1, 0.1, 0.1]
    assert updates is not None
    assert updates.bytes_down == 3 * 3 * 4


def test_server_rule_can_scale_the_clients_learning_rate() -> None:
    federation = Fake()
    run_rounds(federation, replace(PLAIN, server=Adaptive()), rounds=2)
    assert [job.lr_scale for job in federation.orders[0][0]] == [1.0, 1.0, 1.0]
    assert [job.lr_scale for job in federation.orders[1][0]] == [1.0, 1.0, 1.0]
    run_rounds(federation, replace(PLAIN, server=Adaptive()), rounds=3)
    assert federation.orders[-1][0][0].lr_scale == pytest.approx(0.5 * 1.0, abs=0.2)


def test_evaluated_model_of_a_server_rule_is_served() -> None:
    recipe = replace(PLAIN, server=FedExp())
    server, _ = run_rounds(Fake(), recipe)
    assert get_served_models(server, recipe).models.tolist() == (server.bank / 2).tolist()
    assert get_served_models(server, recipe).shares.tolist() == [1.0]


@dataclass(frozen=True)
class SumMemory:
    """A memory whose server part broadcasts the sum of all uploads, plus one."""

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(self, state: Any, context: Any, rng: Any) -> tuple[Any, Ints]:
        raise NotImplementedError

    def init_server(self, num_clients: int, num_params: int) -> float:
        return 0.0

    def broadcast(self, state: float, clients: Ints) -> dict[str, Floats32]:
        return {"sum": np.full((len(clients), 1), state + 1, dtype=np.float32)}

    def collect(self, state: float, clients: Ints, uploads: Any) -> float:
        return state + float(uploads["word"].sum())


@dataclass
class RecordingFederation(Fake):
    """Each client uploads 2; records the broadcasts."""

    broadcasts: list[Any] = field(default_factory=list)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        assert broadcast is not None
        self.broadcasts.append(broadcast["memory"]["sum"][:, 0].tolist())
        words = np.full((len(jobs), 1), 2, dtype=np.float32)
        return replace(super().train(jobs, bank, rnd), uploads={"memory.word": words})


def test_server_part_broadcasts_and_collects_in_each_round() -> None:
    federation = RecordingFederation(present=[(0, 1, 2), (1,)])
    server, updates = run_rounds(federation, replace(PLAIN, memory=SumMemory()), rounds=2)
    assert federation.broadcasts == [[1.0, 1.0, 1.0], [7.0]]
    assert server.part_states == {"memory": 8.0}
    assert updates is not None
    assert updates.bytes_down == 3 * 4 + 4


def test_non_finite_uploads_are_rejected() -> None:
    uploads = {"memory.word": np.array([[1.0], [np.nan]], dtype=np.float32)}
    updates = replace(some_updates([0, 1], 3), uploads=uploads)
    with pytest.raises(Diverged, match="client 1"):
        validate_updates(updates, 0, 3)


def test_jobs_are_in_ascending_order() -> None:
    federation = Fake()
    run_rounds(federation, replace(PLAIN, selection=Chooses((2, 0))))
    assert federation.orders == [([Job(0), Job(2)], 0)]


@pytest.mark.parametrize("ids", [(0, 0), (0, 2), (1, 7), (-1,)])
def test_cohort_with_absent_or_repeated_clients_is_rejected(ids: tuple[int, ...]) -> None:
    recipe = replace(PLAIN, selection=Chooses(ids))
    with pytest.raises(ConfigError, match=r"Chooses\.choose must return different clients out of"):
        run_rounds(Fake(present=[(0, 1)]), recipe)


def test_cohort_may_be_empty() -> None:
    server, updates = run_rounds(Fake(), replace(PLAIN, selection=Chooses(())))
    assert updates is None
    assert server.times_present.tolist() == [1, 1, 1]


def test_cohort_depends_on_seed_and_round() -> None:
    recipe = replace(PLAIN, selection=Uniform(0.3))

    def cohorts(seed: int) -> list[int]:
        federation = Fake()
        run_rounds(federation, recipe, rounds=20, seed=seed)
        return [jobs[0].client for jobs, _ in federation.orders]

    assert cohorts(0) == cohorts(0)
    assert cohorts(0) != cohorts(1)
    assert set(cohorts(0)) == {0, 1, 2}


def test_server_state_survives_a_checkpoint() -> None:
    recipe = replace(PLAIN, server=CountsSteps(), weights=ShiftAware(normalise="all"))
    federation = Fake(present=[(0, 1), (2,)], scores=(1, 2, 3))
    server, _ = run_rounds(federation, recipe)
    fresh = new_server(recipe, MODEL, 3)
    restored = ServerState(**round_trip(server._asdict(), fresh._asdict()))
    assert to_comparable(restored) == to_comparable(server)
    present, there = (
        run_server_round(state, federation, recipe, 0)[0] for state in (server, restored)
    )
    assert to_comparable(present) == to_comparable(there)


def test_updates_of_the_wrong_shape_are_rejected() -> None:
    with pytest.raises(ShapeMismatch, match=r"round 13: .* shape \(2, 3\), expected \(2, 5\)"):
        validate_updates(some_updates([4, 7], 3), rnd=12, num_params=5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_updates_are_rejected(bad: float) -> None:
    updates = some_updates([4, 7, 9], 2, deltas=[[0, 0], [0, bad], [bad, bad]])
    with pytest.raises(Diverged, match=r"round 13: .* of client 7 \(and 1 more\) is not a finite"):
        validate_updates(updates, rnd=12, num_params=2)


def test_non_finite_losses_are_rejected() -> None:
    updates = replace(some_updates([4, 7], 2), losses=np.array([np.inf, 1.0]))
    with pytest.raises(Diverged, match=r"of client 4 is not a finite number\. Try a smaller"):
        validate_updates(updates, rnd=0, num_params=2)


def test_nan_loss_is_valid_without_a_step() -> None:
    updates = some_updates([4, 7], 2, num_steps=[0, 3])
    assert np.isnan(updates.losses[0])
    validate_updates(updates, rnd=0, num_params=2)


def test_non_finite_reports_are_rejected() -> None:
    updates = some_updates([4, 7], 2, reports={"score": [1.0, np.nan]})
    with pytest.raises(Diverged, match=r"a report or the update of client 7 is not a finite"):
        validate_updates(updates, rnd=0, num_params=2)
    idle = some_updates([4, 7], 2, reports={"score": [1.0, np.nan]}, num_steps=[3, 0])
    validate_updates(idle, rnd=0, num_params=2)


@dataclass
class ReorderingFederation(Fake):
    """Only these rows arrive, in this order; client 9 received no request."""

    arriving: Sequence[int] = ()

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        updates = super().train(jobs, bank, rnd, broadcast)
        updates = updates.take(np.array([min(n, 2) for n in self.arriving], dtype=np.int64))
        return replace(updates, clients=np.array(self.arriving, dtype=np.int64))


def test_clients_without_a_response_are_not_in_the_mean() -> None:
    server, updates = run_rounds(
        ReorderingFederation(arriving=(0, 2)), replace(PLAIN, weights=BySamples())
    )
    assert server.bank.tolist() == [[0.5, 0.0, 0.5]]
    assert updates is not None
    assert updates.clients.tolist() == [0, 2]
    assert updates.extra_metrics == {"missing": 1}
    assert server.known["num_samples"].tolist() == pytest.approx([10, np.nan, 10], nan_ok=True)
    assert updates.bytes_down == 3 * 3 * 4, "all three were sent a model"


def test_order_of_the_responses_changes_no_bit() -> None:
    expected, _ = run_rounds(Fake(scores=(1, 2, 3)), replace(PLAIN, weights=ShiftAware()))
    server, updates = run_rounds(
        ReorderingFederation(arriving=(2, 0, 1), scores=(1, 2, 3)),
        replace(PLAIN, weights=ShiftAware()),
    )
    assert updates is not None
    assert updates.clients.tolist() == [0, 1, 2]
    assert updates.extra_metrics == {}
    assert to_comparable(server) == to_comparable(expected)


def test_unrequested_and_repeated_rows_are_dropped() -> None:
    server, updates = run_rounds(ReorderingFederation(arriving=(9, 1, 0, 1, 0, 2)))
    assert updates is not None
    assert updates.clients.tolist() == [0, 1, 2]
    assert updates.extra_metrics == {"rejected": 3}
    assert server.bank == pytest.approx(np.full((1, 3), 1 / 3))


def test_rows_of_a_model_that_was_not_sent_are_dropped() -> None:
    _, updates = run_rounds(Fake(models=(0, 3, 0)))
    assert updates is not None
    assert updates.clients.tolist() == [0, 2]
    assert updates.extra_metrics == {"missing": 1, "rejected": 1}


def test_round_without_responses_counts_and_keeps_the_model() -> None:
    recipe = replace(PLAIN, server=CountsSteps(), weights=ShiftAware())
    server, updates = run_rounds(
        ReorderingFederation(arriving=(), scores=(1, 2, 3)), recipe, rounds=2
    )
    assert server.bank.tolist() == [[0, 0, 0]]
    assert server.rules == [0]
    assert server.rnd == 2
    assert updates is not None
    assert len(updates) == 0
    assert updates.extra_metrics == {"missing": 3}


def test_server_part_collects_only_received_uploads() -> None:
    @dataclass
    class Whispering(RecordingFederation):
        def train(
            self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
        ) -> Updates:
            return super().train(jobs, bank, rnd, broadcast).take(np.array([1]))

    server, _ = run_rounds(Whispering(), replace(PLAIN, memory=SumMemory()))
    assert server.part_states == {"memory": 2.0}
