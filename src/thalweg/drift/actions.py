"""Actions that follow an alarm, and the two fields that all alarms share."""

from __future__ import annotations

from dataclasses import dataclass, field

from thalweg.core.config import check_ranges, choice
from thalweg.drift.base import Action, Effect, WatchedMetric


@dataclass(frozen=True)
class RecordOnly:
    """Only records alarms in the metrics.

    >>> RecordOnly().effect() == Effect()
    True
    """

    def effect(self) -> Effect:
        return Effect()


@dataclass(frozen=True)
class Shrink:
    """Drops the oldest samples of the client's memory and resets its memory policy.

    >>> Shrink(keep=0.2).effect()
    Effect(keep=0.2, opens_state=False, reclusters=False, lr_scales=())
    """

    keep: float = 0.0
    """Share of the samples to keep, the newest ones; 0 empties the memory."""

    def __post_init__(self) -> None:
        check_ranges(self, keep="[0, 1)")

    def effect(self) -> Effect:
        return Effect(keep=self.keep)


@dataclass(frozen=True)
class Recluster:
    """Passes the alarmed clients to the bank of models (`Roster.alarmed`).

    >>> Recluster().effect().reclusters
    True
    """

    def effect(self) -> Effect:
        return Effect(reclusters=True)


@dataclass(frozen=True)
class ScaleLr:
    """Scales the client's learning rate for some rounds; another alarm restarts them.

    >>> ScaleLr(factor=2.0, rounds=3).effect().lr_scales
    (2.0, 2.0, 2.0)
    """

    factor: float = 2.0
    """Factor of the client's learning rate."""
    rounds: int = 5
    """Number of rounds, counted in rounds in which the client takes part."""

    def __post_init__(self) -> None:
        check_ranges(self, factor="(0, inf)", rounds="[1, inf)")

    def effect(self) -> Effect:
        return Effect(lr_scales=(self.factor,) * self.rounds)


@dataclass(frozen=True)
class OpenState:
    """Makes the client's forecast open a new latent state for the next samples.

    >>> OpenState().effect().opens_state
    True
    """

    def effect(self) -> Effect:
        return Effect(opens_state=True)


@dataclass(frozen=True)
class CombinedActions:
    """Combines several actions.

    >>> CombinedActions(keep=0.25, factor=2.0, rounds=1).effect()
    Effect(keep=0.25, opens_state=False, reclusters=False, lr_scales=(2.0,))
    """

    keep: float = 1.0
    """As in `Shrink`; 1 keeps the whole memory."""
    factor: float = 1.0
    """As in `ScaleLr`; 1 keeps the learning rate."""
    rounds: int = 5
    """As in `ScaleLr`."""
    recluster: bool = False
    """As in `Recluster`."""
    open_state: bool = False
    """As in `OpenState`."""

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


@dataclass(frozen=True)
class AlarmOptions:
    """Base class of the alarms of this package: the metric to watch and the action."""

    watch: WatchedMetric = field(default="error", kw_only=True)
    """Metric to watch. error: share of the round's new samples that the received model predicts
    wrongly, before training; loss: mean training loss of the round."""
    action: Action = choice(ACTIONS, default=RecordOnly(), kw_only=True)
    """Action after an alarm, in the client's next round."""
