import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from thalweg.evaluation.forgetting import (
    NEVER,
    backward_transfer,
    forgetting,
    task_summary,
    task_table,
)

NAN = math.nan
# Three steps, three tasks.
TABLE = np.array([[0.9, 0.2, 0.1], [0.6, 0.8, 0.1], [0.5, 0.7, 0.6]])


def test_forgetting_is_measured_from_the_best_earlier_accuracy():
    assert forgetting(TABLE) == pytest.approx(((0.9 - 0.5) + (0.8 - 0.7) + (0.1 - 0.6)) / 3)


def test_after_one_step_nothing_can_be_forgotten():
    assert math.isnan(forgetting(TABLE[:1]))
    assert math.isnan(backward_transfer(TABLE[:1], np.zeros(3, int)))


def test_a_task_that_was_not_measured_before_is_left_out():
    table = np.array([[0.9, NAN], [0.5, 0.7]])
    assert forgetting(table) == pytest.approx(0.4)
    assert math.isnan(forgetting(np.array([[NAN], [0.5]])))


def test_backward_transfer_is_measured_from_when_a_task_was_first_met():
    # Task 2 is met in the last step: nothing has come after it.
    assert backward_transfer(TABLE, np.array([0, 1, 2])) == pytest.approx((-0.4 - 0.1) / 2)


def test_tasks_that_nobody_met_have_no_backward_transfer():
    assert backward_transfer(TABLE, np.array([NEVER, 1, NEVER])) == pytest.approx(-0.1)
    assert math.isnan(backward_transfer(TABLE, np.full(3, NEVER)))


@given(arrays(float, (4, 3), elements=st.floats(0, 1)))
def test_nobody_transfers_less_than_they_forget(table):
    # The accuracy when a task was first met is one of the earlier ones, so at most the best of them.
    assert backward_transfer(table, np.zeros(3, int)) >= -forgetting(table) - 1e-12


def row(rnd, *records):
    return {"round": rnd, "tasks": [dict(zip(KEYS, record, strict=True)) for record in records]}


KEYS = ("task", "assignment", "accuracy", "clients")
ROWS = [
    {"round": 1},
    row(2, ("a", "labels", 0.75, 4), ("b", "labels", 0.25, 0), ("a", "oracle", 0.5, 4)),
    row(4, ("a", "labels", 0.25, 0), ("b", "labels", 0.5, 4), ("a", "oracle", None, 0)),
]


def test_the_metrics_of_a_run_are_a_table_for_each_way_to_find_mixtures():
    table = task_table(ROWS, "labels")
    assert table.rounds == [2, 4]
    assert table.tasks == ["a", "b"]
    assert table.accuracy.tolist() == [[0.75, 0.25], [0.25, 0.5]]
    assert table.first_met.tolist() == [0, 1]


def test_what_an_oracle_could_not_say_is_not_a_zero():
    table = task_table(ROWS, "oracle")
    assert table.tasks == ["a"]
    assert np.isnan(table.accuracy[1, 0])


def test_a_summary_says_how_mixtures_were_found_and_can_be_written():
    found = task_summary(ROWS, "labels")
    assert found == {
        "assignment": "labels",
        "rounds": [2, 4],
        "final": {"a": 0.25, "b": 0.5},
        "mean": 0.375,
        "forgetting": 0.125,
        "backward_transfer": -0.5,
    }
    assert "NaN" not in json.dumps(task_summary(ROWS, "oracle"))


def test_a_run_without_tasks_has_no_summary_of_them():
    assert task_summary([{"round": 1}], "labels") is None
