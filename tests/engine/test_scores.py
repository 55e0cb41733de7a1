"""Scores of clients, sessions and the validation part of the test set."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import thalweg
from thalweg.data import Digits
from thalweg.engine.scores import (
    get_session_context,
    measure_local_accuracies,
    score_predictions,
)
from thalweg.streams import StateTable, Timetable

DATA = Digits().load(None, 0)
LOSSES = np.ones(len(DATA.y_test), dtype=np.float32)


def world(mixes, has_clients_of_data=False):
    state_table = StateTable(np.full((1, 10), 0.1), np.ones(1))
    return SimpleNamespace(
        state_table=state_table,
        mixes=np.array(mixes),
        num_clients=len(mixes),
        has_clients_of_data=has_clients_of_data,
    )


def test_client_accuracy_uses_the_label_mix_of_the_client():
    only_ones = np.where(DATA.y_test == 1, 1, (DATA.y_test + 1) % 10)
    row = score_predictions(only_ones, LOSSES, DATA, world([np.eye(10)[1], np.full(10, 0.1)]))
    assert row["client_accuracy"] == pytest.approx((1 + 0.1) / 2)
    assert row["worst_client_accuracy"] == pytest.approx(0.1)


def test_label_mixes_of_all_clients_are_computed_once_for_all_models():
    class Counting:
        has_clients_of_data, asked = False, 0

        @property
        def mixes(self):
            self.asked += 1
            return np.eye(10)[:2]

    counting = Counting()
    measure = measure_local_accuracies(np.arange(len(DATA.y_test)), DATA, counting)
    for predicted in (0, 1):
        found = measure(DATA.y_test == predicted, DATA.y_test, np.arange(2))
        assert found.tolist() == [predicted == 0, predicted == 1]
    assert counting.asked == 1


def test_client_accuracy_uses_the_test_samples_of_the_client():
    owner = np.arange(len(DATA.y_test)) % 2
    data = replace(DATA, client_test=owner, client=np.arange(len(DATA.y)) % 3)
    predicted = np.where(owner == 0, DATA.y_test, (DATA.y_test + 1) % 10)
    mixes = [np.full(10, 0.1)] * 3
    row = score_predictions(predicted, LOSSES, data, world(mixes, has_clients_of_data=True))
    assert row["client_accuracy"] == pytest.approx(0.5), (
        "the third has no samples and is not counted"
    )
    assert row["worst_client_accuracy"] == 0


def test_validation_samples_are_not_tested():
    from thalweg.data.split import stratified_split

    _, for_choice = stratified_split(DATA.y_test, 0.4)
    predicted = DATA.y_test.copy()
    predicted[for_choice] = (predicted[for_choice] + 1) % 10
    row = score_predictions(predicted, LOSSES, DATA, world([np.full(10, 0.1)]), validation=0.4)
    assert row["accuracy"] == 1
    assert row["validation_accuracy"] == 0
    assert row["validation_client_accuracy"] == 0


def test_a_run_reports_client_and_validation_accuracies():
    result = thalweg.run("fedavg", "digits-full", rounds=1, overrides=["validation=0.5"])
    assert {"client_accuracy", "validation_accuracy"} <= result.final.keys()


def timetable(*stays, rounds=12):
    """Stays are (client, first round, round after the last)."""
    clients, first, after = np.array(stays).T
    return Timetable(4, rounds, clients, first, after)


def test_a_session_context_has_the_members_of_this_session_and_the_previous_one():
    shifts = timetable((0, 0, 4), (1, 0, 8), (2, 4, 8))
    first, second = get_session_context(shifts, 3), get_session_context(shifts, 5)
    assert (first.session, first.session_round, first.before) == (0, 4, None)
    assert first.members.tolist() == [0, 1]
    assert (second.session, second.session_round) == (1, 2)
    assert (second.members.tolist(), second.before.tolist()) == ([1, 2], [0, 1])


def test_the_previous_session_may_be_before_a_pause():
    shifts = timetable((0, 0, 2), (1, 1, 2), (1, 6, 8))
    assert get_session_context(shifts, 4) is None, "no client is a member"
    assert get_session_context(shifts, 6).before.tolist() == [0, 1]


def test_without_sessions_there_is_no_session_context():
    assert get_session_context(None, 3) is None


def test_the_labels_of_a_session_are_those_of_its_members():
    session_context = get_session_context(timetable((0, 0, 2), (1, 2, 4)), 3)
    only_ones = np.where(DATA.y_test == 1, 1, (DATA.y_test + 1) % 10)
    mixes = [np.eye(10)[0], (np.eye(10)[1] + np.eye(10)[2]) / 2]
    row = score_predictions(only_ones, LOSSES, DATA, world(mixes), session_context=session_context)
    count = np.bincount(DATA.y_test)
    assert row["session_accuracy"] == pytest.approx(count[1] / (count[1] + count[2]))
    assert row["newcomers_accuracy"] == pytest.approx(0.5)
    assert "stayers_accuracy" not in row


def test_session_accuracy_does_not_use_validation_samples():
    from thalweg.data.split import stratified_split

    _, for_choice = stratified_split(DATA.y_test, 0.4)
    predicted = DATA.y_test.copy()
    predicted[for_choice] = (predicted[for_choice] + 1) % 10
    session_context = get_session_context(timetable((0, 0, 2)), 0)
    mixes = [np.full(10, 0.1)]
    row = score_predictions(
        predicted, LOSSES, DATA, world(mixes), validation=0.4, session_context=session_context
    )
    assert row["session_accuracy"] == 1


@pytest.mark.filterwarnings("ignore::thalweg.data.checks.DataWarning")
def test_clients_with_one_row_each_are_tested_on_rows_that_were_held_out():
    rng = np.random.default_rng(0)
    data = thalweg.Dataset.from_arrays(
        rng.normal(size=(30, 3)), np.arange(30) % 2, client=(np.arange(30) + 7) % 30
    )
    assert data.client_test.max() > data.client.max()  # the last client has a test row only
    result = thalweg.run("fedavg", data, rounds=2)
    assert 0 <= result.final["client_accuracy"] <= 1
