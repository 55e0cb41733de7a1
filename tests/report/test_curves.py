"""Curves of metrics over rounds."""

import pytest

from thalweg.report import Cell
from thalweg.report.curves import bank_panels, curves, describe, find_drift_rounds, panels


def test_band_is_one_standard_deviation_on_each_side(comparison):
    first, second = curves(comparison, "accuracy")
    assert first.x == [2, 4]
    assert first.mean == pytest.approx([41, 82])
    assert first.low == pytest.approx([40, 80])
    assert first.high == pytest.approx([42, 84])
    assert (first.index, second.index) == (0, 1)


def test_curve_of_a_single_seed_has_no_band(cell):
    (only,) = curves([cell(accuracy=0.5)], "accuracy")
    assert only.low == only.mean == only.high == [25, 50]


def test_band_is_limited_to_0_and_100_percent(cell):
    (only,) = curves([cell(seed=0, accuracy=1.0), cell(seed=1, accuracy=0.0)], "accuracy")
    assert (only.low[-1], only.high[-1]) == (0, 100)


def test_band_of_a_negative_metric_contains_its_mean():
    rows = [[{"round": 1, "r2": 0.5}, {"round": 2, "r2": last}] for last in (-2.0, -4.0)]
    cells = [Cell("a", "w", seed, "done", "", rows[seed], "", 1.0) for seed in (0, 1)]
    (only,) = curves(cells, "r2", is_share=False)
    assert only.mean == [0.5, -3.0]
    assert only.low == pytest.approx([0.5, -3.0 - 2**0.5])


def test_curve_has_only_rounds_evaluated_by_all_seeds(cell):
    more = [{"round": rnd, "accuracy": 0.5} for rnd in (3, 4, 5)]
    (only,) = curves([cell(seed=0, accuracy=0.7), cell(seed=1, rows=more)], "accuracy")
    assert only.x == [4]
    assert only.mean == pytest.approx([60])


def test_unfinished_runs_are_not_drawn_and_recipes_keep_their_colours(cell, unfinished_cells):
    drawn = curves([*unfinished_cells, cell("fedavg", 0)], "accuracy")
    assert [(curve.recipe, curve.index) for curve in drawn] == [("sfedpo", 0), ("fedavg", 2)]


def test_panels_depend_on_measured_metrics(cell, comparison):
    assert [panel.title for panel in panels(comparison)] == [
        "Test accuracy",
        "Test accuracy in the worst latent state",
    ]
    plain = cell(rows=[{"round": 1, "accuracy": 0.5, "prequential_accuracy": 0.5}])
    assert [panel.title for panel in panels([plain])] == ["Test accuracy"]
    stream = cell(rows=[{"round": 1, "prequential_accuracy": 0.5}])
    assert [panel.title for panel in panels([stream])] == ["Prequential (test-then-train) accuracy"]
    assert panels([cell(rows=[{"round": 1}])]) == []


def test_description_has_the_final_value_of_each_curve(comparison):
    text = describe(panels(comparison))
    assert "rounds 2 to 4" in text
    assert "Test accuracy at the end: sfedpo 82.00 %, fedavg 80.00 %." in text


def test_prequential_accuracy_of_many_rounds_is_smoothed(cell):
    rows = [{"round": rnd, "prequential_accuracy": rnd % 2} for rnd in range(1, 25)]
    (panel,) = panels([cell(rows=rows)])
    assert panel.title == "Prequential (test-then-train) accuracy, mean of 2 rounds"
    assert panel.curves[0].mean[:4] == [100, 50, 50, 50]
    assert len(panel.curves[0].x) == 24
    (panel,) = panels([cell(rows=rows[:23])])
    assert panel.title == "Prequential (test-then-train) accuracy"
    assert panel.curves[0].mean[:2] == [100, 0]


def test_bank_panel_starts_with_one_model(cell):
    rows = [{"round": 1}, {"round": 2, "models": 3}, {"round": 3, "models": 4, "drifts_found": 5}]
    models, drifts = bank_panels([cell("feddaa", rows=rows), cell("fedavg")])
    assert (models.heading, drifts.heading) == (
        "Models in the bank",
        "Clients found to have drifted",
    )
    (only,) = models.curves
    assert (only.recipe, only.x, only.mean) == ("feddaa", [1, 2, 3], [1, 3, 4])
    assert drifts.curves[0].mean == [5]


def test_band_of_the_number_of_models_is_not_limited_to_100(cell):
    seeds = [cell(seed=seed, rows=[{"round": 1, "models": 2 + 2 * seed}]) for seed in (0, 1)]
    (panel,) = bank_panels(seeds)
    (only,) = panel.curves
    assert only.mean == [3]
    assert only.high[0] == pytest.approx(3 + 2**0.5)
    assert describe([panel]).endswith("Models in the bank at the end: sfedpo 3.")


def test_runs_without_a_bank_have_no_bank_panels(comparison):
    assert bank_panels(comparison) == []


def test_time_ordered_data_have_the_test_then_train_curve_first(cell):
    rows = [{"round": 1, "accuracy": 0.5, "prequential_accuracy": 0.75}]
    titles = [panel.title for panel in panels([cell(rows=rows, is_time_ordered=True)])]
    assert titles == ["Prequential (test-then-train) accuracy", "Test accuracy"]


def test_finished_baseline_without_test_result_is_drawn(cell):
    baseline = cell("majority", rows=[{"round": 1, "prequential_accuracy": 0.5}])
    tested, _, arriving = panels([cell("fedavg"), baseline])
    assert [curve.recipe for curve in tested.curves] == ["fedavg"]
    assert [curve.recipe for curve in arriving.curves] == ["fedavg", "majority"]


def test_baseline_with_one_test_result_is_drawn_over_the_rounds_as_well(cell):
    rows = [{"round": 1, "prequential_accuracy": 0.5}, {"round": 4, "accuracy": 0.5}]
    tested, _, arriving = panels([cell("fedavg"), cell("majority", rows=rows)])
    assert [curve.recipe for curve in tested.curves] == ["fedavg", "majority"]
    assert [curve.recipe for curve in arriving.curves] == ["fedavg", "majority"]


def test_drifts_of_all_runs_are_marked(cell):
    def run(seed: int, drifts: set[int]) -> Cell:
        rows = [
            {"round": rnd, "accuracy": 0.5, "drifted": int(rnd in drifts)} for rnd in range(1, 7)
        ]
        return cell(seed=seed, rows=rows)

    both = [run(0, {2, 3, 5}), run(1, {2, 3, 6})]
    assert find_drift_rounds(both) == [2]
    (panel,) = panels(both)
    assert panel.marks == [2]
    assert panels([cell()])[0].marks == []
