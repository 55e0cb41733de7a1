"""Studies that vary one value are drawn as curves over that value."""

from pathlib import Path

import pytest

from thalweg.report.curves import describe
from thalweg.report.study import StudyResult
from thalweg.report.study_page import study_page
from thalweg.report.sweeps import column_sweeps, find_sweeps, row_sweeps
from thalweg.scenarios.studies import Column, Row, Study

TICKS = (10, 2, 5)


def result_of(study: Study, accuracy, cell) -> StudyResult:
    """Return a result; `accuracy` maps row, column and seed to a value or None (not run yet)."""
    cells = []
    for column in study.columns:
        for row in study.rows_of(column):
            for seed in study.seeds:
                value = accuracy(row.label, column.label, seed)
                names = {"recipe": row.label, "scenario": column.label, "seed": seed}
                gone = {"status": "missing", "rows": [], "seconds": 0.0}
                cells.append(cell(**names, **(gone if value is None else {"accuracy": value})))
    return StudyResult(
        study=study, scale="paper", folder=Path(), command="thalweg reproduce s", cells=cells
    )


@pytest.fixture
def ticks(cell) -> StudyResult:
    """Columns with T = 10, 2, 5: row a has T +- 1 percent, row b is not run at T = 2."""
    study = Study(
        name="s",
        title="Ticks",
        description="",
        rows=(Row("a", "sfedpo"), Row("b", "fedavg")),
        columns=(
            Column("digits-full"),
            *(Column("digits-partial", (f"ticks={t}",), f"T={t}") for t in TICKS),
            Column("digits-partial", ("capacity=9",), "D=9"),
        ),
        seeds=(0, 1, 2),
        reference="a",
    )

    def accuracy(row: str, column: str, seed: int) -> float | None:
        value = float(column.partition("=")[2] or 50)
        return None if (row, value) == ("b", 2) else (value + seed - 1) / 100

    return result_of(study, accuracy, cell)


def test_columns_that_differ_in_one_value_are_one_panel(ticks):
    (panel,) = column_sweeps(ticks)
    assert panel.x_name == "T"
    assert panel.title == "Test accuracy over T, digits-partial"
    first, second = panel.curves
    assert (first.recipe, list(first.x)) == ("a", [2, 5, 10])
    assert first.mean == pytest.approx([2, 5, 10])
    assert first.low == pytest.approx([1, 4, 9])
    assert first.high == pytest.approx([3, 6, 11])
    assert (second.recipe, list(second.x)) == ("b", [5, 10])


def test_page_draws_and_describes_sweeps(ticks):
    assert "a 2.00 % at T=2, 5.00 % at T=5, 10.00 % at T=10" in describe(column_sweeps(ticks))
    page = study_page(ticks)
    assert page.count("<h2>Sweeps</h2>") == 1
    assert "Line chart. Test accuracy over T, digits-partial: a 2.00 % at T=2" in page


def test_rows_that_differ_in_one_value_are_drawn_with_the_reference_row(cell):
    study = Study(
        name="s",
        title="Tunables",
        description="",
        rows=(Row("plain", "fedavg"), *(Row(f"a1={v}", "sfedpo") for v in (0.5, 0.1, 0.3))),
        columns=(Column("digits-full"),),
        seeds=(0,),
        reference="plain",
    )
    values = {"plain": 0.25, "a1=0.5": 0.5, "a1=0.1": 0.1, "a1=0.3": 0.3}
    result = result_of(study, lambda row, column, seed: values[row], cell)
    (panel,) = row_sweeps(result.summaries()["digits-full"])
    mine, other = panel.curves
    assert (mine.recipe, list(mine.x)) == ("a1", [0.1, 0.3, 0.5])
    assert mine.mean == pytest.approx([10, 30, 50])
    assert (other.recipe, other.mean) == ("plain", pytest.approx([25, 25, 25]))
    assert column_sweeps(result) == []


def test_sweep_with_one_point_is_not_drawn(ticks, cell):
    def accuracy(row: str, column: str, seed: int) -> float | None:
        return 0.5 if column.endswith("T=2") else None

    assert column_sweeps(result_of(ticks.study, accuracy, cell)) == []
    assert "Sweeps" not in study_page(result_of(ticks.study, accuracy, cell))


@pytest.mark.parametrize("note", ["μ=0.2 σ=0.1", "resnet10", "a=b", "=3", "N=10 twice"])
def test_notes_without_exactly_one_number_are_no_sweep(note):
    assert find_sweeps({str(number): note for number in range(3)}) == {}


def test_two_values_are_no_sweep():
    assert find_sweeps({"x": "T=1", "y": "T=2"}) == {}
