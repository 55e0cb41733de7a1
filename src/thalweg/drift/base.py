"""What every alarm promises, and what follows from one."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Ints

Bools = npt.NDArray[np.bool_]
WatchedMetric = Literal["error", "loss"]

S = TypeVar("S", bound=tuple[Any, ...])


class Effect(NamedTuple):
    """What an alarm changes for its client, in the next round in which that takes part."""

    keep: float = 1.0  # share of its memory that stays, the newest samples; 1: all of it
    opens_state: bool = False  # its forecast takes the next samples for a state of their own
    reclusters: bool = False  # the bank of models is told
    lr_scales: tuple[float, ...] = ()  # factors of its learning rate in its next rounds


class Action(Protocol):
    """What is done about an alarm. Any object of this shape will do."""

    def effect(self) -> Effect: ...


class Alarm(Protocol):
    """Watches a number of every client, and says when it has changed. Any object of this shape will do.

    All clients at once: a state has a row for each, and what one of them is told changes nothing for the others.
    After an alarm it begins anew for that client.
    """

    @property
    def watch(self) -> WatchedMetric:
        """Which number: the error on samples before they are learnt from, or the training loss."""
        ...

    @property
    def action(self) -> Action: ...

    def init(self, num_clients: int) -> Any:
        """What it remembers before the first round."""
        ...

    def update(self, state: Any, clients: Ints, values: Floats) -> tuple[Any, Bools]:
        """What it remembers next, and (K,) whose number has changed.

        Clients (K,) are all different, values (K,) finite.
        """
        ...


class Detector(Protocol):
    """One detector of one stream, as River has them; see `River`."""

    @property
    def drift_detected(self) -> bool: ...

    def update(self, x: float) -> object: ...


def resolve_effect(alarm: Alarm) -> Effect:
    """What follows from an alarm; an action of the user's own may be wrong."""
    effect = alarm.action.effect()
    are_scales_valid = all(
        math.isfinite(lr_scale) and lr_scale > 0 for lr_scale in effect.lr_scales
    )
    if not (0 <= effect.keep <= 1 and are_scales_valid):
        raise ConfigError(
            f"{type(alarm.action).__name__}.effect must keep a share of the memory in [0, 1] and have lr_scales "
            f"that are positive and finite, got {effect}."
        )
    return effect


def select_rows(state: S, clients: Ints) -> S:
    """Some clients' part of a state; a copy."""
    return type(state)(*(part[clients] for part in state))


def update_rows(state: S, clients: Ints, rows: S, alarmed: Bools, fresh: S) -> S:
    """The state, in which some clients have other rows, or fresh ones after an alarm. The old one stays as it was.

    >>> class Seen(NamedTuple):
    ...     num: Ints
    >>> some, fresh = np.array([True, False]), Seen(np.array([0, 0]))
    >>> now = update_rows(Seen(np.array([5, 6, 7])), np.array([0, 2]), Seen(np.array([6, 8])), some, fresh)
    >>> now.num.tolist()
    [0, 6, 8]
    """
    parts = []
    for whole, mine, new in zip(state, rows, fresh, strict=True):
        whole, begun = whole.copy(), alarmed.reshape(-1, *[1] * (mine.ndim - 1))
        whole[clients] = np.where(begun, new, mine)
        parts.append(whole)
    return type(state)(*parts)
