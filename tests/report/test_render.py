"""Tables as Markdown, CSV and terminal output."""

import csv
import io

import pytest
from rich.console import Console

from thalweg.core.errors import RunError
from thalweg.report import summarise, to_csv, to_markdown, to_rich
from thalweg.report.html_page import results_section
from thalweg.report.render import write_report_file
from thalweg.report.summary import rank
from thalweg.report.table import columns


def test_markdown_by_hand(cell):
    cells = [cell("a|b", 0, 0.5, rows=[{"round": 1, "accuracy": 0.5}])]
    assert to_markdown(summarise(cells)).splitlines() == [
        r"| recipe | seeds | accuracy | MB sent | time, s |",
        r"| --- | --- | ---: | ---: | ---: |",
        r"| a\|b | 1 of 1 | 50.00 | 0.0 | 2.0 |",
        r"",
        r"Accuracies in %. Mean ± standard deviation over finished seeds. "
        r"accuracy: final model on held-out rows (test). MB sent: in both directions.",
    ]


@pytest.mark.parametrize(
    ("metric", "expected"), [("accuracy", ["c", "a", "b"]), ("mae", ["b", "a", "c"])]
)
def test_rows_are_ordered_from_best_to_worst(cell, metric, expected):
    values = {"a": 0.5, "b": 0.25, "c": 0.75}
    cells = [cell(name, rows=[{"round": 1, metric: value}]) for name, value in values.items()]
    cells.append(cell("open", status="missing", rows=[]))
    summaries = summarise(cells)
    assert [s.index for s in rank(summaries)] == ["abc".index(name) for name in expected] + [3]
    names = [*expected, "open"]
    lines = to_markdown(summaries).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:6]] == names
    records = csv.DictReader(io.StringIO(to_csv(summaries)))
    assert [record["recipe"] for record in records] == names
    printed = [line.split()[0] for line in render_text(summaries).splitlines() if line.split()]
    assert [word for word in printed if word in names][:4] == names
    page = results_section(summaries)
    places = [page.index(f"<span>{name}</span>") for name in names]
    assert places == sorted(places)
    assert f"--series-{'abc'.index(expected[0]) + 1}," in page[: places[0]], "its own colour"


def test_the_note_on_test_then_train_depends_on_repeated_rows(cell):
    rows = [{"round": 1, "prequential_accuracy": 0.5}]
    once, again = (summarise([cell(rows=rows, repeats_rows=is_so)]) for is_so in (False, True))
    assert "prequential: arriving rows before training on them" in to_markdown(once)
    assert "prequential: arriving rows; some were seen before" in to_markdown(again)


def test_the_legend_names_predictions_without_features(cell):
    rows = [{"round": 1, "mae": 2.0}]
    scores = {"mean": {"mae": 3.5}, "no-change": {"prequential_mae": 1.0}}
    cells = [cell("a", rows=rows, simple_scores=scores), cell("b", rows=rows)]
    assert "Predicting the mean gives 3.5." in to_markdown(summarise(cells))
    assert "Repeating" not in to_markdown(summarise(cells)), "of another metric"
    cells[1] = cell("running-mean", rows=rows)
    assert "Predicting" not in to_markdown(summarise(cells)), "it is a row of the table"


def test_markdown_has_the_best_mean_in_bold(comparison):
    text = to_markdown(summarise(comparison))
    assert "**82.00 ± 2.00**" in text
    assert "**80.00 ± 1.00**" not in text


def test_long_name_of_the_first_recipe_is_not_in_headings(cell):
    summaries = summarise([cell("sfedpo,memory.budget=0.25"), cell("fedavg")])
    assert "vs first" in dict(columns(summaries))
    assert "vs first: paired difference in accuracy to sfedpo,memory.budget=0.25" in (
        to_markdown(summaries)
    )


def test_csv_has_one_number_per_field(comparison):
    first, second = csv.DictReader(io.StringIO(to_csv(summarise(comparison, {"sfedpo": 83.0}))))
    assert (first["accuracy_percent_mean"], first["accuracy_percent_std"]) == ("82.0000", "2.0000")
    assert (first["published_percent"], first["points_from_published"]) == ("83.0000", "-1.0000")
    assert first["difference_points_mean"] == ""
    assert second["difference_points_mean"] == "-2.0000"
    assert float(second["difference_p_value"]) == pytest.approx(0.0741799)
    assert second["difference_seeds"] == "3"


def test_csv_columns_do_not_depend_on_measured_metrics(cell, comparison):
    bare = to_csv(summarise([cell(rows=[{"round": 1}])]))
    whole = to_csv(summarise(comparison))
    assert sorted(bare.splitlines()[0].split(",")) == sorted(whole.splitlines()[0].split(","))


def test_csv_always_has_the_balanced_accuracy(cell):
    rows = [{"round": 1, "accuracy": 0.75, "balanced_accuracy": 0.7475}]
    (line,) = csv.DictReader(io.StringIO(to_csv(summarise([cell("sfedpo", 0, rows=rows)]))))
    assert line["balanced_accuracy_percent_mean"] == "74.7500"
    (without,) = csv.DictReader(io.StringIO(to_csv(summarise([cell()]))))
    assert without["balanced_accuracy_percent_mean"] == ""


def render_text(summaries, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(to_rich(summaries, width=width))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [40, 61, 72, 80, 93, 100, 117, 132, 200])
def test_terminal_table_shows_complete_numbers_at_any_width(comparison, width):
    text = render_text(summarise(comparison, {"sfedpo": 83.0}), width)
    for column in columns(summarise(comparison, {"sfedpo": 83.0})):
        assert column.heading in text
        assert all(entry in text for entry in column.entries)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


def test_long_name_is_wrapped_in_the_terminal_table(cell):
    text = render_text(summarise([cell("sfedpo," + "x" * 100), cell("fedavg")]))
    assert text.count("x") >= 100
    assert "50.00" in text


def test_brackets_in_a_name_are_not_markup(cell):
    assert "[red]x[/red]" in render_text(summarise([cell("[red]x[/red]")]))


def test_write_report_file_replaces_a_file_without_temporary_files(tmp_path):
    file = tmp_path / "a" / "b.txt"
    write_report_file(file, b"old")
    write_report_file(file, b"new")
    assert file.read_bytes() == b"new"
    assert [path.name for path in file.parent.iterdir()] == ["b.txt"]


def test_failed_write_gives_one_line_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"cannot write .*page.html: .*\.$"):
        write_report_file(tmp_path / "file" / "page.html", b"")


def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "page.html"
    write_report_file(file, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(RunError, match="No space left on device"):
        write_report_file(file, b"new")
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
