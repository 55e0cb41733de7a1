from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river.drift.binary import DDM

from drift.test_page_hinkley import alarms, rivers
from thalweg.core.errors import ConfigError
from thalweg.drift import Ddm


def test_the_spread_is_what_one_computes_by_hand() -> None:
    # Four values of 0.2, then ones: the mean is 0.2, then (0.8 + k) / (4 + k).
    best = 0.2 + 3 * math.sqrt(0.2 * 0.8 / 4)  # 0.8
    means = [(0.8 + k) / (4 + k) for k in range(8)]
    above = [p + math.sqrt(p * (1 - p) / (4 + k)) > best for k, p in enumerate(means)]
    assert above.index(True) == 5  # 0.6444 + 0.1596 = 0.804
    assert alarms(Ddm(min_values=4), [0.2] * 4 + [1.0] * 7) == [3 + 5]


def test_the_lowest_error_is_that_of_error_and_spread_together() -> None:
    alarm = Ddm(min_values=1)
    state = alarm.init(1)
    for value in (0.5, 0.5, 0.5):
        state, _ = alarm.update(state, np.array([0]), np.array([value]))
    assert state.best_rate.tolist() == [0.5]
    assert state.best_spread[0] == pytest.approx(0.5 / math.sqrt(3))  # of the third value


def test_a_model_that_was_never_wrong_may_not_err_once() -> None:
    assert alarms(Ddm(min_values=3), [0.0] * 5 + [0.01]) == [5]


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.sampled_from([0.0, 0.125, 0.5, 1.0]), max_size=60),
    level=st.sampled_from([1.3, 2.1, 3.0]),
)
def test_it_agrees_with_river(values: list[float], level: float) -> None:
    theirs = DDM(warm_start=4, drift_threshold=level)  # River's first is the one after
    assert alarms(Ddm(level=level, min_values=5), values) == rivers(theirs, values)


@pytest.mark.parametrize("wrong", [{"level": 0.0}, {"min_values": 0}, {"watch": "loss"}])
def test_what_is_impossible_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Ddm(**wrong)
