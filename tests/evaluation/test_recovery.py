"""Recovery of accuracy after drifts, and accuracy per time step."""

import pytest

from thalweg.evaluation import add_step_accuracy, recoveries, step_accuracies


def make_rows(*accuracies, drifts):
    """A row per accuracy (None: not measured); `drifts`: clients that drifted, by round."""
    rows = []
    for rnd, accuracy in enumerate(accuracies, start=1):
        row = {"round": rnd}
        if accuracy is not None:
            row["accuracy"] = accuracy
        if rnd in drifts:
            row["drifted"] = drifts[rnd]
        rows.append(row)
    return rows


def test_recovery_ends_within_the_margin_of_the_accuracy_before():
    rows = make_rows(0.5, 0.8, 0.3, 0.6, 0.79, 0.9, drifts={3: 6})
    (found,) = recoveries(rows)
    assert (found.round, found.clients, found.rounds) == (3, 6, 4)
    assert (found.accuracy_before, found.lowest, found.rounds_to_recover) == (0.8, 0.3, 3)
    assert recoveries(rows, margin=0.0)[0].rounds_to_recover == 4


def test_recovery_is_measured_until_the_next_drift():
    first, second = recoveries(make_rows(0.8, 0.3, 0.4, 0.2, 0.45, drifts={2: 6, 4: 1}))
    assert first.rounds_to_recover is None
    assert (second.accuracy_before, second.rounds_to_recover) == (0.4, 2)


def test_recovery_uses_only_evaluated_rounds():
    (found,) = recoveries(make_rows(None, 0.8, None, None, None, 0.8, drifts={3: 6}))
    assert found.rounds_to_recover == 4
    (found,) = recoveries(make_rows(0.8, None, drifts={2: 6}))
    assert (found.lowest, found.rounds_to_recover) == (None, None)


def test_drift_without_earlier_accuracy_has_no_recovery_time():
    (found,) = recoveries(make_rows(None, 0.9, drifts={2: 1}))
    assert (found.accuracy_before, found.rounds_to_recover) == (None, None)


def test_run_without_drift_has_no_recoveries():
    assert recoveries(make_rows(0.5, 0.6, drifts={})) == []
    assert recoveries([]) == []


def test_drift_in_the_first_round_has_no_recovery():
    assert recoveries(make_rows(0.5, drifts={1: 6})) == []


def test_step_accuracy_is_the_last_accuracy_of_the_step():
    rows = make_rows(0.1, 0.5, 0.2, 0.75, None, 0.25, drifts={3: 6, 5: 6})
    assert step_accuracies(rows) == [0.5, 0.75, 0.25]


def test_mean_step_accuracy_weights_steps_equally():
    rows = make_rows(0.1, 0.5, 0.2, 0.75, drifts={3: 6})
    shown = [row["step_accuracy"] for row in add_step_accuracy(rows)]
    assert shown == pytest.approx([0.1, 0.5, (0.5 + 0.2) / 2, (0.5 + 0.75) / 2])


def test_step_without_evaluation_is_left_out_of_the_mean():
    rows = make_rows(0.5, None, None, 1.0, drifts={2: 1, 3: 1})
    assert add_step_accuracy(rows)[-1]["step_accuracy"] == 0.75


def test_run_without_drift_is_one_step():
    assert add_step_accuracy(make_rows(0.5, 0.75, drifts={}))[-1]["step_accuracy"] == 0.75
