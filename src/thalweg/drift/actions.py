"""What may be done about an alarm, chosen by the user."""

from __future__ import annotations

from dataclasses import dataclass

from thalweg.core.config import check_ranges
from thalweg.drift.base import Effect


@dataclass(frozen=True)
class RecordOnly:
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
class ScaleLr:
    """The client learns with another learning rate for a while; another alarm begins that anew."""

    factor: float = 2.0
    """What its learning rate is multiplied by."""
    rounds: int = 5
    """For so many of its own rounds."""

    def __post_init__(self) -> None:
        check_ranges(self, factor="(0, inf)", rounds="[1, inf)")

    def effect(self) -> Effect:
        return Effect(lr_scales=(self.factor,) * self.rounds)


@dataclass(frozen=True)
class OpenState:
    """The client's forecast takes the next samples for a state of their own, whatever they resemble."""

    def effect(self) -> Effect:
        return Effect(opens_state=True)


@dataclass(frozen=True)
class CombinedActions:
    """More than one of them at once.

    >>> CombinedActions(keep=0.25, factor=2.0, rounds=1).effect() == Effect(keep=0.25, lr_scales=(2.0,))
    True
    """

    keep: float = 1.0
    """As `Shrink` has it; 1: the memory stays as it is."""
    factor: float = 1.0
    """As `ScaleLr` has it; 1: the learning rate stays as it is."""
    rounds: int = 5
    recluster: bool = False
    open_state: bool = False

    def __post_init__(self) -> None:
        check_ranges(self, keep="[0, 1]", factor="(0, inf)", rounds="[1, inf)")

    def effect(self) -> Effect:
        return Effect(
            keep=self.keep,
            opens_state=self.open_state,
            reclusters=self.recluster,
            lr_scales=() if self.factor == 1 else (self.factor,) * self.rounds,
        )


ACTIONS = {
    "record-only": RecordOnly,
    "shrink": Shrink,
    "recluster": Recluster,
    "scale-lr": ScaleLr,
    "open-state": OpenState,
    "combined": CombinedActions,
}
