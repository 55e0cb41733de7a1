import pytest

from thalweg.report.curves import curves, describe, panels


def test_a_band_is_one_standard_deviation_to_either_side(comparison):
    first, second = curves(comparison, "accuracy")
    assert first.at == [2, 4]
    assert first.mean == pytest.approx([41, 82])
    assert first.low == pytest.approx([40, 80])
    assert first.high == pytest.approx([42, 84])
    assert (first.place, second.place) == (0, 1)


def test_a_single_seed_has_no_band(cell):
    (only,) = curves([cell(accuracy=0.5)], "accuracy")
    assert only.low == only.mean == only.high == [25, 50]


def test_a_band_ends_at_nought_and_at_a_hundred(cell):
    (only,) = curves([cell(seed=0, accuracy=1.0), cell(seed=1, accuracy=0.0)], "accuracy")
    assert (only.low[-1], only.high[-1]) == (0, 100)


def test_only_rounds_that_every_seed_evaluated_are_drawn(cell):
    more = [{"round": rnd, "accuracy": 0.5} for rnd in (3, 4, 5)]
    (only,) = curves([cell(seed=0, accuracy=0.7), cell(seed=1, rows=more)], "accuracy")
    assert only.at == [4]
    assert only.mean == pytest.approx([60])


def test_unfinished_runs_are_not_drawn_and_colours_stay_with_the_recipe(cell, unfinished):
    drawn = curves([*unfinished, cell("fedavg", 0)], "accuracy")
    assert [(curve.recipe, curve.place) for curve in drawn] == [("sfedpo", 0), ("fedavg", 2)]


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
    rows = [{"round": rnd, "prequential_accuracy": rnd % 2} for rnd in range(1, 61)]
    (panel,) = panels([cell(rows=rows)])
    assert panel.title == "Prequential (test-then-train) accuracy, mean of 2 rounds"
    assert panel.curves[0].mean[:4] == [100, 50, 50, 50]
    assert len(panel.curves[0].at) == 60
    (panel,) = panels([cell(rows=rows[:59])])
    assert panel.title == "Prequential (test-then-train) accuracy"
    assert panel.curves[0].mean[:2] == [100, 0]
