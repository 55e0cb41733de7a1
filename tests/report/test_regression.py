"""Reports of a regression use its mean absolute error, in its unit and direction."""

from __future__ import annotations

from dataclasses import replace

from thalweg.evaluation import transitions
from thalweg.evaluation.named import get_metric_declaration
from thalweg.report.cells import Cell, use_session_accuracy
from thalweg.report.curves import panels
from thalweg.report.render import to_csv, to_record
from thalweg.report.summary import summarise
from thalweg.report.table import best, columns, headline, legend
from thalweg.report.transitions import transition_table


def cell(recipe: str, seed: int, mae: float) -> Cell:
    rows = [{"round": 1, "mae": mae, "rmse": 2 * mae, "prequential_mae": mae}]
    return Cell(recipe, "toy", seed, "done", "", rows, "thalweg run", 1.0)


CELLS = [cell("first", 0, 12.5), cell("first", 1, 12.0), cell("second", 0, 10.5)]


def test_lowest_error_is_best_and_differences_have_its_unit() -> None:
    summaries = summarise(CELLS)
    assert [s.main_metric for s in summaries] == ["mae", "mae"]
    assert best(summaries) == {1}
    table = {column.heading: column.entries for column in columns(summaries)}
    assert list(table)[:3] == ["recipe", "seeds", "MAE"]
    assert table["vs first"] == ["–", "−2"]
    assert "accuracy" not in " ".join([*table, legend(summaries)]).lower()
    assert to_record(summaries[1])["difference_points_mean"] == "-2.0000"


def test_legend_without_a_finished_run_names_no_ranking() -> None:
    missing = [replace(each, status="missing", reason="not run yet", rows=[]) for each in CELLS]
    text = legend(summarise(missing))
    assert "accurac" not in text.lower()
    assert "Ranked" not in text
    assert "Ranked by MAE: lower is better." in legend(summarise(CELLS))


def test_headline_names_the_lowest_error() -> None:
    assert headline(summarise(CELLS)) == (
        "On toy, second has the lowest mean absolute error, 10.5, 2 below first (1 shared seed, "
        "too few for a test)."
    )


def test_figure_shows_the_error_without_per_cent() -> None:
    (panel,) = panels(CELLS)
    assert (panel.title, panel.unit) == ("Mean absolute error on the test set", "")
    assert [curve.mean for curve in panel.curves] == [[12.25], [10.5]]


def test_headline_of_the_scenario_is_used_with_its_direction() -> None:
    gain = get_metric_declaration("gain=mine.py:f:higher")
    cells = [
        replace(
            cell(recipe, 0, mae),
            rows=[{"round": 1, "mae": mae, "gain": value}],
            headline="gain",
            own_metrics={"gain": gain},
        )
        for recipe, mae, value in (("fedavg", 1.0, 2.0), ("moon", 3.0, 2.5))
    ]
    summaries = summarise(cells)
    assert headline(summaries).startswith("On toy, moon has the highest gain, 2.5, 0.5 above")
    assert best(summaries) == {1}
    first = next(column for column in columns(summaries) if column.heading == "gain")
    assert first.entries == ["2", "2.5"]
    assert "Ranked by gain: higher is better." in legend(summaries)
    assert "gain_mean" in to_csv(summaries).splitlines()[0]


def test_transitions_of_a_regression_are_errors_without_per_cent() -> None:
    rows = [
        {"round": 1, "session": 0, "session_round": 1, "mae": 3.0, "session_mae": 2.0},
        {"round": 2, "session": 1, "session_round": 1, "mae": 9.0, "session_mae": 6.0},
        {"round": 3, "session": 1, "session_round": 2, "mae": 3.0, "session_mae": 2.0},
    ]
    one = replace(cell("fedavg", 0, 1.0), rows=rows)
    (found,) = transitions(rows)
    assert found.to_record()["transition_mae"] == 4.0
    assert (found.accuracy_before, found.rounds_to_recover) == (2.0, 2)
    table = transition_table([one])
    by_heading = {column.heading: column.entries for column in table.columns}
    assert by_heading["session 1"] == ["4"]
    assert by_heading["recovered"] == ["1 of 1"]
    assert "lower is better" in table.caption
    shown = use_session_accuracy(one)
    assert [row["mae"] for row in shown.rows] == [2.0, 6.0, 2.0]
    assert not any("accuracy" in row for row in shown.rows)
