"""How good a bank of models is where it is used: every client with its own mixture and its own view of the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from thalweg.core.types import Floats, Floats32, Ints
from thalweg.evaluation.clients import Bools

LocalAccuracies = Callable[[Bools, Ints], Floats]
"""(n,) right or not, and the labels as they are seen -> (N,) what that means at every client."""


class ClientGroup(NamedTuple):
    """Clients that see the test samples in the same way and predict with the same mixture."""

    clients: Ints  # ids, ascending
    view: int
    mixture: Floats  # (models,)


class ClientTests(NamedTuple):
    """A test set as all clients fare on it, each in its own way."""

    right: Floats  # (n,) share of the clients that are right about each sample
    losses: Floats  # (n,) mean over the clients
    accuracies: Floats  # (N,) of each client on all samples; nan: there are none
    local_accuracies: Floats  # (N,) as somebody says it is to be measured; nan: not known


def group_clients(views: Ints, mixtures: Floats) -> list[ClientGroup]:
    """Clients in groups that need to be tested once; views (N,), mixtures (N, models).

    >>> found = group_clients(np.array([0, 1, 0]), np.array([[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]]))
    >>> [(each.clients.tolist(), each.view) for each in found]
    [([0, 2], 0), ([1], 1)]
    """
    keys = np.column_stack([views, mixtures])
    _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    order = np.argsort(group, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(group))[:-1])
    return [
        ClientGroup(clients, int(views[one]), mixtures[one])
        for one, clients in zip(first, parts, strict=True)
    ]


def mix_scores(scores: Floats32, mixture: Floats) -> Floats32:
    r"""(n, C) logarithms of what a mixture gives each class, :math:`\ln \sum_m \alpha_m p_m`.

    Of one model alone, that model's own, to the bit.

    Shapes: scores (models, n, C) logarithms of the models' probabilities; mixture (models,), sums to one.

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
    """(n,) is a mixture right about each sample, and its cross-entropy; shapes as in `mix_scores`."""
    together = mix_scores(scores, mixture)
    losses = -np.take_along_axis(together, labels[:, None], axis=1)[:, 0]
    return together.argmax(axis=1) == labels, losses


def client_tests(
    scores: Mapping[int, Floats32],
    labels: Mapping[int, Ints],
    views: Ints,
    mixtures: Floats,
    local_accuracies: LocalAccuracies | None = None,
) -> ClientTests:
    """Test every client; those who are alike, once.

    `scores` (models, n, C) and `labels` (n,) are of the same samples in every view that some client has.
    `local_accuracies` says what right answers mean at each client; none: all samples count the same everywhere, as in
    `accuracies`.

    >>> scores = {0: np.log(np.array([[[0.9, 0.1], [0.9, 0.1]], [[0.1, 0.9], [0.1, 0.9]]], np.float32))}
    >>> found = client_tests(scores, {0: np.array([0, 1])}, np.zeros(2, int), np.eye(2))
    >>> found.right.tolist(), found.local_accuracies.tolist()
    ([0.5, 0.5], [0.5, 0.5])
    """
    num_samples = len(labels[int(views[0])])
    share, losses = np.zeros(num_samples), np.zeros(num_samples)
    accuracies, found = np.full(len(views), np.nan), np.full(len(views), np.nan)
    for clients, view, mixture in group_clients(views, mixtures):
        right, lost = score_mixture(scores[view], mixture, labels[view])
        share += len(clients) / len(views) * right
        losses += len(clients) / len(views) * lost
        accuracies[clients] = right.mean() if num_samples else np.nan
        if local_accuracies is not None:
            found[clients] = local_accuracies(right, labels[view])[clients]
    return ClientTests(share, losses, accuracies, accuracies if local_accuracies is None else found)
