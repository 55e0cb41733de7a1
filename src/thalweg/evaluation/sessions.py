"""Scores of a model for the members of the current session: all, stayers and newcomers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from thalweg.core.types import Floats, Ints
from thalweg.evaluation.clients import Bools


class SessionContext(NamedTuple):
    """The session of a round: its members and the members of the previous session."""

    session: int  # number of the session, counted from 0
    session_round: int  # counted from 1
    members: Ints  # (n,) ids; at least one
    before: Ints | None = None  # members at the end of the previous session; None: first session


def member_labels(members: Ints, mixes: Floats) -> Bools:
    """(C,) whether some member has data with a label; mixes (N, C).

    >>> mixes = np.array([[1.0, 0, 0], [0, 1.0, 0], [0.5, 0, 0.5]])
    >>> member_labels(np.array([0, 2]), mixes).tolist()
    [True, False, True]
    """
    return np.asarray((mixes[members] > 0).any(axis=0))


def session_accuracy(
    right: Bools, labels: Ints, mixes: Floats, session_context: SessionContext
) -> float:
    """Accuracy on the test samples with a label that some member has; nan if there is none.

    Shapes: right, labels (n,) of the test samples; mixes (N, C).

    >>> right, labels = np.array([True, True, False, True]), np.array([0, 1, 1, 2])
    >>> mixes = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> session_accuracy(right, labels, mixes, SessionContext(1, 1, members=np.array([0, 1])))
    0.666...
    """
    mine = member_labels(session_context.members, mixes)[labels]
    return float(right[mine].mean()) if mine.any() else float("nan")


def session_member_scores(
    accuracy: float, local_accuracies: Floats, session_context: SessionContext
) -> dict[str, float]:
    """The metrics of a session; a number that does not exist is left out.

    ``stayers_accuracy`` and ``newcomers_accuracy`` are means over the members that were, and were
    not, members of the previous session; the first session has neither.

    local_accuracies (N,): nan if unknown.

    >>> context = SessionContext(1, 1, members=np.array([0, 1]), before=np.array([1]))
    >>> session_member_scores(0.75, np.array([1.0, 0.5]), context)
    {'session_accuracy': 0.75, 'stayers_accuracy': 0.5, 'newcomers_accuracy': 1.0}
    """
    found, members = {"session_accuracy": accuracy}, session_context.members
    if session_context.before is not None:
        stayed = np.isin(members, session_context.before)
        found["stayers_accuracy"] = _mean(local_accuracies[members[stayed]])
        found["newcomers_accuracy"] = _mean(local_accuracies[members[~stayed]])
    return {name: value for name, value in found.items() if not np.isnan(value)}


def session_member_errors(errors: Floats, session_context: SessionContext) -> dict[str, float]:
    """The metrics of a session in a regression; a number that does not exist is left out.

    errors (N,): mean absolute error on each client's own test samples; nan if unknown.
    ``session_mae`` is the mean over the members.

    >>> context = SessionContext(1, 1, members=np.array([0, 1]), before=np.array([1]))
    >>> session_member_errors(np.array([2.0, 1.0, 9.0]), context)
    {'session_mae': 1.5, 'stayers_mae': 1.0, 'newcomers_mae': 2.0}
    """
    of_members = _mean(errors[session_context.members])
    found = session_member_scores(of_members, errors, session_context)
    return {name.replace("_accuracy", "_mae"): value for name, value in found.items()}


def _mean(values: Floats) -> float:
    """The mean of the values that are not nan; nan if there is none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
