"""The server's half of a round, when updates of earlier rounds come with those of this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import round_trip, to_comparable
from contracts.examples import some_roster, some_updates
from federation.test_server_round import CountsSteps, Keeps, SumMemory
from thalweg.aggregation import (
    BySamples,
    ByWeight,
    ConstantDiscount,
    FedExp,
    HingeDiscount,
    PolynomialDiscount,
    RejectLate,
    ShiftAware,
    Staleness,
)
from thalweg.core.capabilities import Broadcast
from thalweg.core.types import Floats32, Ints, Job, Roster, Session, SurveyResponses, Updates
from thalweg.federation import ServerState, new_server, run_server_round
from thalweg.federation.extensions.server_parts import collect_uploads
from thalweg.local import Curvature
from thalweg.memory import Replace
from thalweg.memory.ode import Ode
from thalweg.recipes import Recipe

MODEL = np.zeros(3, dtype=np.float32)
Row = tuple[int, int]  # client, and the round in which it trained


@dataclass
class Slow:
    """Three clients in every cohort, with scripted rows; client n changes parameter n by one."""

    script: Sequence[Sequence[Row]]
    sessions: Sequence[int] | None = None  # the number of each round's
    present: Sequence[int] = (0, 1, 2)
    scores: Mapping[Row, float] | None = None  # reported by some rows
    uploads: Mapping[str, Mapping[Row, Sequence[float]]] = field(default_factory=dict)
    models: Mapping[Row, int] = field(default_factory=dict)

    def roster(self, rnd: int) -> Roster:
        roster = some_roster(self.present, 3, rnd=rnd, times_present=[0] * 3)
        if self.sessions is None:
            return roster
        session = Session(self.sessions[rnd], 0, roster.present)
        return replace(roster, session=session)

    def survey(self, clients: Ints, stage: str, bank: Floats32, rnd: int) -> SurveyResponses:
        return {}

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        rows = list(self.script[rnd])
        who = [client for client, _ in rows]
        scores = self.scores
        updates = some_updates(
            who,
            3,
            deltas=np.eye(3)[who].tolist(),
            reports=None if scores is None else {"shift_score": [scores[row] for row in rows]},
        )
        return replace(
            updates,
            trained_in=np.array([then for _, then in rows], dtype=np.int64),
            models=np.array([self.models.get(row, 0) for row in rows], dtype=np.int64),
            uploads={
                name: np.array([words[row] for row in rows], dtype=np.float32)
                for name, words in self.uploads.items()
            },
        )


def recipe_with(staleness: Staleness, **parts: Any) -> Recipe:
    return Recipe("accepting", parts.pop("memory", Replace()), staleness=staleness, **parts)


def run_rounds(federation: Slow, recipe: Recipe) -> tuple[ServerState, list[Updates]]:
    server = new_server(recipe, MODEL, 3)
    history = []
    for _ in federation.script:
        server, updates = run_server_round(server, federation, recipe, seed=0)
        assert updates is not None
        history.append(updates)
    return server, history


IN_TIME = [(0, 0), (1, 0), (2, 0)]
# Client 2 is late in round 0, and in the next round beside the two others.
LATE = [[(0, 0), (1, 0)], [(0, 1), (1, 1), (2, 0)]]


@pytest.mark.parametrize(
    ("rule", "third"),
    [
        (RejectLate(), 0.0),
        (ConstantDiscount(), 1 / 3),
        (ConstantDiscount(0.3), 0.1),
        (PolynomialDiscount(), 1 / 3 / np.sqrt(2)),
        (PolynomialDiscount(power=1.0), 1 / 6),
        (HingeDiscount(after=1), 1 / 3),
        (HingeDiscount(after=0, slope=2.0), 1 / 9),
    ],
)
def test_weights_are_discounted_and_not_normalised_again(rule: Staleness, third: float) -> None:
    server, (_, second) = run_rounds(Slow(LATE), recipe_with(rule))
    # The weights are 1/2 in the first round and 1/3 in the second, with a discount on the late row.
    # If the late row is rejected, the others have weight 1/2 again.
    other = 0.5 + (0.5 if rule == RejectLate() else 1 / 3)
    assert server.bank[0] == pytest.approx([other, other, third])
    expected = {"missing": 1, "late": 1, "mean_staleness": 1.0}
    if rule == RejectLate():
        expected = {"missing": 1, "rejected": 1}
    assert second.extra_metrics == expected


def test_round_with_only_late_updates_makes_a_short_step() -> None:
    late = Slow([[(0, 0)], [], [], [(1, 0), (2, 0)]])
    server, _ = run_rounds(late, recipe_with(PolynomialDiscount()))
    assert server.bank[0] == pytest.approx([1, 0.25, 0.25])  # half each, times (1 + 3) ** -0.5


def test_discounts_multiply_the_weights_of_the_recipe() -> None:
    scores = {(0, 1): 1.0, (1, 1): 2.0, (2, 0): 3.0, (0, 0): 1.0, (1, 0): 2.0}
    recipe = recipe_with(ConstantDiscount(0.5), weights=ShiftAware())
    both = [[], [(0, 1), (1, 1), (2, 0)]]
    server, _ = run_rounds(Slow(both, scores=scores), recipe)
    # 1/0.5 - score + 0.5 = 1.5, 0.5, 0; then halved where it is late
    assert server.bank[0] == pytest.approx([0.75, 0.25, 0.0])
    scores[2, 0] = 1.0
    server, _ = run_rounds(Slow(both, scores=scores), recipe)
    assert server.bank[0] == pytest.approx([1.5 / 3.5, 0.5 / 3.5, 0.75 / 3.5])


def test_too_old_updates_are_rejected() -> None:
    script = [[(0, 0), (1, 0)], [(0, 1), (1, 1)], [(0, 2), (1, 2), (2, 0)]]
    server, history = run_rounds(Slow(script), recipe_with(ConstantDiscount(max_staleness=2)))
    assert server.bank[0] == pytest.approx([4 / 3, 4 / 3, 1 / 3])
    assert history[2].extra_metrics == {"missing": 1, "late": 1, "mean_staleness": 2.0}
    server, history = run_rounds(Slow(script), recipe_with(ConstantDiscount(max_staleness=1)))
    assert server.bank[0] == pytest.approx([1.5, 1.5, 0])
    assert history[2].extra_metrics == {"missing": 1, "rejected": 1}


def test_round_without_a_cohort_increases_the_staleness() -> None:
    @dataclass(frozen=True)
    class Pauses:
        def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
            return roster.present[:0] if roster.rnd == 1 else roster.present

    recipe = recipe_with(ConstantDiscount(max_staleness=1), selection=Pauses())
    federation = Slow([[(0, 0)], [], [(2, 0)]])
    server = new_server(recipe, MODEL, 3)
    for _ in range(2):
        server, updates = run_server_round(server, federation, recipe, seed=0)
    assert updates is None
    server, updates = run_server_round(server, federation, recipe, seed=0)
    assert updates is not None
    assert updates.extra_metrics == {"missing": 3, "rejected": 1}, "two rounds old by now"


def test_repeated_response_is_not_counted_in_two_rounds() -> None:
    script = [[(0, 0)], [(2, 0)], [(2, 0)]]
    server, history = run_rounds(Slow(script), recipe_with(ConstantDiscount()))
    assert server.bank[0].tolist() == [1, 0, 1]
    assert history[2].extra_metrics == {"missing": 3, "rejected": 1}


def test_update_older_than_another_of_the_same_client_is_rejected() -> None:
    script = [[(0, 0)], [(2, 1)], [(2, 0)]]
    server, history = run_rounds(Slow(script), recipe_with(ConstantDiscount()))
    assert server.bank[0].tolist() == [1, 0, 1]
    assert history[2].extra_metrics == {"missing": 3, "rejected": 1}


def test_late_and_new_updates_of_one_client_both_count() -> None:
    script = [[(0, 0)], [(2, 1), (0, 1), (2, 0)]]
    server, history = run_rounds(Slow(script), recipe_with(PolynomialDiscount(1.0)))
    assert history[1].clients.tolist() == [0, 2, 2]
    assert history[1].staleness(1).tolist() == [0, 1, 0]
    assert server.bank[0] == pytest.approx([1 + 1 / 3, 0, 1 / 3 + 1 / 6])


def test_updates_of_another_session_are_rejected() -> None:
    server, history = run_rounds(Slow(LATE, sessions=[0, 0]), recipe_with(ConstantDiscount()))
    assert server.bank[0] == pytest.approx([5 / 6, 5 / 6, 1 / 3])
    server, history = run_rounds(Slow(LATE, sessions=[0, 1]), recipe_with(ConstantDiscount()))
    assert server.bank[0] == pytest.approx([1, 1, 0])
    assert history[1].extra_metrics == {"missing": 1, "rejected": 1}


def test_late_updates_are_rejected_with_several_models() -> None:
    bank = Keeps((0, 0, 1), mix=((1, 0), (0, 1)), is_new=(False, False))
    recipe = recipe_with(ConstantDiscount(), bank=bank, server=CountsSteps())
    server = new_server(recipe, MODEL, 3)._replace(
        bank=np.zeros((2, 3), dtype=np.float32), rules=[0, 0]
    )
    federation = Slow([[(0, 0)], [(0, 1), (1, 0), (2, 0)]], models={(2, 0): 1})
    for _ in range(2):
        server, updates = run_server_round(server, federation, recipe, seed=0)
        assert len(server.open_requests) == 0
    assert updates is not None
    assert updates.extra_metrics == {"missing": 2, "rejected": 2}


def test_requests_for_a_reset_model_are_closed() -> None:
    @dataclass(frozen=True)
    class Restarts(Keeps):
        def assign(
            self, state: int, roster: Roster, responses: SurveyResponses, num_models: int
        ) -> Any:
            plan = super().assign(state, roster, responses, num_models)
            return plan._replace(is_new=np.array([state == 1]))

    bank = Restarts((0, 0, 0), mix=((1.0,),))
    _, history = run_rounds(Slow(LATE), recipe_with(ConstantDiscount(), bank=bank))
    assert history[1].extra_metrics == {"missing": 1, "rejected": 1}


# --- values that the server stores for its clients ---


def test_newest_report_of_a_client_is_stored() -> None:
    scores = {(0, 0): 1.0, (2, 0): 5.0, (2, 1): 7.0, (0, 1): 2.0}
    script = [[(0, 0)], [(0, 1), (2, 1), (2, 0)]]
    server, _ = run_rounds(
        Slow(script, scores=scores), recipe_with(ConstantDiscount(), weights=ShiftAware())
    )
    assert server.known["shift_score"].tolist() == pytest.approx([2, np.nan, 7], nan_ok=True)
    script = [[(0, 0)], [(0, 1), (2, 0)]]
    server, _ = run_rounds(
        Slow(script, scores=scores), recipe_with(ConstantDiscount(), weights=ShiftAware())
    )
    assert server.known["shift_score"].tolist() == pytest.approx([2, np.nan, 5], nan_ok=True)


def test_server_parts_receive_late_uploads_without_a_discount() -> None:
    uploads = {"memory.word": {(0, 0): [2], (2, 0): [3], (0, 1): [4], (2, 1): [5]}}
    script = [[(0, 0)], [(0, 1), (2, 1), (2, 0)]]
    recipe = recipe_with(ConstantDiscount(0.1), memory=SumMemory())
    assert run_rounds(Slow(script, uploads=uploads), recipe)[0].part_states == {
        "memory": 2.0 + 3 + 4 + 5
    }
    refusing = replace(recipe, staleness=RejectLate())
    assert run_rounds(Slow(script, uploads=uploads), refusing)[0].part_states == {
        "memory": 2.0 + 4 + 5
    }


def words(**rows: list[list[float]]) -> dict[str, Floats32]:
    return {
        name.replace("__", "."): np.array(each, dtype=np.float32) for name, each in rows.items()
    }


def test_uploads_of_one_client_are_collected_oldest_first() -> None:
    recipe = recipe_with(ConstantDiscount(), objective=Curvature())
    updates = replace(
        some_updates([0, 2, 2], 2),
        uploads=words(
            objective__fisher=[[1, 1], [2, 2], [3, 3]],
            objective__fisher_params=[[4, 4], [5, 5], [6, 6]],
        ),
    )
    state = collect_uploads({"objective": Curvature().init_server(3, 2)}, recipe, updates)[
        "objective"
    ]
    assert state.senders.tolist() == [0, 2]
    assert state.fisher.tolist() == [[1, 1], [3, 3]]
    assert state.fisher_params.tolist() == [[4, 4], [6, 6]]


def test_corrections_of_one_client_are_applied_in_order() -> None:
    recipe = recipe_with(ConstantDiscount(), memory=Ode())
    updates = replace(some_updates([0, 1, 1], 2), uploads=words(memory__gradient=[[2], [4], [6]]))
    state = collect_uploads({"memory": Ode().init_server(2, 2)}, recipe, updates)["memory"]
    assert state.mean.tolist() == [(2 + 6) / 2], "not 2 + 4 + 6: the second replaces the first"
    assert sorted(zip(state.senders.tolist(), state.last[:, 0].tolist(), strict=True)) == [
        (0, 2),
        (1, 6),
    ]


def test_weights_sum_to_at_most_one_if_a_client_has_two_rows() -> None:
    updates = some_updates([0, 0, 1], 2, reports={"total_weight": [2.0, 4.0, 4.0]})
    known = {"total_weight": np.array([99.0, np.nan, 10.0])}
    roster = some_roster([0, 1, 2], 3, known=known)
    assert ByWeight(normalise="all").weigh(updates, roster).tolist() == [0.1, 0.2, 0.2]
    updates = some_updates([0, 0, 1], 2, reports={"shift_score": [1.0, 2.0, 2.0]})
    roster = some_roster([0, 1], 2, known={"shift_score": np.array([99.0, np.nan])})
    # psi = 1.5, 0.5, 0.5 of three rows, each with its own score
    assert ShiftAware(normalise="all").weigh(updates, roster) == pytest.approx([0.6, 0.2, 0.2])


# --- and the rest ---


def test_open_requests_survive_a_checkpoint() -> None:
    recipe, federation = recipe_with(PolynomialDiscount(), weights=BySamples()), Slow(LATE)
    server, _ = run_server_round(new_server(recipe, MODEL, 3), federation, recipe, seed=0)
    assert server.open_requests.tolist() == [[2, 0]]
    fresh = new_server(recipe, MODEL, 3)
    restored = ServerState(**round_trip(server._asdict(), fresh._asdict()))
    present, there = (
        run_server_round(state, federation, recipe, 0)[0] for state in (server, restored)
    )
    assert to_comparable(present) == to_comparable(there)


def test_server_that_rejects_late_updates_stores_no_requests() -> None:
    server, _ = run_rounds(Slow([[], []]), recipe_with(RejectLate()))
    assert server.open_requests.shape == (0, 2)


def test_staleness_rule_changes_no_bit_without_late_updates() -> None:
    script = [[(client, rnd) for client in range(3)] for rnd in range(2)]
    plain_run, accepting = (
        run_rounds(Slow(script), recipe_with(rule, server=FedExp()))[0]
        for rule in (RejectLate(), PolynomialDiscount())
    )
    assert to_comparable(plain_run) == to_comparable(accepting)
