"""Alarms in whole runs: two of four clients suddenly get other classes."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.runs import Interruption, check_engines_agree, check_same_bits, interrupt_after
from engine.recipe_runs import check_crosses
from thalweg.core.errors import ConfigError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Arrival, Floats, Ints, Supply
from thalweg.data import Dataset, Digits
from thalweg.drift import (
    CombinedActions,
    OpenState,
    PageHinkley,
    RecordOnly,
    RiverAlarm,
    ScaleLr,
    Shrink,
    WindowTest,
)
from thalweg.engine.loop import Result, run_plan
from thalweg.engine.plan import Plan, make_plan
from thalweg.evaluation.alarms import DriftRecord
from thalweg.forecast import Growing
from thalweg.local import LocalTraining
from thalweg.memory import Fifo
from thalweg.nets import Linear
from thalweg.recipes import Recipe, fedavg
from thalweg.scenarios import Scenario
from thalweg.streams import Setting, StateTable

SWITCH = 10  # the first round with other classes, counted from 0
PER_ROUND = 24


@dataclass(frozen=True, eq=False)
class SwitchingWorld:
    """Clients 0 and 1 have the first five classes and then the others, 2 and 3 always the first."""

    setting: Setting
    num_clients: int = 4
    ticks: int = 1
    collects_when_absent: bool = False
    has_clients_of_data: bool = False

    @cached_property
    def _halves(self) -> list[Ints]:
        return [np.flatnonzero((self.setting.labels >= 5) == late) for late in (False, True)]

    @property
    def state_table(self) -> StateTable:
        return StateTable(np.full((1, 10), 0.1), np.ones(1))

    @property
    def availability(self) -> Floats:
        return np.ones(4)

    @property
    def mixes(self) -> Floats:
        return np.full((4, 10), 0.1)

    def present(self, rnd: int) -> Ints:
        return np.arange(4)

    def capacity(self, client: int) -> int:
        return self.setting.capacity

    def supply(self, client: int) -> Supply:
        return Supply(float(PER_ROUND * self.setting.rounds), False, float(self.setting.rounds))

    def true_state_probs(self, client: int) -> Floats:
        return np.ones(1)

    def begin(self, client: int) -> tuple[None, Arrival]:
        return None, Arrival(np.empty(0, dtype=np.int64), 0)

    def emit(self, state: None, client: int, stream_round: int) -> tuple[None, list[Arrival]]:
        half = self._halves[client < 2 and stream_round >= SWITCH]
        rng = rng_for(self.setting.seed, Draw.STREAM, stream_round, client)
        return None, [Arrival(rng.choice(half, PER_ROUND), 0)]

    def drift_events(self) -> list[DriftRecord]:
        return [(SWITCH, 0, "label"), (SWITCH, 1, "label")]


@dataclass(frozen=True)
class Switching:
    def build(self, setting: Setting) -> SwitchingWorld:
        return SwitchingWorld(setting)


SCENARIO = Scenario(
    name="switching",
    data=Digits(),
    net=Linear(),
    world=Switching(),
    local=LocalTraining(lr=0.2, batch_size=12, passes=2),
    rounds=16,
    ticks=1,
    capacity=96,
    evaluate_every=16,
)
DATA: Dataset = Digits().load(None, 0)


def plan_of(alarm: Any, engine: str = "fast", **parts: Any) -> Plan:
    recipe = Recipe("watchful", Fifo(), alarm=alarm, **parts)
    return make_plan(recipe, SCENARIO, seed=0, engine=engine)


def play(plan: Plan, **options: Any) -> Result:
    return run_plan(plan, workers=1, data=DATA, **options)


@cache
def play_once(alarm: Any) -> Result:
    return play(plan_of(alarm))


@cache
def play_growing(alarm: Any) -> Result:
    return play(plan_of(alarm, forecast=Growing()))


def raised(result: Result) -> dict[int, list[int]]:
    return {row["round"]: row["alarms"] for row in result.metrics if "alarms" in row}


@pytest.mark.parametrize(
    "alarm",
    [
        PageHinkley(),
        WindowTest(reference=6, recent=2, significance=0.1),
        RiverAlarm("PageHinkley", "min_instances=5,delta=0.05,threshold=0.5,mode=up"),
    ],
    ids=repr,
)
def test_alarms_are_raised_for_the_two_clients_that_drifted_only(alarm: Any) -> None:
    result = play_once(alarm)
    assert {client for clients in raised(result).values() for client in clients} == {0, 1}
    assert result.alarms is not None
    assert (result.alarms["drifts"], result.alarms["missed"]) == (2, 0)
    assert result.alarms["false_alarms"] == 0
    assert 0 <= result.alarms["mean_delay"] <= 2


def test_scores_are_in_the_summary_of_the_run(tmp_path: Path) -> None:
    result = play(plan_of(PageHinkley()), out=tmp_path / "run")
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["alarms"] == result.alarms
    assert summary["alarms"]["by_kind"]["label"]["drifts"] == 2
    assert result.table().column("alarms").to_pylist().count(None) >= 10


def test_a_world_without_known_drifts_counts_alarms_only() -> None:
    sets = ["alarm=river", "alarm.name=DummyDriftDetector", "alarm.settings=t_0=1"]
    plan = make_plan("fedavg", "digits-partial", seed=1, rounds=3, overrides=sets)
    result = play(plan)
    assert result.alarms == {"raised": sum(row["cohort"] for row in result.metrics)}


def test_a_client_that_is_frozen_while_absent_drifts_by_its_own_clock() -> None:
    """Its fourth round is a later one of the run, and for some it never comes."""
    sets = [
        *("alarm=river", "alarm.name=DummyDriftDetector", "alarm.settings=t_0=1"),
        *("drift=sudden", "drift.at=3", "world.num_clients=6", "world.availability=0.5"),
        *("capacity=24", "ticks=1", "local.passes=1"),
    ]
    plan = make_plan("fedavg", "digits-partial", seed=2, rounds=7, overrides=sets)
    result = play(plan)
    assert result.alarms is not None
    drifted = [(row["round"], row["drifted"]) for row in result.metrics if "drifted" in row]
    assert result.alarms["drifts"] == sum(number for _, number in drifted) < 6
    assert min(rnd for rnd, _ in drifted) >= 4
    assert result.alarms["missed"] == 0, "whoever takes part is alarmed, in the round of its drift"
    assert result.alarms["mean_delay"] == 0.0


def test_an_alarm_without_an_action_changes_no_bit() -> None:
    without, noted = play_once(None), play_once(PageHinkley())
    assert np.array_equal(without.model, noted.model)
    assert without.alarms is None
    assert raised(noted) != {}
    for ours, theirs in zip(noted.metrics, without.metrics, strict=True):
        kept = set(ours) - {"seconds", "core_seconds", "alarms", "drifts"}
        assert {name: ours[name] for name in kept} == {name: theirs[name] for name in kept}


def test_an_alarm_that_is_never_raised_changes_no_bit_whatever_its_action() -> None:
    never = PageHinkley(threshold=1e6, action=CombinedActions(keep=0.5, factor=2.0))
    assert np.array_equal(play_once(None).model, play(plan_of(never)).model)


@pytest.mark.parametrize("action", [Shrink(0.25), Shrink(), ScaleLr(3.0, rounds=2)], ids=repr)
def test_an_action_changes_the_round_after_the_alarm_and_none_before(action: Any) -> None:
    noted, acted = play_once(PageHinkley()), play(plan_of(PageHinkley(action=action)))
    first = min(raised(noted))
    losses = [[row["loss"] for row in result.metrics] for result in (noted, acted)]
    assert losses[0][:first] == losses[1][:first]
    assert losses[0][first] != losses[1][first]


ACTING = [
    PageHinkley(action=CombinedActions(keep=0.5, factor=2.0)),
    RiverAlarm("PageHinkley", "min_instances=3,threshold=0.3,mode=up", action=Shrink()),
    RiverAlarm("KSWIN", "window_size=6,stat_size=2,alpha=0.9", action=ScaleLr()),
    PageHinkley(action=OpenState()),
]


@pytest.mark.parametrize("alarm", ACTING, ids=repr)
@pytest.mark.parametrize("after", [pytest.param(9, marks=pytest.mark.slow), 12])
def test_a_resumed_run_has_the_same_bits(alarm: Any, after: int, tmp_path: Path) -> None:
    plan = plan_of(alarm, forecast=Growing())
    whole = play_growing(alarm)
    assert raised(whole) != {}
    with pytest.raises(Interruption):
        play(plan, out=tmp_path / "cut", watch=interrupt_after(after))
    again = plan_of(replace(alarm), forecast=Growing())  # has no detector at hand
    check_same_bits(whole, play(again, out=tmp_path / "cut", resume=True))


@pytest.mark.parametrize("alarm", ACTING, ids=repr)
def test_both_engines_agree(alarm: Any) -> None:
    fast = play_growing(alarm)
    slow = play(plan_of(alarm, "reference", forecast=Growing()))
    check_engines_agree(fast, slow)
    assert raised(fast) == raised(slow) != {}


@dataclass(frozen=True)
class Always(PageHinkley):
    """Cries wolf in every round."""

    def update(self, state: Any, clients: Ints, values: Floats) -> Any:
        return state, np.ones(len(clients), dtype=bool)


def test_an_alarm_in_every_round_is_defined_and_scored() -> None:
    action = CombinedActions(keep=0.0, factor=1.5, open_state=True)
    result = play(plan_of(Always(action=action), forecast=Growing(max_states=5)))
    assert np.isfinite(result.model).all()
    assert raised(result) == {rnd: [0, 1, 2, 3] for rnd in range(1, 17)}
    assert result.alarms is not None
    assert (result.alarms["missed"], result.alarms["mean_delay"]) == (0, 0.0)
    assert result.alarms["false_alarms"] == 4 * 16 - 2


def test_alarms_give_the_same_bits_by_bytes() -> None:
    overrides = [
        *("capacity=24", "local.passes=1", "ticks=2", "world.num_clients=6"),
        *("world.availability=0.6", "forecast=growing", "alarm=river"),
        *("alarm.name=DummyDriftDetector", "alarm.settings=t_0=1", "alarm.action=combined"),
        *("alarm.action.keep=0.5", "alarm.action.open_state=true"),
    ]
    plan = make_plan("fedavg", "digits-partial", seed=2, engine="reference", overrides=overrides)
    check_crosses(plan, rounds=4)


def dropping_plan(engine: str, *more: str) -> Plan:
    overrides = [
        *("capacity=48", "local.passes=2", "ticks=2", "world.num_clients=6", "memory=balanced"),
        *("world.availability=1", "alarm=river", "alarm.name=DummyDriftDetector"),
        *("alarm.settings=t_0=1", "alarm.action=drop-outdated", "alarm.action.margin=0"),
        *("drift=sudden", "drift.at=2", "rounds=5", "world.absent=collecting", *more),
    ]
    return make_plan("fedavg", "digits-full", seed=2, engine=engine, overrides=overrides)


def test_engines_agree_on_dropped_samples() -> None:
    fast, slow = (
        run_plan(dropping_plan(engine), workers=1, data=DATA) for engine in ("fast", "reference")
    )
    check_engines_agree(fast, slow)
    kept = run_plan(dropping_plan("fast", "alarm.action=record-only"), workers=1, data=DATA)
    assert not np.array_equal(fast.model, kept.model)


@pytest.mark.parametrize(
    "part",
    ["bank=fedrc", "bank=fine-tuned", "bank=one-per-client", "objective=elastic"],
)
def test_engines_agree_on_samples_dropped_with_models_of_a_client(part: str) -> None:
    fast, slow = (
        run_plan(dropping_plan(engine, part), workers=1, data=DATA)
        for engine in ("fast", "reference")
    )
    check_engines_agree(fast, slow)


RESTARTING = ("server=averaged", "server.power=3", "server.rule=fedavgm", "rounds=6")


def test_restarts_of_the_average_survive_a_resume_and_engines_agree(tmp_path: Path) -> None:
    # The detector raises an alarm in the first two rounds of each client, then again and again.
    fast, slow = (
        run_plan(dropping_plan(engine, *RESTARTING), workers=1, data=DATA)
        for engine in ("fast", "reference")
    )
    check_engines_agree(fast, slow)
    restarts = [row["round"] for row in fast.metrics if "decisions" in row]
    assert restarts
    with pytest.raises(Interruption):
        run_plan(
            dropping_plan("fast", *RESTARTING),
            workers=1,
            data=DATA,
            out=tmp_path / "cut",
            watch=interrupt_after(restarts[0]),
        )
    plan = dropping_plan("fast", *RESTARTING)
    again = run_plan(plan, workers=1, data=DATA, out=tmp_path / "cut", resume=True)
    check_same_bits(fast, again)
    assert [row["round"] for row in again.metrics if "decisions" in row] == restarts


def test_an_average_without_an_alarm_rejects_settings_of_its_restarts() -> None:
    def start(setting: str) -> None:
        sets = ["server=averaged", setting, "rounds=1"]
        run_plan(make_plan("fedavg", "digits-full", overrides=sets), workers=1, data=DATA)

    start("server.restart_share=none")
    for setting in ("server.restart_share=0.5", "server.restart_window=9"):
        with pytest.raises(ConfigError, match=f"{setting} has no effect without an alarm"):
            start(setting)


def test_dropped_samples_are_the_same_by_bytes() -> None:
    check_crosses(dropping_plan("reference", *RESTARTING), rounds=4)


def test_an_alarm_on_errors_needs_predictions() -> None:
    for watch, ok in (("error", False), ("loss", True)):
        sets = ["alarm=page-hinkley", f"alarm.watch={watch}", "prequential=0"]
        if ok:
            make_plan(fedavg(), SCENARIO, overrides=sets)
        else:
            with pytest.raises(ConfigError, match=r"prequential=32\), or use the loss"):
                make_plan(fedavg(), SCENARIO, overrides=sets)


def test_an_unknown_detector_leaves_no_folder_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'KSWIN'"):
        play(plan_of(RiverAlarm("KSWN")), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_alarms_can_be_set_by_name() -> None:
    overrides = ["alarm=page-hinkley", "alarm.threshold=1.5", "alarm.action=shrink"]
    plan = make_plan("fedavg", "digits-full", overrides=[*overrides, "alarm.action.keep=0.3"])
    assert plan.recipe.alarm == PageHinkley(threshold=1.5, action=Shrink(0.3))
    assert (
        make_plan("fedavg", "digits-full", overrides=["alarm=ddm"]).recipe.alarm.action
        == RecordOnly()
    )  # type: ignore[union-attr]
