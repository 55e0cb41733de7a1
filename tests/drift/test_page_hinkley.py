from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import drift as river_drift

from contracts.alarm import find_alarms, find_river_alarms
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.drift import PageHinkley

BLOCKY = st.lists(
    st.tuples(st.floats(0, 1), st.integers(1, 12)).map(lambda block: [block[0]] * block[1]),
    min_size=1,
    max_size=6,
).map(lambda blocks: [value for block in blocks for value in block])


def test_cumulative_sums_of_a_worked_example() -> None:
    # Means 0.1, 0.1, 0.4, 0.55; excesses over them 0, 0, 0.6, 0.45; less the slack of 0.1 each.
    alarm = PageHinkley(slack=0.1, threshold=0.9, min_values=1)
    state = alarm.init(1)
    rises = []
    for value in (0.1, 0.1, 1.0, 1.0):
        state, alarmed = alarm.update(state, np.array([0]), np.array([value]))
        rises.append(float(state.rise[0] - state.lowest[0]))
    assert rises == pytest.approx([0.0, 0.0, 0.5, 0.85])
    assert not alarmed[0]
    assert find_alarms(alarm, [0.1, 0.1, 1.0, 1.0, 1.0]) == [4]  # 0.85 + 1 - 0.64 - 0.1 = 1.11


def test_no_alarm_before_min_values() -> None:
    jump = [0.0, 1.0, 1.0, 1.0]
    assert find_alarms(PageHinkley(min_values=1), jump) == [2]
    assert find_alarms(PageHinkley(min_values=4), jump) == [3]
    assert find_alarms(PageHinkley(min_values=5), jump) == []


def test_fall_raises_an_alarm_only_with_direction_down_or_both() -> None:
    better = [0.9] * 10 + [0.1] * 10
    assert find_alarms(PageHinkley(), better) == []
    assert find_alarms(PageHinkley(direction="down"), better) == [10]
    assert find_alarms(PageHinkley(direction="both"), better)[0] == 10
    assert find_alarms(PageHinkley(direction="down"), better[::-1]) == []


def test_short_memory_ignores_a_slow_rise() -> None:
    slow = [0.01 * step for step in range(40)]
    assert find_alarms(PageHinkley(slack=0.0), slow) != []
    assert find_alarms(PageHinkley(slack=0.0, memory=0.5), slow) == []


@pytest.mark.parametrize("direction", ["up", "down", "both"])
@settings(max_examples=60, deadline=None)
@given(values=BLOCKY, slack=st.sampled_from([0.0, 0.03, 0.1]), memory=st.sampled_from([1.0, 0.97]))
def test_alarms_equal_those_of_river(
    direction: Any, values: list[float], slack: float, memory: float
) -> None:
    theirs = river_drift.PageHinkley(
        min_instances=4, delta=slack, threshold=0.371, alpha=memory, mode=direction
    )
    ours = PageHinkley(
        slack=slack, threshold=0.371, min_values=4, memory=memory, direction=direction
    )
    assert find_alarms(ours, values) == find_river_alarms(theirs, values)


def test_several_alarms_on_a_long_stream_equal_those_of_river() -> None:
    rng = np.random.default_rng(0)
    values = (np.repeat([0.1, 0.6, 0.2, 0.8], 50) + rng.normal(0, 0.05, 200)).tolist()
    theirs = river_drift.PageHinkley(5, 0.05, 0.5, 1.0, "up")
    found = find_alarms(PageHinkley(), values)
    assert found == find_river_alarms(theirs, values)
    assert [50 <= found[0] < 55, 150 <= found[-1] < 155] == [True, True]


def test_ten_thousand_clients_are_watched_at_once() -> None:
    alarm, rng = PageHinkley(slack=0.1, threshold=3.0), np.random.default_rng(0)
    losses = rng.normal(1.0, 0.1, size=(60, 10_000))
    losses[30:, :100] += 2.0  # the first hundred clients drift
    clients, state = np.arange(10_000), alarm.init(10_000)
    alarmed = np.zeros(10_000, dtype=bool)
    for row in losses:
        state, now = alarm.update(state, clients, row)
        alarmed |= now
    assert alarmed[:100].all()
    assert not alarmed[100:].any()


def test_invalid_fields_are_rejected() -> None:
    for wrong in ({"slack": -1.0}, {"threshold": -0.1}, {"min_values": 0}, {"memory": 0.0}):
        with pytest.raises(ConfigError):
            PageHinkley(**wrong)  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="Did you mean 'both'"):
        PageHinkley(direction="bth")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="unknown watch"):
        PageHinkley(watch="accuracy")  # type: ignore[arg-type]
