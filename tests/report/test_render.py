"""Tables as Markdown, CSV and terminal output."""

import csv
import io

import pytest
from rich.console import Console

from thalweg.core.errors import RunError
from thalweg.report import summarise, to_csv, to_markdown, to_rich
from thalweg.report.render import write_atomically
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


def test_write_atomically_replaces_a_file_without_temporary_files(tmp_path):
    file = tmp_path / "a" / "b.txt"
    write_atomically(file, b"old")
    write_atomically(file, b"new")
    assert file.read_bytes() == b"new"
    assert [path.name for path in file.parent.iterdir()] == ["b.txt"]


def test_failed_write_gives_one_line_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"cannot write .*page.html: .*\.$"):
        write_atomically(tmp_path / "file" / "page.html", b"")


def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "page.html"
    write_atomically(file, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(RunError, match="No space left on device"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
