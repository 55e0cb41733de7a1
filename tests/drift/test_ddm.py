from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river.drift.binary import DDM

from contracts.alarm import find_alarms, find_river_alarms
from thalweg.core.errors import ConfigError
from thalweg.drift import Ddm


def test_alarm_of_a_worked_example() -> None:
    # Four values of 0.2, then ones: the mean is 0.2, then (0.8 + k) / (4 + k).
    best = 0.2 + 3 * math.sqrt(0.2 * 0.8 / 4)  # 0.8
    means = [(0.8 + k) / (4 + k) for k in range(8)]
    above = [p + math.sqrt(p * (1 - p) / (4 + k)) > best for k, p in enumerate(means)]
    assert above.index(True) == 5  # 0.6444 + 0.1596 = 0.804
    assert find_alarms(Ddm(min_values=4), [0.2] * 4 + [1.0] * 7) == [3 + 5]


def test_lowest_error_minimises_the_sum_of_error_and_spread() -> None:
    alarm = Ddm(min_values=1)
    state = alarm.init(1)
    for value in (0.5, 0.5, 0.5):
        state, _ = alarm.update(state, np.array([0]), np.array([value]))
    assert state.best_rate.tolist() == [0.5]
    assert state.best_spread[0] == pytest.approx(0.5 / math.sqrt(3))  # after the third value


def test_first_error_of_a_model_without_errors_raises_an_alarm() -> None:
    assert find_alarms(Ddm(min_values=3), [0.0] * 5 + [0.01]) == [5]


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.sampled_from([0.0, 0.125, 0.5, 1.0]), max_size=60),
    level=st.sampled_from([1.3, 2.1, 3.0]),
)
def test_alarms_equal_those_of_river(values: list[float], level: float) -> None:
    theirs = DDM(warm_start=4, drift_threshold=level)  # River starts one value later
    assert find_alarms(Ddm(level=level, min_values=5), values) == find_river_alarms(theirs, values)


@pytest.mark.parametrize("wrong", [{"level": 0.0}, {"min_values": 0}, {"watch": "loss"}])
def test_invalid_fields_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Ddm(**wrong)
