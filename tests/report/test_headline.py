"""The sentence that summarises a comparison."""

from thalweg.report import headline, summarise


def test_best_first_recipe_is_compared_with_the_next_best(comparison):
    assert headline(summarise(comparison)) == (
        "On digits-full, sfedpo reaches 82.00 ± 2.00 % test accuracy over 3 seeds, 2.00 points "
        "above fedavg (paired t-test over 3 shared seeds, p = 0.074), which is not significant."
    )


def test_other_best_recipe_is_compared_with_the_first(cell):
    cells = [cell("a", seed, 0.5) for seed in range(4)]
    cells += [cell("b", seed, 0.6 + 0.001 * seed) for seed in range(4)]
    assert headline(summarise(cells)) == (
        "On digits-full, b reaches 60.15 ± 0.13 % test accuracy over 4 seeds, 10.15 points "
        "above a (paired t-test over 4 shared seeds, p < 0.001)."
    )


def test_single_recipe_is_not_compared(cell):
    assert headline(summarise([cell(accuracy=0.5)])) == (
        "On digits-full, sfedpo reaches 50.00 % test accuracy."
    )


def test_equal_recipes_are_reported_as_equal(cell):
    other = [{"round": 1, "accuracy": 0.25}, {"round": 2, "accuracy": 0.5}]
    text = headline(summarise([cell("a"), cell("b", rows=other)]))
    assert "equal to b on the shared seeds" in text


def test_identical_recipe_is_named_with_the_reason_instead_of_a_tie(cell):
    cells = [cell("a"), cell("b", no_effect={"staleness": "no late updates"}), cell("c", 0, 0.25)]
    assert headline(summarise(cells)) == (
        "On digits-full, a reaches 50.00 % test accuracy, 25.00 points above c (1 shared seed, "
        "too few for a test). b is identical to a here: no late updates."
    )


def test_constant_difference_is_reported_without_a_test(cell):
    cells = [cell(name, seed, top) for name, top in (("a", 0.5), ("b", 0.25)) for seed in range(3)]
    assert "25.00 points above b (the same in all 3 shared seeds)" in headline(summarise(cells))


def test_recipes_without_shared_seeds_have_no_difference(cell):
    cells = [cell("a", 0, 0.5), cell("b", 1, 0.75)]
    assert "it shares no finished seed with a." in headline(summarise(cells))


def test_best_mean_can_be_lower_on_the_shared_seeds(cell):
    cells = [cell("a", 0, 0.5), cell("b", 0, 0.4), cell("b", 1, 0.9)]
    assert "b reaches 65.00" in headline(summarise(cells))
    assert "10.00 points below a (1 shared seed, too few for a test)" in headline(summarise(cells))


def test_unfinished_runs_are_counted(unfinished_cells):
    assert headline(summarise(unfinished_cells)).endswith(
        "Of 4 runs, 3 did not finish: 1 failed, 1 interrupted, 1 missing."
    )
    assert headline(summarise(unfinished_cells[1:])).startswith(
        "On digits-full, no run has finished yet."
    )


def test_prequential_accuracy_is_named(cell):
    cells = [cell(rows=[{"round": 1, "prequential_accuracy": 0.5}])]
    assert "50.00 % test-then-train accuracy" in headline(summarise(cells))
