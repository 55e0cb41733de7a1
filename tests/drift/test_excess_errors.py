from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.alarm import find_alarms
from thalweg.core.errors import ConfigError
from thalweg.drift import ExcessErrors

NAN = math.nan
AT_ONCE = 1e-6  # recovery: the slack has its final value after the first round of training
HALF = math.log(2)  # the loss at which half of the probability may be on wrong classes


def watch(alarm: ExcessErrors, rounds: Sequence[Sequence[float]]) -> float:
    """Return the excess of one client after rounds of (wrong, tested, loss)."""
    state = alarm.init(1)
    for values in rounds:
        state, _ = alarm.update(state, np.array([0]), np.array([values]))
    return float(state.excess[0])


def test_errors_above_the_bound_of_the_last_loss_are_counted() -> None:
    alarm = ExcessErrors(slack=0.1, threshold=100.0, recovery=AT_ONCE)
    # The loss of the round before counts, not that of the round itself.
    assert watch(alarm, [(0, 0, HALF), (9, 10, 0.0)]) == 9 - 10 * (0.5 + 0.1)
    assert watch(alarm, [(0, 0, 0.0), (9, 10, HALF)]) == 9 - 10 * 0.1


def test_nothing_is_expected_before_the_first_training() -> None:
    assert watch(ExcessErrors(), [(10, 10, NAN)] * 2) == 0
    assert find_alarms(ExcessErrors(), [[90, 100, NAN]] * 3) == []  # type: ignore[list-item]


def test_one_round_with_enough_samples_is_sufficient() -> None:
    """A time step whose samples all arrive in one round, after training without arrivals."""
    rounds = [[57, 64, NAN], [0, 0, 0.5], *[[0, 0, 0.1]] * 4, [50, 64, 0.9]]
    assert find_alarms(ExcessErrors(), rounds) == [6]  # type: ignore[arg-type]


def test_the_sum_counts_samples_whatever_the_number_of_rounds() -> None:
    few = [[0, 0, 0.0], *[[4, 5, NAN]] * 10]  # excess 4 - 5 * (gap + 0.1)
    assert find_alarms(ExcessErrors(recovery=AT_ONCE), few) == [3]  # type: ignore[arg-type]


def test_errors_are_allowed_while_the_model_recovers() -> None:
    """After an alarm the new model has to be trained, which is not another change."""
    rounds = [[0, 0, 0.1]] * 6 + [[9, 10, 0.1]] * 4
    assert find_alarms(ExcessErrors(recovery=1.0), rounds) == [7]  # type: ignore[arg-type]
    assert find_alarms(ExcessErrors(recovery=100.0), rounds) == []  # type: ignore[arg-type]


def test_a_model_that_is_overfitted_to_its_samples_raises_no_alarm() -> None:
    """The training loss is near 0, and a quarter of all new samples is wrong, in every round."""
    rounds = [[1.25, 5, 0.001]] * 400
    assert find_alarms(ExcessErrors(), rounds) == []  # type: ignore[arg-type]


def test_the_earlier_error_detects_changes_that_raise_the_training_loss() -> None:
    """Ten samples per round; after the change training on both labels has a high loss."""
    before, after = [[1, 10, 0.2]] * 20, [[6, 10, 3.0]] * 20
    (first, *_) = find_alarms(ExcessErrors(), [*before, *after])  # type: ignore[arg-type]
    assert first in (21, 22)


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 5) | st.just(NAN)), max_size=30))
def test_correct_predictions_raise_no_alarm(rounds: list[tuple[int, float]]) -> None:
    values = [[0, tested, loss] for tested, loss in rounds]
    assert find_alarms(ExcessErrors(threshold=0.01), values) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"slack": 1.0}, r"slack must lie in \[0, 1\)"),
        ({"threshold": 0.0}, "threshold must be positive"),
        ({"horizon": 0.5}, "horizon must be at least 1"),
        ({"recovery": 0.0}, "recovery must be positive"),
    ],
)
def test_settings_out_of_range_are_rejected(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ExcessErrors(**fields)  # type: ignore[arg-type]
