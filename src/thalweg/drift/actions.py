"""What may be done about an alarm, chosen by the user; several things by `Both`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from thalweg.core.config import check_ranges, choice
from thalweg.drift.base import Action, Effect


@dataclass(frozen=True)
class Note:
    """Nothing: alarms are in the metrics, and that is all."""

    def effect(self) -> Effect:
        return Effect()


@dataclass(frozen=True)
class Shrink:
    """The client's memory keeps its newest samples alone; the memory policy begins anew with them."""

    keep: float = 0.0
    """Share of the samples that stays, those that came last; 0: the memory is emptied."""

    def __post_init__(self) -> None:
        check_ranges(self, keep="[0, 1)")

    def effect(self) -> Effect:
        return Effect(keep=self.keep)


@dataclass(frozen=True)
class Recluster:
    """The bank of models is told whose data have changed (`Roster.alarmed`)."""

    def effect(self) -> Effect:
        return Effect(reclusters=True)


@dataclass(frozen=True)
class Hurry:
    """The client learns with another learning rate for a while; another alarm begins that anew."""

    factor: float = 2.0
    """What its learning rate is multiplied by."""
    rounds: int = 5
    """For so many of its own rounds."""

    def __post_init__(self) -> None:
        check_ranges(self, factor="(0, inf)", rounds="[1, inf)")

    def effect(self) -> Effect:
        return Effect(paces=(self.factor,) * self.rounds)


@dataclass(frozen=True)
class OpenState:
    """The client's forecast takes the next samples for a state of their own, whatever they resemble."""

    def effect(self) -> Effect:
        return Effect(opens_state=True)


ACTIONS: dict[str, Any] = {
    "note": Note,
    "shrink": Shrink,
    "recluster": Recluster,
    "hurry": Hurry,
    "open-state": OpenState,
}


@dataclass(frozen=True)
class Both:
    """Two things at once; either may be two things itself.

    >>> Both(Shrink(0.25), Both(Hurry(2.0, rounds=1), Hurry(1.5, rounds=2))).effect().paces
    (3.0, 1.5)
    """

    first: Action = choice(ACTIONS, default=Shrink())
    second: Action = choice(ACTIONS, default=Hurry())

    def effect(self) -> Effect:
        """The smaller memory, and the product of the paces."""
        one, two = self.first.effect(), self.second.effect()
        return Effect(
            keep=min(one.keep, two.keep),
            opens_state=one.opens_state or two.opens_state,
            reclusters=one.reclusters or two.reclusters,
            paces=tuple(a * b for a, b in zip_longest(one.paces, two.paces, fillvalue=1.0)),
        )


ACTIONS["both"] = Both  # only now: it is one of them
