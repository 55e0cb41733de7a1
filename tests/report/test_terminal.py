import io

import pytest
from rich.console import Console

from thalweg.report import summarise, to_rich
from thalweg.report.table import columns


def printed(summaries, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(to_rich(summaries, width=width))
    return console.file.getvalue()


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


def test_brackets_in_a_name_are_not_markup(cell):
    assert "[red]x[/red]" in printed(summarise([cell("[red]x[/red]")]))
