"""Cells: the runs of a comparison and their scores."""

import pytest

from thalweg.core.errors import ConfigError
from thalweg.report import scores, use_session_accuracy
from thalweg.report.cells import group_by_recipe, metric_series


def test_scores_use_the_last_evaluated_round_and_summed_bytes(cell):
    s = scores(cell(accuracy=0.8))
    assert (s["accuracy"], s["state_accuracy"], s["worst_state_accuracy"]) == (0.8, 0.8, 0.4)
    assert s["prequential_accuracy"] == (0.25 + 0.75) / 2  # rounds without one do not count as zero
    assert s["megabytes"] == 1 + 2 + 1 + 1
    assert s["seconds"] == 2.0


def test_metric_without_measurements_has_no_score(cell):
    s = scores(cell(rows=[{"round": 1, "accuracy": float("nan")}, {"round": 2, "accuracy": None}]))
    measured = {name: value for name, value in s.items() if value is not None}
    assert measured == {"megabytes": 0, "seconds": 2.0}


def test_series_contains_only_measured_rounds(cell):
    assert metric_series(cell(accuracy=0.8), "accuracy") == [(2, 0.4), (4, 0.8)]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"recipe": " "}, "must be a name on one line"),
        ({"recipe": "two\nlines"}, "must be a name on one line"),
        ({"status": "finished"}, "status must be one of done, failed, interrupted, missing"),
        ({"status": "failed", "reason": " "}, "no reason is given"),
        ({"status": "done", "rows": []}, "there are no rounds"),
        ({"status": "missing"}, "there are 4 rounds; use 'interrupted'"),
        ({"rows": [{"round": 2}, {"round": 1}]}, "rounds must ascend, got [2, 1]"),
        ({"rows": [{"round": 2}, {"round": 2}]}, "rounds must ascend"),
        ({"seconds": -1.0}, "seconds must be finite and not negative"),
        ({"seconds": float("nan")}, "seconds must be finite and not negative"),
    ],
)
def test_inconsistent_cell_raises_an_error(cell, changes, message):
    with pytest.raises(ConfigError) as refused:
        cell(**changes)
    assert message in str(refused.value)


def test_recipes_keep_the_order_in_which_they_were_given(cell):
    cells = [cell("z", 0), cell("a", 0), cell("z", 1)]
    assert [(name, len(group)) for name, group in group_by_recipe(cells).items()] == [
        ("z", 2),
        ("a", 1),
    ]


def test_comparison_has_one_scenario_and_one_cell_per_seed(cell):
    with pytest.raises(ConfigError, match="no cells"):
        group_by_recipe([])
    with pytest.raises(ConfigError, match="has one scenario, got digits-full, mnist-full"):
        group_by_recipe([cell(), cell(seed=1, scenario="mnist-full")])
    with pytest.raises(ConfigError, match="two cells with seed 3"):
        group_by_recipe([cell(seed=3), cell(seed=3)])


def test_runs_with_sessions_are_compared_by_session_accuracy(cell):
    rows = [
        {"round": 1, "session": 0, "accuracy": 0.4, "session_accuracy": 0.8, "state_accuracy": 0.4},
        {"round": 2, "session": 0},
    ]
    found = scores(use_session_accuracy(cell(rows=rows)))
    assert (found["accuracy"], found["state_accuracy"]) == (0.8, None)
    plain = cell()
    assert use_session_accuracy(plain) is plain
