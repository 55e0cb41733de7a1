"""A model's scores on the test set: overall, in every state, at every client, for those who are members now."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Ints
from thalweg.data import Dataset
from thalweg.data.split import stratified_split
from thalweg.evaluation import SessionContext, accuracies_by_mix, accuracies_by_owner
from thalweg.evaluation.clients import Bools
from thalweg.evaluation.held_out import compute_scores
from thalweg.evaluation.sessions import session_accuracy, session_member_scores
from thalweg.streams import Timetable, World


class SampleOutcomes(NamedTuple):
    """Some test samples (n,), as they were answered by one model, or by each client in its own way."""

    right: Bools | Floats  # or the share of the clients that are right
    losses: npt.NDArray[np.floating]  # or their mean over the clients
    local_accuracies: Floats  # (N,) accuracy on data like the client's own; nan: not known
    in_session: float | None = (
        None  # accuracy on labels that members have; none: there are no sessions
    )


def get_session_context(timetable: Timetable | None, rnd: int) -> SessionContext | None:
    """Whose session a round (counted from 0) belongs to; none: there are no sessions, or nobody is a member."""
    if timetable is None:
        return None
    session = timetable.session(rnd)
    if len(session.members) == 0:
        return None
    before = timetable.previous_members(rnd) if session.number > 0 else None
    return SessionContext(session.number, session.age + 1, session.members, before)


def score_predictions(
    predicted: Ints,
    losses: npt.NDArray[np.float32],
    data: Dataset,
    world: World,
    validation: float = 0.0,
    session_context: SessionContext | None = None,
) -> dict[str, float]:
    """Scores of predictions for the whole test set, with a part of it set aside for validation."""
    right = predicted == data.y_test

    def outcomes(rows: Ints, session_context: SessionContext | None = None) -> SampleOutcomes:
        mine, labels = right[rows], data.y_test[rows]
        at_each = local_accuracies(mine, labels, rows, data, world)
        members = (
            None
            if session_context is None
            else session_accuracy(mine, labels, world.mixes, session_context)
        )
        return SampleOutcomes(mine, losses[rows], at_each, members)

    for_test, for_choice = split_test_set(data, validation)
    row = compute_subset_scores(
        for_test, outcomes(for_test, session_context), data, world, session_context
    )
    if for_choice is not None:
        row |= make_validation_row(
            compute_subset_scores(for_choice, outcomes(for_choice), data, world)
        )
    return row


def split_test_set(data: Dataset, validation: float) -> tuple[Ints, Ints | None]:
    """Test samples to test on, and those to choose among runs by; none: all are tested on."""
    if validation == 0:
        return np.arange(len(data.y_test)), None
    return stratified_split(data.y_test, validation)


def make_validation_row(row: dict[str, float]) -> dict[str, float]:
    """What is told of the samples that runs are chosen by."""
    names = ("accuracy", "client_accuracy")
    return {f"validation_{name}": row[name] for name in names if name in row}


def local_accuracies(right: Bools, labels: Ints, rows: Ints, data: Dataset, world: World) -> Floats:
    """(N,) accuracy on those of some test samples, with these labels, that are like each client's data."""
    if world.clients_are_groups and data.group_test is not None:
        return accuracies_by_owner(right, data.group_test[rows], world.num_clients)
    return accuracies_by_mix(right, labels, world.mixes)


def compute_subset_scores(
    rows: Ints,
    outcomes: SampleOutcomes,
    data: Dataset,
    world: World,
    session_context: SessionContext | None = None,
) -> dict[str, float]:
    """Scores of some test samples."""
    right, losses, accuracies, in_session = outcomes
    labels, book = data.y_test[rows], world.state_table
    overall = compute_scores(right, losses, labels, book.histograms, book.importance)
    of_session: dict[str, float] = {}
    if session_context is not None and in_session is not None:
        of_session = session_member_scores(in_session, accuracies, session_context)
    accuracies = accuracies[~np.isnan(accuracies)]
    of_clients: dict[str, float] = {}
    if len(accuracies):  # of clients with data of their own nobody knows what those are like
        of_clients["client_accuracy"] = float(accuracies.mean())
        of_clients["worst_client_accuracy"] = float(accuracies.min())
    return {
        "accuracy": overall.accuracy,
        "balanced_accuracy": overall.balanced_accuracy,
        "test_loss": overall.loss,
        "state_accuracy": overall.state_accuracy,
        "worst_state_accuracy": overall.worst_state_accuracy,
        **of_clients,
        **of_session,
    }
