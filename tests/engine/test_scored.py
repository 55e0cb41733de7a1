"""Scores at every client, and a part of the test set for choosing."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import thalweg
from thalweg.data import Digits
from thalweg.engine.scored import scored
from thalweg.streams import StateBook

DATA = Digits().load(None, 0)
LOSSES = np.ones(len(DATA.y_test), dtype=np.float32)


def world(mixes, clients_are_groups=False):
    book = StateBook(np.full((1, 10), 0.1), np.ones(1))
    return SimpleNamespace(
        book=book,
        mixes=np.array(mixes),
        num_clients=len(mixes),
        clients_are_groups=clients_are_groups,
    )


def test_clients_are_judged_by_their_class_mix():
    only_ones = np.where(DATA.y_test == 1, 1, (DATA.y_test + 1) % 10)
    row = scored(only_ones, LOSSES, DATA, world([np.eye(10)[1], np.full(10, 0.1)]))
    assert row["client_accuracy"] == pytest.approx((1 + 0.1) / 2)
    assert row["worst_client_accuracy"] == pytest.approx(0.1)


def test_clients_with_test_samples_of_their_own_are_judged_by_those():
    owner = np.arange(len(DATA.y_test)) % 2
    data = replace(DATA, group_test=owner, group=np.arange(len(DATA.y)) % 3)
    predicted = np.where(owner == 0, DATA.y_test, (DATA.y_test + 1) % 10)
    mixes = [np.full(10, 0.1)] * 3
    row = scored(predicted, LOSSES, data, world(mixes, clients_are_groups=True))
    assert row["client_accuracy"] == pytest.approx(0.5), "the third has no samples and no say"
    assert row["worst_client_accuracy"] == 0


def test_what_is_for_choosing_is_not_tested_on():
    from thalweg.data.split import stratified_split

    _, for_choice = stratified_split(DATA.y_test, 0.4)
    predicted = DATA.y_test.copy()
    predicted[for_choice] = (predicted[for_choice] + 1) % 10
    row = scored(predicted, LOSSES, DATA, world([np.full(10, 0.1)]), validation=0.4)
    assert row["accuracy"] == 1
    assert row["validation_accuracy"] == 0
    assert row["validation_client_accuracy"] == 0


def test_a_run_reports_them():
    result = thalweg.run("fedavg", "digits-full", rounds=1, overrides=["validation=0.5"])
    assert {"client_accuracy", "validation_accuracy"} <= result.final.keys()
