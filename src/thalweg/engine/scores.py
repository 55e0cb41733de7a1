"""Scores of predictions on the test set: overall, per state, per client and for members."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Ints
from thalweg.data import Dataset
from thalweg.data.split import stratified_split
from thalweg.evaluation import SessionContext, accuracies_by_owner
from thalweg.evaluation.clients import Bools, LocalMixes
from thalweg.evaluation.held_out import compute_scores
from thalweg.evaluation.mixtures import LocalAccuracies
from thalweg.evaluation.sessions import session_accuracy, session_member_scores
from thalweg.streams import Timetable, World


class SampleOutcomes(NamedTuple):
    """Outcomes of test samples (n,), of one model or averaged over clients."""

    right: Bools | Floats  # correct, or the share of clients that are
    losses: npt.NDArray[np.floating]  # of the model, or the mean over clients
    local_accuracies: Floats  # (N,) on data like the client's own; nan: unknown
    in_session: float | None = None  # accuracy on labels of members; None without sessions


def get_session_context(timetable: Timetable | None, rnd: int) -> SessionContext | None:
    """Return the session of a round (counted from 0); None without sessions or without members."""
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
    """Return scores of predictions of the whole test set, and scores of the validation part."""
    right = predicted == data.y_test

    def outcomes(rows: Ints, session_context: SessionContext | None = None) -> SampleOutcomes:
        mine, labels = right[rows], data.y_test[rows]
        everyone = np.arange(world.num_clients)
        at_each = measure_local_accuracies(rows, data, world)(mine, labels, everyone)
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
    """Split the test set into test samples and validation samples (None if there are none)."""
    if validation == 0:
        return np.arange(len(data.y_test)), None
    return stratified_split(data.all_classes("test")[: len(data.y_test)], validation)


def make_validation_row(row: dict[str, float]) -> dict[str, float]:
    """Return the scores of the validation samples, under separate names."""
    names = ("accuracy", "client_accuracy")
    return {f"validation_{name}": row[name] for name in names if name in row}


def measure_local_accuracies(rows: Ints, data: Dataset, world: World) -> LocalAccuracies:
    """Return a function for the accuracies on test samples like the data of some clients.

    `rows` are the tested samples. A world may compute the mixes of all clients each time, so that
    they are requested once.
    """
    if world.has_clients_of_data and data.client_test is not None:
        owner, number = data.client_test[rows], world.num_clients
        return lambda right, labels, clients: accuracies_by_owner(right, owner, number)[clients]
    return LocalMixes(world.mixes).measure


def compute_subset_scores(
    rows: Ints,
    outcomes: SampleOutcomes,
    data: Dataset,
    world: World,
    session_context: SessionContext | None = None,
) -> dict[str, float]:
    """Return the scores of some test samples."""
    right, losses, accuracies, in_session = outcomes
    labels, table = data.y_test[rows], world.state_table
    overall = compute_scores(right, losses, labels, table.histograms, table.importance)
    of_session: dict[str, float] = {}
    if session_context is not None and in_session is not None:
        of_session = session_member_scores(in_session, accuracies, session_context)
    of_states: dict[str, float] = {}
    if table.num_states > 1:  # otherwise it would only repeat the accuracy
        of_states["state_accuracy"] = overall.state_accuracy
        of_states["worst_state_accuracy"] = overall.worst_state_accuracy
    accuracies = accuracies[~np.isnan(accuracies)]
    of_clients: dict[str, float] = {}
    if len(accuracies):  # unknown for clients with data of their own
        of_clients["client_accuracy"] = float(accuracies.mean())
        of_clients["worst_client_accuracy"] = float(accuracies.min())
    return {
        "accuracy": overall.accuracy,
        "balanced_accuracy": overall.balanced_accuracy,
        "test_loss": overall.loss,
        **of_states,
        **of_clients,
        **of_session,
    }
