"""The status of the papers' tables and figures follows from the stored cells."""

import pytest

from thalweg.core.published import Published
from thalweg.report import status
from thalweg.report.measured import MeasuredCell, find_study_of_file
from thalweg.report.status import format_command, kendall_tau, make_status, to_record, to_texts
from thalweg.report.sweeps import find_sweeps
from thalweg.scenarios.studies import STUDIES, Column, Row, Study
from thalweg.scenarios.studies.papers import PAPERS, Exhibit, Paper, find_exhibit

STUDY = Study(
    name="made-up",
    title="Made up",
    description="",
    paper="made",
    table="Table 1",
    rows=(Row("ours"), Row("variant"), Row("middle"), Row("low"), Row("plain")),
    columns=(
        Column("full"),
        Column("full", note="small", is_reduced=True),
        Column("other", table="Figure 1"),
        Column("elsewhere"),
        Column("full", note="best"),
    ),
    seeds=(0, 1, 2),
    reference="ours",
    published={
        ("ours", "full"): Published(80.0, 0.1, "best"),
        ("variant", "full"): Published(80.0, 0.1, "best"),
        ("ours", "full small"): Published(80.0, 0.1, "best"),
        ("middle", "full"): Published(70.0, 2.0),
        ("low", "full"): Published(60.0),
        ("plain", "full"): Published(50.0, cell=None),
        ("ours", "full best"): Published(80.0, 0.1, "best"),
        ("plain", "full best"): Published(50.0, cell=None),
    },
)
MADE = Paper(
    "Made up",
    (
        Exhibit("Table 1", "a table", 4),
        Exhibit("Table 2", "never run", 6),
        Exhibit("Figure 1", "a figure"),
        Exhibit("Figure 2", "curves", studies=("made-up",)),
        Exhibit("Figure 3", "overview", has_results=False),
    ),
)


def measure(row, column, mean, seeds=(0, 1, 2)):
    number = STUDY.published.get((row, column), Published(0.0))
    return MeasuredCell(
        study="made-up",
        row=row,
        column=column,
        metric="accuracy",
        mean=mean,
        spread=None,
        seeds=seeds,
        values=(mean,) * len(seeds),
        rounds=10,
        published=number.mean or None,
        published_spread=number.spread,
        command="",
        version="0.1.0",
        settings="",
    )


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    monkeypatch.setitem(STUDIES, STUDY.name, STUDY)
    monkeypatch.setattr(status, "PAPERS", {"made": MADE})


def test_tables_that_were_never_run_are_listed():
    found = make_status({})
    assert [each.table for each in found] == ["Table 1", "Table 2", "Figure 1", "Figure 2"]
    assert [each.run for each in found] == [0, 0, 0, 0]
    assert to_record(found[1]) == {
        "paper": "made",
        "table": "Table 2",
        "content": "never run",
        "cells": 6,
        "run": 0,
        "within": 0,
        "tau": None,
        "scale": None,
        "seeds": None,
        "command": None,
        "tau_of": {},
    }
    assert to_texts(found[1]) == ["6", "0", "", "", "", ""]


def test_each_published_cell_counts_once():
    cells = [measure(row, "full", 79.0) for row in ("ours", "variant", "middle")]
    (table, *_) = make_status({"made-up": [*cells, measure("ours", "full small", 79.0)]})
    assert (table.cells, table.run) == (4, 2)
    assert table.within == 1  # ours; middle is 9 points off
    assert table.scale == "paper"
    assert table.command == "thalweg reproduce made-up"


def test_first_measured_row_or_scale_of_a_cell_counts():
    cells = [measure("variant", "full", 70.0), measure("ours", "full small", 80.0, (4,))]
    (table, *_) = make_status({"made-up": cells})
    assert (table.run, table.within, table.scale, table.seeds) == (1, 0, "paper", "3")
    (table, *_) = make_status({"made-up": cells[1:]})
    assert (table.run, table.within, table.scale, table.seeds) == (1, 1, "reduced", "1")


def test_cells_on_data_without_published_numbers_are_mentioned():
    (table, *_) = make_status({"made-up": [measure("ours", "elsewhere", 70.0)]})
    assert (table.run, table.within, table.scale, table.seeds) == (0, 0, "other data", "")
    cells = [measure("ours", "full", 80.0), measure("ours", "elsewhere", 70.0)]
    (table, *_) = make_status({"made-up": cells})
    assert (table.run, table.within, table.scale) == (1, 1, "paper, other data")
    (table, *_) = make_status({"made-up": [measure("plain", "full", 50.0)]})
    assert table.scale == "", "a row without a number, on the paper's data"


def test_order_of_rows_includes_numbers_that_follow_from_printed_ones():
    # ours > low > middle > plain; the paper has ours > middle > low > plain: 5 of 6 pairs agree.
    means = {"ours": 80.0, "middle": 60.0, "low": 62.0, "plain": 50.0}
    cells = [measure(row, "full", mean, (0,)) for row, mean in means.items()]
    (table, *_) = make_status({"made-up": cells})
    assert table.run == 3
    assert table.tau == pytest.approx(4 / 6)
    assert to_record(table)["tau_of"] == {"full": 0.67}
    assert to_texts(table) == ["4", "3", "2", "0.67", "paper", "1"]
    (table, *_) = make_status({"made-up": cells[:2]})
    assert table.tau is None


def test_columns_that_show_cells_again_have_no_tau():
    rows = ("ours", "middle", "low", "plain")
    cells = [measure(row, "full", mean) for row, mean in zip(rows, (80, 70, 60, 50), strict=True)]
    again = [measure(row, "full best", mean) for row, mean in (("ours", 40.0), ("plain", 50.0))]
    more = [measure(row, "full best", 60.0) for row in ("middle", "low")]
    (table, *_) = make_status({"made-up": [*cells, *again, *more]})
    assert (table.run, table.tau_of) == (3, {"full": 1.0})


def test_points_of_figures_are_counted():
    cells = [measure("ours", "other", 80.0), measure("ours", "full", 80.0)]
    *_, first, second = make_status({"made-up": cells})
    assert (first.table, first.run, first.within) == ("Figure 1", 1, 0)
    assert (second.table, second.run) == ("Figure 2", 2)
    assert to_record(second)["cells"] is None
    assert to_texts(second) == ["", "2", "", "", "paper", "3"]


def test_command_names_the_data_set():
    assert format_command("sfedpo-table-3-digits") == (
        "thalweg reproduce sfedpo-table-3 --data digits"
    )


@pytest.mark.parametrize(
    "pairs, tau",
    [
        ([(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)], 1.0),
        ([(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)], -1.0),
        ([(1.0, 1.0), (1.0, 2.0), (2.0, 3.0)], 2 / 6**0.5),  # one tie: 2 / sqrt(2 * 3)
        ([(1.0, 1.0), (1.0, 2.0)], None),
    ],
)
def test_kendall_tau_counts_ties(pairs, tau):
    assert kendall_tau(pairs) == (tau if tau is None else pytest.approx(tau))


def test_papers_have_the_printed_number_of_cells():
    totals = {key: sum(e.cells for e in paper.exhibits) for key, paper in PAPERS.items()}
    assert totals == {"sfedpo": 254, "streams": 75, "churn": 2411, "dpcs": 24, "feddaa": 138}


def test_studies_name_a_table_of_their_paper_and_no_more_cells_than_it_has():
    cells: dict[tuple[str, str], set[str]] = {}
    for study in STUDIES.values():
        if study is STUDY:
            continue
        assert bool(study.paper) or not study.published, study.name
        for column in study.columns if study.paper else ():
            assert find_exhibit(study.paper, study.table_of(column)).has_results
            names = {study.published_cell(row.label, column.label) for row in study.rows}
            mine = cells.setdefault((study.paper, study.table_of(column)), set())
            mine |= {name for name in names if name is not None}
    for (paper, table), names in cells.items():
        exhibit = find_exhibit(paper, table)
        assert len(names) <= exhibit.cells or exhibit.cells == 0, (paper, table)
    complete = [("sfedpo", "Table 1"), ("sfedpo", "Table 8"), ("streams", "Table 4")]
    for paper, table in complete:
        assert len(cells[paper, table]) == find_exhibit(paper, table).cells


def test_studies_of_figures_exist():
    for paper in PAPERS.values():
        for exhibit in paper.exhibits:
            assert [find_study_of_file(name).name for name in exhibit.studies] == [*exhibit.studies]


def test_other_data_have_no_numbers_of_the_paper():
    study = find_study_of_file("streams-synthetic-table-digits")
    assert (study.paper, study.published) == ("", {})
    assert {study.table_of(column) for column in study.columns} == {""}


def test_pages_draw_the_figures_that_have_a_study():
    for key, paper in PAPERS.items():
        for exhibit in paper.exhibits:
            own = [s for s in STUDIES.values() if s.paper == key and s.table == exhibit.name]
            studies = [*own, *map(find_study_of_file, exhibit.studies)]
            for study in studies if exhibit.name.startswith("Figure") else ():
                columns = {column.label: column.note for column in study.columns}
                rows = {label: label for label in study.row_labels}
                sweeps = find_sweeps(columns) | find_sweeps(rows)
                assert sweeps or "over the rounds" in exhibit.content, exhibit.name
