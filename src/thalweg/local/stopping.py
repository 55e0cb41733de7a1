"""When a client has learnt enough for a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Ints

HOLD_OUT_EVERY = 10  # of so many samples one is held out


class Stopping(Protocol):
    """Ends a client's learning, not its round: its memory is renewed all the same. Pure.

    Before and after every tick the loss of some samples is taken that nobody learns from. Any object of
    this shape will do.
    """

    def hold_out(self, num_rows: int) -> Ints:
        """Positions in a memory of that many samples that are tried and not learnt from, ascending."""
        ...

    def should_stop(self, before: float, after: float, tick: int) -> bool:
        """Does the client learn no more in this round?

        `before` and `after` are mean losses of the samples held out in tick number `tick`, counted from
        1; both are 0 if none were.
        """
        ...


@dataclass(frozen=True)
class GainThreshold:
    r"""A client stops learning for the round once a tick has gained too little.

    That is, once it has lowered the loss of a held-out tenth of its memory by less than `gain` divided by
    the number of the tick: :math:`L_{e-1} - L_e < \gamma / e`. The first of every ten samples is held out,
    so that a client with one sample does not train.

    Symbols, Panchal et al. 2023 (Flash) -> here
        :math:`\gamma`  threshold    -> gain
        :math:`e`       local epoch  -> tick

    Differs from the paper: ticks instead of epochs, and a part of the memory instead of a validation set.
    The memory changes between ticks, so a loss is compared with that of the same samples before the tick.

    >>> enough = GainThreshold(gain=0.3)
    >>> enough.hold_out(21).tolist()
    [0, 10, 20]
    >>> enough.should_stop(1.0, 0.8, tick=1), enough.should_stop(1.0, 0.8, tick=2)
    (True, False)
    """

    gain: float = 0.004

    def __post_init__(self) -> None:
        check_ranges(self, gain="(0, inf)")

    def hold_out(self, num_rows: int) -> Ints:
        return np.arange(0, num_rows, HOLD_OUT_EVERY)

    def should_stop(self, before: float, after: float, tick: int) -> bool:
        return before - after < self.gain / tick
