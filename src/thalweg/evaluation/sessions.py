"""How good a model is for those who are members now: their labels, who stayed, who came."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from thalweg.core.types import Floats, Ints
from thalweg.evaluation.clients import Bools


class SessionContext(NamedTuple):
    """Whose session a round belongs to, and whose the one before was."""

    session: int  # its number, counted from 0
    session_round: int  # counted from 1
    members: Ints  # (n,) ids; at least one
    before: Ints | None = None  # members of the session before, as it ended; none: the first


def member_labels(members: Ints, mixes: Floats) -> Bools:
    """(C,) labels that somebody among the members has data of; mixes (N, C).

    >>> member_labels(np.array([0, 2]), np.array([[1.0, 0, 0], [0, 1.0, 0], [0.5, 0, 0.5]])).tolist()
    [True, False, True]
    """
    return np.asarray((mixes[members] > 0).any(axis=0))


def session_scores(
    right: Bools,
    labels: Ints,
    mixes: Floats,
    local_accuracies: Floats,
    session_context: SessionContext,
) -> dict[str, float]:
    """What the metrics say of a session; a number that does not exist is left out.

    ``session_accuracy`` is the share of right answers among the test samples with a label that some member has.
    ``stayers_accuracy`` and ``newcomers_accuracy`` are means over the members who were, and were not, members of
    the session before; the first session has neither.

    Shapes: right, labels (n,) of the test samples; mixes (N, C); at_clients (N,), nan: not known.

    >>> right, labels = np.array([True, True, False, True]), np.array([0, 1, 1, 2])
    >>> mixes = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> session_context = SessionContext(1, 1, members=np.array([0, 1]), before=np.array([1]))
    >>> session_scores(right, labels, mixes, np.array([1.0, 0.5]), session_context)
    {'session_accuracy': 0.666..., 'stayers_accuracy': 0.5, 'newcomers_accuracy': 1.0}
    """
    return session_member_scores(
        session_accuracy(right, labels, mixes, session_context), local_accuracies, session_context
    )


def session_accuracy(
    right: Bools, labels: Ints, mixes: Floats, session_context: SessionContext
) -> float:
    """On the test samples with a label that some member has; nan: there is none."""
    mine = member_labels(session_context.members, mixes)[labels]
    return float(right[mine].mean()) if mine.any() else float("nan")


def session_member_scores(
    accuracy: float, local_accuracies: Floats, session_context: SessionContext
) -> dict[str, float]:
    """The same from the session's accuracy, however it was found."""
    found, members = {"session_accuracy": accuracy}, session_context.members
    if session_context.before is not None:
        stayed = np.isin(members, session_context.before)
        found["stayers_accuracy"] = _mean(local_accuracies[members[stayed]])
        found["newcomers_accuracy"] = _mean(local_accuracies[members[~stayed]])
    return {name: value for name, value in found.items() if not np.isnan(value)}


def _mean(values: Floats) -> float:
    """Of what is known; nan: nothing is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
