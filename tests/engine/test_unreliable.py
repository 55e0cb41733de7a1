"""Responses that are lost or late: what the server receives, and whole runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import thalweg
from contracts.checkpoint import round_trip, to_comparable
from contracts.examples import some_roster, some_updates
from contracts.runs import Interruption, check_engines_agree, check_same_bits, interrupt_after
from thalweg.core.capabilities import Broadcast
from thalweg.core.types import Floats32, Ints, Job, Roster, SurveyResponses, Updates
from thalweg.engine.builders import make_federation
from thalweg.engine.loop import run_plan
from thalweg.engine.metrics import round_row
from thalweg.engine.plan import make_plan
from thalweg.engine.run_folder import RunFolder
from thalweg.engine.unreliable import UnreliableFederation
from thalweg.federation import SurveyStage, new_server
from thalweg.recipes import get_recipe
from thalweg.streams import LOST, Unreliable

BANK = np.zeros((1, 2), dtype=np.float32)


@dataclass
class Everybody:
    """Four clients in this process; those of a round's list are here."""

    present: Mapping[int, Sequence[int]] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    client_pool: Any = None
    is_closed: bool = False

    def roster(self, rnd: int) -> Roster:
        return some_roster(self.present.get(rnd, (0, 1, 2, 3)), 4, rnd=rnd)

    def survey(
        self, clients: Ints, stage: SurveyStage, bank: Floats32, rnd: int
    ) -> SurveyResponses:
        return {"word": np.arange(2.0 * len(clients)).reshape(-1, 2)}

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        who = [job.client for job in jobs]
        self.asked += who
        updates = some_updates(who, 2, deltas=[[n, rnd] for n in who], reports={"n": who})
        return replace(updates, uploads={"memory.n": updates.deltas})

    def predict_many(self, models: Any, part: Any, rows: Any) -> Any:
        return "predicted", models

    def scores_many(self, models: Any, part: Any, rows: Any) -> Any:
        return "scores", models

    def close(self) -> None:
        self.is_closed = True


@dataclass(frozen=True)
class Script:
    """The delays of responses by round and client; all others arrive in time."""

    delays: Mapping[tuple[int, int], int]

    def draw_delays(self, clients: Ints, rnd: int, seed: int, probe_round: int = 0) -> Ints:
        return np.array([self.delays.get((rnd, n), 0) for n in clients.tolist()], dtype=np.int64)

    def draw_lost_responses(self, clients: Ints, rnd: int, seed: int, question: int) -> Any:
        return self.draw_delays(clients, rnd, seed) != 0


def unreliable(
    delays: Mapping[tuple[int, int], int], present: Mapping[int, Sequence[int]] | None = None
) -> Any:
    inner: Any = Everybody(present or {})
    return UnreliableFederation(inner, Script(delays), seed=0)


def train(federation: Any, rnd: int, who: Sequence[int] | None = None) -> Updates:
    cohort = federation.roster(rnd).present.tolist() if who is None else who
    updates: Updates = federation.train([Job(client) for client in cohort], BANK, rnd)
    return updates


def who_and_when(updates: Updates) -> list[tuple[int, int]]:
    """Return client and round, which each update of this test contains."""
    return [(int(client), int(then)) for client, then in updates.deltas]


def test_a_lost_response_never_arrives_but_its_client_has_trained() -> None:
    federation = unreliable({(0, 1): LOST})
    updates = train(federation, 0)
    assert updates.clients.tolist() == [0, 2, 3]
    assert updates.trained_in is None
    assert federation.inner.asked == [0, 1, 2, 3]
    assert federation.roster(1).present.tolist() == [0, 1, 2, 3], "it is present again at once"
    assert train(federation, 1).clients.tolist() == [0, 1, 2, 3]


def test_a_client_is_absent_until_its_late_response_arrives() -> None:
    federation = unreliable({(0, 1): 2})
    assert train(federation, 0).clients.tolist() == [0, 2, 3]
    assert federation.roster(1).present.tolist() == [0, 2, 3]
    assert train(federation, 1).clients.tolist() == [0, 2, 3]
    assert federation.roster(2).present.tolist() == [0, 2, 3]
    updates = train(federation, 2)
    assert who_and_when(updates) == [(0, 2), (2, 2), (3, 2), (1, 0)]
    assert updates.trained_in is not None
    assert updates.trained_in.tolist() == [2, 2, 2, 0]
    assert updates.reports["n"].tolist() == [0, 2, 3, 1]
    assert updates.uploads["memory.n"].tolist() == updates.deltas.tolist()
    assert federation.roster(3).present.tolist() == [0, 1, 2, 3]
    assert train(federation, 3).trained_in is None


def test_a_late_response_arrives_even_if_its_client_is_absent() -> None:
    federation = unreliable({(0, 1): 1}, present={1: (0,)})
    train(federation, 0)
    assert who_and_when(train(federation, 1)) == [(0, 1), (1, 0)]


def test_a_late_response_waits_for_a_round_with_training() -> None:
    federation = unreliable({(0, n): 1 for n in range(4)})
    assert len(train(federation, 0)) == 0
    assert federation.roster(1).present.tolist() == [], "all of them are still sending"
    assert federation.roster(2).present.tolist() == [0, 1, 2, 3], "all responses have arrived"
    updates = train(federation, 2, who=[1])
    assert who_and_when(updates) == [(1, 2), (0, 0), (1, 0), (2, 0), (3, 0)]
    assert federation.pending() == {}


def test_each_client_has_at_most_one_pending_response() -> None:
    inner: Any = Everybody()
    federation = UnreliableFederation(inner, Unreliable(lost=0.1, late=0.8, delay=3.0), seed=3)
    sent: list[tuple[int, int]] = []
    received: list[tuple[int, int]] = []
    for rnd in range(60):
        present = federation.roster(rnd).present.tolist()
        if not present:
            continue
        sent += [(client, rnd) for client in present]
        updates = train(federation, rnd)
        received += who_and_when(updates)
        assert len(federation.pending()) <= 4
        if updates.trained_in is not None:
            assert updates.trained_in.tolist() == [then for _, then in who_and_when(updates)]
    assert len(set(received)) == len(received) > 30
    assert set(received) < set(sent)


def test_late_responses_of_a_probe_round_are_lost() -> None:
    federation = unreliable({(0, 1): 2, (0, 2): LOST})
    jobs = [Job(client, probe_round=1) for client in range(4)]
    assert federation.train(jobs, BANK, 0).clients.tolist() == [0, 3]
    assert federation.pending() == {}
    assert federation.roster(0).present.tolist() == [0, 1, 2, 3]


def test_pending_responses_do_not_arrive_in_a_probe_round() -> None:
    federation = unreliable({(0, 1): 1})
    train(federation, 0)
    probe_round = federation.train([Job(0, probe_round=1)], BANK, 1)
    assert who_and_when(probe_round) == [(0, 1)]
    assert who_and_when(train(federation, 1)) == [(0, 1), (2, 1), (3, 1), (1, 0)]


def test_a_lost_survey_response_is_a_row_of_nan() -> None:
    federation = unreliable({(0, 1): LOST})
    responses = federation.survey(np.array([0, 1, 3]), "selection", BANK, 0)
    assert np.isnan(responses["word"]).tolist() == [[False] * 2, [True] * 2, [False] * 2]
    assert responses["word"][2].tolist() == [4, 5]
    assert federation.survey(np.array([1]), "selection", BANK, 0) == {}, "no response arrived"


def test_pending_responses_are_stored_in_the_checkpoint() -> None:
    federation, other = unreliable({(0, 1): 2, (1, 3): 1}), unreliable({})
    for rnd in range(2):
        train(federation, rnd)
    other.restore(round_trip(federation.pending(), fresh={}))
    assert to_comparable(other.pending()) == to_comparable(federation.pending())
    assert set(other.pending()) == {"1", "3"}
    ours, theirs = (train(each, 2) for each in (federation, other))
    assert to_comparable(vars(ours)) == to_comparable(vars(theirs))


def test_a_pending_response_does_not_keep_the_others_in_memory() -> None:
    federation = unreliable({(0, 1): 2})
    train(federation, 0)
    response = federation.pending()["1"]["response"]
    assert response["deltas"].base is None
    assert response["uploads"]["memory.n"].base is None


def test_predictions_are_delegated_to_the_inner_federation() -> None:
    federation = unreliable({})
    assert federation.predict_many("models", "test", None) == ("predicted", "models")
    assert federation.scores_many("models", "test", None) == ("scores", "models")
    federation.close()
    assert federation.inner.is_closed
    assert federation.client_pool is federation.inner.client_pool


# --- whole runs ---

SMALL = ["capacity=16", "local.passes=1", "ticks=2", "world.num_clients=8", "evaluate_every=1"]
SHAKY = [
    *SMALL,
    "world.availability=0.9",
    "faults=unreliable",
    "faults.lost=0.2",
    "faults.late=0.4",
    "faults.spread=0.5",
]


@pytest.mark.parametrize(
    ("recipe", "more", "happens"),
    [
        ("sfedpo", "staleness=polynomial", {"late", "mean_staleness"}),
        ("fedcurv", "staleness=hinge", {"late"}),
        ("ode+dpcs", "staleness=constant faults.late=0.7", {"late"}),
        ("fedavg", "staleness=reject", {"rejected"}),
        ("feddrift", "staleness=constant bank.drift_threshold=0.0", {"models", "rejected"}),
        ("powd", "staleness=polynomial staleness.max_staleness=1 faults.delay=3.0", {"rejected"}),
        ("scaffold", "staleness=polynomial", {"late"}),
        (
            "scaffold+warmstart",
            "staleness=constant sessions=alternating sessions.length=2",
            {"rejected", "probe_rounds"},  # late ones of the session before
        ),
    ],
)
def test_faults_give_the_same_results_resumed_and_on_both_engines(
    recipe: str, more: str, happens: set[str], tmp_path: Path
) -> None:
    fast, reference = (
        make_plan(
            recipe,
            "digits-partial",
            seed=2,
            rounds=5,
            engine=engine,
            overrides=[*SHAKY, *more.split()],
        )
        for engine in ("fast", "reference")
    )
    whole = run_plan(fast, workers=1)
    with pytest.raises(Interruption):
        run_plan(fast, workers=1, out=tmp_path, watch=interrupt_after(3))
    assert RunFolder(tmp_path).read_checkpoint()[0]["pending"], "a response is pending"
    check_same_bits(whole, run_plan(fast, workers=1, out=tmp_path, resume=True))
    slow = run_plan(reference)
    check_engines_agree(whole, slow)
    names = ("missing", "late", "rejected", "mean_staleness")
    for ours, theirs in zip(whole.metrics, slow.metrics, strict=True):
        assert [ours.get(name) for name in names] == [theirs.get(name) for name in names]
    assert {"missing", *happens} <= {name for row in whole.metrics for name in row}


def test_faults_with_probability_zero_change_no_bit() -> None:
    calm = [*SMALL, "faults=unreliable", "faults.lost=0", "faults.late=0", "staleness=polynomial"]
    reliable = thalweg.run("fedavg", "digits-partial", seed=1, rounds=2, overrides=SMALL)
    check_same_bits(
        reliable, thalweg.run("fedavg", "digits-partial", seed=1, rounds=2, overrides=calm)
    )


def test_loss_and_prequential_accuracy_use_updates_of_this_round_only() -> None:
    server = new_server(get_recipe("fedavg"), BANK[0], 4)._replace(rnd=6)
    came = replace(
        some_updates([0, 1, 2], 2),
        losses=np.array([1.0, 2.0, 9.0]),
        num_correct=np.array([2, 4, 8]),
        trained_in=np.array([5, 5, 3]),
    )
    row = round_row(server, came, None)
    assert (row["cohort"], row["loss"], row["prequential_accuracy"]) == (3, 1.5, 6 / 16)
    row = round_row(server, came.only(np.array([False, False, True])), None)
    assert row["cohort"] == 1
    assert not {"loss", "prequential_accuracy"} & row.keys()


def test_a_client_whose_response_is_lost_keeps_its_new_state() -> None:
    overrides = [*SMALL, "world.availability=1.0", "faults=unreliable", "faults.lost=1.0"]
    overrides += ["faults.late=0.0"]
    plan = make_plan("fedavg", "digits-partial", seed=2, overrides=overrides)
    data = plan.scenario.data.load(None, plan.seed)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    federation = make_federation(plan, data, net, workers=1)
    assert isinstance(federation, UnreliableFederation)
    bank = np.zeros((1, net.num_params), dtype=np.float32)
    assert len(federation.train([Job(3), Job(5)], bank, 0)) == 0
    assert federation.client_pool.state(3).stream_round == 1
    assert set(federation.client_pool.changed) == {3, 5}
    federation.close()
