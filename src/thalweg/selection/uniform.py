from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Ints, Roster
from thalweg.selection.base import cohort_size


@dataclass(frozen=True)
class Uniform:
    r"""Choose a fixed fraction of the present clients, each with the same probability.

    Of n present clients :math:`\max(1, \mathrm{round}(C n))` are drawn without replacement. This is
    the selection of FedAvg.

    Symbols, McMahan et al. (2017) -> here
        C  fraction of clients per round  -> fraction

    Differs from the paper: the fraction is of the clients that are present in the round.

    >>> present, availability, times_present = np.arange(10), np.ones(10), np.zeros(10, int)
    >>> roster = Roster(0, present, availability, times_present)
    >>> len(Uniform(fraction=0.3).choose(roster, np.random.default_rng(0)))
    3
    """

    is_uniform: ClassVar[bool] = True  # all sets of clients of one size are equally likely

    fraction: float = 0.3

    def __post_init__(self) -> None:
        check_ranges(self, fraction="(0, 1]")

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        size = cohort_size(self.fraction, len(roster.present))
        return np.sort(rng.choice(roster.present, size, replace=False))
