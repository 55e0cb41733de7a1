from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contracts.world import check_world
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Ints, Supply
from thalweg.streams import Replay, Setting
from thalweg.streams.replay import Cursor, ReplayWorld

LABELS = np.array([0, 1, 0, 1, 0, 0, 1, 0])
GROUP = np.array([0, 1, 0, 1, 0, 1, 0, 1])
TIME = np.array([8.0, 1, 6, 2, 4, 3, 2, 4])


def built(
    spec: Replay,
    *,
    labels: Ints = LABELS,
    group: Ints | None = GROUP,
    time: Floats | None = TIME,
    ticks: int = 2,
) -> ReplayWorld:
    return spec.build(
        Setting(labels, 2, ticks=ticks, capacity=4, rounds=10, seed=0, group=group, time=time)
    )


def arriving(world: ReplayWorld, client: int, rounds: int) -> list[list[int]]:
    state, start = world.begin(client)
    assert start.items.tolist() == []
    got = []
    for lived in range(rounds):
        state, arrivals = world.emit(state, client, lived)
        got += [arrival.items.tolist() for arrival in arrivals]
    return got


def test_each_client_replays_its_own_rows_in_the_order_of_time() -> None:
    world = built(Replay(arrivals=2))
    assert world.num_clients == 2
    assert arriving(world, 0, 1) == [[6, 4], [2, 0]]
    assert arriving(world, 1, 1) == [[1, 3], [5, 7]]


def test_rows_of_the_same_time_keep_their_order() -> None:
    assert arriving(built(Replay(arrivals=4), time=np.zeros(8)), 0, 1)[0] == [0, 2, 4, 6]


def test_without_times_the_rows_come_as_they_are() -> None:
    assert arriving(built(Replay(arrivals=4), time=None), 1, 1)[0] == [1, 3, 5, 7]


def test_without_clients_each_one_gets_a_stretch_of_time() -> None:
    world = built(Replay(num_clients=2, arrivals=4), group=None)
    # In order of time: 1 3 6 5 4 7 2 0.
    assert [rows.tolist() for rows in world.rows] == [[1, 3, 6, 5], [4, 7, 2, 0]]


def test_stretches_differ_by_one_row_at_most_and_cover_everything() -> None:
    world = built(Replay(num_clients=3), group=None, time=None)
    assert [rows.tolist() for rows in world.rows] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_without_any_number_there_are_ten_clients() -> None:
    world = built(Replay(), labels=np.zeros(30, dtype=np.int64), group=None, time=None)
    assert world.num_clients == 10


def test_at_the_end_the_rows_start_again() -> None:
    assert arriving(built(Replay(arrivals=3)), 0, 2) == [[6, 4, 2], [0, 6, 4], [2, 0, 6], [4, 2, 0]]


def test_or_silence_falls() -> None:
    world = built(Replay(arrivals=3, at_end="stop"))
    assert arriving(world, 0, 2) == [[6, 4, 2], [0], [], []]


def test_a_client_without_rows_gets_nothing() -> None:
    group = np.array([0, 2, 0, 2, 0, 2, 0, 2])
    for at_end in ("restart", "stop"):
        world = built(Replay(at_end=at_end), group=group)
        assert world.num_clients == 3
        assert arriving(world, 1, 1) == [[], []]


def test_the_cursor_is_all_that_a_client_remembers() -> None:
    world = built(Replay(arrivals=1))
    state, arrivals = world.emit(Cursor(2), 0, 9)
    assert [arrival.items.tolist() for arrival in arrivals] == [[2], [0]]
    assert state == Cursor(4)


def test_there_is_one_state_with_the_class_mix_of_the_data() -> None:
    world = built(Replay())
    assert world.state_table.histograms.tolist() == [[5 / 8, 3 / 8]]
    assert world.state_table.importance.tolist() == [1.0]
    assert world.true_state_probs(1).tolist() == [1.0]


def test_whether_streams_go_on_without_the_client() -> None:
    assert not built(Replay()).collects_when_absent
    assert built(Replay(absent="collecting")).collects_when_absent


def test_the_number_of_clients_cannot_differ_from_that_of_the_data() -> None:
    assert built(Replay(num_clients=2)).num_clients == 2
    with pytest.raises(ConfigError, match="has 2 clients, so num_clients=3 is not possible"):
        built(Replay(num_clients=3))


def test_more_clients_than_rows_are_refused() -> None:
    with pytest.raises(ConfigError, match="8 rows cannot be divided among 9 clients"):
        built(Replay(num_clients=9), group=None)


@pytest.mark.parametrize(
    "bad",
    [
        {"num_clients": 0},
        {"arrivals": 0},
        {"availability": 0.0},
        {"availability": 1.5},
        {"availability": float("nan")},
        {"availability_spread": -1.0},
        {"availability_spread": float("inf")},
        {"at_end": "silence"},
        {"absent": "away"},
    ],
    ids=str,
)
def test_an_impossible_world_is_refused_where_it_is_made(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Replay(**bad)


def test_what_a_client_will_have_had_is_what_arrives_while_it_is_here() -> None:
    # 10 rounds of 2 ticks with 3 samples, half of the time.
    assert built(Replay(arrivals=3, availability=0.5)).supply(0) == Supply(30.0, False, 5.0)
    collecting = Replay(arrivals=3, availability=0.5, absent="collecting")
    assert built(collecting).supply(0) == Supply(60.0, False, 5.0)


def test_or_all_its_rows_if_nothing_comes_twice() -> None:
    assert built(Replay(arrivals=3, at_end="stop")).supply(1) == Supply(4.0, False, 5.0)


def test_a_client_without_rows_has_no_supply_and_no_mix() -> None:
    world = built(Replay(), group=np.array([0, 2, 0, 2, 0, 2, 0, 2]))
    assert world.supply(1).total == 0
    # Labels 0 0 0 1 and 1 1 0 0.
    assert world.mixes.tolist() == [[0.75, 0.25], [0, 0], [0.5, 0.5]]


def test_clients_are_groups_where_the_data_have_them() -> None:
    assert built(Replay()).clients_are_groups
    assert not built(Replay(num_clients=2), group=None).clients_are_groups


def test_everybody_can_hold_what_the_setting_says() -> None:
    assert [built(Replay()).capacity(client) for client in (0, 1)] == [4, 4]


# Rows in order of time: client 0 has 6 (2.0), 4 (4.0), 2 (6.0), 0 (8.0); client 1 has 1, 3, 5, 7 (1 to 4).


def test_by_the_clock_everybody_gets_what_came_in_the_same_time() -> None:
    world = built(Replay(every=2.0, at_end="stop"))
    # From 0: [0, 2), [2, 4), [4, 6), [6, 8), [8, 10).
    assert arriving(world, 0, 3) == [[], [6], [4], [2], [0], []]
    assert arriving(world, 1, 3) == [[1], [3, 5], [7], [], [], []]


def test_the_clock_begins_at_a_multiple_of_its_step() -> None:
    world = built(Replay(every=2.0, at_end="stop"), time=TIME + 12)  # the first comes at 13
    assert arriving(world, 0, 1) == [[], [6]]
    assert arriving(world, 1, 1) == [[1], [3, 5]]


def test_when_all_rows_have_come_the_clock_starts_again() -> None:
    assert arriving(built(Replay(every=5.0)), 0, 2) == [[6, 4], [2, 0], [6, 4], [2, 0]]


def test_what_came_by_the_clock_is_what_a_client_will_have_had() -> None:
    # 10 rounds of 2 ticks are 20 stretches of time: all rows once, or 10 times.
    assert built(Replay(every=5.0, availability=1.0)).supply(0) == Supply(40.0, False, 10.0)
    silent = Replay(every=5.0, availability=1.0, at_end="stop")
    assert built(silent).supply(0) == Supply(4.0, False, 10.0)
    short = Replay(every=0.25, availability=1.0, at_end="stop")  # from 1.0 to 6.0
    assert built(short).supply(0) == Supply(2.0, False, 10.0)


def test_a_clock_needs_times() -> None:
    with pytest.raises(ConfigError, match="the data set has no times"):
        built(Replay(every=1.0), time=None)
    for bad in (0.0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match="every"):
            Replay(every=bad)


def test_a_world_by_the_clock_keeps_the_promises_of_every_world() -> None:
    time = np.arange(1200) / 7
    check_world(Replay(every=3.0), group=np.arange(1200) % 5, time=time)
    check_world(Replay(every=3.0, at_end="stop", absent="collecting"), time=time)
