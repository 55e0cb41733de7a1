import math

from thalweg.evaluation import add_best_round


def make_rows(*accuracies):
    return [{"round": n, "accuracy": a} for n, a in enumerate(accuracies, start=1)]


def test_the_best_round_is_the_highest_accuracy_so_far():
    shown = add_best_round(make_rows(0.25, 0.75, 0.5))
    assert [row["best_accuracy"] for row in shown] == [0.25, 0.75, 0.75]


def test_the_mean_is_over_the_last_ten_evaluations():
    rows = make_rows(*[0.0] * 5, *[0.5] * 9, 1.0)
    shown = add_best_round(rows)
    assert shown[-1]["last_ten_accuracy"] == 0.55  # nine times 0.5, and 1.0
    assert shown[9]["last_ten_accuracy"] == 0.25  # five times 0, five times 0.5


def test_rounds_without_an_accuracy_do_not_count():
    rows = [{"round": 1, "accuracy": 0.5}, {"round": 2}, {"round": 3, "accuracy": math.nan}]
    shown = add_best_round(rows)
    assert shown[0]["best_accuracy"] == 0.5
    assert shown[1] == {"round": 2}
    assert "best_accuracy" not in shown[2]


def test_rows_of_a_run_are_not_changed():
    rows = make_rows(0.5)
    add_best_round(rows)
    assert rows == make_rows(0.5)
