from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from contracts.model_probes import FakeModelProbe
from federation.scripted_stream import (
    RecordingSampleWeights,
    ScriptedStream,
    clients,
    play_rounds,
    recipe,
    run_round,
)
from thalweg.aggregation import ByWeight
from thalweg.core.errors import ConfigError
from thalweg.core.types import Ints
from thalweg.federation import ClientContext, ClientProgram, ClientState, start_round
from thalweg.forecast import Exact
from thalweg.local import GainThreshold, TrainingSummary
from thalweg.memory import Fifo, Replace, UniformRatio
from thalweg.streams import Replay, Setting


def test_batches_are_drawn_after_the_memory_is_updated() -> None:
    who = clients(recipe(Replace()))
    client_round = start_round(ClientContext(who, 0, 0), who.new_client(0))
    for tick in range(3):
        client_round.observe()
        just_arrived = set(range(10_000 + 1_000 * tick, 10_004 + 1_000 * tick))
        batches = client_round.batches()
        assert len(batches) == 2
        for rows, weights in batches:
            assert len(rows) == 3
            assert weights is None
            assert set(rows.tolist()) <= just_arrived


def test_batches_depend_on_the_round_and_memories_on_the_rounds_of_the_client() -> None:
    who = clients(recipe(UniformRatio()), capacity=50)
    state = who.new_client(0)
    early, late = (
        start_round(ClientContext(who, 0, 0), state),
        start_round(ClientContext(who, 0, 7), state),
    )
    assert run_round(early) != run_round(late)
    assert early.rows.tolist() == late.rows.tolist()


def test_client_with_an_empty_memory_has_no_batches() -> None:
    world = Replay(num_clients=2, arrivals=3, at_end="stop").build(
        Setting(np.zeros(8, dtype=np.int64), 1, ticks=3, capacity=4, rounds=9, seed=0)
    )
    who = clients(recipe(Replace(), forecast=Exact()), world)
    assert who.new_client(0).rows.tolist() == []
    client_round = start_round(ClientContext(who, 0, 0), who.new_client(0))
    assert [batch.rows.tolist() for batch in client_round.batches()] == [], (
        "before anything arrived"
    )
    run_round(client_round)
    assert client_round.rows.tolist() == [3], "the last row, which nothing has replaced"


@dataclass(frozen=True)
class Turns:
    """An objective that records how many rows were held in each tick, and state changes."""

    uses_true_states: ClassVar[bool] = True

    def loss(self, model: Any, params: Any, batch: Any, memo: Any) -> Any:
        raise NotImplementedError

    def init(self, num_params: int) -> list[Any]:
        return []

    def start_tick(self, state: list[Any], look: Any, rows: Ints, changed: bool) -> list[Any]:
        return [*state, [len(rows), changed]]

    def memo(self, state: list[Any], start: Any) -> dict[str, Any]:
        return {"turns": np.array([len(state)], dtype=np.float32)}


def test_objective_is_notified_of_state_changes_except_at_the_first_tick() -> None:
    who = clients(recipe(Replace(), objective=Turns()))
    state = play_rounds(who, 0, [0, 3])
    changes = [changed for _, changed in state.objective]
    assert changes == [False, True, True, True, True, True]  # ticks are in states 0, 1, 2, 0, 1, 2
    assert state.latent == 2


def test_start_tick_receives_the_memory_before_samples_arrive() -> None:
    who = clients(recipe(Replace(), objective=Turns()), ScriptedStream(start=1))
    state = play_rounds(who, 0, [0])
    assert [held for held, _ in state.objective] == [1, 4, 4]


def test_objective_of_an_absent_client_keeps_its_state() -> None:
    who = clients(recipe(Replace(), objective=Turns()), ScriptedStream(collects_when_absent=True))
    assert len(play_rounds(who, 0, [0, 5]).objective) == 6


def test_memo_has_the_state_of_the_objective_and_the_broadcast() -> None:
    who = clients(recipe(Replace(), objective=Turns()))
    broadcast = {"objective": {"word": np.array([7.0], dtype=np.float32)}}
    client_round = start_round(
        ClientContext(who, 0, 0, [FakeModelProbe([], [])], broadcast), who.new_client(0)
    )
    client_round.observe()
    memo = client_round.memo(np.zeros(2, dtype=np.float32))
    assert {name: value.tolist() for name, value in memo.items()} == {"word": [7.0], "turns": [1.0]}


def test_early_stopping_holds_out_a_tenth_and_stops_after_a_small_gain() -> None:
    who = clients(
        recipe(Replace(), stopping=GainThreshold(gain=0.3)),
        ScriptedStream(per_tick=20),
        capacity=20,
    )
    look = FakeModelProbe([], loss=1.0)
    client_round = start_round(ClientContext(who, 0, 0, [look]), who.new_client(0))
    client_round.observe()
    batches = client_round.batches()
    assert not {row for batch in batches for row in batch.rows.tolist()} & set(
        client_round.rows[::10].tolist()
    )
    look.loss = 0.6  # by 0.4, and 0.3 / 1 is asked for
    client_round.end_tick()
    client_round.observe()
    assert client_round.batches()
    look.loss = 0.5  # by 0.1, and 0.3 / 2 is asked for
    client_round.end_tick()
    client_round.observe()
    assert client_round.batches() == []


class HoldsOutWhatIsNotThere(GainThreshold):
    def hold_out(self, num_rows: int) -> Ints:
        return np.array([num_rows])


def test_stopping_rule_with_invalid_positions_is_rejected() -> None:
    who = clients(recipe(Replace(), stopping=HoldsOutWhatIsNotThere()))
    client_round = start_round(
        ClientContext(who, 0, 0, [FakeModelProbe([], loss=1.0)]), who.new_client(0)
    )
    client_round.observe()
    with pytest.raises(
        ConfigError, match=r"hold_out must return .* in \[0, 4\), ascending, got \[4\]"
    ):
        client_round.batches()


def test_sample_ages_count_from_the_round_of_arrival() -> None:
    seen = RecordingSampleWeights()
    who = clients(
        recipe(Fifo(), sample_weights=seen), ScriptedStream(ticks=1, per_tick=2), capacity=4
    )
    state = who.new_client(0)
    for rnd in (0, 3):
        client_round = start_round(ClientContext(who, 0, rnd), state)
        run_round(client_round, 1)
        state = client_round.finish()
    # Born with four; two came in round 0, two in round 3.
    assert [holding.ages.tolist() for holding in seen.recorded] == [[1, 1, 1, 1], [4, 4, 1, 1]]
    assert state.since is not None
    assert state.since.tolist() == [0, 0, 3, 3]


def test_ages_of_samples_that_arrived_during_an_absence_count_from_their_arrival() -> None:
    seen = RecordingSampleWeights()
    world = ScriptedStream(ticks=1, per_tick=2, collects_when_absent=True)
    who = clients(recipe(Fifo(), sample_weights=seen), world, capacity=4)
    run_round(start_round(ClientContext(who, 0, 2), who.new_client(0)), 1)
    assert seen.recorded[-1].ages.tolist() == [2, 2, 1, 1]


def test_weights_of_a_mini_batch_are_unbiased() -> None:
    """Over all mini-batches of a pass, each sample has the weight that it has in the memory."""
    who = clients(
        recipe(Replace(), sample_weights=RecordingSampleWeights()),
        ScriptedStream(ticks=1, per_tick=4),
    )
    totals = np.zeros(4)
    for seed in range(1000):
        client_round = start_round(ClientContext(replace(who, seed=seed), 0, 0), who.new_client(0))
        client_round.observe()
        for rows, weights in client_round.batches():
            assert weights is not None
            np.add.at(totals, rows - client_round.rows.min(), weights)
    np.testing.assert_allclose(totals / 2000, [0.1, 0.2, 0.3, 0.4], atol=0.02)


def test_batch_of_the_whole_memory_has_the_sample_weights() -> None:
    who = clients(
        recipe(Replace(), sample_weights=RecordingSampleWeights()),
        ScriptedStream(ticks=1, per_tick=3),
        capacity=3,
    )
    client_round = start_round(ClientContext(who, 0, 0), who.new_client(0))
    client_round.observe()
    weights = client_round.batches()[0].weights
    assert weights is not None
    np.testing.assert_allclose(weights, [1 / 6, 2 / 6, 3 / 6], rtol=1e-6)


def test_client_whose_sample_weights_are_zero_does_not_train() -> None:
    who = clients(recipe(Replace(), sample_weights=RecordingSampleWeights(), weights=ByWeight()))
    client_round = start_round(
        ClientContext(who, 0, 0, received={"sample_weights": {"assigned": np.zeros(1, "f4")}}),
        who.new_client(0),
    )
    assert run_round(client_round) == []
    assert client_round.reports() == {"total_weight": 0.0}


@dataclass(frozen=True)
class Concluding(Turns):
    """An objective that writes down what came of every round."""

    per_session: bool = True

    def init(self, num_params: int) -> Any:
        return []

    def start_tick(self, state: Any, look: Any, rows: Ints, changed: bool) -> Any:
        return state

    def memo(self, state: Any, start: Any) -> Any:
        return {"before": np.array(state, dtype=np.float32)}

    def finish_round(self, state: Any, broadcast: Any, summary: TrainingSummary) -> Any:
        word = float(broadcast["number"][0])
        return [*state, word], {"count": np.array([len(state) + 1.0], dtype=np.float32)}


def concluded(
    who: ClientProgram, state: ClientState, rnd: int, **when: int
) -> tuple[ClientState, Any, Any]:
    broadcast = {"objective": {"number": np.array([rnd], dtype=np.float32)}}
    client_round = start_round(
        ClientContext(who, 0, rnd, [FakeModelProbe([0.0])], broadcast, **when), state
    )
    run_round(client_round)
    before = client_round.memo(np.zeros(1, dtype=np.float32))["before"].tolist()
    client_round.finish_round(TrainingSummary(np.zeros(1, "f4"), np.ones(1, "f4"), 3, 0.1, 0.9))
    return client_round.finish(), before, client_round.upload()


def test_finish_round_receives_the_summary_and_returns_uploads() -> None:
    who = clients(replace(recipe(Fifo()), objective=Concluding()))
    state, _, said = concluded(who, who.new_client(0), 4)
    assert state.objective == [4.0]
    assert {name: words.tolist() for name, words in said.items()} == {"objective.count": [1.0]}


def test_objective_state_is_reset_per_session() -> None:
    who = clients(replace(recipe(Fifo()), objective=Concluding()))
    state = who.new_client(0)
    knew = []
    for rnd, session in enumerate([0, 0, 1, 1, 3]):
        state, before, _ = concluded(who, state, rnd, session=session)
        assert state.session == session
        knew.append(before)
    assert knew == [[], [0.0], [], [2.0], []]


def test_objective_state_can_outlast_a_session() -> None:
    who = clients(replace(recipe(Fifo()), objective=Concluding(per_session=False)))
    state = who.new_client(0)
    for rnd, session in enumerate([0, 1, 1]):
        state, _, _ = concluded(who, state, rnd, session=session)
    assert state.objective == [0.0, 1.0, 2.0]


def test_probe_round_has_a_fresh_objective_state_and_its_own_batches() -> None:
    who = clients(replace(recipe(UniformRatio()), objective=Concluding()), capacity=50)
    state, _, _ = concluded(who, who.new_client(0), 0)
    _, before, _ = concluded(who, state, 1, probe_round=1)
    assert before == []
    broadcast = {"objective": {"number": np.zeros(1, dtype=np.float32)}}
    client_rounds = [
        start_round(
            ClientContext(who, 0, 1, [FakeModelProbe([0.0])], broadcast, probe_round=probe_round),
            state,
        )
        for probe_round in (0, 1, 2, 1)
    ]
    drawn = [run_round(client_round) for client_round in client_rounds]
    assert drawn[0] != drawn[1]
    assert drawn[1] != drawn[2]
    assert drawn[1] == drawn[3]
    assert all(
        client_round.rows.tolist() == client_rounds[0].rows.tolist()
        for client_round in client_rounds
    )


def test_probe_round_uses_the_state_of_an_objective_that_outlasts_sessions() -> None:
    who = clients(replace(recipe(Fifo()), objective=Concluding(per_session=False)))
    state, _, _ = concluded(who, who.new_client(0), 0)
    _, before, _ = concluded(who, state, 1, probe_round=1)
    assert before == [0.0]
