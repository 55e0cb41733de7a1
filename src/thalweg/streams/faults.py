"""Faults between clients and server: lost and late responses."""

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

LOST = -1  # delay of a response that never arrives

# Indices of a draw (`take`): small numbers are probe rounds, then surveys, then client
# properties.
SURVEY_DRAW = 1 << 32
CLIENT_DRAW = 1 << 33
HOSTILE_DRAW = 1 << 34  # which clients are adversarial, and what they send


class Faults(Protocol):
    """Protocol of a fault model: decides which responses are lost or late.

    Pure: the result for a client and round does not depend on which other clients participate.
    """

    def draw_delays(self, clients: Ints, rnd: int, seed: int, probe_round: int = 0) -> Ints:
        """(K,) delay of each response in rounds; 0: in time, `LOST`: never."""
        ...

    def draw_lost_responses(
        self, clients: Ints, rnd: int, seed: int, survey: int
    ) -> npt.NDArray[np.bool_]:
        """(K,) True where the survey response is lost.

        `survey` is the index of the survey in the round.
        """
        ...


@runtime_checkable
class TampersUpdates(Protocol):
    """A fault model with adversarial clients that send forged updates."""

    def is_hostile(self, clients: Ints, seed: int) -> npt.NDArray[np.bool_]:
        """(K,) True for adversarial clients."""
        ...

    def tamper(self, deltas: Floats32, clients: Ints, rnd: int, seed: int) -> Floats32:
        """(K, P) updates sent by adversarial clients instead of their updates (K, P)."""
        ...


@dataclass(frozen=True)
class Unreliable:
    r"""Responses are lost, or late by a geometrically distributed number of rounds.

    A round ends when every client of the cohort has responded or is known to be late. A client
    whose response is lost or late has trained: its memory and its stream have advanced. Survey
    responses are lost with the same probability as training responses, and are never late because
    they are small.

    Clients can differ. The odds that a response of client i is in time are divided by
    :math:`b_i = e^{\sigma z_i}` with :math:`z_i \sim N(0, 1)`, drawn once per run. `lost` and
    `late` are the probabilities of the median client:

    .. math::
        P_i(\text{lost}) = \frac{b_i\, \text{lost}}{1 - u + b_i u}, \qquad
        P_i(\text{late}) = \frac{b_i\, \text{late}}{1 - u + b_i u}, \qquad u = \text{lost} +
        \text{late}

    Symbols: :math:`\sigma` is `spread`.
    """

    lost: float = 0.1
    """Probability that a response is lost."""
    late: float = 0.2
    """Probability that a response arrives in a later round."""
    delay: float = 2.0
    """Mean delay of a late response in rounds, at least 1."""
    spread: float = 0.0
    """Standard deviation of the log-odds between clients; 0: all clients are equal."""

    def __post_init__(self) -> None:
        check_ranges(self, lost="[0, 1]", late="[0, 1]", delay="[1, inf)", spread="[0, 5]")
        require(
            self.lost + self.late <= 1,
            f"lost + late must be at most 1, got {self.lost} + {self.late}.",
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
        """(2,) probabilities that a response of the client is lost, and late."""
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
