from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import plain, stored
from contracts.looks import FakeLook
from recipes.script import (
    LABELS,
    Diary,
    Expects,
    ForesightedDiary,
    ReportsAge,
    Script,
    clients,
    live,
    played,
    recipe,
)
from thalweg.aggregation import ShiftAware
from thalweg.core.errors import ConfigError
from thalweg.core.types import Intake, Ints
from thalweg.forecast import Bayesian, Growing
from thalweg.local import Sgd
from thalweg.memory import Dds, Fifo, Importance, Ode, Reservoir, UniformRatio
from thalweg.recipes.client import Clients
from thalweg.recipes.visit import enter
from thalweg.selection import Available
from thalweg.streams import Replay, Setting


def test_the_memory_is_asked_once_per_tick_with_what_has_just_arrived() -> None:
    diary = Diary()
    who = clients(recipe(diary))
    live(enter(who, 1, who.newborn(1), 0))
    assert [intake.state for intake in diary.shown] == [0, 1, 2]
    assert [(intake.held, intake.num_new, intake.capacity) for intake in diary.shown] == [
        (4, 4, 4)
    ] * 3
    first = diary.shown[0]
    assert first.held_labels.tolist() == LABELS[100_000:100_004].tolist()
    assert first.new_labels.tolist() == LABELS[110_000:110_004].tolist()
    assert diary.shown[1].held_labels.tolist() == LABELS[110_000:110_004].tolist()


def test_a_memory_of_five_hundred_renews_268_276_and_167() -> None:
    world = Script(start=500, per_tick=500)
    who = clients(recipe(Dds(), forecast=Expects()), world, capacity=500)
    visit = enter(who, 0, who.newborn(0), 0)
    renewed = []
    for arrival in visit.arrivals:
        before = visit.rows
        visit.observe()
        assert len(visit.rows) == 500
        renewed.append(np.count_nonzero(visit.rows != before))
        assert np.isin(arrival.items, visit.rows).sum() == renewed[-1]
    assert renewed == [268, 276, 167]


def test_the_forecast_learns_of_a_round_only_when_it_is_over() -> None:
    who = clients(
        recipe(UniformRatio(), forecast=Bayesian(), weights=ReportsAge()), Script(ticks=1)
    )
    visit = enter(who, 0, who.newborn(0), 0)
    assert visit.reports()["expected"] == pytest.approx(1 / 3)
    live(visit, ticks=1)
    assert visit.outlook.probs == pytest.approx([1 / 3] * 3)
    assert visit.reports()["expected"] == pytest.approx(1 / 3), "no leak of this round's states"
    following = enter(who, 0, visit.leave(), 1)
    assert following.outlook.probs == pytest.approx([2 / 4, 1 / 4, 1 / 4])
    assert following.reports()["expected"] == pytest.approx(2 / 4)


def test_a_policy_with_foresight_is_asked_about_the_beginning_of_the_round() -> None:
    diary = ForesightedDiary()
    who = clients(recipe(diary, weights=ReportsAge()))
    visit = enter(who, 0, who.newborn(0), 0)
    live(visit)
    report = visit.reports()
    assert [report[f"renewal {m}"] for m in range(3)] == [0.125] * 3
    assert report["ticks"] == 3
    (asked,) = diary.asked
    assert plain(asked) == plain(diary.shown[0])


def test_foresight_knows_what_the_policy_remembered_when_the_round_began() -> None:
    who = clients(recipe(Reservoir(), weights=ReportsAge()))
    visit = enter(who, 0, who.newborn(0), 0)
    live(visit)
    assert visit.reports()["renewal 0"] == 4 / 8
    following = enter(who, 0, visit.leave(), 1)
    live(following)
    assert following.reports()["renewal 0"] == 4 / 20  # 4 at birth, 3 * 4 in the first round


def test_the_renewal_of_a_policy_without_foresight_is_measured() -> None:
    # Two of the four samples held are new after each tick.
    who = clients(recipe(Diary(), weights=ReportsAge()), Script(per_tick=2))
    visit = enter(who, 0, who.newborn(0), 0)
    live(visit)
    report = visit.reports()
    assert [report[f"renewal {m}"] for m in range(3)] == [0.5] * 3


def test_a_memory_fills_up_as_rows_arrive() -> None:
    world = Replay(num_clients=2, arrivals=3).build(
        Setting(np.zeros(40, dtype=np.int64), 1, ticks=1, capacity=8, rounds=9, seed=0)
    )
    who = clients(recipe(UniformRatio()), world)
    held = [len(played(who, 0, list(range(rounds))).rows) for rounds in range(5)]
    assert held == [0, 3, 6, 8, 8]


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (
            [0, 1, 2, 3, 4],
            r"at most 4 different positions in \[0, 8\), got 5 from 0 to 4, 5 of them",
        ),
        ([0, 8], "got 2 from 0 to 8"),
        ([-1, 2], "got 2 from -1 to 2"),
        ([1, 1, 2], "got 3 from 1 to 2, 2 of them different"),
    ],
)
def test_a_policy_that_keeps_what_it_cannot_is_named(kept: list[int], message: str) -> None:
    @dataclass(frozen=True)
    class Careless(Diary):
        def keep(self, state: None, intake: Intake, rng: np.random.Generator) -> tuple[None, Ints]:
            return None, np.array(kept)

    who = clients(recipe(Careless()))
    with pytest.raises(ConfigError, match=rf"Careless\.keep must return .*{message}"):
        enter(who, 0, who.newborn(0), 0).observe()


def test_a_policy_may_keep_nothing() -> None:
    @dataclass(frozen=True)
    class Forgets(Diary):
        def keep(self, state: None, intake: Intake, rng: np.random.Generator) -> tuple[None, Ints]:
            return None, np.empty(0, dtype=np.int64)

    who = clients(recipe(Forgets()))
    visit = enter(who, 0, who.newborn(0), 0)
    assert live(visit) == []
    assert visit.leave().rows.tolist() == []


@dataclass(frozen=True, eq=False)
class ThreeClasses(Script):
    """The same, but begins with class 0, and tick t of every round brings class 2 - t alone."""

    @property
    def labels(self) -> Ints:
        rows = np.arange(300_000)
        return np.where(rows % 100_000 < 10_000, 0, 2 - rows % 10_000 // 1_000)


def growing_clients(memory: Any, oracle: Any, **parts: Any) -> Clients:
    world = ThreeClasses(**parts)
    who = recipe(memory, forecast=oracle, weights=ShiftAware(mismatch="kme"))
    return Clients(who, world, world.labels, Sgd(lr=0.1, batch_size=3, steps=2), seed=0)


def test_an_oracle_with_states_of_its_own_names_them_to_the_memory() -> None:
    diary = Diary()
    who = growing_clients(diary, Growing(), ticks=2)
    newborn = who.newborn(0)
    assert newborn.forecast.signatures.tolist() == [[1, 0, 0]], "what it starts with"
    assert newborn.forecast.visits.tolist() == [0]
    visit = enter(who, 0, newborn, 0)
    live(visit, ticks=2)
    assert [intake.state for intake in diary.shown] == [1, 2]
    # Opened in mid-round: the memory sees as many states as it needs, the weights those of before.
    assert [len(intake.outlook.probs) for intake in diary.shown] == [2, 3]
    assert len(visit.outlook.probs) == 1
    assert visit.leave().forecast.visits.tolist() == [0, 1, 1]
    following = enter(who, 0, visit.leave(), 1)
    assert following.outlook.probs.tolist() == pytest.approx([1 / 5, 2 / 5, 2 / 5])


def test_a_state_opened_in_the_round_changes_no_report_of_this_round() -> None:
    for memory in (Dds(), Diary()):  # with and without foresight
        who = growing_clients(memory, Growing())
        visit = enter(who, 0, who.newborn(0), 0)
        visit.observe()
        before = dict(visit.reports())
        live(visit, 2)
        assert visit.reports() == before
        following = enter(who, 0, visit.leave(), 1)
        live(following)
        assert (len(visit.outlook.probs), len(following.outlook.probs)) == (1, 3)
        # Without foresight a score is the mean of the states' heterogeneities, which is ln 3 for a single class.
        wanted = 1.296702 if isinstance(memory, Dds) else np.log(3)
        assert following.reports() == {"shift_score": pytest.approx(wanted)}, "but that of the next"


def test_dds_has_a_ratio_for_a_state_that_was_opened_just_now() -> None:
    who = growing_clients(Dds(budget=0.5), Growing())
    visit = enter(who, 0, who.newborn(0), 0)
    live(visit)
    assert len(visit.rows) == 4
    assert np.unique(who.labels[visit.rows]).size > 1


def test_a_client_with_states_of_its_own_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    who = growing_clients(Dds(), Growing())
    state = played(who, 1, [0, 1])
    restored = stored(state, fresh=who.newborn(1))
    assert len(restored.forecast.visits) == 3
    assert len(who.newborn(1).forecast.visits) == 1
    assert plain(restored) == plain(state)
    assert live(enter(who, 1, restored, 2)) == live(enter(who, 1, state, 2))


def test_states_are_found_while_away_as_well() -> None:
    who = growing_clients(Dds(), Growing(), collects_when_absent=True)
    assert plain(played(who, 1, [0, 1, 2])) == plain(played(who, 1, [2]))


class NotingLook(FakeLook):
    """Notes how many samples it was asked to look at."""

    def glance(self, rows: Ints, received: bool) -> Any:
        self.asked.append([len(rows), int(received)])
        return super().glance(rows, received)


@pytest.mark.parametrize(
    ("memory", "asked"),
    [(Ode(), [[8, 1], [4, 1], [4, 1]]), (Importance(), [[8, 0], [8, 0], [8, 0]])],
)
def test_samples_are_looked_at_once_if_the_model_stays_the_same(
    memory: Any, asked: list[list[int]]
) -> None:
    who, look = clients(recipe(memory)), NotingLook([])
    live(enter(who, 0, who.newborn(0), 0, [look]))
    assert look.asked == asked


def test_without_an_emphasis_nobody_notes_when_samples_came() -> None:
    who = clients(recipe(Fifo()))
    assert played(who, 0, [0, 1]).since is None


@dataclass(frozen=True)
class Counting(Available):
    def begin_tally(self, num_classes: int) -> Ints:
        return np.zeros(num_classes, dtype=np.int64)

    def count(self, tally: Ints, labels: Ints) -> Ints:
        return tally + np.bincount(labels % len(tally), minlength=len(tally))


def test_a_selection_that_tallies_sees_every_label_that_arrives() -> None:
    who = clients(recipe(Fifo(), selection=Counting()))
    assert who.newborn(0).tally.sum() == 4, "what it starts with counts too"
    state = played(who, 0, [0, 1])
    assert state.tally.sum() == 4 + 2 * 3 * 4
    assert plain(stored(state, fresh=who.newborn(0))) == plain(state)
