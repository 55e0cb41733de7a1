"""Reports of a regression use its mean absolute error, in its unit and direction."""

from __future__ import annotations

from thalweg.report.cells import Cell
from thalweg.report.curves import panels
from thalweg.report.render import to_record
from thalweg.report.summary import summarise
from thalweg.report.table import best, columns, headline, legend


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


def test_headline_names_the_lowest_error() -> None:
    assert headline(summarise(CELLS)) == (
        "On toy, second has the lowest mean absolute error, 10.5, 2 below first (1 shared seed, "
        "too few for a test)."
    )


def test_figure_shows_the_error_without_per_cent() -> None:
    (panel,) = panels(CELLS)
    assert (panel.title, panel.unit) == ("Mean absolute error on the test set", "")
    assert [curve.mean for curve in panel.curves] == [[12.25], [10.5]]
