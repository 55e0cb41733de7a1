"""Tables and numbers of the docs agree with the stored cells."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from thalweg.core.config import load_object
from thalweg.core.errors import ConfigError
from thalweg.core.published import Published
from thalweg.report.measured import MeasuredCell, read_all_measured
from thalweg.scenarios.studies import STUDIES, Column, Row, Study

FILE = Path(__file__).parents[2] / "tools/results.py"
REMEDY = "run python tools/results.py and commit the result"
fill_page, find_pages, make_page = (
    load_object(f"{FILE}:{name}") for name in ("fill_page", "find_pages", "make_page")
)
STUDY = Study(
    name="made-up",
    title="Made up",
    description="",
    rows=(Row("ours"), Row("theirs"), Row("new")),
    columns=(Column("toy", note="10 %"), Column("toy", note="50 %", rows=("ours", "theirs"))),
    seeds=(0, 1),
    reference="ours",
    published={
        ("ours", "toy 10 %"): Published(80.0, 0.5),
        ("ours", "toy 50 %"): Published(81.0, 0.5),
        ("theirs", "toy 10 %"): Published(70.0),
        ("theirs", "toy 50 %"): Published(71.5),
    },
)


def measure(row: str, column: str, mean: float, spread: float | None) -> MeasuredCell:
    number = STUDY.published.get((row, column))
    return MeasuredCell(
        study="made-up",
        row=row,
        column=column,
        metric="accuracy",
        mean=mean,
        spread=spread,
        seeds=(0, 1),
        values=(mean, mean),
        rounds=10,
        published=number and number.mean,
        published_spread=number and number.spread,
        command="",
        version="0.1.0",
        settings="",
    )


CELLS = {
    "made-up": [
        measure("new", "toy 10 %", 60.123, None),
        measure("ours", "toy 10 %", 82.0, 0.25),
        measure("theirs", "toy 10 %", 69.5, 0.1),
    ]
}


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STUDIES, "made-up", STUDY)


def test_summary_of_the_results_is_up_to_date() -> None:
    page = load_object(f"{FILE}:PAGE")
    assert page.read_text() == make_page(read_all_measured()), REMEDY


@pytest.mark.parametrize("page", find_pages(), ids=lambda page: page.name)
def test_tables_and_numbers_of_the_docs_equal_the_stored_cells(page: Path) -> None:
    text = page.read_text()
    assert fill_page(text, read_all_measured()) == text, REMEDY


def test_table_shows_our_number_the_published_one_and_the_difference(made_up: None) -> None:
    before = "A\n\n<!-- table made-up -->old<!-- end table -->\n\nB\n"
    cells = {"made-up": [*CELLS["made-up"], measure("ours", "toy 50 %", 82.0, None)]}
    after = fill_page(before, cells)
    assert after == fill_page(after, cells)
    lines = after.splitlines()
    assert lines[0] == "A"
    assert lines[-1] == "B"
    assert "thalweg reproduce made-up" in lines
    assert "| recipe | 10 % | 50 % |" in lines
    assert "| ours | 82.00 ± 0.25 (80.00, +2.00\\*) | 82.00 (81.00, +1.00) |" in lines
    assert "| theirs | 69.50 ± 0.10 (70.00, −0.50) | not run (71.50) |" in lines
    assert "| new | 60.12 | – |" in lines
    assert "old" not in after
    assert "over seeds 0, 1" in after


def test_part_of_a_table_has_the_command_of_the_part(made_up: None) -> None:
    after = fill_page('<!-- table made-up --only "ours,10 %" --><!-- end table -->', CELLS)
    assert "thalweg reproduce made-up --only 'ours,10 %'" in after
    assert "theirs" not in after
    assert "81.00" not in after


def test_rows_and_columns_that_were_not_run_are_listed_below_the_table(made_up: None) -> None:
    cells = {"made-up": [measure("ours", "toy 10 %", 82.0, 0.25)]}
    after = fill_page("<!-- table made-up --><!-- end table -->", cells)
    assert "| ours | 82.00 ± 0.25 (80.00, +2.00\\*) |" in after
    assert "Not run: rows `theirs`, `new`; columns `toy 50 %`." in after
    nothing = fill_page("<!-- table made-up --><!-- end table -->", {})
    assert "thalweg reproduce made-up\n```\n\nNot run.\n" in nothing
    assert "| ours" not in nothing


@pytest.mark.parametrize(
    "words, text",
    [
        ("--only 'ours,10 %'", "82.00 ± 0.25"),
        ("--only 'new,10 %'", "60.12"),
        ("--only '10 %'", "60.12 to 82.00"),
        ("--only '10 %' --show difference", "−0.50 to +2.00"),
        ("--show published", "70.00 to 81.00"),
        ("", "60.12 to 82.00 (3 of 5 cells)"),
        ("--only 'ours,50 %'", "not run"),
        ("--show difference", "−0.50 to +2.00 (2 of 4 cells)"),
        ("--only 'ours,10 %' --minus theirs", "+12.50"),
        ("--only 'ours,10 %' --minus theirs --show published", "+10.00"),
        ("--only 'ours,10 %' --minus theirs --show difference", "+2.50"),
        ("--only 'ours' --minus theirs", "+12.50 (1 of 2 cells)"),
        ("--only 'ours,50 %' --minus theirs", "not run"),
        ("--show tau", "not run"),
    ],
)
def test_value_is_a_number_or_a_range(made_up: None, words: str, text: str) -> None:
    page = f"by <!-- value made-up {words} -->?<!-- end value --> points"
    assert fill_page(page, CELLS) == page.replace("?", text)


def test_subtracted_row_counts_only_shared_seeds(made_up: None) -> None:
    ours, theirs = CELLS["made-up"][1:]
    cells = {
        "made-up": [
            replace(ours, seeds=(0, 1, 2), values=(80.0, 84.0, 99.0)),
            replace(theirs, seeds=(0, 1), values=(70.0, 71.0)),
        ]
    }
    page = "<!-- value made-up --only 'ours,10 %' --minus theirs -->?<!-- end value -->"
    assert fill_page(page, cells) == page.replace("?", "+11.50")  # (10 + 13) / 2


def test_tau_of_the_row_order(made_up: None, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {("new", "toy 10 %"): Published(75.0)}
    study = replace(STUDY, published={**STUDY.published, **numbers})
    monkeypatch.setitem(STUDIES, "made-up", study)
    page = "<!-- value made-up --show tau -->?<!-- end value -->"
    # ours > theirs > new; the paper has ours > new > theirs: (2 - 1) / 3
    assert fill_page(page, CELLS) == page.replace("?", "0.33")


def test_left_out_cells_have_the_letter_of_their_reason(
    made_up: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = replace(STUDY, left_out={("theirs", "toy 10 %"): "it has no memory"})
    monkeypatch.setitem(STUDIES, "made-up", study)
    cells = {"made-up": [*CELLS["made-up"][:2], measure("theirs", "toy 50 %", 71.0, None)]}
    after = fill_page("<!-- table made-up --><!-- end table -->", cells)
    assert "| theirs | – a | 71.00 (71.50, −0.50) |" in after
    assert "Empty cells: a: it has no memory." in after


def test_row_without_any_cell_is_shown_with_the_reason(
    made_up: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out = {("theirs", label): "it needs labels" for label in ("toy 10 %", "toy 50 %")}
    monkeypatch.setitem(STUDIES, "made-up", replace(STUDY, left_out=left_out))
    cells = {"made-up": [cell for cell in CELLS["made-up"] if cell.row != "theirs"]}
    page = fill_page("<!-- table made-up --><!-- end table -->", cells)
    assert "| theirs | – a |" in page
    assert "Empty cells: a: it needs labels." in page
    assert "Not run: columns `toy 50 %`." in page


def test_comparison_of_auto_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def cell(row: str, mean: float) -> MeasuredCell:
        values, seeds = (mean, mean + 1, mean + 2), (10, 11, 12)
        made = measure("ours", "toy 10 %", mean + 1, 1.0)
        return replace(made, row=row, column="elec2 accuracy", values=values, seeds=seeds)

    page = "<!-- comparison {0} --><!-- end comparison -->"
    cells = {"auto-table": [cell("auto", 80.0), cell("feddrift", 79.0)]}
    table = fill_page(page.format("specialists"), cells)
    assert "| elec2 | 81.00 | feddrift 80.00 | +1.00 ± 0.00 | – | – | yes | no |" in table
    assert fill_page(table, cells) == table
    targets = fill_page(page.format("targets"), cells)
    assert "- Within 0.5 points of the best specialist: 1 of 1 comparisons." in targets
    assert "not run" in fill_page(page.format("parts"), {})
    with pytest.raises(ConfigError, match="expected specialists, parts or targets"):
        fill_page(page.format("others"), cells)


def test_code_blocks_do_not_change_and_missing_ends_are_reported(made_up: None) -> None:
    code = "```html\n<!-- value made-up --only ours --><!-- end value -->\n```\n"
    value = "<!-- value made-up --only 'ours,10 %' -->{}<!-- end value -->\n"
    assert fill_page(code + value.format(""), CELLS) == code + value.format("82.00 ± 0.25")
    with pytest.raises(ConfigError, match="end comment is missing"):
        fill_page("<!-- value made-up --only ours -->\n" + code, CELLS)


def test_unknown_row_is_reported(made_up: None) -> None:
    with pytest.raises(ConfigError, match="oors"):
        fill_page("<!-- value made-up --only oors -->?<!-- end value -->", CELLS)
    with pytest.raises(ConfigError, match="expected a row of made-up after --minus, got oors"):
        fill_page("<!-- value made-up --minus oors -->?<!-- end value -->", CELLS)
    with pytest.raises(ConfigError, match="no cell has a published number"):
        fill_page("<!-- value made-up --only new --show published -->?<!-- end value -->", CELLS)


def test_each_study_has_a_table_on_a_page() -> None:
    text = "\n".join(page.read_text() for page in find_pages())
    shown = set(re.findall(r"<!-- table (\S+)", text))
    assert shown >= {*set(STUDIES), *read_all_measured()}
