from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import drift as river_drift

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.drift import PageHinkley

BLOCKY = st.lists(
    st.tuples(st.floats(0, 1), st.integers(1, 12)).map(lambda block: [block[0]] * block[1]),
    min_size=1,
    max_size=6,
).map(lambda blocks: [value for block in blocks for value in block])


def alarms(alarm: Any, values: list[float]) -> list[int]:
    """Places of the values after which there was an alarm."""
    state, found = alarm.init(1), []
    for place, value in enumerate(values):
        state, alarmed = alarm.update(state, np.array([0]), np.array([value]))
        found += [place] * int(alarmed[0])
    return found


def rivers(detector: Any, values: list[float]) -> list[int]:
    found = []
    for place, value in enumerate(values):
        detector.update(value)
        found += [place] * int(detector.drift_detected)
    return found


def test_the_sum_is_what_one_computes_by_hand() -> None:
    # Means 0.1, 0.1, 0.4, 0.55; excesses over them 0, 0, 0.6, 0.45; less the slack of 0.1 each.
    alarm = PageHinkley(slack=0.1, threshold=0.9, min_values=1)
    state = alarm.init(1)
    rises = []
    for value in (0.1, 0.1, 1.0, 1.0):
        state, alarmed = alarm.update(state, np.array([0]), np.array([value]))
        rises.append(float(state.rise[0] - state.lowest[0]))
    assert rises == pytest.approx([0.0, 0.0, 0.5, 0.85])
    assert not alarmed[0]
    assert alarms(alarm, [0.1, 0.1, 1.0, 1.0, 1.0]) == [4]  # 0.85 + 1 - 0.64 - 0.1 = 1.11


def test_there_is_no_alarm_before_enough_values() -> None:
    jump = [0.0, 1.0, 1.0, 1.0]
    assert alarms(PageHinkley(min_values=1), jump) == [2]
    assert alarms(PageHinkley(min_values=4), jump) == [3]
    assert alarms(PageHinkley(min_values=5), jump) == []


def test_a_fall_counts_only_if_it_is_asked_for() -> None:
    better = [0.9] * 10 + [0.1] * 10
    assert alarms(PageHinkley(), better) == []
    assert alarms(PageHinkley(direction="down"), better) == [10]
    assert alarms(PageHinkley(direction="both"), better)[0] == 10
    assert alarms(PageHinkley(direction="down"), better[::-1]) == []


def test_a_short_memory_forgets_a_slow_rise() -> None:
    slow = [0.01 * step for step in range(40)]
    assert alarms(PageHinkley(slack=0.0), slow) != []
    assert alarms(PageHinkley(slack=0.0, memory=0.5), slow) == []


@pytest.mark.parametrize("direction", ["up", "down", "both"])
@settings(max_examples=60, deadline=None)
@given(values=BLOCKY, slack=st.sampled_from([0.0, 0.03, 0.1]), memory=st.sampled_from([1.0, 0.97]))
def test_it_agrees_with_river(
    direction: Any, values: list[float], slack: float, memory: float
) -> None:
    theirs = river_drift.PageHinkley(
        min_instances=4, delta=slack, threshold=0.371, alpha=memory, mode=direction
    )
    ours = PageHinkley(
        slack=slack, threshold=0.371, min_values=4, memory=memory, direction=direction
    )
    assert alarms(ours, values) == rivers(theirs, values)


def test_river_and_we_raise_more_than_one_alarm_on_a_long_stream() -> None:
    rng = np.random.default_rng(0)
    values = (np.repeat([0.1, 0.6, 0.2, 0.8], 50) + rng.normal(0, 0.05, 200)).tolist()
    theirs = river_drift.PageHinkley(5, 0.05, 0.5, 1.0, "up")
    found = alarms(PageHinkley(), values)
    assert found == rivers(theirs, values)
    assert [50 <= found[0] < 55, 150 <= found[-1] < 155] == [True, True]


def test_ten_thousand_detectors_are_one_detector() -> None:
    alarm, rng = PageHinkley(slack=0.1, threshold=3.0), np.random.default_rng(0)
    losses = rng.normal(1.0, 0.1, size=(60, 10_000))
    losses[30:, :100] += 2.0  # the first hundred clients drift
    everybody, state = np.arange(10_000), alarm.init(10_000)
    alarmed = np.zeros(10_000, dtype=bool)
    for row in losses:
        state, now = alarm.update(state, everybody, row)
        alarmed |= now
    assert alarmed[:100].all()
    assert not alarmed[100:].any()


def test_what_is_impossible_is_refused() -> None:
    for wrong in ({"slack": -1.0}, {"threshold": -0.1}, {"min_values": 0}, {"memory": 0.0}):
        with pytest.raises(ConfigError):
            PageHinkley(**wrong)  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="Did you mean 'both'"):
        PageHinkley(direction="bth")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="unknown watch"):
        PageHinkley(watch="accuracy")  # type: ignore[arg-type]
