"""Early stopping: when a client stops training within a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Ints

HOLD_OUT_EVERY = 10  # one of this many samples is held out


class Stopping(Protocol):
    """Decides when a client stops training in a round. Its memory is still renewed in later ticks.

    Implement both methods; no base class is needed. They must be pure. Before and after the
    training of every tick the loss on held-out samples is measured.
    """

    def hold_out(self, num_rows: int) -> Ints:
        """Return ascending positions, in a memory of `num_rows`, that are not trained on."""
        ...

    def should_stop(self, before: float, after: float, tick: int) -> bool:
        """Return whether the client stops training for the rest of the round.

        `before` and `after` are mean losses of the held-out samples in tick number `tick`, counted
        from 1; both are 0 if no sample was held out.
        """
        ...


@dataclass(frozen=True)
class GainThreshold:
    r"""Stop training for the round when a tick improves the held-out loss by too little.

    .. math::  L_{e-1} - L_e < \gamma / e

    A tenth of the memory, the first of every ten samples, is held out; a client with a single
    sample therefore does not train.

    Symbols, Panchal et al. (2023), Flash -> here
        :math:`\gamma`  threshold    -> gain
        e               local epoch  -> tick
        L               loss on the validation set -> mean loss of the held-out samples

    Differs from the paper: ticks instead of epochs, and a part of the memory instead of a
    validation set. The memory changes between ticks, so that a loss is compared with that of the
    same samples before the tick.

    A gain of 0.2 is below 0.3 / 1 but not below 0.3 / 2:

    >>> stopping = GainThreshold(gain=0.3)
    >>> stopping.hold_out(21).tolist()
    [0, 10, 20]
    >>> stopping.should_stop(1.0, 0.8, tick=1), stopping.should_stop(1.0, 0.8, tick=2)
    (True, False)
    """

    gain: float = 0.004

    def __post_init__(self) -> None:
        check_ranges(self, gain="(0, inf)")

    def hold_out(self, num_rows: int) -> Ints:
        return np.arange(0, num_rows, HOLD_OUT_EVERY)

    def should_stop(self, before: float, after: float, tick: int) -> bool:
        return before - after < self.gain / tick
