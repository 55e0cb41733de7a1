from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import round_trip, to_comparable
from contracts.examples import some_roster, some_updates
from thalweg.aggregation import Adaptive, Averaged, ConstantDiscount
from thalweg.bank import BankAssignment, FedDrift
from thalweg.core.capabilities import Broadcast
from thalweg.core.errors import ConfigError
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
from thalweg.drift import (
    AlarmOptions,
    CombinedActions,
    Effect,
    OpenState,
    PageHinkley,
    Recluster,
    ScaleLr,
    Shrink,
)
from thalweg.federation import ServerState, new_server, run_server_round
from thalweg.federation.extensions.alarms import (
    act_on_alarms,
    collect_watched,
    init_alarms,
    update_alarms,
)
from thalweg.forecast import Growing
from thalweg.memory import Replace
from thalweg.recipes import Recipe
from thalweg.selection import Available

MODEL = np.zeros(3, dtype=np.float32)


@dataclass(frozen=True)
class Above(AlarmOptions):
    """An alarm whenever a client is wrong more often than not; notes what it was shown."""

    shown: list[tuple[list[int], list[float]]] = field(default_factory=list)

    def init(self, num_clients: int) -> Ints:
        return np.zeros(num_clients, dtype=np.int64)

    def update(self, state: Ints, clients: Ints, values: Floats) -> tuple[Ints, Any]:
        self.shown.append((clients.tolist(), values.round(6).tolist()))
        state = state.copy()
        state[clients] += 1
        return state, values > 0.5


@dataclass
class Erring:
    """Three clients, and how many of eight arriving samples each gets wrong in every round."""

    wrong: Sequence[Sequence[int]]
    tested: int = 8
    present: Sequence[Sequence[int]] = ((0, 1, 2),)
    jobs: list[list[Job]] = field(default_factory=list)
    broadcast: list[Broadcast] = field(default_factory=list)

    def roster(self, rnd: int) -> Roster:
        return some_roster(self.present[rnd % len(self.present)], 3, rnd=rnd)

    def survey(self, clients: Ints, stage: str, bank: Floats32, rnd: int) -> SurveyResponses:
        return {}

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        self.jobs.append(list(jobs))
        self.broadcast.append(broadcast or {})
        who = [job.client for job in jobs]
        return replace(
            some_updates(who, 3),
            num_tested=np.full(len(who), self.tested),
            num_correct=self.tested - np.array(self.wrong[rnd % len(self.wrong)])[who],
        )


def run_rounds(
    federation: Erring, alarm: Any, rounds: int, **parts: Any
) -> tuple[ServerState, list[Updates | None]]:
    recipe = Recipe("watchful", Replace(), alarm=alarm, **parts)
    server, history = new_server(recipe, MODEL, 3), []
    for _ in range(rounds):
        server, updates = run_server_round(server, federation, recipe, seed=0)
        history.append(updates)
    return server, history


def words(broadcast: Broadcast, name: str) -> list[float]:
    return broadcast["alarm"][name][:, 0].tolist()


def lr_scales(federation: Erring) -> list[list[float]]:
    return [[job.lr_scale for job in jobs] for jobs in federation.jobs]


def test_alarm_receives_the_error_of_each_client_after_each_round() -> None:
    alarm = Above()
    server, _ = run_rounds(Erring([[2, 4, 8], [0, 1, 2]]), alarm, rounds=2)
    assert alarm.shown == [([0, 1, 2], [0.25, 0.5, 1.0]), ([0, 1, 2], [0.0, 0.125, 0.25])]
    assert server.alarm is not None
    assert server.alarm.detector_state.tolist() == [2, 2, 2]


def test_alarm_can_watch_the_training_loss() -> None:
    alarm = Above(watch="loss")
    run_rounds(Erring([[0, 0, 0]]), alarm, rounds=1)
    assert alarm.shown == [([0, 1, 2], [1.5, 1.5, 1.5])]


def test_clients_without_a_value_are_skipped() -> None:
    updates = replace(
        some_updates([0, 1, 2], 3, num_steps=[3, 0, 1]),
        num_tested=np.array([4, 4, 0]),
        num_correct=np.array([1, 4, 0]),
    )
    everything = np.ones(3, dtype=bool)
    clients, errors = collect_watched(updates, everything, "error")
    assert (clients.tolist(), errors.tolist()) == ([0, 1], [0.75, 0.0])
    clients, losses = collect_watched(updates, everything, "loss")
    assert (clients.tolist(), losses.tolist()) == ([0, 2], [1.5, 1.5])


def test_counts_are_those_of_all_models_of_a_client() -> None:
    updates = replace(
        some_updates([1, 1, 2], 3),
        models=np.array([0, 1, 0]),
        num_tested=np.array([0, 8, 4]),
        num_correct=np.array([0, 6, 4]),
        losses=np.array([1.0, 2.0, 5.0]),
        num_steps=np.array([1, 1, 0]),
    )
    clients, counts = collect_watched(updates, np.ones(3, dtype=bool), "counts")
    assert clients.tolist() == [1, 2]
    np.testing.assert_array_equal(counts, [[2, 8, 1.5], [0, 4, np.nan]])


def test_error_is_that_of_the_predicting_model_and_loss_the_mean_over_models() -> None:
    updates = replace(
        some_updates([1, 1, 2], 3),
        models=np.array([0, 1, 0]),
        num_tested=np.array([0, 8, 8]),
        num_correct=np.array([0, 6, 2]),
        losses=np.array([1.0, 2.0, 5.0]),
    )
    everything = np.ones(3, dtype=bool)
    assert collect_watched(updates, everything, "error")[1].tolist() == [0.25, 0.75]
    assert collect_watched(updates, everything, "loss")[1].tolist() == [1.5, 5.0]


def test_alarm_receives_late_rows_in_the_order_of_training() -> None:
    alarm = Above()
    recipe = Recipe("late", Replace(), alarm=alarm, staleness=ConstantDiscount())
    updates = replace(
        some_updates([0, 1, 1], 3),
        trained_in=np.array([7, 5, 7]),
        num_correct=np.array([8, 1, 7]),
    )
    state, said = update_alarms(init_alarms(recipe, 3), recipe, updates, rnd=7)
    assert alarm.shown == [([1], [0.875]), ([0, 1], [0.0, 0.125])]
    assert said == [1]
    assert state is not None
    assert state.is_pending.tolist() == [False, True, False]


def test_metrics_list_the_clients_with_an_alarm() -> None:
    _, (first, second) = run_rounds(Erring([[8, 0, 6], [1, 1, 1]]), Above(), rounds=2)
    assert first is not None
    assert first.extra_metrics == {"alarms": [0, 2]}
    assert second is not None
    assert second.extra_metrics == {}


def test_alarm_takes_effect_once_in_the_next_round() -> None:
    federation = Erring([[8, 0, 0], [0, 0, 0], [0, 0, 0]])
    run_rounds(federation, Above(action=Shrink(0.25)), rounds=3)
    assert federation.broadcast[0] == {}
    assert words(federation.broadcast[1], "shrink") == [0.25, 1.0, 1.0]
    assert "open" not in federation.broadcast[1]["alarm"]
    assert federation.broadcast[2] == {}, "reported once"


def test_alarm_takes_effect_when_its_client_next_takes_part() -> None:
    federation = Erring([[8, 0, 0], [0] * 3, [0] * 3], present=((0, 1), (1, 2), (0, 2)))
    run_rounds(federation, Above(action=Shrink()), rounds=3)
    assert federation.broadcast[1] == {}
    assert words(federation.broadcast[2], "shrink") == [0.0, 1.0]


def test_scaled_learning_rate_lasts_for_some_rounds_of_the_client() -> None:
    federation = Erring(
        [[8, 0, 0], [0] * 3, [0] * 3, [0] * 3, [0] * 3], present=((0, 1), (0,), (1,))
    )
    run_rounds(federation, Above(action=ScaleLr(2.0, rounds=2)), rounds=5)
    assert lr_scales(federation) == [[1, 1], [2], [1], [2, 1], [1]]
    assert federation.broadcast == [{}] * 5, "no client receives a broadcast"


def test_another_alarm_restarts_the_scaled_rounds() -> None:
    federation = Erring([[8] * 3, [8] * 3, [0] * 3, [0] * 3, [0] * 3])
    run_rounds(federation, Above(action=ScaleLr(3.0, rounds=2)), rounds=5)
    assert [row[0] for row in lr_scales(federation)] == [1, 3, 3, 3, 1]


def test_learning_rate_scales_of_alarm_and_server_rule_are_multiplied() -> None:
    class Slow(Adaptive):
        def lr_scale(self, state: Any) -> float:
            return 0.5

    federation = Erring([[8, 0, 0], [0] * 3])
    run_rounds(federation, Above(action=ScaleLr(4.0)), rounds=2, server=Slow())
    assert lr_scales(federation) == [[0.5] * 3, [2.0, 0.5, 0.5]]


def test_state_is_opened_at_the_alarmed_client_only() -> None:
    federation = Erring([[0, 8, 0], [0] * 3])
    run_rounds(federation, Above(action=OpenState()), rounds=2, forecast=Growing())
    assert words(federation.broadcast[1], "open") == [0.0, 1.0, 0.0]
    assert "shrink" not in federation.broadcast[1]["alarm"]


def test_all_jobs_of_a_client_get_the_same_effect() -> None:
    recipe = Recipe(
        "watchful", Replace(), alarm=Above(action=CombinedActions(keep=0.0, factor=2.0, rounds=1))
    )
    state = init_alarms(recipe, 3)
    assert state is not None
    state = state._replace(is_pending=np.array([False, True, False]))
    jobs = [Job(0, 0), Job(1, 0), Job(1, 2)]
    after, hurried, broadcast = act_on_alarms(state, recipe, jobs, {})
    assert [job.lr_scale for job in hurried] == [1.0, 2.0, 2.0]
    assert words(broadcast, "shrink") == [1.0, 0.0, 0.0]
    assert after is not None
    assert not after.is_pending.any()
    assert after.lr_rounds_left.tolist() == [0, 0, 0], "two models are still one round"


@dataclass(frozen=True)
class NotesRosters(Available):
    rosters: list[Roster] = field(default_factory=list)

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        self.rosters.append(roster)
        return super().choose(roster, rng)


def test_roster_lists_alarmed_clients_until_they_take_part() -> None:
    selection = NotesRosters()
    federation = Erring([[8, 0, 8], [0] * 3, [0] * 3, [0] * 3], present=((0, 1, 2), (0, 1), (1, 2)))
    run_rounds(federation, Above(action=Recluster()), 4, selection=selection, bank=FedDrift())
    alarmed = [roster.alarmed for roster in selection.rosters]
    assert [None if who is None else who.tolist() for who in alarmed] == [[], [0, 2], [2], []]


def test_roster_lists_no_alarms_without_the_recluster_action() -> None:
    selection = NotesRosters()
    run_rounds(Erring([[8] * 3]), Above(), 2, selection=selection)
    assert [roster.alarmed for roster in selection.rosters] == [None, None]


def test_alarms_may_be_raised_in_every_round() -> None:
    """The memory shrinks in every round, and the learning rate stays scaled."""
    federation = Erring([[8, 8, 8]])
    alarm = Above(action=CombinedActions(keep=0.5, factor=2.0, rounds=3, open_state=True))
    server, history = run_rounds(federation, alarm, rounds=6, forecast=Growing())
    assert [updates.extra_metrics["alarms"] for updates in history if updates] == [[0, 1, 2]] * 6
    assert lr_scales(federation) == [[1] * 3] + [[2] * 3] * 5
    assert [words(broadcast, "shrink") for broadcast in federation.broadcast[1:]] == [[0.5] * 3] * 5
    assert server.alarm is not None
    assert server.alarm.is_pending.all()


def test_round_without_clients_keeps_the_alarm_state() -> None:
    federation = Erring([[8, 0, 0], [0] * 3], present=((0, 1, 2), ()))
    server, (_, nothing) = run_rounds(federation, Above(action=Shrink()), rounds=2)
    assert nothing is None
    assert server.alarm is not None
    assert server.alarm.is_pending.tolist() == [True, False, False]


def test_recipe_without_an_alarm_has_no_alarm_state() -> None:
    server, (updates,) = run_rounds(Erring([[8] * 3]), None, rounds=1)
    assert server.alarm is None
    assert updates is not None
    assert updates.extra_metrics == {}


def test_alarm_state_survives_a_checkpoint() -> None:
    alarm = PageHinkley(min_values=1, action=CombinedActions(keep=0.0, factor=2.0, rounds=4))
    federation = Erring([[0] * 3, [0] * 3, [8, 0, 0], [0] * 3, [0, 8, 0]])
    server, _ = run_rounds(federation, alarm, rounds=5)  # two alarms, one of which has acted twice
    fresh = new_server(Recipe("watchful", Replace(), alarm=alarm), MODEL, 3)
    assert to_comparable(round_trip(server._asdict(), fresh._asdict())["alarm"]) == to_comparable(
        server.alarm
    )
    assert server.alarm is not None
    assert server.alarm.lr_rounds_left.tolist() == [2, 0, 0]
    assert server.alarm.is_pending.tolist() == [False, True, False]


# --- policies of the user's own may be wrong ---


@dataclass(frozen=True)
class Doubles:
    """An action of the user's own, which wants more than there is."""

    def effect(self) -> Effect:
        return Effect(keep=2.0)


def test_impossible_effect_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"Doubles\.effect must keep a share of the memory"):
        run_rounds(Erring([[0] * 3]), Above(action=Doubles()), rounds=1)


@dataclass(frozen=True)
class SaysTooLittle(Above):
    def update(self, state: Ints, clients: Ints, values: Floats) -> tuple[Ints, Any]:
        return state, np.array([True])


def test_alarm_with_a_mask_of_the_wrong_length_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match=r"SaysTooLittle\.update must return a bool for each of 3"
    ):
        run_rounds(Erring([[0] * 3]), SaysTooLittle(), rounds=1)


def test_alarms_restart_the_average_of_the_server_and_record_the_decision() -> None:
    rule, parts = Averaged(restart_share=0.6), {"server": Averaged(restart_share=0.6)}
    before, _ = run_rounds(Erring([[1, 1, 1]]), Above(), rounds=2, **parts)
    assert rule.eval_model(before.rules[0], before.bank[0]).tolist() != before.bank[0].tolist()
    one, history = run_rounds(Erring([[1, 1, 1], [1, 8, 1]]), Above(), rounds=2, **parts)
    assert one.rules[0].rounds == 2, "1 of 3 clients"
    assert "decisions" not in (history[1] and history[1].extra_metrics)
    server, history = run_rounds(Erring([[1, 1, 1], [1, 8, 8]]), Above(), rounds=2, **parts)
    assert rule.eval_model(server.rules[0], server.bank[0]).tolist() == server.bank[0].tolist()
    assert history[1] is not None
    (decision,) = history[1].extra_metrics["decisions"]
    assert (decision["what"], decision["alarmed"], decision["clients"]) == ("restart-average", 2, 3)
    assert "model" not in decision, "there is one"


def test_alarms_restart_the_average_of_the_model_that_their_clients_trained() -> None:
    @dataclass(frozen=True)
    class EvenOdd:
        is_single_model = False

        def init(self, num_clients: int, num_classes: int) -> None:
            return None

        def assign(self, state: None, roster: Roster, responses: Any, num_models: int) -> Any:
            mix = np.eye(2) if num_models == 2 else np.ones((2, 1))
            assert roster.cohort is not None
            cohort = roster.cohort
            return BankAssignment(None, mix, np.zeros(2, dtype=bool), cohort, cohort % 2)

        def shares(self, state: None, num_models: int) -> Floats:
            return np.full(num_models, 1 / num_models)

    @dataclass
    class TwoModels(Erring):
        def train(self, jobs: Sequence[Job], *args: Any) -> Updates:
            return replace(super().train(jobs, *args), models=np.array([job.model for job in jobs]))

    server, history = run_rounds(
        TwoModels([[1, 8, 1]]),
        Above(),
        rounds=1,
        server=Averaged(restart_share=1.0),
        bank=EvenOdd(),
    )
    assert [len(rule.mean) for rule in server.rules] == [3, 0]
    assert history[0] is not None
    assert [each["model"] for each in history[0].extra_metrics["decisions"]] == [1]


def test_a_session_start_restarts_the_average() -> None:
    @dataclass
    class TwoSessions(Erring):
        def roster(self, rnd: int) -> Roster:
            session = Session(rnd // 2, rnd % 2, np.arange(3))
            return replace(super().roster(rnd), session=session)

    server, _ = run_rounds(TwoSessions([[1, 1, 1]]), Above(), rounds=3, server=Averaged())
    assert server.rules[0].rounds == 1
