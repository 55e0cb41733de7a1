"""Tables about drifts, alarms and extra metrics."""

from dataclasses import replace

from report.small_tables import rows_by_recipe
from thalweg.evaluation.named import get_metric_declaration
from thalweg.report import event_tables, extra_markdown, extra_rich, page
from thalweg.report.events import (
    alarm_columns,
    alarm_table,
    drift_columns,
    drift_lines,
    drift_table,
    policy_table,
)


def task(assignment, accuracy):
    return {"task": "a", "assignment": assignment, "accuracy": accuracy, "clients": 1}


def run(before, after, forgotten=0.0):
    """Two steps of two rounds; what is left of a task after each."""
    return [
        {"round": 1},
        {
            "round": 2,
            "accuracy": before,
            "tasks": [task("labels", 0.75), task("oracle", 0.5)],
        },
        {"round": 3, "drifted": 6, "drift_precision": 1.0, "drift_recall": 0.5},
        {
            "round": 4,
            "accuracy": after,
            "purity": 0.75,
            "tasks": [task("labels", 0.75 - forgotten), task("oracle", 0.5)],
        },
    ]


def test_the_drift_table_has_recovery_tasks_and_forgetting(cell):
    cells = [
        cell("feddaa", 0, rows=run(0.5, 0.75)),
        cell("feddaa", 1, rows=run(0.5, 0.49)),
        cell("fedavg", 0, rows=run(0.5, 0.25, forgotten=0.5)),
    ]
    found = rows_by_recipe(drift_columns(cells))
    assert found["feddaa"]["steps"] == "56.00 ± 9.19"
    assert found["feddaa"]["recovered"] == "2 of 2", "two points less are as good"
    assert found["feddaa"]["after"] == "2.0"
    assert found["fedavg"]["recovered"] == "0 of 1"
    assert found["fedavg"]["after"] == "–"
    assert found["fedavg"]["tasks by labels"] == "25.00"
    assert found["fedavg"]["forgotten by labels"] == "50.00"
    assert found["fedavg"]["forgotten by oracle"] == "0.00"
    assert (found["fedavg"]["purity"], found["fedavg"]["recall"]) == ("75.00", "50.00")


def test_runs_without_drift_have_no_drift_table(comparison):
    assert drift_columns(comparison) == []
    assert extra_markdown(drift_table(comparison)) == ""
    assert extra_rich(drift_table(comparison)) is None
    assert "Steps between drifts" not in page("t", comparison)


def test_each_format_states_that_labels_were_used(cell):
    cells = [cell("feddaa", 0, rows=run(0.5, 0.75))]
    for text in (page("t", cells), extra_markdown(drift_table(cells))):
        assert "tasks by labels" in text
        assert "own test labels" in text


def test_single_run_prints_lines_about_drifts(cell):
    lines = drift_lines(run(0.5, 0.75, forgotten=0.25))
    assert lines == [
        ("steps", "0.6250   mean over the ends of 2 steps between drifts"),
        ("", "accuracy recovered after 1 of 1 drifts"),
        ("tasks", "0.5000   mean over 1 tasks by labels, 0.2500 forgotten"),
        ("", "0.5000   mean over 1 tasks by oracle, 0.0000 forgotten"),
    ]  # fmt: skip
    assert drift_lines([{"round": 1, "accuracy": 0.5}]) == []


def alarm_counts(raised, drifts, missed, delay):
    false = raised - (drifts - missed)
    return {
        "raised": raised,
        "drifts": drifts,
        "missed": missed,
        "false_alarms": false,
        "mean_delay": delay,
    }


def test_the_alarm_table_has_detected_drifts_delays_and_false_alarms(cell):
    cells = [
        cell("fedavg", 0),
        cell("ddm", 0, alarms=alarm_counts(5, 4, 1, 2.0)),
        cell("ddm", 1, alarms=alarm_counts(1, 4, 3, 6.0)),
        cell("silent", 0, alarms=alarm_counts(0, 4, 4, None)),
    ]
    shown = rows_by_recipe(alarm_columns(cells))
    assert shown["ddm"] == {
        "alarms": "3.0 ± 2.8",
        "detected": "4 of 8",
        "delay": "3.0",  # three drifts after 2 rounds, one after 6
        "false": "1.0 ± 1.4",
    }
    assert shown["silent"] == {"alarms": "0.0", "detected": "0 of 4", "delay": "–", "false": "0.0"}
    assert set(shown["fedavg"].values()) == {"–"}, "no detector"


def test_alarms_are_only_counted_if_the_true_drifts_are_unknown(cell):
    assert rows_by_recipe(alarm_columns([cell("ddm", 0, alarms={"raised": 2})])) == {
        "ddm": {"alarms": "2.0"}
    }


def test_the_alarm_table_explains_only_its_columns(cell):
    caption = alarm_table([cell("ddm", 0, alarms={"raised": 2})]).caption
    assert caption == "alarms: raised in a run, over all clients. The true drifts are unknown."
    without_drifts = alarm_table([cell("ddm", 0, alarms=alarm_counts(2, 0, 0, None))])
    assert "unknown" not in without_drifts.caption
    assert "false: alarms that detect no new drift." in without_drifts.caption


def test_unfinished_runs_are_not_in_the_alarm_table(cell):
    half = {"status": "interrupted", "rows": [{"round": 1}]}
    cells = [
        cell("ddm", 0, alarms=alarm_counts(1, 1, 0, 0.0)),
        cell("ddm", 1, alarms=alarm_counts(9, 1, 1, None), **half),
    ]
    assert rows_by_recipe(alarm_columns(cells))["ddm"]["alarms"] == "1.0"


def test_each_format_has_the_alarm_table_and_explains_it(cell):
    cells = [cell("ddm", 0, alarms=alarm_counts(5, 4, 1, 2.0))]
    for text in (page("t", cells), extra_markdown(alarm_table(cells))):
        assert "detected" in text
        assert "3 of 4" in text.replace("&nbsp;", " ")
        assert "that detect no new drift" in text
    assert extra_rich(alarm_table(cells)) is not None


def test_runs_without_a_detector_have_no_alarm_table(comparison):
    assert alarm_columns(comparison) == []
    assert extra_markdown(alarm_table(comparison)) == ""


def test_metrics_of_policies_have_a_table(cell):
    rows = [{"round": 1, "rejected": 2}, {"round": 2, "rejected": 1, "mean_staleness": 1.5}]
    found = policy_table([cell("krum", rows=rows), cell("fedavg")])
    assert rows_by_recipe(found.columns) == {
        "krum": {"rejected": "3.0", "mean staleness": "1.5"},
        "fedavg": {"rejected": "–", "mean staleness": "–"},
    }
    assert "rejected: updates and responses that were rejected (total)." in found.caption


def test_undeclared_metric_is_shown_under_its_own_name(cell):
    cells = [cell("mine", rows=[{"round": 1, "my_score": 0.25}, {"round": 2, "my_list": [1, 2]}])]
    assert rows_by_recipe(policy_table(cells).columns) == {"mine": {"my score": "0.25"}}
    assert "my score" in page("t", cells)


def test_metrics_of_the_user_are_not_metrics_of_policies(cell):
    own = {"gain": get_metric_declaration("gain=mine.py:f:higher")}
    cells = [replace(cell("mine", rows=[{"round": 1, "gain": 0.25}]), own_metrics=own)]
    assert policy_table(cells).columns == []


def test_comparison_without_events_has_no_extra_tables(comparison):
    assert event_tables(comparison) == []
