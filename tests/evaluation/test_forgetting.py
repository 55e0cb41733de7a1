"""Forgetting and backward transfer over tasks."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from thalweg.evaluation.forgetting import (
    NEVER,
    add_two_step_accuracy,
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


def test_forgetting_after_one_step_is_nan():
    assert math.isnan(forgetting(TABLE[:1]))
    assert math.isnan(backward_transfer(TABLE[:1], np.zeros(3, int)))


def test_task_without_earlier_accuracy_is_left_out_of_forgetting():
    table = np.array([[0.9, NAN], [0.5, 0.7]])
    assert forgetting(table) == pytest.approx(0.4)
    assert math.isnan(forgetting(np.array([[NAN], [0.5]])))


def test_backward_transfer_is_measured_from_the_first_step_of_a_task():
    # Task 2 first occurs in the last step, so it has no backward transfer.
    assert backward_transfer(TABLE, np.array([0, 1, 2])) == pytest.approx((-0.4 - 0.1) / 2)


def test_tasks_without_clients_have_no_backward_transfer():
    assert backward_transfer(TABLE, np.array([NEVER, 1, NEVER])) == pytest.approx(-0.1)
    assert math.isnan(backward_transfer(TABLE, np.full(3, NEVER)))


@given(arrays(float, (4, 3), elements=st.floats(0, 1)))
def test_backward_transfer_is_at_least_minus_forgetting(table):
    # The first accuracy of a task is at most the best earlier one.
    assert backward_transfer(table, np.zeros(3, int)) >= -forgetting(table) - 1e-12


def row(rnd, *records):
    return {"round": rnd, "tasks": [dict(zip(KEYS, record, strict=True)) for record in records]}


KEYS = ("task", "assignment", "accuracy", "clients")
ROWS = [
    {"round": 1},
    row(2, ("a", "labels", 0.75, 4), ("b", "labels", 0.25, 0), ("a", "oracle", 0.5, 4)),
    row(4, ("a", "labels", 0.25, 0), ("b", "labels", 0.5, 4), ("a", "oracle", None, 0)),
]


def test_task_table_reads_metrics_of_one_assignment():
    table = task_table(ROWS, "labels")
    assert table.rounds == [2, 4]
    assert table.tasks == ["a", "b"]
    assert table.accuracy.tolist() == [[0.75, 0.25], [0.25, 0.5]]
    assert table.first_met.tolist() == [0, 1]


def test_missing_accuracy_is_nan_in_the_task_table():
    table = task_table(ROWS, "oracle")
    assert table.tasks == ["a"]
    assert np.isnan(table.accuracy[1, 0])


def test_task_summary_has_the_assignment_and_is_valid_json():
    found = task_summary(ROWS, "labels")
    assert found == {
        "assignment": "labels",
        "rounds": [2, 4],
        "final": {"a": 0.25, "b": 0.5},
        "mean": 0.375,
        "forgetting": 0.125,
        "backward_transfer": -0.5,
        "two_step_accuracy": None,
    }
    assert "NaN" not in json.dumps(task_summary(ROWS, "oracle"))


def in_steps(*steps):
    """Return the rows of steps: accuracy, and the accuracy and number of clients of tasks a, b."""
    rows = []
    for number, (accuracy, a, b) in enumerate(steps):
        tasks = row(2 * number + 2, ("a", "labels", *a), ("b", "labels", *b))
        rows += [{"round": 2 * number + 1, "drifted": 4 * (number > 0), "accuracy": 0.0}]
        rows += [{**tasks, "accuracy": accuracy}]
    return rows


def test_two_step_accuracy_uses_the_tasks_of_the_previous_step():
    steps = in_steps((0.5, (0.5, 4), (0.0, 0)), (1.0, (0.25, 1), (1.0, 3)), (0.75, (1, 0), (0, 4)))
    found = add_two_step_accuracy(steps, "labels")
    assert [each.get("two_step_accuracy") is None for each in found] == [True, False] * 3
    second = (1.0 + 0.25) / 2  # all clients had task a
    third = (0.75 + (1 * 1 + 3 * 0) / 4) / 2  # one client had task a and three had task b
    assert found[1]["two_step_accuracy"] == 0.5
    assert found[3]["two_step_accuracy"] == pytest.approx((0.5 + second) / 2)
    assert found[5]["two_step_accuracy"] == pytest.approx((0.5 + second + third) / 3)
    summary = task_summary(steps, "labels")
    assert summary["two_step_accuracy"] == found[5]["two_step_accuracy"]


def test_two_step_accuracy_leaves_out_tasks_without_an_accuracy():
    steps = in_steps((0.5, (0.5, 2), (0.5, 2)), (1.0, (None, 2), (0.5, 2)))
    assert add_two_step_accuracy(steps, "labels")[-1]["two_step_accuracy"] == (0.5 + 0.75) / 2
    steps = in_steps((0.5, (0.5, 4), (0.5, 0)), (1.0, (None, 2), (0.5, 2)))
    assert add_two_step_accuracy(steps, "labels")[-1]["two_step_accuracy"] == (0.5 + 1.0) / 2


def test_run_without_tasks_has_no_task_summary():
    assert task_summary([{"round": 1}], "labels") is None
