from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats32, Ints
from thalweg.streams.faults import HOSTILE_DRAW


@dataclass(frozen=True)
class Hostile:
    r"""Adversarial clients: some clients send forged updates in every round.

    The adversarial clients are drawn once per run, each client with probability `share`. Uploads,
    reports and counts are not forged; invalid messages are tested elsewhere.

    attack
        "flip"     the update multiplied by -`strength`
        "noise"    a random direction per client, with `strength` times the norm of the update
        "together" a random direction that all adversarial clients share
    """

    share: float = 0.2
    attack: Literal["flip", "noise", "together"] = "flip"
    strength: float = 10.0

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, share="[0, 1]", strength="(0, inf)")

    def draw_delays(self, clients: Ints, rnd: int, seed: int, probe_round: int = 0) -> Ints:
        return np.zeros(len(clients), dtype=np.int64)

    def draw_lost_responses(
        self, clients: Ints, rnd: int, seed: int, survey: int
    ) -> npt.NDArray[np.bool_]:
        return np.zeros(len(clients), dtype=bool)

    def is_hostile(self, clients: Ints, seed: int) -> npt.NDArray[np.bool_]:
        """(K,) True for clients that are adversarial during the whole run."""
        fates = [
            rng_for(seed, Draw.FAULTS, 0, client, HOSTILE_DRAW).random() < self.share
            for client in clients.tolist()
        ]
        return np.array(fates, dtype=bool)

    def tamper(self, deltas: Floats32, clients: Ints, rnd: int, seed: int) -> Floats32:
        sent = deltas.copy()
        for row in np.flatnonzero(self.is_hostile(clients, seed)).tolist():
            sent[row] = self._forge_update(deltas[row], int(clients[row]), rnd, seed)
        return sent

    def _forge_update(self, delta: Floats32, client: int, rnd: int, seed: int) -> Floats32:
        if self.attack == "flip":
            return -np.float32(self.strength) * delta
        # The first word of the counter is the client id; a shared direction uses an id that no
        # client has.
        who = client if self.attack == "noise" else 1 << 40
        direction = rng_for(seed, Draw.FAULTS, rnd, who, HOSTILE_DRAW + 1).standard_normal(
            len(delta)
        )
        length = self.strength * float(np.linalg.norm(delta.astype(np.float64)))
        return (direction * (length / np.linalg.norm(direction))).astype(np.float32)
