"""Sessions at the server: their start, what is reset, and probe rounds that change no state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import round_trip, to_comparable
from contracts.examples import some_updates
from federation.test_server_round import Chatty, CountsSteps, Fake
from thalweg.aggregation import FedExp
from thalweg.core.capabilities import Broadcast
from thalweg.core.errors import ConfigError, Diverged
from thalweg.core.types import Floats32, Ints, Job, ParamSlice, Roster, Session, Updates
from thalweg.federation import ServerState, get_served_models, new_server, run_server_round
from thalweg.memory import Replace
from thalweg.recipes import Recipe
from thalweg.selection import Uniform
from thalweg.sessions import Average, Reset, SessionStart, WarmStart
from thalweg.sessions.base import ProbeRound

MODEL = np.zeros(3, dtype=np.float32)
PLAIN = Recipe("plain", Replace())
W = 3 * 4  # bytes of a model


@dataclass
class Theatre(Fake):
    """Three clients in sessions; client n changes parameter n by its learning-rate scale.

    All present clients are members.
    """

    numbers: Sequence[int] = (0, 0, 1, 1, 2, 2, 3, 3)  # of the session of every round
    heard: list[Broadcast | None] = field(default_factory=list)
    starts: list[tuple[int, list[float]]] = field(default_factory=list)  # rehearsal, model

    def roster(self, rnd: int) -> Roster:
        roster, number = super().roster(rnd), self.numbers[rnd]
        age = rnd - list(self.numbers).index(number)
        return replace(roster, session=Session(number, age, roster.present))

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        self.heard.append(broadcast)
        self.starts.append((jobs[0].probe_round, bank[0].tolist()))
        updates = super().train(jobs, bank, rnd)
        lr_scales = np.array([job.lr_scale for job in jobs], dtype=np.float32)
        return replace(updates, deltas=updates.deltas * lr_scales[:, None])


def play(recipe: Recipe, federation: Fake, rounds: int) -> list[tuple[ServerState, Updates | None]]:
    server, played = new_server(recipe, MODEL, 3, [ParamSlice("weight", 0, 3)]), []
    for _ in range(rounds):
        server, updates = run_server_round(server, federation, recipe, seed=0)
        played.append((server, updates))
    return played


def opening_with(session_start: SessionStart, **parts: Any) -> Recipe:
    return replace(PLAIN, session_start=session_start, **parts)


@dataclass(frozen=True)
class Diary:
    """A session start that records its arguments and returns a given model."""

    shown: list[list[float]] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)
    start: Any = None

    def init(self, model: Floats32, pieces: Sequence[ParamSlice]) -> int:
        self.given.append((model.tolist(), list(pieces)))
        return 0

    def choose_start(
        self, state: int, last: Floats32, run_probe_round: ProbeRound
    ) -> tuple[int, Floats32]:
        self.shown.append(last.tolist())
        return state + 1, last if self.start is None else self.start


# When a session begins


def test_session_start_is_called_in_the_first_round_of_each_session() -> None:
    diary = Diary()
    played = play(opening_with(diary), Theatre(present=[(0,)]), 6)
    assert diary.shown == [[0, 0, 0], [2, 0, 0], [4, 0, 0]]
    assert [server.session for server, _ in played] == [0, 0, 1, 1, 2, 2]
    assert [server.session_start for server, _ in played] == [1, 1, 2, 2, 3, 3]
    assert diary.given == [([0, 0, 0], [("weight", 0, 3)])]


def test_session_start_is_not_called_without_sessions() -> None:
    diary = Diary()
    play(opening_with(diary), Fake(), 3)
    assert diary.shown == []


def test_session_starts_when_a_client_is_present() -> None:
    diary = Diary()
    federation = Theatre(present=[(0,), (), (), (1,), (1,)], numbers=(0, 1, 1, 1, 1))
    played = play(opening_with(diary), federation, 5)
    assert diary.shown == [[0, 0, 0], [1, 0, 0]]
    assert [server.session for server, _ in played] == [0, 0, 0, 1, 1]


def test_session_without_present_clients_is_skipped() -> None:
    diary = Diary()
    play(opening_with(diary), Theatre(present=[(0,), (), (2,)], numbers=(0, 1, 2)), 3)
    assert diary.shown == [[0, 0, 0], [1, 0, 0]]


def test_sessions_may_have_one_round() -> None:
    recipe = opening_with(WarmStart(distance="raw"))
    played = play(recipe, Theatre(present=[(0,), (1,), (2,)], numbers=range(6)), 6)
    assert [len(server.session_start.models) for server, _ in played] == [0, 0, 1, 2, 3, 4]


def test_session_start_receives_the_evaluated_model() -> None:
    diary = Diary()
    recipe = opening_with(diary, server=FedExp())
    (before, _), _ = play(recipe, Theatre(), 3)[1:]
    shown = get_served_models(before, recipe).models[0]
    assert diary.shown[1] == shown.tolist() != before.bank[0].tolist()


@pytest.mark.parametrize("start", [np.zeros(2), np.full(3, np.nan), np.zeros((1, 3))])
def test_session_start_that_returns_no_model_is_named_in_the_error(start: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"Diary\.choose_start must return a model of 3 finite numbers"
    ):
        play(opening_with(Diary(start=start)), Theatre(), 1)


# What is forgotten


def test_server_rules_are_reset_in_each_session() -> None:
    played = play(replace(PLAIN, server=CountsSteps()), Theatre(), 5)
    assert [server.rules for server, _ in played] == [[1], [2], [1], [2], [1]]


@dataclass(frozen=True)
class Attentive(Chatty):
    """A half at the server that begins anew with every session, and notes who belongs to it."""

    begun: list[tuple[list[float], list[int]]] = field(default_factory=list)

    def start_session(self, state: float, last: Floats32, members: Ints) -> float:
        self.begun.append((last.tolist(), members.tolist()))
        return 100.0


def test_server_parts_that_track_sessions_are_notified_and_others_keep_their_state() -> None:
    attentive = Attentive()
    federation = Theatre(present=[(0,), (0,), (1, 2)])
    played = play(replace(PLAIN, memory=attentive), federation, 3)
    assert attentive.begun == [([], [0]), ([2, 0, 0], [1, 2])]
    assert [server.half_states["memory"] for server, _ in played] == [100, 100, 100]
    played = play(replace(PLAIN, memory=Chatty()), Theatre(), 3)
    assert [server.half_states["memory"] for server, _ in played] == [0, 0, 0]


# Rehearsals


WARM = WarmStart(distance="raw", first_start="latest", probe_rounds=2)


def jobs_of(federation: Fake, rnd: int) -> list[list[Job]]:
    return [jobs for jobs, when in federation.orders if when == rnd]


def test_probe_rounds_are_separate_jobs_before_the_first_round() -> None:
    federation = Theatre(present=[(0, 2)])
    play(opening_with(WARM), federation, 4)
    first, second, for_good = jobs_of(federation, 2)
    for number, jobs in ((1, first), (2, second)):
        assert jobs == [
            Job(client, lr_scale=0.5, session=1, probe_round=number) for client in (0, 2)
        ]
    assert for_good == [Job(client, session=1, age=0) for client in (0, 2)]
    assert [len(jobs_of(federation, rnd)) for rnd in range(4)] == [1, 1, 3, 1]
    assert jobs_of(federation, 3)[0][0].age == 1


def test_probe_rounds_start_from_the_pilot_and_the_session_from_the_chosen_model() -> None:
    federation = Theatre(present=[(0,)])
    played = play(opening_with(WARM), federation, 6)
    # Two rounds of the pilot session end at 2; rehearsals at half pace go to 2.5 and 3.
    assert federation.starts[2:5] == [(1, [2, 0, 0]), (2, [2.5, 0, 0]), (0, [2, 0, 0])]
    assert played[2][0].session_start.fingerprints[0].tolist() == [1, 0, 0]
    # The next session begins with the only past one, which ended at 4; the pilot is still 2.
    assert federation.starts[6:9] == [(1, [2, 0, 0]), (2, [2.5, 0, 0]), (0, [4, 0, 0])]


def without_opening(server: ServerState) -> Any:
    return to_comparable(server._replace(session_start=None))


@pytest.mark.parametrize("selection", [None, Uniform(0.5)])
def test_probe_rounds_do_not_change_the_server_state(selection: Any) -> None:
    """With one past session, or none, warm start goes on from the last model, as Previous does."""
    parts: dict[str, Any] = {"server": CountsSteps(), "memory": Attentive()}
    parts |= {} if selection is None else {"selection": selection}
    present = [(0, 1), (0, 1), (1, 2), (2,), (0, 2)]
    ours, theirs = Theatre(present=present), Theatre(present=present)
    warm = play(opening_with(WARM, **parts), ours, 6)
    previous = play(replace(PLAIN, **parts), theirs, 6)
    assert len(ours.orders) == len(theirs.orders) + 2 * 2
    for (mine, _), (other, _) in zip(warm, previous, strict=True):
        assert without_opening(mine) == without_opening(other)
    for_good = [(jobs, rnd) for jobs, rnd in ours.orders if jobs[0].probe_round == 0]
    assert for_good == theirs.orders, "the same clients are asked to do the same"


@dataclass
class Stage(Theatre):
    """Clients that count the rounds they remember: one that keeps its word forgets a rehearsal."""

    rounds: dict[int, int] = field(default_factory=dict)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        for job in jobs:
            if not job.probe_round:
                self.rounds[job.client] = self.rounds.get(job.client, 0) + 1
        return super().train(jobs, bank, rnd, broadcast)


def test_jobs_of_probe_rounds_are_marked() -> None:
    ours, theirs = Stage(present=[(0, 1), (1, 2)]), Stage(present=[(0, 1), (1, 2)])
    play(opening_with(WARM), ours, 8)
    play(PLAIN, theirs, 8)
    assert ours.rounds == theirs.rounds


def test_probe_rounds_use_fresh_states_of_server_rules_and_server_parts() -> None:
    federation = Theatre(present=[(0,)])
    recipe = opening_with(WARM, server=CountsSteps(), memory=Attentive())
    played = play(recipe, federation, 4)
    words = [
        broadcast["memory"]["sum"][0, 0] for broadcast in federation.heard if broadcast is not None
    ]
    assert words == [101, 101, 1, 1, 101, 101], (
        "what is told in probe_rounds is of a new server's half"
    )
    # CountsSteps adds the number of its steps: always the first one in a rehearsal.
    assert played[2][0].session_start.fingerprints[0].tolist() == [2, 2, 2]


def test_reports_and_uploads_of_probe_rounds_are_not_stored() -> None:
    federation = Theatre(present=[(0,), (0,), (1,)], scores=(1, 2, 3))
    recipe = opening_with(WARM)
    (before, _), (after, _) = play(recipe, federation, 3)[1:]
    assert before.known["shift_score"].tolist() == pytest.approx([1, np.nan, np.nan], nan_ok=True)
    assert after.known["shift_score"].tolist() == pytest.approx([1, 2, np.nan], nan_ok=True)
    assert after.times_present.tolist() == [2, 1, 0]


def test_costs_of_probe_rounds_are_counted_in_their_round() -> None:
    federation = Theatre(present=[(0, 2)], num_steps=(3, 0, 4))
    played = play(opening_with(WARM), federation, 4)
    extra_metrics = [dict(updates.extra_metrics) for _, updates in played if updates is not None]
    assert extra_metrics == [{}, {}, {"probe_rounds": 2, "probe_round_steps": 2 * 7}, {}]
    down = [updates.bytes_down for _, updates in played if updates is not None]
    assert down == [2 * W, 2 * W, 2 * W + 2 * 2 * W, 2 * W]
    up = [updates.extra_bytes_up for _, updates in played if updates is not None]
    assert up == [0, 0, 2 * 2 * W, 0]


def test_probe_round_without_training_returns_the_same_model() -> None:
    played = play(opening_with(WARM), Theatre(present=[(0,)], num_steps=(0, 0, 0)), 6)
    assert played[-1][0].bank.tolist() == [[0, 0, 0]]
    assert [f.tolist() for f in played[-1][0].session_start.fingerprints] == [[0, 0, 0], [0, 0, 0]]


@dataclass(frozen=True)
class Nobody:
    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return np.empty(0, dtype=np.int64)


def test_probe_round_without_a_cohort_sends_no_jobs() -> None:
    federation = Theatre()
    played = play(opening_with(WARM, selection=Nobody()), federation, 6)
    assert federation.orders == []
    assert played[-1][0].bank.tolist() == [[0, 0, 0]]


@dataclass(frozen=True)
class OnlyRehearses:
    """Choose client 0 in the first probe round and no client in the others."""

    calls: list[int] = field(default_factory=list)

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        is_first = roster.rnd not in self.calls
        self.calls.append(roster.rnd)
        return np.array([0] if is_first else [], dtype=np.int64)


def test_probe_rounds_are_counted_even_if_the_cohort_of_the_round_is_empty() -> None:
    played = play(opening_with(WARM, selection=OnlyRehearses()), Theatre(), 3)
    updates = played[-1][1]
    assert updates is not None
    assert len(updates) == 0
    assert (updates.bytes_down, updates.extra_bytes_up) == (W, W)  # one model each way
    assert updates.extra_metrics == {"probe_rounds": 2, "probe_round_steps": 1}


def test_probe_round_that_diverges_is_rejected() -> None:
    class Wild(Theatre):
        def train(self, jobs: Any, bank: Any, rnd: int, broadcast: Any = None) -> Updates:
            updates = super().train(jobs, bank, rnd, broadcast)
            bad = np.full_like(updates.deltas, np.nan if jobs[0].probe_round else 1.0)
            return replace(some_updates(updates.clients.tolist(), 3), deltas=bad)

    with pytest.raises(Diverged, match="round 3"):
        play(opening_with(WARM), Wild(), 3)


# All openings, through the server


def test_warm_start_recovers_the_models_of_alternating_clients() -> None:
    """Sessions of client 0, then 1, then 0 again; their updates have different directions."""
    present = [(2,), (2,), (0,), (0,), (1,), (1,), (0,), (0,)]
    recipe = opening_with(WarmStart(scale=1000.0, first_start="random"))
    federation = Theatre(present=present)
    played = play(recipe, federation, 8)
    assert federation.starts[-2] == (0, [2, 0, 0]), "as client 0 left it"
    assert played[-1][0].bank.tolist() == [[4, 0, 0]]


def test_average_and_reset_start_from_their_models() -> None:
    present = [(2,), (2,), (0,), (0,), (1,), (1,), (0,), (0,)]
    federation = Theatre(present=present)
    play(opening_with(Average()), federation, 8)
    # The pilot session ends at (0, 0, 2), the next ones at (2, 0, 2) and (2, 2, 2).
    assert federation.starts[-2] == (0, [2, 1, 2])
    federation = Theatre(present=present)
    play(opening_with(Reset()), federation, 8)
    assert [federation.starts[rnd][1] for rnd in (0, 2, 4, 6)] == [[0, 0, 0]] * 4


@pytest.mark.parametrize(
    "session_start",
    [WarmStart(history=1, keep="diverse"), WarmStart(pilot_sessions=2), Average(), Reset()],
    ids=repr,
)
def test_runs_resumed_after_any_round_have_the_same_bits(session_start: SessionStart) -> None:
    recipe = opening_with(session_start, server=CountsSteps())
    whole = [to_comparable(server) for server, _ in play(recipe, Theatre(), 8)]
    server, fresh = (new_server(recipe, MODEL, 3, [ParamSlice("weight", 0, 3)]) for _ in range(2))
    for expected in whole:
        server, _ = run_server_round(server, Theatre(), recipe, seed=0)
        assert to_comparable(server) == expected
        server = ServerState(**round_trip(server._asdict(), fresh._asdict()))
