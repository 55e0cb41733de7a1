from __future__ import annotations

import itertools
from dataclasses import replace
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


def build_world(
    spec: Replay,
    *,
    labels: Ints = LABELS,
    client: Ints | None = GROUP,
    time: Floats | None = TIME,
    ticks: int = 2,
) -> ReplayWorld:
    return spec.build(
        Setting(labels, 2, ticks=ticks, capacity=4, rounds=10, seed=0, client=client, time=time)
    )


def arrival_lists(world: ReplayWorld, client: int, rounds: int) -> list[list[int]]:
    state, start = world.begin(client)
    assert start.items.tolist() == []
    got = []
    for stream_round in range(rounds):
        state, arrivals = world.emit(state, client, stream_round)
        got += [arrival.items.tolist() for arrival in arrivals]
    return got


def test_each_client_replays_its_rows_in_time_order() -> None:
    world = build_world(Replay(arrivals=2))
    assert world.num_clients == 2
    assert arrival_lists(world, 0, 1) == [[6, 4], [2, 0]]
    assert arrival_lists(world, 1, 1) == [[1, 3], [5, 7]]


def test_rows_with_equal_times_keep_their_order() -> None:
    assert arrival_lists(build_world(Replay(arrivals=4), time=np.zeros(8)), 0, 1)[0] == [0, 2, 4, 6]


def test_replay_without_times_uses_the_row_order() -> None:
    assert arrival_lists(build_world(Replay(arrivals=4), time=None), 1, 1)[0] == [1, 3, 5, 7]


def test_replay_without_groups_splits_the_time_line_into_segments() -> None:
    world = build_world(Replay(num_clients=2, arrivals=4), client=None)
    # In order of time: 1 3 6 5 4 7 2 0.
    assert [rows.tolist() for rows in world.rows] == [[1, 3, 6, 5], [4, 7, 2, 0]]


def test_segments_differ_by_at_most_one_row_and_cover_all_rows() -> None:
    world = build_world(Replay(num_clients=3), client=None, time=None)
    assert [rows.tolist() for rows in world.rows] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_replay_without_groups_has_ten_clients_by_default() -> None:
    world = build_world(Replay(), labels=np.zeros(30, dtype=np.int64), client=None, time=None)
    assert world.num_clients == 10


def test_replay_restarts_after_the_last_row_on_request() -> None:
    assert arrival_lists(build_world(Replay(arrivals=3, at_end="restart")), 0, 2) == [
        [6, 4, 2],
        [0, 6, 4],
        [2, 0, 6],
        [4, 2, 0],
    ]


def test_replay_with_at_end_stop_delivers_each_row_once() -> None:
    world = build_world(Replay(arrivals=3, at_end="stop"))
    assert arrival_lists(world, 0, 2) == [[6, 4, 2], [0], [], []]


def test_client_without_rows_receives_nothing() -> None:
    client = np.array([0, 2, 0, 2, 0, 2, 0, 2])
    for at_end in ("restart", "stop"):
        world = build_world(Replay(at_end=at_end), client=client)
        assert world.num_clients == 3
        assert arrival_lists(world, 1, 1) == [[], []]


def test_replay_position_depends_on_the_cursor_only() -> None:
    world = build_world(Replay(arrivals=1))
    state, arrivals = world.emit(Cursor(2), 0, 9)
    assert [arrival.items.tolist() for arrival in arrivals] == [[2], [0]]
    assert state == Cursor(4)


def test_state_table_has_one_state_with_the_class_mix_of_the_data() -> None:
    world = build_world(Replay())
    assert world.state_table.histograms.tolist() == [[5 / 8, 3 / 8]]
    assert world.state_table.importance.tolist() == [1.0]
    assert world.true_state_probs(1).tolist() == [1.0]


def test_absent_option_sets_collects_when_absent() -> None:
    assert not build_world(Replay()).collects_when_absent
    assert build_world(Replay(absent="collecting")).collects_when_absent


def test_number_of_clients_must_match_the_groups() -> None:
    assert build_world(Replay(num_clients=2)).num_clients == 2
    with pytest.raises(ConfigError, match="has 2 clients, so num_clients=3 is not possible"):
        build_world(Replay(num_clients=3))


def test_a_client_with_test_rows_only_is_part_of_the_world() -> None:
    """It was left out if its number was the largest, and its scores raised an error."""
    setting = Setting(LABELS, 2, 1, 4, 10, 0, client=GROUP, client_test=np.array([0, 3]))
    world = Replay(arrivals=2).build(setting)
    assert [len(rows) for rows in world.rows] == [4, 4, 0, 0]


def test_more_clients_than_rows_are_rejected() -> None:
    with pytest.raises(ConfigError, match="8 rows cannot be divided among 9 clients"):
        build_world(Replay(num_clients=9), client=None)


@pytest.mark.parametrize(
    "bad",
    [
        {"num_clients": 0},
        {"arrivals": -1},
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
def test_invalid_replay_options_are_rejected(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Replay(**bad)


def test_supply_counts_arrivals_while_present_or_collecting() -> None:
    # 10 rounds of 2 ticks with 3 samples, half of the time.
    frozen = Replay(arrivals=3, availability=0.5, at_end="restart")
    assert build_world(frozen).supply(0) == Supply(30.0, False, 5.0)
    collecting = replace(frozen, absent="collecting")
    assert build_world(collecting).supply(0) == Supply(60.0, False, 5.0)


def test_supply_is_limited_to_own_rows_with_at_end_stop() -> None:
    assert build_world(Replay(arrivals=3, at_end="stop")).supply(1) == Supply(4.0, False, 5.0)


def test_client_without_rows_has_zero_supply_and_zero_mix() -> None:
    world = build_world(Replay(), client=np.array([0, 2, 0, 2, 0, 2, 0, 2]))
    assert world.supply(1).total == 0
    # Labels 0 0 0 1 and 1 1 0 0.
    assert world.mixes.tolist() == [[0.75, 0.25], [0, 0], [0.5, 0.5]]


def test_clients_are_those_of_the_data_if_it_has_clients() -> None:
    assert build_world(Replay()).has_clients_of_data
    assert not build_world(Replay(num_clients=2), client=None).has_clients_of_data


def test_capacity_comes_from_the_setting() -> None:
    assert [build_world(Replay()).capacity(client) for client in (0, 1)] == [4, 4]


# Rows by time: client 0 has 6 (2.0), 4 (4.0), 2 (6.0), 0 (8.0); client 1 has 1, 3, 5, 7 (1 to 4).


def test_clocked_replay_delivers_rows_of_the_same_time_window() -> None:
    world = build_world(Replay(every=2.0, at_end="stop"))
    # From 0: [0, 2), [2, 4), [4, 6), [6, 8), [8, 10).
    assert arrival_lists(world, 0, 3) == [[], [6], [4], [2], [0], []]
    assert arrival_lists(world, 1, 3) == [[1], [3, 5], [7], [], [], []]


def test_clock_starts_at_a_multiple_of_its_step() -> None:
    world = build_world(Replay(every=2.0, at_end="stop"), time=TIME + 12)  # the first comes at 13
    assert arrival_lists(world, 0, 1) == [[], [6]]
    assert arrival_lists(world, 1, 1) == [[1], [3, 5]]


def test_clocked_replay_restarts_after_the_last_row() -> None:
    world = build_world(Replay(every=5.0, at_end="restart"))
    assert arrival_lists(world, 0, 2) == [[6, 4], [2, 0], [6, 4], [2, 0]]


def test_supply_of_clocked_replay_counts_time_windows() -> None:
    # 10 rounds of 2 ticks are 20 time windows: all rows once, or 10 times.
    again = Replay(every=5.0, availability=1.0, at_end="restart")
    assert build_world(again).supply(0) == Supply(40.0, False, 10.0)
    silent = Replay(every=5.0, availability=1.0, at_end="stop")
    assert build_world(silent).supply(0) == Supply(4.0, False, 10.0)
    short = Replay(every=0.25, availability=1.0, at_end="stop")  # from 1.0 to 6.0
    assert build_world(short).supply(0) == Supply(2.0, False, 10.0)


def test_clocked_replay_without_times_is_rejected() -> None:
    with pytest.raises(ConfigError, match="the data set has no times"):
        build_world(Replay(every=1.0), time=None)
    for bad in (0.0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match="every"):
            Replay(every=bad)


def test_clocked_replay_satisfies_the_world_contract() -> None:
    time = np.arange(1200) / 7
    check_world(Replay(every=3.0), client=np.arange(1200) % 5, time=time)
    check_world(Replay(every=3.0, at_end="stop", absent="collecting"), time=time)


def test_number_of_rounds_follows_from_the_rows() -> None:
    client = np.array([0, 0, 0, 0, 0, 1])
    once = Replay(arrivals=2, availability=1.0)
    assert once.count_rounds(6, client, None, ticks=1) == 3
    assert once.count_rounds(6, client, None, ticks=2) == 2
    assert replace(once, availability=0.5).count_rounds(6, client, None, ticks=1) == 6
    collecting = replace(once, availability=0.5, absent="collecting")
    assert collecting.count_rounds(6, client, None, ticks=1) == 3
    days = np.array([0.0, 0.5, 1.0, 3.9])
    assert Replay(every=1.0).count_rounds(4, None, days, ticks=1) == 4


def test_number_of_arrivals_lets_all_rows_arrive_in_a_hundred_rounds() -> None:
    spec = Replay(arrivals=0, availability=1.0)
    client = np.repeat([0, 1], [950, 10])
    chosen = spec.choose_arrivals(960, client, ticks=1)
    assert chosen.arrivals == 10
    assert chosen.count_rounds(960, client, None, ticks=1) == 95
    with pytest.raises(ConfigError, match="arrivals=0 is chosen by make_plan"):
        build_world(spec)


def test_interleaved_clients_are_at_the_same_time() -> None:
    world = build_world(Replay(num_clients=2, arrivals=2, division="interleaved"), client=None)
    # In order of time: 1 3 6 5 4 7 2 0, with the times 1 2 2 3 4 4 6 8.
    assert arrival_lists(world, 0, 1) == [[1, 6], [4, 2]]
    assert arrival_lists(world, 1, 1) == [[3, 5], [7, 0]]


@pytest.mark.parametrize(("division", "is_honest"), [("interleaved", True), ("contiguous", False)])
def test_interleaved_rows_never_train_before_earlier_rows_are_predicted(
    division: Any, is_honest: bool
) -> None:
    time = np.arange(100.0)
    spec = Replay(num_clients=10, arrivals=2, division=division)
    world = build_world(spec, labels=np.zeros(100, np.int64), client=None, time=time, ticks=1)
    arrivals = [arrival_lists(world, client, 5) for client in range(10)]
    ticks = [np.concatenate([mine[tick] for mine in arrivals]) for tick in range(5)]
    is_ordered = all(earlier.max() < later.min() for earlier, later in itertools.pairwise(ticks))
    assert is_ordered == is_honest
    assert sorted(np.concatenate(ticks)) == list(range(100))
