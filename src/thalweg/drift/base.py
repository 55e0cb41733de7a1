"""Interfaces of alarms and their actions."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Ints

Bools = npt.NDArray[np.bool_]
WatchedMetric = Literal["error", "loss", "counts"]

S = TypeVar("S", bound=tuple[Any, ...])


class Effect(NamedTuple):
    """The consequences of an alarm, in the next round in which its client takes part."""

    keep: float = 1.0  # share of the memory to keep, the newest samples; 1: all
    opens_state: bool = False  # the forecast opens a new latent state for the next samples
    reclusters: bool = False  # the bank finds the client in `Roster.alarmed`
    lr_scales: tuple[float, ...] = ()  # factors of the learning rate in the client's next rounds
    drop_margin: float | None = None  # drop outdated samples, as in `DropOutdated`; none: do not


class Action(Protocol):
    """Defines what follows an alarm. Implement `effect`; no base class is needed."""

    def effect(self) -> Effect:
        """Return the consequences of one alarm."""
        ...


class Alarm(Protocol):
    """Watches one number of each client and detects changes.

    Implement the two properties, `init` and `update`; no base class is needed. The state covers all
    clients (arrays with N rows), but clients are independent: a value of one client must not
    affect another. After an alarm the client's rows are reset. The state must survive a checkpoint.
    """

    @property
    def watch(self) -> WatchedMetric:
        """The watched metric.

        error: share of wrong predictions of new samples before training; loss: training loss of the
        round; counts: wrong predictions, predictions, and training loss.
        """
        ...

    @property
    def action(self) -> Action:
        """What follows an alarm."""
        ...

    def init(self, num_clients: int) -> Any:
        """Return the state before the first round."""
        ...

    def update(self, state: Any, clients: Ints, values: Floats) -> tuple[Any, Bools]:
        """Return the next state and, as a mask (K,), the alarmed clients.

        `clients` (K,) are distinct. `values` (K,) are finite; counts are (K, 3), and the third
        column is nan if the client did not train.
        """
        ...


class Detector(Protocol):
    """A detector for one stream of numbers, with the interface of River; see `RiverAlarm`."""

    @property
    def drift_detected(self) -> bool:
        """Whether the last value caused an alarm."""
        ...

    def update(self, x: float) -> object:
        """Process the next value."""
        ...


def resolve_effect(alarm: Alarm) -> Effect:
    """Return the effect of an alarm's action, after validating it."""
    effect = alarm.action.effect()
    are_scales_valid = all(
        math.isfinite(lr_scale) and lr_scale > 0 for lr_scale in effect.lr_scales
    )
    is_margin_valid = effect.drop_margin is None or 0 <= effect.drop_margin < 1
    if not (0 <= effect.keep <= 1 and are_scales_valid and is_margin_valid):
        raise ConfigError(
            f"{type(alarm.action).__name__}.effect must keep a share of the memory in [0, 1], have "
            "lr_scales that are positive and finite, and a drop_margin in [0, 1) or None, got "
            f"{effect}."
        )
    return effect


def select_rows(state: S, clients: Ints) -> S:
    """Return a copy of some clients' rows of a state."""
    return type(state)(*(part[clients] for part in state))


def update_rows(state: S, clients: Ints, rows: S, alarmed: Bools, fresh: S) -> S:
    """Return a copy of the state with new rows of some clients, and fresh ones after an alarm.

    Clients 0 and 2 have new rows, and client 0 is alarmed:

    >>> class Counts(NamedTuple):
    ...     num: Ints
    >>> state, rows, fresh = (Counts(np.array(num)) for num in ([5, 6, 7], [6, 8], [0, 0]))
    >>> update_rows(state, np.array([0, 2]), rows, np.array([True, False]), fresh).num.tolist()
    [0, 6, 8]
    """
    parts, is_any_alarmed = [], alarmed.any()
    for old, new, initial in zip(state, rows, fresh, strict=True):
        part = old.copy()
        if is_any_alarmed:
            new = np.where(alarmed.reshape(-1, *[1] * (new.ndim - 1)), initial, new)
        part[clients] = new
        parts.append(part)
    return type(state)(*parts)
