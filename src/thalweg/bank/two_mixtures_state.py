"""The server's state of the bank `two-mixtures`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Floats32, Ints

Bools = npt.NDArray[np.bool_]


class TwoMixturesState(NamedTuple):
    """The server's state."""

    new: Floats  # (N, models) mixture of each client for new samples; zeros: none yet
    old: Floats  # (N, models) mixture for samples of earlier periods; zeros: none
    began: Ints  # (N,) first round of each client's period
    mass: Floats32  # (N, models, C) label mass of each model, as last received
    opened: Ints  # (models,) the round in which each model was opened
    last_used: Ints  # (models,) last round in which a client had a relevant share of the model
    surveyed: Ints  # (N,) round of the last response to a survey; 0: none yet
    changed: int  # round of the last step start or alarm
    decisions: list[dict[str, Any]]  # models opened and closed in the last round


def init_state(num_clients: int, num_classes: int) -> TwoMixturesState:
    """Return the state before the first round: one model, and no client has a mixture."""
    return TwoMixturesState(
        new=np.zeros((num_clients, 1)),
        old=np.zeros((num_clients, 1)),
        began=np.zeros(num_clients, dtype=np.int64),
        mass=np.zeros((num_clients, 1, num_classes), dtype=np.float32),
        opened=np.full(1, -1, dtype=np.int64),
        last_used=np.zeros(1, dtype=np.int64),
        surveyed=np.zeros(num_clients, dtype=np.int64),
        changed=0,
        decisions=[],
    )


def add_models(state: TwoMixturesState, count: int, rnd: int) -> TwoMixturesState:
    """Return the state with `count` further models, opened in round `rnd` and without clients."""
    if count == 0:
        return state
    add = [(0, 0), (0, count)]
    return state._replace(
        new=np.pad(state.new, add),
        old=np.pad(state.old, add),
        mass=np.pad(state.mass, [*add, (0, 0)]),
        opened=np.pad(state.opened, (0, count), constant_values=rnd),
        last_used=np.pad(state.last_used, (0, count), constant_values=rnd),
    )


def keep_models(state: TwoMixturesState, is_kept: Bools) -> TwoMixturesState:
    """Return the state with some of the models; clients keep the proportions of their shares."""
    return state._replace(
        new=normalise(state.new[:, is_kept]),
        old=normalise(state.old[:, is_kept]),
        mass=state.mass[:, is_kept],
        opened=state.opened[is_kept],
        last_used=state.last_used[is_kept],
    )


def normalise(mixtures: Floats) -> Floats:
    """Return (N, models) mixtures with rows that sum to one; rows of zeros stay.

    >>> normalise(np.array([[1.0, 3.0], [0.0, 0.0]])).tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    total = mixtures.sum(axis=1, keepdims=True)
    normalised = np.zeros_like(mixtures)
    np.divide(mixtures, total, out=normalised, where=total > 0)
    return normalised
