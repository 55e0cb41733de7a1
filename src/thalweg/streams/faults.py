"""What goes wrong between clients and server: whose reply is lost, and whose comes late."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from thalweg.core.config import check_ranges
from thalweg.core.errors import require
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32, Ints

LOST = -1  # the delay of what never comes

# Repetitions of a draw (`take`): rehearsals have the small numbers, then come questions, then the clients' make-up.
SURVEY_DRAW = 1 << 32
CLIENT_DRAW = 1 << 33
HOSTILE_DRAW = 1 << 34  # who is, and what they send


class Faults(Protocol):
    """Says what becomes of what clients send. Any object of this shape will do.

    Pure: the same client in the same round has the same fate, whoever else takes part.
    """

    def draw_delays(self, clients: Ints, rnd: int, seed: int, probe_round: int = 0) -> Ints:
        """(K,) rounds by which each reply comes late; 0: in time, `LOST`: never."""
        ...

    def draw_lost_responses(
        self, clients: Ints, rnd: int, seed: int, survey: int
    ) -> npt.NDArray[np.bool_]:
        """(K,) whose answer is lost; `survey` tells the questions of a round apart."""
        ...


@runtime_checkable
class TampersUpdates(Protocol):
    """Faults that are none: what some clients send is not what they have learnt."""

    def is_hostile(self, clients: Ints, seed: int) -> npt.NDArray[np.bool_]:
        """(K,) which of some clients send something else."""
        ...

    def tamper(self, deltas: Floats32, clients: Ints, rnd: int, seed: int) -> Floats32:
        """(K, P) what is sent in the place of updates (K, P) of clients (K,)."""
        ...


@dataclass(frozen=True)
class Unreliable:
    r"""Every reply may be lost, or late by a geometric number of rounds.

    A round has a deadline: it is closed when everybody has answered or is known to be late. Who is lost or late did
    train, so its memory and its stream have moved on. Answers to questions are lost as often as replies; they
    are short, so that they are never late.

    Some clients are worse than others: the odds of client i that its reply is in time are divided by
    :math:`b_i = e^{\sigma z_i}`, with :math:`z_i` normal and drawn once per run. The middle client is as `lost`
    and `late` say,

    .. math::
        P_i(\text{lost}) = \frac{b_i\, \text{lost}}{1 - u + b_i u}, \qquad
        P_i(\text{late}) = \frac{b_i\, \text{late}}{1 - u + b_i u}, \qquad u = \text{lost} + \text{late}

    Symbols -> here: :math:`\sigma` -> spread.
    """

    lost: float = 0.1
    """Probability that a reply never comes."""
    late: float = 0.2
    """Probability that it comes in a later round."""
    delay: float = 2.0
    """Mean number of rounds by which it is late then, at least 1."""
    spread: float = 0.0
    """How much clients differ; 0: not at all."""

    def __post_init__(self) -> None:
        check_ranges(self, lost="[0, 1]", late="[0, 1]", delay="[1, inf)", spread="[0, 5]")
        require(
            self.lost + self.late <= 1,
            f"a reply is lost, late or in time: lost + late must be at most 1, got {self.lost} + "
            f"{self.late}.",
        )

    def draw_delays(self, clients: Ints, rnd: int, seed: int, probe_round: int = 0) -> Ints:
        fates = [
            self._draw_delay(client, rng_for(seed, Draw.FAULTS, rnd, client, probe_round), seed)
            for client in clients.tolist()
        ]
        return np.array(fates, dtype=np.int64)

    def draw_lost_responses(
        self, clients: Ints, rnd: int, seed: int, survey: int
    ) -> npt.NDArray[np.bool_]:
        take = SURVEY_DRAW + survey
        fates = [
            rng_for(seed, Draw.FAULTS, rnd, client, take).random()
            < self.fault_probs(client, seed)[0]
            for client in clients.tolist()
        ]
        return np.array(fates, dtype=bool)

    def fault_probs(self, client: int, seed: int) -> Floats:
        """(2,) probabilities that a client's reply is lost, and late."""
        chances = np.array([self.lost, self.late])
        if self.spread == 0:
            return chances
        badness = math.exp(
            self.spread * rng_for(seed, Draw.FAULTS, 0, client, CLIENT_DRAW).standard_normal()
        )
        trouble = self.lost + self.late
        worse: Floats = badness * chances / (1 - trouble + badness * trouble)
        return worse

    def _draw_delay(self, client: int, rng: np.random.Generator, seed: int) -> int:
        lost, late = self.fault_probs(client, seed)
        fate = rng.random()
        if fate < lost:
            return LOST
        return int(rng.geometric(1 / self.delay)) if fate < lost + late else 0
