"""Means, paired differences and p-values over seeds."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from thalweg.core.errors import ConfigError
from thalweg.report import Cell, to_csv
from thalweg.report.summary import correct_p_values, paired_difference, spread, summarise
from thalweg.report.table import best, columns, legend, p_heading


def test_mean_and_sample_standard_deviation_over_seeds(comparison):
    first, second = summarise(comparison)
    assert first.accuracy.mean == pytest.approx(0.82)  # of 0.80, 0.82, 0.84
    assert first.accuracy.std == pytest.approx(0.02)
    assert second.accuracy.mean == pytest.approx(0.80)  # of 0.79, 0.80, 0.81
    assert second.accuracy.std == pytest.approx(0.01)
    assert first.means["worst_state_accuracy"] == pytest.approx(0.41)
    assert first.spreads["prequential_accuracy"] == (0.5, 0.0, 3)
    assert first.spreads["megabytes"] == (5.0, 0.0, 3)
    assert first.spreads["seconds"] == (2.0, 0.0, 3)
    assert (first.num_done, first.num_requested, first.unfinished_cells) == (3, 3, ())


def test_differences_are_paired_by_seed(comparison):
    first, second = summarise(comparison)
    assert first.difference is None
    assert second.difference.mean == pytest.approx(-0.02)  # of -0.01, -0.02, -0.03
    assert second.difference.std == pytest.approx(0.01)
    assert second.difference.num_seeds == 3
    # t = -2 / (1 / sqrt 3), and with two degrees of freedom p = 1 - |t| / sqrt(2 + t^2)
    assert second.difference.p_value == pytest.approx(1 - math.sqrt(6 / 7))


def test_difference_uses_only_shared_seeds(cell):
    cells = [cell("a", 0, 0.8), cell("a", 1, 0.6), cell("b", 1, 0.7), cell("b", 2, 0.1)]
    difference = summarise(cells)[1].difference
    assert difference.mean == pytest.approx(0.1)
    assert (difference.std, difference.p_value, difference.num_seeds) == (None, None, 1)


def test_recipes_without_a_shared_seed_have_no_difference(cell):
    assert summarise([cell("a", 0), cell("b", 1)])[1].difference is None


def test_two_shared_seeds_have_a_standard_deviation_but_no_p_value():
    difference = paired_difference({0: 0.5, 1: 0.75}, {0: 0.25, 1: 0.25})
    assert difference.mean == 0.375
    assert difference.std == pytest.approx(0.25 / math.sqrt(2))
    assert difference.p_value is None


def test_equal_differences_have_no_p_value():
    # 0.3 - 0.2 and 0.2 - 0.1 differ in the last bit; that is not a spread.
    assert paired_difference({0: 0.3, 1: 0.2, 2: 0.9}, {0: 0.2, 1: 0.1, 2: 0.8}).p_value is None
    assert paired_difference({0: 0.3, 1: 0.2, 2: 0.9}, {0: 0.3, 1: 0.2, 2: 0.9}).p_value is None


accuracies = st.integers(0, 1000).map(lambda right: right / 1000)


@given(st.lists(st.tuples(accuracies, accuracies), min_size=3, max_size=8))
def test_p_value_equals_the_paired_t_test_of_scipy(pairs):
    these, those = dict(enumerate(a for a, _ in pairs)), dict(enumerate(b for _, b in pairs))
    difference = paired_difference(these, those)
    if difference.p_value is not None:
        expected = ttest_rel(list(these.values()), list(those.values())).pvalue
        assert difference.p_value == pytest.approx(expected, abs=1e-9)
    reverse = paired_difference(those, these)
    assert reverse.mean == pytest.approx(-difference.mean)
    assert reverse.p_value == pytest.approx(difference.p_value)


def test_single_seed_has_no_spread():
    assert spread([0.7]) == (0.7, None, 1)


def test_unfinished_runs_are_counted_but_not_averaged(unfinished_cells):
    done, undone = summarise(unfinished_cells)
    assert (done.num_done, done.num_requested) == (1, 1)
    assert (undone.num_done, undone.num_requested) == (0, 3)
    assert [cell.status for cell in undone.unfinished_cells] == ["failed", "interrupted", "missing"]
    assert undone.accuracy is undone.spreads["seconds"] is undone.difference is None


def test_published_accuracies_are_percentages(comparison):
    first, second = summarise(comparison, {"sfedpo": 82.50, "not run here": 50.0})
    assert first.published == 82.50
    assert first.points_from_published == pytest.approx(-0.5)
    assert second.published is second.points_from_published is None
    with pytest.raises(ConfigError, match=r"in per cent, such as 86.77; got 0.825 for 'sfedpo'"):
        summarise(comparison, {"sfedpo": 0.825})


def test_runs_without_a_test_set_are_compared_by_prequential_accuracy(cell):
    def streaming(recipe, seed, accuracy):
        return cell(recipe, seed, rows=[{"round": 1, "prequential_accuracy": accuracy}])

    first, second = summarise([streaming("a", 0, 0.5), streaming("b", 0, 0.75)])
    assert first.main_metric == second.main_metric == "prequential_accuracy"
    assert second.main.mean == 0.75
    assert second.difference.mean == 0.25


def test_main_metric_without_finished_runs_is_accuracy(cell):
    (only,) = summarise([cell(status="missing", rows=[])])
    assert only.main_metric == "accuracy"
    assert only.main is None


def time_ordered(cell: Callable[..., Cell], recipe: str, seed: int, test: float, arriving: float):
    rows = [{"round": 1, "accuracy": test, "prequential_accuracy": arriving}]
    return cell(recipe, seed, rows=rows, is_time_ordered=True)


def test_time_ordered_data_are_ranked_by_test_then_train(cell):
    """The activity data of a newcomer: ahead test-then-train, behind on the test set."""
    cells = [time_ordered(cell, "fedavg", 0, 0.75, 0.5), time_ordered(cell, "fd", 0, 0.5, 0.875)]
    summaries = summarise(cells)
    assert [s.main_metric for s in summaries] == ["prequential_accuracy"] * 2
    assert best(summaries) == {1}
    assert summaries[1].difference.mean == 0.375
    assert [column.heading for column in columns(summaries)][2] == "prequential"
    assert to_csv(summaries).splitlines()[0].split(",")[4] == "prequential_accuracy_percent_mean"
    explicit = summarise([replace(each, headline="accuracy") for each in cells])
    assert best(explicit) == {0}


def test_holm_correction_by_hand(cell):
    """Three tests: the smallest p is tripled, the next doubled, and none falls below another."""
    assert correct_p_values([0.02, 0.01, 0.5]) == pytest.approx([0.04, 0.03, 0.5])
    assert correct_p_values([0.4, 0.4]) == pytest.approx([0.8, 0.8])
    assert correct_p_values([0.6, 0.9]) == [1.0, 1.0]
    assert correct_p_values([0.03]) == [0.03]
    assert correct_p_values([]) == []


def test_several_recipes_have_corrected_p_values(cell):
    """Differences 1, 2, 3 have p = 0.0742 (by hand in `paired_difference`); both are doubled."""
    cells = [cell("a", seed, 0.5) for seed in range(3)]
    cells += [cell("b", seed, 0.51 + 0.01 * seed) for seed in range(3)]
    alone = summarise(cells)
    assert alone[1].difference.p_value == pytest.approx(0.0742, abs=1e-4)
    assert p_heading(alone) == "p"
    cells += [cell("c", seed, 0.49 - 0.01 * seed) for seed in range(3)]
    summaries = summarise(cells)
    assert [s.difference.p_value for s in summaries[1:]] == pytest.approx([0.1484] * 2, abs=1e-4)
    assert "p (Holm)" in [column.heading for column in columns(summaries)]
    assert "corrected for 2 comparisons by the method of Holm" in legend(summaries)


def test_identical_rows_are_marked_and_only_the_first_is_bold(cell):
    cells = [cell(name, seed, top) for name, top in (("a", 0.5), ("b", 0.5)) for seed in range(2)]
    cells += [cell("c", seed, 0.25) for seed in range(2)]
    cells[2] = replace(cells[2], no_effect={"staleness": "no late updates"})
    summaries = summarise(cells)
    assert [s.identical_to for s in summaries] == [None, "a", None]
    assert best(summaries) == {0}
    assert dict(columns(summaries))["same as"] == ["–", "= a", "–"]
    assert "b is identical to a here: no late updates." in legend(summaries)
    other = [
        *cells[3].rows[:2],
        {**cells[3].rows[2], "prequential_accuracy": 0.5},
        cells[3].rows[3],
    ]
    cells[3] = replace(cells[3], rows=other)
    assert [s.identical_to for s in summarise(cells)] == [None, None, None]


def test_single_learned_state_explains_identical_recipes(cell):
    learned = [{**row, "forecast_states": 1.0} for row in cell().rows]
    _, second = summarise([cell("fedavg"), cell("sfedpo", rows=learned)])
    assert second.identical_reason == "one latent state"


def test_deterministic_baseline_has_the_same_value_for_every_seed(cell):
    """Differences to 0.5 are 1, 2 and 3 points: p = 0.0742."""
    cells = [cell("a", seed, 0.51 + 0.01 * seed) for seed in range(3)]
    cells.append(cell("majority", 0, 0.5, is_deterministic=True))
    summaries = summarise(cells)
    difference = summaries[1].difference
    assert difference.num_seeds == 3
    assert difference.mean == pytest.approx(-0.02)
    assert difference.p_value == pytest.approx(0.0742, abs=1e-4)
    assert dict(columns(summaries))["seeds"] == ["3 of 3", "1 (deterministic)"]
