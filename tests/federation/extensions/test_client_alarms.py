from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import to_comparable
from federation.scripted_stream import (
    RecordingMemory,
    ScriptedStream,
    clients,
    play_rounds,
    recipe,
    run_round,
)
from thalweg.drift import CombinedActions, DropOutdated, OpenState, PageHinkley, RecordOnly, Shrink
from thalweg.federation import ClientContext, start_round
from thalweg.federation.extensions.alarms import apply_alarm, find_newest, find_outdated
from thalweg.forecast import Exact, Growing
from thalweg.memory import Fifo, Reservoir
from thalweg.sample_weights import InverseAge


def broadcast(**words: float) -> dict[str, Any]:
    return {"alarm": {name: np.array([word], dtype=np.float32) for name, word in words.items()}}


def watchful(memory: Any, action: Any, **parts: Any) -> Any:
    return recipe(memory, alarm=PageHinkley(action=action), **parts)


def test_memory_shrinks_to_its_newest_samples() -> None:
    who = clients(watchful(Fifo(), Shrink(0.5)), ScriptedStream(ticks=1, per_tick=2), capacity=8)
    state = play_rounds(who, 0, [0, 1])  # four at first, then two in each round
    assert state.since is not None
    assert state.since.tolist() == [0, 0, 0, 0, 0, 0, 1, 1]
    shrunk = apply_alarm(ClientContext(who, 0, 0, received=broadcast(shrink=0.25)), state)
    assert shrunk.rows.tolist() == [20_000, 20_001], "those of the second round"
    assert shrunk.since is not None
    assert shrunk.since.tolist() == [1, 1]
    assert (
        apply_alarm(ClientContext(who, 0, 0, received=broadcast(shrink=0.0)), state).rows.tolist()
        == []
    )
    assert apply_alarm(ClientContext(who, 0, 0, received=broadcast(shrink=1.0)), state) is state
    assert (
        apply_alarm(ClientContext(who, 0, 0, received={}), state)
        is apply_alarm(ClientContext(who, 0, 0), state)
        is state
    )


def test_shrunk_memory_keeps_its_order() -> None:
    since = np.array([4, 1, 3, 4, 2], dtype=np.int32)
    assert find_newest(since, 5, 3).tolist() == [0, 2, 3]
    assert find_newest(since, 5, 1).tolist() == [3], "the last one of a round"
    assert find_newest(since, 5, 0).tolist() == []
    assert find_newest(None, 5, 2).tolist() == [3, 4]


def test_memory_shrinks_before_samples_arrive() -> None:
    diary = RecordingMemory()
    who = clients(watchful(diary, Shrink(0.0)), capacity=4)
    client_round = start_round(
        ClientContext(who, 0, 0, received=broadcast(shrink=0.0)), who.new_client(0)
    )
    run_round(client_round)
    assert [intake.held for intake in diary.recorded] == [0, 4, 4]
    assert diary.recorded[0].held_labels.tolist() == []


def test_samples_collected_while_absent_are_part_of_the_shrunk_memory() -> None:
    world = ScriptedStream(ticks=1, per_tick=2, collects_when_absent=True)
    who = clients(watchful(Fifo(), Shrink(0.25)), world, capacity=8)
    client_round = start_round(
        ClientContext(who, 0, 2, received=broadcast(shrink=0.25)), who.new_client(0)
    )
    assert client_round.rows.tolist() == [20_000, 20_001], "the newest quarter of 4 + 2 + 2"


def test_memory_policy_is_reset_with_the_remaining_samples() -> None:
    who = clients(watchful(Reservoir(), Shrink(0.5)), capacity=4)
    state = play_rounds(who, 0, [0, 1])
    assert state.memory.seen == 4 + 2 * 3 * 4
    shrunk = apply_alarm(ClientContext(who, 0, 0, received=broadcast(shrink=0.5)), state)
    assert shrunk.memory.seen == 2
    run_round(start_round(ClientContext(who, 0, 2), shrunk))


def test_emptied_memory_has_no_batches_until_samples_arrive() -> None:
    who = clients(watchful(Fifo(), Shrink(0.0)), ScriptedStream(per_tick=0))
    client_round = start_round(
        ClientContext(who, 0, 0, received=broadcast(shrink=0.0)), who.new_client(0)
    )
    assert run_round(client_round) == []
    assert client_round.finish().rows.tolist() == []


@pytest.mark.parametrize(
    ("action", "noted"), [(RecordOnly(), False), (Shrink(0.0), False), (Shrink(0.5), True)]
)
def test_arrival_rounds_are_stored_only_if_the_action_needs_them(action: Any, noted: bool) -> None:
    who = clients(watchful(Fifo(), action))
    assert (who.new_client(0).since is not None) == noted


def test_storing_arrival_rounds_changes_no_batch() -> None:
    plainly, noting = clients(recipe(Fifo())), clients(watchful(Fifo(), Shrink(0.5)))
    batches = []
    for who in (plainly, noting):
        client_round = start_round(ClientContext(who, 0, 0), who.new_client(0))
        client_round.observe()
        batches.append(client_round.batches())
    assert to_comparable(batches[0]) == to_comparable(batches[1])
    assert batches[1][0].weights is None


def test_sample_ages_are_those_of_the_remaining_samples() -> None:
    who = clients(watchful(Fifo(), Shrink(0.0), sample_weights=InverseAge()))
    client_round = start_round(
        ClientContext(who, 0, 2, received=broadcast(shrink=0.0)), play_rounds(who, 0, [0, 1])
    )
    client_round.observe()
    assert client_round.rows.tolist() == [30_000, 30_001, 30_002, 30_003]
    assert client_round.batches() != []


def test_forecast_opens_a_state_with_the_next_samples() -> None:
    growing = watchful(Fifo(), OpenState(), forecast=Growing())
    one_class = np.zeros(300_000, dtype=np.int64)
    who = replace(clients(growing, ScriptedStream(ticks=2)), labels=one_class)
    state = who.new_client(0)
    for word, client_rounds in (
        (0.0, [2]),
        (1.0, [1, 1]),
    ):  # then again the older of two that are alike
        client_round = start_round(ClientContext(who, 0, 0, received=broadcast(open=word)), state)
        run_round(client_round, 2)
        assert client_round.finish().forecast.counts.tolist() == client_rounds


def test_memory_shrinks_and_a_state_is_opened_in_one_round() -> None:
    action = CombinedActions(keep=0.5, open_state=True)
    who = clients(watchful(Fifo(), action, forecast=Growing()))
    after = apply_alarm(
        ClientContext(who, 0, 0, received=broadcast(shrink=0.5, open=1.0)), who.new_client(0)
    )
    assert len(after.rows) == 2
    assert after.forecast.num_unmatched == 1


def test_unsupported_effect_is_ignored_by_the_client() -> None:
    who = clients(recipe(Fifo(), forecast=Exact()))
    state = who.new_client(0)
    assert to_comparable(
        apply_alarm(ClientContext(who, 0, 0, received=broadcast(open=1.0)), state)
    ) == to_comparable(state)


def test_samples_of_changed_classes_that_agree_with_the_model_are_dropped() -> None:
    # Stored: class 0 right, right, wrong; class 1 right. New: class 0 five times wrong, class 1
    # once right. Class 0: 1 - 1/3 = 0.667, error sqrt(6/8 * 2/8 * (1/3 + 1/5)) = 0.316.
    labels = np.array([0, 0, 0, 1, 0, 0, 0, 0, 0, 1])
    is_wrong = np.array([0, 0, 1, 0, 1, 1, 1, 1, 1, 0], dtype=bool)
    assert find_outdated(labels, is_wrong, 4, 0.0).tolist() == [True, True, False, False]
    assert find_outdated(labels, is_wrong, 4, 0.1).tolist() == [False] * 4, "0.667 - 0.632 < 0.1"


def test_stored_samples_are_dropped_if_the_model_has_learnt_the_new_labels() -> None:
    labels = np.zeros(8, dtype=np.int64)
    is_wrong = np.array([1, 1, 1, 0, 0, 0, 0, 0], dtype=bool)
    # 0 - 3/4 = -0.75, error sqrt(3/8 * 5/8 * (1/4 + 1/4)) = 0.342
    assert find_outdated(labels, is_wrong, 4, 0.05).tolist() == [True, True, True, False]


def test_classes_without_stored_or_new_samples_do_not_change() -> None:
    labels, is_wrong = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1], dtype=bool)
    assert find_outdated(labels, is_wrong, 2, 0.0).tolist() == [False, False]


def drop(predicted: Any, **parts: Any) -> tuple[Any, Any]:
    """Return the states before and after an alarm; the stream has 4 stored and 12 new samples."""
    who = replace(
        clients(watchful(Reservoir(), DropOutdated(0.0)), ScriptedStream(**parts)),
        labels=np.zeros(300_000, dtype=np.int64),
    )
    state = who.new_client(0)
    context = ClientContext(who, 0, 0, received=broadcast(drop=1.0))
    return state, apply_alarm(context, state, predicted)


def test_alarm_drops_what_the_arriving_samples_contradict() -> None:
    asked: list[Any] = []

    def predict(rows: Any) -> Any:
        asked.append(rows.tolist())
        return np.where(rows < 3, 0, 1)  # three of the four stored samples are right

    state, after = drop(predict)
    assert asked == [
        [0, 1, 2, 3, *(10_000 + 1_000 * tick + i for tick in range(3) for i in range(4))]
    ]
    assert after.rows.tolist() == [3]
    assert after.memory.seen == 1, "the memory policy is reset"
    assert after.stream == state.stream, "no sample is lost"


def test_alarm_keeps_samples_that_nothing_contradicts() -> None:
    state, after = drop(lambda rows: np.zeros(len(rows), dtype=np.int64))
    assert after is state
    state, after = drop(lambda rows: pytest.fail("nothing to predict"), per_tick=0)
    assert after is state


def test_client_without_the_request_drops_nothing() -> None:
    who = clients(watchful(Fifo(), DropOutdated()))
    state = who.new_client(0)
    for received in ({}, broadcast(drop=0.0)):
        assert apply_alarm(ClientContext(who, 0, 0, received=received), state) is state


def test_in_a_regression_errors_above_the_standard_deviation_are_wrong() -> None:
    targets = np.zeros(300_000, dtype=np.float32)
    targets[10_000:] = 8.0  # 4 stored targets are 0, 12 new ones are 8: deviation 3.46
    who = replace(
        clients(watchful(Fifo(), DropOutdated(0.0)), ScriptedStream()),
        labels=np.zeros(300_000, dtype=np.int64),
        numbers=targets,
    )
    context = ClientContext(who, 0, 0, received=broadcast(drop=1.0))
    state = who.new_client(0)
    for prediction, num_kept in ((0.0, 0), (8.0, 0), (4.0, 4)):
        after = apply_alarm(context, state, lambda rows, at=prediction: np.full(len(rows), at))
        assert len(after.rows) == num_kept
