import pytest

from thalweg.evaluation import add_step_accuracy, recoveries, step_accuracies


def run(*accuracies, drifts):
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


def test_accuracy_is_back_when_it_is_within_the_margin_of_what_it_was():
    rows = run(0.5, 0.8, 0.3, 0.6, 0.79, 0.9, drifts={3: 6})
    (found,) = recoveries(rows)
    assert (found.round, found.clients, found.rounds) == (3, 6, 4)
    assert (found.accuracy_before, found.lowest, found.rounds_to_recover) == (0.8, 0.3, 3)
    assert recoveries(rows, margin=0.0)[0].rounds_to_recover == 4


def test_the_next_drift_ends_the_wait():
    first, second = recoveries(run(0.8, 0.3, 0.4, 0.2, 0.45, drifts={2: 6, 4: 1}))
    assert first.rounds_to_recover is None
    assert (second.accuracy_before, second.rounds_to_recover) == (0.4, 2)


def test_only_rounds_that_were_measured_can_tell():
    (found,) = recoveries(run(None, 0.8, None, None, None, 0.8, drifts={3: 6}))
    assert found.rounds_to_recover == 4
    (found,) = recoveries(run(0.8, None, drifts={2: 6}))
    assert (found.lowest, found.rounds_to_recover) == (None, None)


def test_without_an_accuracy_before_there_is_nothing_to_get_back_to():
    (found,) = recoveries(run(None, 0.9, drifts={2: 1}))
    assert (found.accuracy_before, found.rounds_to_recover) == (None, None)


def test_a_run_without_drift_has_nothing_to_recover_from():
    assert recoveries(run(0.5, 0.6, drifts={})) == []
    assert recoveries([]) == []


def test_who_drifts_in_the_first_round_begins_the_first_step():
    assert recoveries(run(0.5, drifts={1: 6})) == []


def test_a_step_is_as_good_as_it_was_when_it_ended():
    rows = run(0.1, 0.5, 0.2, 0.75, None, 0.25, drifts={3: 6, 5: 6})
    assert step_accuracies(rows) == [0.5, 0.75, 0.25]


def test_the_mean_over_steps_counts_every_step_once():
    rows = run(0.1, 0.5, 0.2, 0.75, drifts={3: 6})
    shown = [row["step_accuracy"] for row in add_step_accuracy(rows)]
    assert shown == pytest.approx([0.1, 0.5, (0.5 + 0.2) / 2, (0.5 + 0.75) / 2])


def test_a_step_that_was_never_measured_does_not_count():
    rows = run(0.5, None, None, 1.0, drifts={2: 1, 3: 1})
    assert add_step_accuracy(rows)[-1]["step_accuracy"] == 0.75


def test_without_drift_there_is_one_step():
    assert add_step_accuracy(run(0.5, 0.75, drifts={}))[-1]["step_accuracy"] == 0.75
