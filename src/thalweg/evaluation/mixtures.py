"""Test a bank of models at every client, with the client's mixture and its view of the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from thalweg.core.mixtures import Mixtures
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.evaluation.clients import Bools

LocalAccuracies = Callable[[Bools, Ints, Ints], Floats]
"""(n,) correctness, (n,) labels in the view and (k,) clients -> (k,) accuracy at these clients."""


ModelScores = Callable[[int, Ints], Floats32]
"""View and models -> (models, n, C) log-probabilities of the classes."""


class ClientGroup(NamedTuple):
    """Clients with the same view of the test samples and the same mixture of models."""

    clients: Ints  # ids, ascending
    view: int
    models: Ints  # (k,) with a weight, ascending
    weights: Floats  # (k,)


class ClientTests(NamedTuple):
    """Results of all clients on a test set."""

    right: Floats  # (n,) share of the clients with a correct prediction
    losses: Floats  # (n,) mean over the clients
    accuracies: Floats  # (N,) of each client on all samples; nan: no samples
    local_accuracies: Floats  # (N,) on data like the client's own; nan: unknown


def group_clients(views: Ints, mixtures: Mixtures) -> list[ClientGroup]:
    """Group clients that can be tested together; views (N,).

    >>> mixtures = Mixtures.from_rows(np.array([[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]]))
    >>> found = group_clients(np.array([0, 1, 0]), mixtures)
    >>> [(each.clients.tolist(), each.view, each.models.tolist()) for each in found]
    [([0, 2], 0, [0]), ([1], 1, [0, 1])]
    """
    group = mixtures.rank(views)
    order = np.argsort(group, kind="stable")
    groups = []
    for clients in np.split(order, np.cumsum(np.bincount(group))[:-1]):
        shared = mixtures.shared[clients[0]]
        used = np.flatnonzero(shared)
        own = slice(*np.searchsorted(mixtures.clients, [clients[0], clients[0] + 1]))
        models = np.concatenate([used, mixtures.models[own]])
        weights = np.concatenate([shared[used], mixtures.weights[own]])
        groups.append(ClientGroup(clients, int(views[clients[0]]), models, weights))
    return groups


def mix_scores(scores: Floats32, mixture: Floats) -> Floats32:
    r"""(n, C) log-probabilities of the classes under a mixture, :math:`\ln \sum_m \alpha_m p_m`.

    For a mixture of a single model, the model's own scores, bit for bit.

    Shapes: scores (models, n, C) log-probabilities of the models; mixture (models,), sums to one.

    >>> scores = np.log(np.array([[[0.5, 0.5]], [[0.9, 0.1]]], dtype=np.float32))
    >>> np.exp(mix_scores(scores, np.array([0.5, 0.5]))).astype(float).round(3).tolist()
    [[0.7, 0.3]]
    """
    used = np.flatnonzero(mixture)
    if len(used) == 1:
        return np.asarray(scores[used[0]])
    weighted = scores[used] + np.log(mixture[used]).astype(np.float32)[:, None, None]
    highest = weighted.max(axis=0)
    return np.asarray(highest + np.log(np.exp(weighted - highest).sum(axis=0)), dtype=np.float32)


def score_mixture(scores: Floats32, mixture: Floats, labels: Ints) -> tuple[Bools, Floats32]:
    """(n,) whether a mixture's predictions are correct, and its cross-entropy.

    Shapes as in `mix_scores`.
    """
    together = mix_scores(scores, mixture)
    losses = -np.take_along_axis(together, labels[:, None], axis=1)[:, 0]
    return together.argmax(axis=1) == labels, losses


def client_tests(
    scores: ModelScores,
    labels: Mapping[int, Ints],
    views: Ints,
    mixtures: Mixtures,
    local_accuracies: LocalAccuracies | None = None,
) -> ClientTests:
    """Test every client; clients with the same view and mixture are tested once.

    `scores` and `labels` (n,) are of the same samples, by view. Scores are requested only for the
    models that a client uses, in the client's view. `local_accuracies` computes the accuracy at
    some clients; None: all samples count equally, as in `accuracies`.

    >>> probs = np.array([[[0.9, 0.1], [0.9, 0.1]], [[0.1, 0.9], [0.1, 0.9]]], np.float32)
    >>> scores = lambda view, models: np.log(probs)[models]
    >>> mixtures = Mixtures.from_rows(np.eye(2))
    >>> found = client_tests(scores, {0: np.array([0, 1])}, np.zeros(2, int), mixtures)
    >>> found.right.tolist(), found.local_accuracies.tolist()
    ([0.5, 0.5], [0.5, 0.5])
    """
    num_samples = len(labels[int(views[0])])
    share, losses = np.zeros(num_samples), np.zeros(num_samples)
    accuracies, found = np.full(len(views), np.nan), np.full(len(views), np.nan)
    for clients, view, models, weights in group_clients(views, mixtures):
        right, lost = score_mixture(scores(view, models), weights, labels[view])
        share += len(clients) / len(views) * right
        losses += len(clients) / len(views) * lost
        accuracies[clients] = right.mean() if num_samples else np.nan
        if local_accuracies is not None:
            found[clients] = local_accuracies(right, labels[view], clients)
    return ClientTests(share, losses, accuracies, accuracies if local_accuracies is None else found)


def purity(found: Ints, true: Ints) -> float:
    r"""Share of the clients whose concept is the most common one in their cluster.

    .. math::  \frac 1 N \sum_c \max_m |\{k : \mathrm{found}_k = c, \mathrm{true}_k = m\}|

    One if no cluster contains two concepts. One cluster per client is pure as well, so compare it
    with the number of clusters. nan without clients.

    Shapes: found, true (N,).

    >>> purity(np.array([0, 0, 0, 1]), np.array([5, 5, 7, 7]))
    0.75
    """
    if len(found) == 0:
        return float("nan")
    _, row = np.unique(found, return_inverse=True)
    _, column = np.unique(true, return_inverse=True)
    together = np.zeros((row.max() + 1, column.max() + 1), dtype=np.int64)
    np.add.at(together, (row, column), 1)
    return float(together.max(axis=1).sum() / len(found))
