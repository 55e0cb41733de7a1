from report.small_tables import rows_by_recipe
from thalweg.report import page
from thalweg.report.drifts import drift_columns, drift_extra, drift_lines
from thalweg.report.extras import extra_markdown, extra_rich


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


def table(cells):
    return rows_by_recipe(drift_columns(cells))


def test_recipes_are_compared_by_what_drifts_did_to_them(cell):
    cells = [
        cell("feddaa", 0, rows=run(0.5, 0.75)),
        cell("feddaa", 1, rows=run(0.5, 0.49)),
        cell("fedavg", 0, rows=run(0.5, 0.25, forgotten=0.5)),
    ]
    found = table(cells)
    assert found["feddaa"]["steps"] == "56.00 ± 9.19"
    assert found["feddaa"]["back"] == "2 of 2", "two points less are as good"
    assert found["feddaa"]["after"] == "2.0"
    assert found["fedavg"]["back"] == "0 of 1"
    assert found["fedavg"]["after"] == "–"
    assert found["fedavg"]["tasks by labels"] == "25.00"
    assert found["fedavg"]["forgotten by labels"] == "50.00"
    assert found["fedavg"]["forgotten by oracle"] == "0.00"
    assert (found["fedavg"]["purity"], found["fedavg"]["recall"]) == ("75.00", "50.00")


def test_runs_without_drift_have_no_such_table(comparison):
    assert drift_columns(comparison) == []
    assert extra_markdown(drift_extra(comparison)) == ""
    assert extra_rich(drift_extra(comparison)) is None
    assert "Steps between drifts" not in page("t", comparison)


def test_every_form_says_that_labels_were_looked_at(cell):
    cells = [cell("feddaa", 0, rows=run(0.5, 0.75))]
    for text in (page("t", cells), extra_markdown(drift_extra(cells))):
        assert "tasks by labels" in text
        assert "own test labels" in text


def test_a_single_run_says_what_drifts_did(cell):
    lines = drift_lines(run(0.5, 0.75, forgotten=0.25))
    assert lines == [
        ("steps", "0.6250   mean over 2 of them, each as it ended; accuracy came back after 1 of 1 drifts"),
        ("tasks", "0.5000   mean over 1 tasks by labels, 0.2500 forgotten"),
        ("", "0.5000   mean over 1 tasks by oracle, 0.0000 forgotten"),
    ]  # fmt: skip
    assert drift_lines([{"round": 1, "accuracy": 0.5}]) == []
