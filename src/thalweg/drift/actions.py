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
    Effect(keep=0.2, opens_state=False, reclusters=False, lr_scales=(), drop_margin=None)
    """

    keep: float = 0.0
    """Share of the samples to keep, the newest ones; 0 empties the memory."""

    def __post_init__(self) -> None:
        check_ranges(self, keep="[0, 1)")

    def effect(self) -> Effect:
        return Effect(keep=self.keep)


@dataclass(frozen=True)
class DropOutdated:
    r"""Drops stored samples whose labels contradict the samples that arrive after the alarm.

    In its next round the client predicts, with the model it has received, its stored samples and
    the samples of the round. Both have the same model, so that a class is predicted equally well in
    both unless its samples have changed. For each class with stored and new samples,

    .. math::
        \Delta_c = e^{new}_c - e^{old}_c, \qquad
        \sigma_c = \sqrt{p_c (1 - p_c) (1/n_c + 1/m_c)}

    The class has changed if :math:`|\Delta_c| - 2 \sigma_c` is larger than `margin`. If the new
    samples are predicted worse, the model knows the old labels, and the stored samples that it
    predicts correctly are dropped. If they are predicted better, the model knows the new labels,
    and the stored samples that it predicts wrongly are dropped. Samples of other classes stay. If
    samples are dropped, the memory policy is reset.

    In a regression all samples have one class, and a prediction is wrong if its absolute error is
    larger than the standard deviation of the targets of all these samples.

    Symbols
        :math:`e^{new}_c, e^{old}_c`  share of wrong predictions of new and stored samples
        :math:`n_c, m_c`              numbers of new and stored samples
        :math:`p_c`                   share of wrong predictions of both together

    >>> DropOutdated(margin=0.3).effect().drop_margin
    0.3
    """

    margin: float = 0.2
    """Difference of the error, beyond two standard errors, from which a class has changed."""

    def __post_init__(self) -> None:
        check_ranges(self, margin="[0, 1)")

    def effect(self) -> Effect:
        return Effect(drop_margin=self.margin)


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
    Effect(keep=0.25, opens_state=False, reclusters=False, lr_scales=(2.0,), drop_margin=None)
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
    drop_margin: float | None = None
    """As `margin` in `DropOutdated`, before `keep` is applied; none: no sample is dropped."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            keep="[0, 1]",
            factor="(0, inf)",
            rounds="[1, inf)",
            drop_margin="[0, 1) or none",
        )

    def effect(self) -> Effect:
        return Effect(
            keep=self.keep,
            opens_state=self.open_state,
            reclusters=self.recluster,
            lr_scales=() if self.factor == 1 else (self.factor,) * self.rounds,
            drop_margin=self.drop_margin,
        )


ACTIONS = {
    "record-only": RecordOnly,
    "shrink": Shrink,
    "drop-outdated": DropOutdated,
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
