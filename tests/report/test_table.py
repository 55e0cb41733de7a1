"""Summary tables."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from thalweg.core.errors import ConfigError
from thalweg.report import page, summarise, to_csv, to_markdown, to_rich
from thalweg.report.table import best, columns, legend


def render(summaries, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(to_rich(summaries, width=width))
    return console.file.getvalue()


def test_columns_contain_formatted_numbers(comparison):
    table = dict(columns(summarise(comparison, {"sfedpo": 83.0})))
    assert table["recipe"] == ["sfedpo", "fedavg"]
    assert table["seeds"] == ["3 of 3", "3 of 3"]
    assert table["accuracy"] == ["82.00 ± 2.00", "80.00 ± 1.00"]
    assert table["paper"] == ["83.00", "–"]
    assert table["vs paper"] == ["−1.00", "–"]
    assert table["vs sfedpo"] == ["–", "−2.00 ± 1.00"]
    assert table["p"] == ["–", "0.074"]
    assert table["MB sent"] == ["5.0 ± 0.0", "5.0 ± 0.0"]


def test_column_without_numbers_is_left_out(cell):
    assert "paper" not in dict(columns(summarise([cell()])))
    assert "vs sfedpo" not in dict(columns(summarise([cell()])))


def test_best_mean_is_marked(comparison, cell):
    assert best(summarise(comparison)) == {0}
    other = [{"round": 1, "accuracy": 0.25}, {"round": 2, "accuracy": 0.5}]
    assert best(summarise([cell("a", 0, 0.5), cell("b", rows=other)])) == {0, 1}
    assert best(summarise([cell()])) == set()


def test_lowest_forgetting_is_best_and_has_its_own_heading(comparison):
    summaries = [replace(s, accuracy_metric="forgetting") for s in summarise(comparison)]
    assert best(summaries) == {1}
    headings = [column.heading for column in columns(summaries)]
    assert "forgetting" in headings
    assert "accuracy" not in headings


def test_unfinished_runs_are_listed_in_each_format(unfinished_cells):
    summaries = summarise(unfinished_cells)
    for text in (render(summaries), to_markdown(summaries), to_csv(summaries)):
        assert "seed 0: failed, the loss is nan in round 3" in text
        assert "seed 1: interrupted" in text
        assert "seed 2: missing" in text
    assert "0 of 3" in render(summaries)


def test_table_without_summaries_raises_an_error():
    for form in (to_rich, to_markdown, to_csv):
        with pytest.raises(ConfigError, match="nothing to show"):
            form([])


def with_balanced(cell, accuracy, balanced):
    rows = [{"round": 1, "accuracy": accuracy, "balanced_accuracy": balanced}]
    return cell("sfedpo", 0, rows=rows)


def test_balanced_accuracy_is_shown_if_it_differs_from_accuracy(cell):
    summaries = summarise([with_balanced(cell, 0.75, 0.60)])
    assert dict(columns(summaries))["balanced"] == ["60.00"]
    assert "balanced: accuracy averaged over the classes" in legend(summaries)
    nearly = summarise([with_balanced(cell, 0.75, 0.7475)])
    assert "balanced" not in dict(columns(nearly))
    assert "balanced" not in legend(nearly)


@pytest.mark.parametrize(("worst", "is_shown"), [(0.75, False), (0.5, True)])
def test_latent_states_have_columns_only_if_there_are_several(cell, worst, is_shown):
    rows = [
        {"round": 1, "accuracy": 0.75, "state_accuracy": 0.75, "worst_state_accuracy": worst},
    ]
    cells = [cell("sfedpo", 0, rows=rows)]
    assert ("worst state" in dict(columns(summarise(cells)))) is is_shown
    assert ("mean state" in dict(columns(summarise(cells)))) is is_shown
    assert ("worst state" in page("t", cells)) is is_shown
    assert "worst_state_accuracy_percent_mean" in to_csv(summarise(cells))
