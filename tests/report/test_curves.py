import pytest

from thalweg.report.curves import bank_panels, curves, describe, panels


def test_a_band_is_one_standard_deviation_to_either_side(comparison):
    first, second = curves(comparison, "accuracy")
    assert first.x == [2, 4]
    assert first.mean == pytest.approx([41, 82])
    assert first.low == pytest.approx([40, 80])
    assert first.high == pytest.approx([42, 84])
    assert (first.index, second.index) == (0, 1)


def test_a_single_seed_has_no_band(cell):
    (only,) = curves([cell(accuracy=0.5)], "accuracy")
    assert only.low == only.mean == only.high == [25, 50]


def test_a_band_ends_at_nought_and_at_a_hundred(cell):
    (only,) = curves([cell(seed=0, accuracy=1.0), cell(seed=1, accuracy=0.0)], "accuracy")
    assert (only.low[-1], only.high[-1]) == (0, 100)


def test_only_rounds_that_every_seed_evaluated_are_drawn(cell):
    more = [{"round": rnd, "accuracy": 0.5} for rnd in (3, 4, 5)]
    (only,) = curves([cell(seed=0, accuracy=0.7), cell(seed=1, rows=more)], "accuracy")
    assert only.x == [4]
    assert only.mean == pytest.approx([60])


def test_unfinished_runs_are_not_drawn_and_colours_stay_with_the_recipe(cell, unfinished_cells):
    drawn = curves([*unfinished_cells, cell("fedavg", 0)], "accuracy")
    assert [(curve.recipe, curve.index) for curve in drawn] == [("sfedpo", 0), ("fedavg", 2)]


def test_panels_follow_what_was_measured(cell, comparison):
    assert [panel.title for panel in panels(comparison)] == [
        "Test accuracy",
        "Test accuracy in the worst latent state",
    ]
    plain = cell(rows=[{"round": 1, "accuracy": 0.5, "prequential_accuracy": 0.5}])
    assert [panel.title for panel in panels([plain])] == ["Test accuracy"]
    stream = cell(rows=[{"round": 1, "prequential_accuracy": 0.5}])
    assert [panel.title for panel in panels([stream])] == ["Prequential (test-then-train) accuracy"]
    assert panels([cell(rows=[{"round": 1}])]) == []


def test_the_description_names_every_line_and_where_it_ends(comparison):
    text = describe(panels(comparison))
    assert "rounds 2 to 4" in text
    assert "Test accuracy at the end: sfedpo 82.00 %, fedavg 80.00 %." in text


def test_of_many_rounds_what_arrives_is_smoothed(cell):
    rows = [{"round": rnd, "prequential_accuracy": rnd % 2} for rnd in range(1, 25)]
    (panel,) = panels([cell(rows=rows)])
    assert panel.title == "Prequential (test-then-train) accuracy, mean of 2 rounds"
    assert panel.curves[0].mean[:4] == [100, 50, 50, 50]
    assert len(panel.curves[0].x) == 24
    (panel,) = panels([cell(rows=rows[:23])])
    assert panel.title == "Prequential (test-then-train) accuracy"
    assert panel.curves[0].mean[:2] == [100, 0]


def test_a_bank_is_drawn_from_the_round_in_which_it_had_one_model(cell):
    rows = [{"round": 1}, {"round": 2, "models": 3}, {"round": 3, "models": 4, "drifts_found": 5}]
    models, drifts = bank_panels([cell("feddaa", rows=rows), cell("fedavg")])
    assert (models.heading, drifts.heading) == (
        "Models in the bank",
        "Clients found to have drifted",
    )
    (only,) = models.curves
    assert (only.recipe, only.x, only.mean) == ("feddaa", [1, 2, 3], [1, 3, 4])
    assert drifts.curves[0].mean == [5]


def test_a_number_of_models_may_be_more_than_one_hundred_per_cent(cell):
    seeds = [cell(seed=seed, rows=[{"round": 1, "models": 2 + 2 * seed}]) for seed in (0, 1)]
    (panel,) = bank_panels(seeds)
    (only,) = panel.curves
    assert only.mean == [3]
    assert only.high[0] == pytest.approx(3 + 2**0.5)
    assert describe([panel]).endswith("Models in the bank at the end: sfedpo 3.")


def test_without_banks_there_is_nothing_to_draw_of_them(comparison):
    assert bank_panels(comparison) == []
