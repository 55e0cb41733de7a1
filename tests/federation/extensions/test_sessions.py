"""Sessions at the server: their start, what is reset, and probe rounds that change no state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import round_trip, to_comparable
from contracts.examples import some_updates
from federation.test_server_round import CountsSteps, Fake, SumMemory
from thalweg.aggregation import Averaged, FedExp
from thalweg.core.capabilities import Broadcast
from thalweg.core.errors import ConfigError, Diverged
from thalweg.core.types import (
    Floats32,
    Ints,
    Job,
    ParamSlice,
    Roster,
    Session,
    SurveyResponses,
    Updates,
)
from thalweg.federation import ServerState, get_served_models, new_server, run_server_round
from thalweg.memory import Replace
from thalweg.recipes import Recipe
from thalweg.selection import Uniform
from thalweg.sessions import Average, Judged, Presence, Reset, SessionStart, WarmStart
from thalweg.sessions.base import ProbeRound
from thalweg.sessions.judged import LATEST, MEAN

MODEL = np.zeros(3, dtype=np.float32)
PLAIN = Recipe("plain", Replace())
W = 3 * 4  # bytes of a model


@dataclass
class SessionFederation(Fake):
    """Three clients in sessions; client n changes parameter n by its learning-rate scale.

    All present clients are members.
    """

    numbers: Sequence[int] = (0, 0, 1, 1, 2, 2, 3, 3)  # of the session of every round
    broadcasts: list[Broadcast | None] = field(default_factory=list)
    starts: list[tuple[int, list[float]]] = field(default_factory=list)  # probe round, model

    def roster(self, rnd: int) -> Roster:
        roster, number = super().roster(rnd), self.numbers[rnd]
        age = rnd - list(self.numbers).index(number)
        return replace(roster, session=Session(number, age, roster.present))

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        self.broadcasts.append(broadcast)
        self.starts.append((jobs[0].probe_round, bank[0].tolist()))
        updates = super().train(jobs, bank, rnd)
        lr_scales = np.array([job.lr_scale for job in jobs], dtype=np.float32)
        return replace(updates, deltas=updates.deltas * lr_scales[:, None])


def run_rounds(
    recipe: Recipe, federation: Fake, rounds: int
) -> list[tuple[ServerState, Updates | None]]:
    server, history = new_server(recipe, MODEL, 3, [ParamSlice("weight", 0, 3)]), []
    for _ in range(rounds):
        server, updates = run_server_round(server, federation, recipe, seed=0)
        history.append((server, updates))
    return history


def recipe_with(session_start: SessionStart, **parts: Any) -> Recipe:
    return replace(PLAIN, session_start=session_start, **parts)


@dataclass(frozen=True)
class RecordingStart:
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
    recording = RecordingStart()
    history = run_rounds(recipe_with(recording), SessionFederation(present=[(0,)]), 6)
    assert recording.shown == [[0, 0, 0], [2, 0, 0], [4, 0, 0]]
    assert [server.session for server, _ in history] == [0, 0, 1, 1, 2, 2]
    assert [server.session_start for server, _ in history] == [1, 1, 2, 2, 3, 3]
    assert recording.given == [([0, 0, 0], [("weight", 0, 3)])]


def test_session_start_is_not_called_without_sessions() -> None:
    recording = RecordingStart()
    run_rounds(recipe_with(recording), Fake(), 3)
    assert recording.shown == []


def test_session_starts_when_a_client_is_present() -> None:
    recording = RecordingStart()
    federation = SessionFederation(present=[(0,), (), (), (1,), (1,)], numbers=(0, 1, 1, 1, 1))
    history = run_rounds(recipe_with(recording), federation, 5)
    assert recording.shown == [[0, 0, 0], [1, 0, 0]]
    assert [server.session for server, _ in history] == [0, 0, 0, 1, 1]


def test_session_without_present_clients_is_skipped() -> None:
    recording = RecordingStart()
    run_rounds(
        recipe_with(recording), SessionFederation(present=[(0,), (), (2,)], numbers=(0, 1, 2)), 3
    )
    assert recording.shown == [[0, 0, 0], [1, 0, 0]]


def test_sessions_may_have_one_round() -> None:
    recipe = recipe_with(WarmStart(distance="raw"))
    history = run_rounds(recipe, SessionFederation(present=[(0,), (1,), (2,)], numbers=range(6)), 6)
    assert [len(server.session_start.models) for server, _ in history] == [0, 0, 1, 2, 3, 4]


def test_session_start_receives_the_evaluated_model() -> None:
    recording = RecordingStart()
    recipe = recipe_with(recording, server=FedExp())
    (before, _), _ = run_rounds(recipe, SessionFederation(), 3)[1:]
    shown = get_served_models(before, recipe).models[0]
    assert recording.shown[1] == shown.tolist() != before.bank[0].tolist()


@pytest.mark.parametrize("start", [np.zeros(2), np.full(3, np.nan), np.zeros((1, 3))])
def test_session_start_that_returns_no_model_is_named_in_the_error(start: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"RecordingStart\.choose_start must return a model of 3 finite numbers"
    ):
        run_rounds(recipe_with(RecordingStart(start=start)), SessionFederation(), 1)


def test_metrics_of_a_session_start_belong_to_the_first_round_of_a_session() -> None:
    @dataclass(frozen=True)
    class CountingStart(RecordingStart):
        def extra_metrics(self, state: int) -> dict[str, int]:
            return {"starts": state}

    history = run_rounds(recipe_with(CountingStart()), SessionFederation(), 5)
    found = [{} if updates is None else updates.extra_metrics for _, updates in history]
    assert [each.get("starts") for each in found] == [1, None, 2, None, 3]


# What is reset


def test_server_rules_are_reset_in_each_session() -> None:
    history = run_rounds(replace(PLAIN, server=CountsSteps()), SessionFederation(), 5)
    assert [server.rules for server, _ in history] == [[1], [2], [1], [2], [1]]


@dataclass(frozen=True)
class SessionMemory(SumMemory):
    """A server part that is reset in every session and records its members."""

    begun: list[tuple[list[float], list[int]]] = field(default_factory=list)

    def start_session(self, state: float, last: Floats32, members: Ints) -> float:
        self.begun.append((last.tolist(), members.tolist()))
        return 100.0


def test_server_parts_that_track_sessions_are_notified_and_others_keep_their_state() -> None:
    memory = SessionMemory()
    federation = SessionFederation(present=[(0,), (0,), (1, 2)])
    history = run_rounds(replace(PLAIN, memory=memory), federation, 3)
    assert memory.begun == [([], [0]), ([2, 0, 0], [1, 2])]
    assert [server.part_states["memory"] for server, _ in history] == [100, 100, 100]
    history = run_rounds(replace(PLAIN, memory=SumMemory()), SessionFederation(), 3)
    assert [server.part_states["memory"] for server, _ in history] == [0, 0, 0]


# Probe rounds


WARM = WarmStart(distance="raw", first_start="latest", probe_rounds=2)


def jobs_of(federation: Fake, rnd: int) -> list[list[Job]]:
    return [jobs for jobs, when in federation.orders if when == rnd]


def test_probe_rounds_are_separate_jobs_before_the_first_round() -> None:
    federation = SessionFederation(present=[(0, 2)])
    run_rounds(recipe_with(WARM), federation, 4)
    first, second, real_rounds = jobs_of(federation, 2)
    for number, jobs in ((1, first), (2, second)):
        assert jobs == [
            Job(client, lr_scale=0.5, session=1, probe_round=number) for client in (0, 2)
        ]
    assert real_rounds == [Job(client, session=1, age=0) for client in (0, 2)]
    assert [len(jobs_of(federation, rnd)) for rnd in range(4)] == [1, 1, 3, 1]
    assert jobs_of(federation, 3)[0][0].age == 1


def test_probe_rounds_start_from_the_pilot_and_the_session_from_the_chosen_model() -> None:
    federation = SessionFederation(present=[(0,)])
    history = run_rounds(recipe_with(WARM), federation, 6)
    # The pilot session ends at 2; probe rounds with half the learning rate go to 2.5 and 3.
    assert federation.starts[2:5] == [(1, [2, 0, 0]), (2, [2.5, 0, 0]), (0, [2, 0, 0])]
    assert history[2][0].session_start.fingerprints[0].tolist() == [1, 0, 0]
    # The next session begins with the only past one, which ended at 4; the pilot is still 2.
    assert federation.starts[6:9] == [(1, [2, 0, 0]), (2, [2.5, 0, 0]), (0, [4, 0, 0])]


def without_session_start(server: ServerState) -> Any:
    return to_comparable(server._replace(session_start=None))


@pytest.mark.parametrize("selection", [None, Uniform(0.5)])
def test_probe_rounds_do_not_change_the_server_state(selection: Any) -> None:
    """With one past session, or none, warm start uses the last model, as Previous does."""
    parts: dict[str, Any] = {"server": CountsSteps(), "memory": SessionMemory()}
    parts |= {} if selection is None else {"selection": selection}
    present = [(0, 1), (0, 1), (1, 2), (2,), (0, 2)]
    ours, theirs = SessionFederation(present=present), SessionFederation(present=present)
    warm = run_rounds(recipe_with(WARM, **parts), ours, 6)
    previous = run_rounds(replace(PLAIN, **parts), theirs, 6)
    assert len(ours.orders) == len(theirs.orders) + 2 * 2
    for (mine, _), (other, _) in zip(warm, previous, strict=True):
        assert without_session_start(mine) == without_session_start(other)
    real_rounds = [(jobs, rnd) for jobs, rnd in ours.orders if jobs[0].probe_round == 0]
    assert real_rounds == theirs.orders, "jobs of real rounds are the same"


@dataclass
class CountingFederation(SessionFederation):
    """Counts the rounds of each client without probe rounds."""

    rounds: dict[int, int] = field(default_factory=dict)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        for job in jobs:
            if not job.probe_round:
                self.rounds[job.client] = self.rounds.get(job.client, 0) + 1
        return super().train(jobs, bank, rnd, broadcast)


def test_jobs_of_probe_rounds_are_marked() -> None:
    ours, theirs = (
        CountingFederation(present=[(0, 1), (1, 2)]),
        CountingFederation(present=[(0, 1), (1, 2)]),
    )
    run_rounds(recipe_with(WARM), ours, 8)
    run_rounds(PLAIN, theirs, 8)
    assert ours.rounds == theirs.rounds


def test_probe_rounds_use_fresh_states_of_server_rules_and_server_parts() -> None:
    federation = SessionFederation(present=[(0,)])
    recipe = recipe_with(WARM, server=CountsSteps(), memory=SessionMemory())
    history = run_rounds(recipe, federation, 4)
    sums = [
        broadcast["memory"]["sum"][0, 0]
        for broadcast in federation.broadcasts
        if broadcast is not None
    ]
    assert sums == [101, 101, 1, 1, 101, 101], (
        "probe rounds receive the broadcast of a new server part"
    )
    # CountsSteps adds the number of its steps: always the first one in a probe round.
    assert history[2][0].session_start.fingerprints[0].tolist() == [2, 2, 2]


def test_reports_and_uploads_of_probe_rounds_are_not_stored() -> None:
    federation = SessionFederation(present=[(0,), (0,), (1,)], scores=(1, 2, 3))
    recipe = recipe_with(WARM)
    (before, _), (after, _) = run_rounds(recipe, federation, 3)[1:]
    assert before.known["shift_score"].tolist() == pytest.approx([1, np.nan, np.nan], nan_ok=True)
    assert after.known["shift_score"].tolist() == pytest.approx([1, 2, np.nan], nan_ok=True)
    assert after.times_present.tolist() == [2, 1, 0]


def test_costs_of_probe_rounds_are_counted_in_their_round() -> None:
    federation = SessionFederation(present=[(0, 2)], num_steps=(3, 0, 4))
    history = run_rounds(recipe_with(WARM), federation, 4)
    extra_metrics = [dict(updates.extra_metrics) for _, updates in history if updates is not None]
    assert extra_metrics == [{}, {}, {"probe_rounds": 2, "probe_round_steps": 2 * 7}, {}]
    down = [updates.bytes_down for _, updates in history if updates is not None]
    assert down == [2 * W, 2 * W, 2 * W + 2 * 2 * W, 2 * W]
    up = [updates.extra_bytes_up for _, updates in history if updates is not None]
    assert up == [0, 0, 2 * 2 * W, 0]


def test_probe_round_without_training_returns_the_same_model() -> None:
    history = run_rounds(
        recipe_with(WARM), SessionFederation(present=[(0,)], num_steps=(0, 0, 0)), 6
    )
    assert history[-1][0].bank.tolist() == [[0, 0, 0]]
    assert [f.tolist() for f in history[-1][0].session_start.fingerprints] == [[0, 0, 0], [0, 0, 0]]


def test_probe_round_returns_the_model_of_an_averaged_rule_after_its_step() -> None:
    plain, averaged = (SessionFederation(present=[(0,)]) for _ in range(2))
    run_rounds(recipe_with(WARM), plain, 4)
    run_rounds(recipe_with(WARM, server=Averaged(models="after")), averaged, 4)
    # The pilot is the average of 1 and 2; two probe rounds move by 0.5 each.
    assert plain.starts[2:4] == [(1, [2, 0, 0]), (2, [2.5, 0, 0])]
    assert averaged.starts[2:4] == [(1, [1.5, 0, 0]), (2, [2, 0, 0])]


@dataclass(frozen=True)
class ChooseNone:
    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return np.empty(0, dtype=np.int64)


def test_probe_round_without_a_cohort_sends_no_jobs() -> None:
    federation = SessionFederation()
    history = run_rounds(recipe_with(WARM, selection=ChooseNone()), federation, 6)
    assert federation.orders == []
    assert history[-1][0].bank.tolist() == [[0, 0, 0]]


@dataclass(frozen=True)
class OnlyProbeRounds:
    """Choose client 0 in the first probe round and no client in the others."""

    calls: list[int] = field(default_factory=list)

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        is_first = roster.rnd not in self.calls
        self.calls.append(roster.rnd)
        return np.array([0] if is_first else [], dtype=np.int64)


def test_probe_rounds_are_counted_even_if_the_cohort_of_the_round_is_empty() -> None:
    history = run_rounds(recipe_with(WARM, selection=OnlyProbeRounds()), SessionFederation(), 3)
    updates = history[-1][1]
    assert updates is not None
    assert len(updates) == 0
    assert (updates.bytes_down, updates.extra_bytes_up) == (W, W)  # one model each way
    assert updates.extra_metrics == {"probe_rounds": 2, "probe_round_steps": 1}


def test_probe_round_that_diverges_is_rejected() -> None:
    class Diverging(SessionFederation):
        def train(self, jobs: Any, bank: Any, rnd: int, broadcast: Any = None) -> Updates:
            updates = super().train(jobs, bank, rnd, broadcast)
            bad = np.full_like(updates.deltas, np.nan if jobs[0].probe_round else 1.0)
            return replace(some_updates(updates.clients.tolist(), 3), deltas=bad)

    with pytest.raises(Diverged, match="round 3"):
        run_rounds(recipe_with(WARM), Diverging(), 3)


# All session starts, with run_server_round


def test_warm_start_recovers_the_models_of_alternating_clients() -> None:
    """Sessions of client 0, then 1, then 0 again; their updates have different directions."""
    present = [(2,), (2,), (0,), (0,), (1,), (1,), (0,), (0,)]
    recipe = recipe_with(WarmStart(scale=1000.0, first_start="random"))
    federation = SessionFederation(present=present)
    history = run_rounds(recipe, federation, 8)
    assert federation.starts[-2] == (0, [2, 0, 0]), "the last model of client 0"
    assert history[-1][0].bank.tolist() == [[4, 0, 0]]


def test_average_and_reset_start_from_their_models() -> None:
    present = [(2,), (2,), (0,), (0,), (1,), (1,), (0,), (0,)]
    federation = SessionFederation(present=present)
    run_rounds(recipe_with(Average()), federation, 8)
    # The pilot session ends at (0, 0, 2), the next ones at (2, 0, 2) and (2, 2, 2).
    assert federation.starts[-2] == (0, [2, 1, 2])
    federation = SessionFederation(present=present)
    run_rounds(recipe_with(Reset()), federation, 8)
    assert [federation.starts[rnd][1] for rnd in (0, 2, 4, 6)] == [[0, 0, 0]] * 4


@pytest.mark.parametrize(
    "session_start",
    [WarmStart(history=1, keep="diverse"), WarmStart(pilot_sessions=2), Average(), Reset()],
    ids=repr,
)
def test_runs_resumed_after_any_round_have_the_same_bits(session_start: SessionStart) -> None:
    recipe = recipe_with(session_start, server=CountsSteps())
    whole = [to_comparable(server) for server, _ in run_rounds(recipe, SessionFederation(), 8)]
    server, fresh = (new_server(recipe, MODEL, 3, [ParamSlice("weight", 0, 3)]) for _ in range(2))
    for expected in whole:
        server, _ = run_server_round(server, SessionFederation(), recipe, seed=0)
        assert to_comparable(server) == expected
        server = ServerState(**round_trip(server._asdict(), fresh._asdict()))


# Sessions that the recipe opens


OPENS = Presence(tolerance=0.3, risk=0.2)
SWITCH = [(0, 1)] * 5 + [(2,)] * 3


def test_trigger_opens_sessions_without_a_schedule() -> None:
    recording = RecordingStart()
    federation = Fake(present=SWITCH)
    history = run_rounds(recipe_with(recording, session_trigger=OPENS), federation, 8)
    assert [server.session for server, _ in history] == [0] * 5 + [1] * 3
    assert len(recording.shown) == 2
    ages = [(jobs[0].session, jobs[0].age) for jobs, _ in federation.orders]
    assert ages == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 1), (1, 2)]
    metrics = [{} if updates is None else dict(updates.extra_metrics) for _, updates in history]
    assert [len(each) for each in metrics] == [0] * 5 + [1, 0, 0]
    assert metrics[5]["decisions"] == [
        {
            "what": "open-session",
            "reason": "100% of 3 members changed (1 joined, 2 left; tolerance 30%)",
            "session": 1,
            "joined": 1,
            "left": 2,
            "share": 1.0,
        }
    ]


def test_trigger_replaces_the_schedule() -> None:
    federation = SessionFederation(present=SWITCH)  # a session every two rounds
    history = run_rounds(recipe_with(RecordingStart(), session_trigger=OPENS), federation, 8)
    assert [server.session for server, _ in history] == [0] * 5 + [1] * 3


def test_sessions_of_a_trigger_reset_rules_and_server_parts() -> None:
    memory = SessionMemory()
    recipe = replace(PLAIN, memory=memory, server=CountsSteps(), session_trigger=OPENS)
    history = run_rounds(recipe, Fake(present=SWITCH), 8)
    assert [server.rules[0] for server, _ in history] == [1, 2, 3, 4, 5, 1, 2, 3]
    assert [members for _, members in memory.begun] == [[0, 1], [2]]


@dataclass
class JudgingFederation(Fake):
    """Client n has the loss 1 + n - w, where w is the first parameter of a model."""

    asked: list[tuple[list[int], list[float]]] = field(default_factory=list)
    silent: bool = False

    def survey(self, clients: Ints, stage: Any, bank: Floats32, rnd: int) -> SurveyResponses:
        assert stage == "session_start"
        self.asked.append((clients.tolist(), bank[:, 0].tolist()))
        losses = 1 + clients[:, None] - bank[:, 0].astype(np.float64)
        if self.silent:
            return {}
        losses[clients == 0] = np.nan  # client 0 does not respond
        return {"candidate_losses": losses}


PRESENT = [(0, 1)] * 5 + [(1, 2)] * 5 + [(0, 1)] * 5


def test_clients_of_a_session_judge_the_candidates() -> None:
    recipe = recipe_with(Judged(pilot_sessions=0), session_trigger=OPENS)
    federation = JudgingFederation(present=PRESENT)
    history = run_rounds(recipe, federation, 15)
    # Client 0 moves the first parameter by one half per round: 2.5 in session 0, then never.
    ((clients, values),) = federation.asked[-1:]
    starts = [rnd for rnd, (_, updates) in enumerate(history) if updates and updates.extra_metrics]
    judged = [updates.extra_metrics.get("judged") for _, updates in history if updates is not None]
    assert starts[-1] == 10
    assert clients == [0, 1]
    assert judged[10]["candidates"][: len(values)] == [LATEST, "session 0", MEAN]
    assert judged[10]["clients"] == 1, "client 0 did not respond"
    best = int(np.argmax(values))
    assert judged[10]["chosen"] == judged[10]["candidates"][best]
    assert judged[10]["losses"] == pytest.approx([2 - value for value in values])
    updates = history[10][1]
    assert updates is not None
    assert updates.bytes_down == 2 * W + 2 * 3 * W, "three candidates to two clients"
    assert updates.extra_bytes_up == 3 * 8, "three losses of one client"


def test_session_without_answers_starts_with_the_latest_model() -> None:
    recipe = recipe_with(Judged(pilot_sessions=0), session_trigger=OPENS)
    silent = run_rounds(recipe, JudgingFederation(present=PRESENT, silent=True), 15)
    plain = run_rounds(replace(PLAIN, session_trigger=OPENS), Fake(present=PRESENT), 15)
    assert silent[-1][0].bank.tolist() == plain[-1][0].bank.tolist()


def test_judges_that_return_another_number_of_losses_are_rejected() -> None:
    class Wrong(JudgingFederation):
        def survey(self, clients: Ints, stage: Any, bank: Floats32, rnd: int) -> SurveyResponses:
            return {"candidate_losses": np.ones((len(clients), 1))}

    recipe = recipe_with(Judged(pilot_sessions=0), session_trigger=OPENS)
    with pytest.raises(ConfigError, match=r"must return one loss for each of 3 models, got 1"):
        run_rounds(recipe, Wrong(present=PRESENT), 15)


@pytest.mark.parametrize("session_start", [Judged(), Judged(history=1)], ids=repr)
def test_runs_with_a_trigger_resumed_after_any_round_have_the_same_bits(
    session_start: SessionStart,
) -> None:
    recipe = recipe_with(session_start, session_trigger=OPENS)
    federation = JudgingFederation(present=PRESENT)
    whole = [to_comparable(server) for server, _ in run_rounds(recipe, federation, 15)]
    server, fresh = (new_server(recipe, MODEL, 3, [ParamSlice("weight", 0, 3)]) for _ in range(2))
    for expected in whole:
        server, _ = run_server_round(server, federation, recipe, seed=0)
        assert to_comparable(server) == expected
        server = ServerState(**round_trip(server._asdict(), fresh._asdict()))
