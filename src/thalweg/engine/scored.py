"""A model's scores on the test set: overall, in every state, at every client, for those who are members now."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Ints
from thalweg.data import Dataset
from thalweg.data.split import stratified_split
from thalweg.evaluation import (
    Turnout,
    accuracies_by_mix,
    accuracies_by_owner,
    held_out_scores,
    session_scores,
)
from thalweg.streams import Timetable, World


def turnout_of(timetable: Timetable | None, rnd: int) -> Turnout | None:
    """Whose session a round (counted from 0) belongs to; none: there are no sessions, or nobody is a member."""
    if timetable is None:
        return None
    session = timetable.session(rnd)
    if len(session.members) == 0:
        return None
    before = timetable.before(rnd) if session.number > 0 else None
    return Turnout(session.number, session.age + 1, session.members, before)


def scored(
    predicted: Ints,
    losses: npt.NDArray[np.float32],
    data: Dataset,
    world: World,
    validation: float = 0.0,
    turnout: Turnout | None = None,
) -> dict[str, float]:
    """Scores of predictions for the whole test set, with a part of it set aside for validation."""
    if validation == 0:
        return _scores(predicted, losses, np.arange(len(predicted)), data, world, turnout)
    for_test, for_choice = stratified_split(data.y_test, validation)
    chosen_by = _scores(predicted, losses, for_choice, data, world)
    return {
        **_scores(predicted, losses, for_test, data, world, turnout),
        "validation_accuracy": chosen_by["accuracy"],
        "validation_client_accuracy": chosen_by["client_accuracy"],
    }


def _scores(
    predicted: Ints,
    losses: npt.NDArray[np.float32],
    rows: Ints,
    data: Dataset,
    world: World,
    turnout: Turnout | None = None,
) -> dict[str, float]:
    labels = data.y_test[rows]
    overall = held_out_scores(
        predicted[rows], losses[rows], labels, world.book.histograms, world.book.importance
    )
    right = predicted[rows] == labels
    if world.clients_are_groups and data.group_test is not None:
        at_clients = accuracies_by_owner(right, data.group_test[rows], world.num_clients)
    else:
        at_clients = accuracies_by_mix(right, labels, world.mixes)
    of_session = (
        {} if turnout is None else session_scores(right, labels, world.mixes, at_clients, turnout)
    )
    at_clients = at_clients[~np.isnan(at_clients)]
    return {
        "accuracy": overall.accuracy,
        "balanced_accuracy": overall.balanced_accuracy,
        "test_loss": overall.loss,
        "state_accuracy": overall.state_accuracy,
        "worst_state_accuracy": overall.worst_state_accuracy,
        "client_accuracy": float(at_clients.mean()) if len(at_clients) else float("nan"),
        "worst_client_accuracy": float(at_clients.min()) if len(at_clients) else float("nan"),
        **of_session,
    }
