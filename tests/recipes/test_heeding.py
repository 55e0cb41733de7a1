from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import plain
from recipes.script import Diary, Script, clients, live, played, recipe
from thalweg.drift import Note, OpenState, PageHinkley, Several, Shrink
from thalweg.emphasis import InverseStay
from thalweg.forecast import Exact, Growing
from thalweg.memory import Fifo, Reservoir
from thalweg.recipes.heeding import heeded, newest
from thalweg.recipes.visit import enter


def told(**words: float) -> dict[str, Any]:
    return {"alarm": {name: np.array([word], dtype=np.float32) for name, word in words.items()}}


def watchful(memory: Any, action: Any, **parts: Any) -> Any:
    return recipe(memory, alarm=PageHinkley(action=action), **parts)


def test_a_memory_shrinks_to_its_newest_samples() -> None:
    who = clients(watchful(Fifo(), Shrink(0.5)), Script(ticks=1, per_tick=2), capacity=8)
    state = played(who, 0, [0, 1])  # four at first, then two in each round
    assert state.since is not None
    assert state.since.tolist() == [0, 0, 0, 0, 0, 0, 1, 1]
    shrunk = heeded(who, 0, state, told(shrink=0.25))
    assert shrunk.rows.tolist() == [20_000, 20_001], "those of the second round"
    assert shrunk.since is not None
    assert shrunk.since.tolist() == [1, 1]
    assert heeded(who, 0, state, told(shrink=0.0)).rows.tolist() == []
    assert heeded(who, 0, state, told(shrink=1.0)) is state
    assert heeded(who, 0, state, {}) is heeded(who, 0, state) is state


def test_the_memory_keeps_the_order_that_its_policy_gave_it() -> None:
    since = np.array([4, 1, 3, 4, 2], dtype=np.int32)
    assert newest(since, 5, 3).tolist() == [0, 2, 3]
    assert newest(since, 5, 1).tolist() == [3], "of one round the last"
    assert newest(since, 5, 0).tolist() == []
    assert newest(None, 5, 2).tolist() == [3, 4]


def test_it_happens_before_samples_arrive() -> None:
    diary = Diary()
    who = clients(watchful(diary, Shrink(0.0)), capacity=4)
    visit = enter(who, 0, who.newborn(0), 0, heard=told(shrink=0.0))
    live(visit)
    assert [intake.held for intake in diary.shown] == [0, 4, 4]
    assert diary.shown[0].held_labels.tolist() == []


def test_what_was_collected_while_away_is_part_of_the_memory_that_shrinks() -> None:
    world = Script(ticks=1, per_tick=2, collects_when_absent=True)
    who = clients(watchful(Fifo(), Shrink(0.25)), world, capacity=8)
    visit = enter(who, 0, who.newborn(0), 2, heard=told(shrink=0.25))
    assert visit.rows.tolist() == [20_000, 20_001], "the newest quarter of 4 + 2 + 2"


def test_the_policy_begins_anew_with_what_is_left() -> None:
    who = clients(watchful(Reservoir(), Shrink(0.5)), capacity=4)
    state = played(who, 0, [0, 1])
    assert state.memory.seen == 4 + 2 * 3 * 4
    shrunk = heeded(who, 0, state, told(shrink=0.5))
    assert shrunk.memory.seen == 2
    live(enter(who, 0, shrunk, 2))


def test_an_emptied_memory_has_nothing_to_learn_from_until_samples_come() -> None:
    who = clients(watchful(Fifo(), Shrink(0.0)), Script(per_tick=0))
    visit = enter(who, 0, who.newborn(0), 0, heard=told(shrink=0.0))
    assert live(visit) == []
    assert visit.leave().rows.tolist() == []


@pytest.mark.parametrize(
    ("action", "noted"), [(Note(), False), (Shrink(0.0), False), (Shrink(0.5), True)]
)
def test_times_are_noted_only_if_the_newest_samples_must_be_found(action: Any, noted: bool) -> None:
    who = clients(watchful(Fifo(), action))
    assert (who.newborn(0).since is not None) == noted


def test_noting_times_changes_no_batch() -> None:
    plainly, noting = clients(recipe(Fifo())), clients(watchful(Fifo(), Shrink(0.5)))
    batches = []
    for who in (plainly, noting):
        visit = enter(who, 0, who.newborn(0), 0)
        visit.observe()
        batches.append(visit.batches())
    assert plain(batches[0]) == plain(batches[1])
    assert batches[1][0].weights is None


def test_an_emphasis_counts_stays_of_what_is_left() -> None:
    who = clients(watchful(Fifo(), Shrink(0.0), emphasis=InverseStay()))
    visit = enter(who, 0, played(who, 0, [0, 1]), 2, heard=told(shrink=0.0))
    visit.observe()
    assert visit.rows.tolist() == [30_000, 30_001, 30_002, 30_003]
    assert visit.batches() != []


def test_a_told_forecast_opens_a_state_with_the_next_samples() -> None:
    growing = watchful(Fifo(), OpenState(), forecast=Growing())
    one_class = np.zeros(300_000, dtype=np.int64)
    who = replace(clients(growing, Script(ticks=2)), labels=one_class)
    state = who.newborn(0)
    for word, visits in ((0.0, [2]), (1.0, [1, 1])):  # then again the older of two that are alike
        visit = enter(who, 0, state, 0, heard=told(open=word))
        live(visit, 2)
        assert visit.leave().forecast.visits.tolist() == visits


def test_both_are_done_at_once() -> None:
    action = Several(keep=0.5, open_state=True)
    who = clients(watchful(Fifo(), action, forecast=Growing()))
    after = heeded(who, 0, who.newborn(0), told(shrink=0.5, open=1.0))
    assert len(after.rows) == 2
    assert after.forecast.strange == 1


def test_who_was_told_something_that_it_cannot_do_goes_on() -> None:
    who = clients(recipe(Fifo(), forecast=Exact()))
    state = who.newborn(0)
    assert plain(heeded(who, 0, state, told(open=1.0))) == plain(state)
