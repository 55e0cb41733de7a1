"""A model's scores on the test set: overall, in every state, at every client."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Ints
from thalweg.data import Dataset
from thalweg.data.split import stratified_split
from thalweg.evaluation import accuracies_by_mix, accuracies_by_owner, held_out_scores
from thalweg.streams import World


def scored(
    predicted: Ints,
    losses: npt.NDArray[np.float32],
    data: Dataset,
    world: World,
    validation: float = 0.0,
) -> dict[str, float]:
    """Scores of predictions for the whole test set, with a part of it set aside for validation."""
    if validation == 0:
        return _scores(predicted, losses, np.arange(len(predicted)), data, world)
    for_test, for_choice = stratified_split(data.y_test, validation)
    chosen_by = _scores(predicted, losses, for_choice, data, world)
    return {
        **_scores(predicted, losses, for_test, data, world),
        "validation_accuracy": chosen_by["accuracy"],
        "validation_client_accuracy": chosen_by["client_accuracy"],
    }


def _scores(
    predicted: Ints, losses: npt.NDArray[np.float32], rows: Ints, data: Dataset, world: World
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
    at_clients = at_clients[~np.isnan(at_clients)]
    return {
        "accuracy": overall.accuracy,
        "balanced_accuracy": overall.balanced_accuracy,
        "test_loss": overall.loss,
        "state_accuracy": overall.state_accuracy,
        "worst_state_accuracy": overall.worst_state_accuracy,
        "client_accuracy": float(at_clients.mean()) if len(at_clients) else float("nan"),
        "worst_client_accuracy": float(at_clients.min()) if len(at_clients) else float("nan"),
    }
