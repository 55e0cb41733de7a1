import csv
import io

import pytest
from rich.console import Console

from thalweg.core.errors import ConfigError
from thalweg.report import summarise, to_csv, to_markdown, to_rich
from thalweg.report.table import best, columns


def printed(summaries, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(to_rich(summaries, width=width))
    return console.file.getvalue()


def test_columns_read_as_people_write_numbers(comparison):
    table = dict(columns(summarise(comparison, {"sfedpo": 83.0})))
    assert table["recipe"] == ["sfedpo", "fedavg"]
    assert table["seeds"] == ["3 of 3", "3 of 3"]
    assert table["accuracy"] == ["82.00 ± 2.00", "80.00 ± 1.00"]
    assert table["paper"] == ["83.00", "–"]
    assert table["vs paper"] == ["−1.00", "–"]
    assert table["vs sfedpo"] == ["–", "−2.00 ± 1.00"]
    assert table["p"] == ["–", "0.074"]
    assert table["MB sent"] == ["5.0 ± 0.0", "5.0 ± 0.0"]


def test_a_column_without_a_number_is_left_away(cell):
    assert "paper" not in dict(columns(summarise([cell()])))
    assert "vs sfedpo" not in dict(columns(summarise([cell()])))


def test_the_best_of_several_is_marked_and_of_one_none(comparison, cell):
    assert best(summarise(comparison)) == {0}
    assert best(summarise([cell("a", 0, 0.5), cell("b", 0, 0.5)])) == {0, 1}
    assert best(summarise([cell()])) == set()


def test_markdown_by_hand(cell):
    cells = [cell("a|b", 0, 0.5, rows=[{"round": 1, "accuracy": 0.5}])]
    assert to_markdown(summarise(cells)).splitlines() == [
        r"| recipe | seeds | accuracy | MB sent | time, s |",
        r"| --- | --- | ---: | ---: | ---: |",
        r"| a\|b | 1 of 1 | 50.00 | 0.0 | 2.0 |",
        r"",
        r"Accuracies in %. Mean ± standard deviation over finished seeds. MB sent: up and down.",
    ]


def test_markdown_sets_the_best_mean_in_bold(comparison):
    text = to_markdown(summarise(comparison))
    assert "**82.00 ± 2.00**" in text
    assert "**80.00 ± 1.00**" not in text


def test_csv_has_one_number_per_field(comparison):
    first, second = csv.DictReader(io.StringIO(to_csv(summarise(comparison, {"sfedpo": 83.0}))))
    assert (first["accuracy_percent_mean"], first["accuracy_percent_std"]) == ("82.0000", "2.0000")
    assert (first["published_percent"], first["points_from_published"]) == ("83.0000", "-1.0000")
    assert first["difference_points_mean"] == ""
    assert second["difference_points_mean"] == "-2.0000"
    assert float(second["difference_p_value"]) == pytest.approx(0.0741799)
    assert second["difference_seeds"] == "3"


def test_csv_columns_do_not_depend_on_what_was_measured(cell, comparison):
    bare = to_csv(summarise([cell(rows=[{"round": 1}])]))
    assert bare.splitlines()[0] == to_csv(summarise(comparison)).splitlines()[0]


def test_unfinished_runs_are_named_in_every_form(unfinished):
    summaries = summarise(unfinished)
    for text in (printed(summaries), to_markdown(summaries), to_csv(summaries)):
        assert "seed 0: failed, the loss is nan in round 3" in text
        assert "seed 1: interrupted" in text
        assert "seed 2: missing" in text
    assert "0 of 3" in printed(summaries)


@pytest.mark.parametrize("width", [40, 61, 72, 80, 93, 100, 117, 132, 200])
def test_a_terminal_of_any_width_shows_every_number_whole(comparison, width):
    text = printed(summarise(comparison, {"sfedpo": 83.0}), width)
    for column in columns(summarise(comparison, {"sfedpo": 83.0})):
        assert column.heading in text
        assert all(entry in text for entry in column.entries)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


def test_a_long_name_folds_instead_of_pushing_numbers_out(cell):
    text = printed(summarise([cell("sfedpo," + "x" * 100), cell("fedavg")]))
    assert text.count("x") >= 100
    assert "50.00" in text


def test_a_long_first_name_is_not_repeated_in_a_heading(cell):
    summaries = summarise([cell("sfedpo,memory.budget=0.25"), cell("fedavg")])
    assert "vs first" in dict(columns(summaries))
    assert "vs first: paired difference in accuracy to sfedpo,memory.budget=0.25" in (
        to_markdown(summaries)
    )


def test_brackets_in_a_name_are_not_markup(cell):
    assert "[red]x[/red]" in printed(summarise([cell("[red]x[/red]")]))


def test_a_table_of_nothing_is_refused():
    for form in (to_rich, to_markdown, to_csv):
        with pytest.raises(ConfigError, match="nothing to show"):
            form([])
