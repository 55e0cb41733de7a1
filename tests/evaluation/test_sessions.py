"""Accuracy in a session, and of the clients that stayed or joined."""

import numpy as np
import pytest

from thalweg.evaluation import (
    SessionContext,
    accuracies_by_mix,
    session_accuracy,
    session_member_scores,
)
from thalweg.evaluation.sessions import member_labels

# Labels 0, 0, 1, 1, 2, 2, 3, 3; the model predicts 0 and half of 1 and 2 correctly.
LABELS = np.repeat([0, 1, 2, 3], 2)
RIGHT = np.array([1, 1, 1, 0, 1, 0, 0, 0], dtype=bool)
MIXES = np.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0.5, 0, 0.5, 0], [0, 0, 0, 0]])
AT_CLIENTS = accuracies_by_mix(RIGHT, LABELS, MIXES)  # 1, 0.5, 0.75, nan


def scores(members, before=None, session=1):
    context = SessionContext(session, 1, np.array(members), before)
    accuracy = session_accuracy(RIGHT, LABELS, MIXES, context)
    return session_member_scores(accuracy, AT_CLIENTS, context)


def test_session_accuracy_uses_only_labels_of_members():
    assert scores([1])["session_accuracy"] == 0.5
    assert scores([0, 1])["session_accuracy"] == 0.75
    assert scores([0, 1, 2])["session_accuracy"] == pytest.approx(4 / 6)


def test_rare_labels_of_members_are_included():
    mixes = np.array([[1.0 - 1e-9, 0, 0, 1e-9]])
    assert member_labels(np.array([0]), mixes).tolist() == [True, False, False, True]


def test_stayers_and_newcomers_have_separate_accuracies():
    found = scores([0, 1, 2], before=np.array([0, 2]))
    assert found["stayers_accuracy"] == pytest.approx((1 + 0.75) / 2)
    assert found["newcomers_accuracy"] == 0.5


def test_accuracy_is_missing_without_stayers_or_newcomers():
    assert "stayers_accuracy" not in scores([0, 1], before=np.array([2]))
    assert "newcomers_accuracy" not in scores([0, 1], before=np.array([0, 1, 2]))


def test_first_session_has_no_stayers_or_newcomers():
    assert scores([0, 1], session=0).keys() == {"session_accuracy"}


def test_members_without_data_have_no_session_accuracy():
    assert scores([3], before=np.array([3])) == {}


def test_session_accuracy_without_test_samples_is_missing():
    nothing = np.array([], dtype=bool), np.array([], dtype=np.int64)
    session_context = SessionContext(0, 1, np.array([0]))
    accuracy = session_accuracy(*nothing, MIXES, session_context)
    assert np.isnan(accuracy)
    assert session_member_scores(accuracy, np.full(4, np.nan), session_context) == {}
