"""Shift-aware aggregation weights (SAW): the weight of each participant of a round."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Ints
from thalweg.theory.inputs import as_array, distribution, fractions, number, vector

AVAILABILITY_FLOOR = 0.01  # lower bound of the availability


def saw_weights(
    scores: npt.ArrayLike,
    availability: npt.ArrayLike,
    slope: float,
    offset: float,
    participants: npt.ArrayLike | None = None,
) -> Floats:
    r"""Weights of a round's participants: larger for rare clients and for representative data.

    .. math::
        \psi_n = \max\Big(\frac{1}{q_n} - a_2 s_n + b_2,\ 0\Big),
        \qquad p_n = \psi_n \Big/ \sum_{j \in S} \psi_j

    `participants` are client ids, one boolean per client, or None for all clients; the result has
    one weight per participant in the order of the ids. Values of absent clients are not used and
    may be nan. If no participant has a positive weight, all have the same weight; without
    participants the result is empty.

    Symbols, SFedPO (14) -> here
        :math:`s`, :math:`q`    -> scores, see `heterogeneity_score`; availability, at least 0.01
        :math:`a_2, b_2`        -> slope, offset
        :math:`S`               -> participants

    Differences from the paper: its formula normalises over all clients and its algorithm over the
    participants; this function does the latter.

    >>> saw_weights([1, 2, 3], [0.2, 0.25, 0.1], slope=1, offset=0.5, participants=[0, 2]).round(6)
    array([0.375, 0.625])
    """
    a2, b2 = number(slope, "slope"), number(offset, "offset")
    s, q = as_array(scores, "scores"), as_array(availability, "availability")
    if s.ndim != 1 or s.shape != q.shape:
        raise ConfigError(
            "scores and availability must be rows with one entry per client, "
            f"got shapes {s.shape} and {q.shape}."
        )
    if participants is not None:
        here = _ids(participants, s.size)  # (K,)
        s, q = s[here], q[here]
    if s.size == 0:
        return np.zeros(0)
    often = np.maximum(fractions(q, "availability"), AVAILABILITY_FLOOR)
    with np.errstate(over="ignore"):  # rejected below, with a message
        trust = np.maximum(1 / often - a2 * vector(s, "scores") + b2, 0.0)  # (K,)
    if not trust.any():
        return np.full(s.size, 1 / s.size)
    return distribution(trust, "1/q - slope * scores + offset")


def _ids(participants: npt.ArrayLike, num_clients: int) -> Ints:
    given = np.asarray(participants)
    if given.dtype == np.bool_:
        if given.shape != (num_clients,):
            raise ConfigError(
                f"a mask of participants must have {num_clients} entries, got shape {given.shape}."
            )
        return np.flatnonzero(given)
    if given.size == 0:  # an empty list has no dtype
        return np.zeros(0, dtype=np.int64)
    if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer):
        raise ConfigError(
            "participants must be client ids or one boolean per client, "
            f"got {given.dtype} of shape {given.shape}."
        )
    if given.min() < 0 or given.max() >= num_clients:
        raise ConfigError(
            f"participants must lie in 0 .. {num_clients - 1}, "
            f"got ids from {given.min()} to {given.max()}."
        )
    if np.unique(given).size != given.size:
        raise ConfigError("participants must be different clients, got duplicate ids.")
    return given.astype(np.int64)
