"""Groups of clients whose labels contradict each other, from their responses to a survey."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Ints
from thalweg.theory import (
    count_clusters,
    differ_significantly,
    fill_missing,
    label_conflict,
    mean_errors,
    merge_agreeing,
)
from thalweg.theory.masked_kmeans import mean_present

Bools = npt.NDArray[np.bool_]


class Seen(NamedTuple):
    """The responses of the surveyed clients."""

    clients: Ints  # (K,)
    prototypes: Floats  # (K, C, O) of their new samples; nan: missing classes
    old: Floats  # (K, C, O) of their old samples
    new_errors: Floats  # (K, C) standard errors of the prototypes; nan: not known
    old_errors: Floats  # (K, C)
    losses: Floats  # (K, models) mean loss of each model on their new samples
    least_losses: Floats  # (K, models) lower confidence limits of these means
    new_since: Ints  # (K,) the round in which the new samples arrived

    def select(self, rows: Bools) -> Seen:
        """Return the responses of some clients."""
        return Seen._make(values[rows] for values in self)


class Contradictions(NamedTuple):
    """When labels contradict each other; the fields are those of `TwoMixtures`."""

    max_conflict: float
    sufficient_loss: float
    max_clusters: int
    significance: float

    def find_groups(self, seen: Seen) -> Ints:
        """Return (K,) the group of each client: clients with contradictory labels are apart."""
        errors, together = self.estimate_errors(seen), np.zeros(len(seen.clients), dtype=np.int64)
        if not self.separate_contradicting(seen.prototypes, errors, together).any():
            return together
        points = fill_missing(seen.prototypes, "impute")
        clusters = count_clusters(points, self.max_clusters).member_of
        member_of = self.separate_contradicting(seen.prototypes, errors, clusters)
        losses = np.stack(
            [seen.losses[member_of == c].mean(axis=0) for c in range(member_of.max() + 1)]
        )
        worst = np.maximum(losses[:, None], losses[None]).min(axis=2)
        return merge_agreeing(
            seen.prototypes,
            member_of,
            self.max_conflict,
            worst <= self.sufficient_loss,
            errors,
            self.significance,
        )

    def separate_contradicting(self, points: Floats, errors: Floats, member_of: Ints) -> Ints:
        """Return (K,) clusters without clients whose labels contradict the others of theirs.

        Each of these becomes a cluster of its own.
        """
        separate = np.zeros(len(member_of), dtype=bool)
        points = keep_known(points, errors)
        for client, cluster in enumerate(member_of.tolist()):
            others = member_of == cluster
            others[client] = False
            if others.any():
                rest = mean_present(points[others])
                separate[client] = self._contradict(
                    points[client], rest, errors[client : client + 1], errors[others]
                )
        separated = member_of.copy()
        separated[separate] = member_of.max() + 1 + np.arange(separate.sum())
        return np.unique(separated, return_inverse=True)[1].astype(np.int64)

    def estimate_errors(self, seen: Seen) -> Floats:
        """Return (K, C) the standard errors of the prototypes of new samples.

        They are 0 for clients whose losses are those of wrong labels, so that their prototypes
        count as exact: with each model the loss is larger than that of equal probabilities, and
        much larger than that of another client with its best model.
        """
        best, uniform = seen.losses.min(axis=1), math.log(seen.prototypes.shape[1])
        limit = max(best.min(initial=np.inf) + self.sufficient_loss, uniform)
        is_worse = seen.least_losses.min(axis=1) > limit
        has_class = ~np.isnan(seen.prototypes).any(axis=2)
        return np.where(is_worse[:, None] & has_class, 0.0, seen.new_errors)

    def has_changed(self, seen: Seen) -> bool:
        """Return whether the labels of new samples contradict those of old ones."""
        old = mean_present(keep_known(seen.old, seen.old_errors))
        new = mean_present(keep_known(seen.prototypes, seen.new_errors))
        return self._contradict(old, new, seen.old_errors, seen.new_errors)

    def _contradict(
        self, first: Floats, second: Floats, first_errors: Floats, second_errors: Floats
    ) -> bool:
        """Return whether the labels of two groups contradict each other beyond chance.

        Each has a mean prototype (C, O) and the standard errors (k, C) of its clients.
        """
        if label_conflict(first, second) <= self.max_conflict:
            return False
        errors = np.hypot(mean_errors(first_errors), mean_errors(second_errors))
        return differ_significantly(first, second, errors, self.significance)

    def mean_losses(self, seen: Seen, groups: Ints) -> Floats:
        """Return (groups, models) the mean losses of each group.

        Clients for which one of the models is sufficient count only if there are no others.
        """
        unfit = self.find_unfit(seen)
        members = [groups == group for group in range(int(groups.max()) + 1)]
        return np.stack(
            [
                seen.losses[rows & unfit if (rows & unfit).any() else rows].mean(axis=0)
                for rows in members
            ]
        )

    def find_unfit(self, seen: Seen) -> Bools:
        """Return (K,) the clients for which no model is sufficient."""
        return np.asarray(seen.losses.min(axis=1) > self.sufficient_loss)


def keep_known(points: Floats, errors: Floats) -> Floats:
    """Return (K, C, O) prototypes with nan where the error (K, C) is not known.

    A mean that includes them would have a larger error than the known ones say.
    """
    return np.where(np.isnan(errors)[:, :, None], np.nan, points)


def compute_lower_limits(losses: Floats, level: float) -> Floats:
    r"""Return (J,) lower confidence limits of the means of losses (J, n), at least 0.

    .. math::  \bar f - t_{1 - \text{level},\, n - 1} \; s / \sqrt n

    They are 0 for a single sample. With a `level` of 1, which means no test, they are the means.
    Here the means are 3, the standard errors 1 and 0, and t is 6.314:

    >>> compute_lower_limits(np.array([[2.0, 4.0], [3.0, 3.0]]), 0.05).tolist()
    [0.0, 3.0]
    >>> compute_lower_limits(np.array([[2.0, 4.0]]), 0.25).round(3).tolist()  # t is 1
    [2.0]
    """
    from scipy.special import stdtrit

    number = losses.shape[1]
    if level == 1:
        return np.asarray(losses.mean(axis=1))
    if number < 2:
        return np.zeros(len(losses))
    errors = losses.std(axis=1, ddof=1) / math.sqrt(number)
    limits = losses.mean(axis=1) - stdtrit(number - 1, 1 - level) * errors
    return np.asarray(np.maximum(limits, 0.0))
