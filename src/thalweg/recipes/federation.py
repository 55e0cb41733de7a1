"""The whole boundary between an algorithm and the place where its clients live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from thalweg.core.talk import Told
from thalweg.core.types import Floats32, Ints, Job, Roster, Survey, Updates


class Federation(Protocol):
    """Clients somewhere: in this process, in workers, or on a network."""

    def roster(self, rnd: int) -> Roster:
        """Who is here in a round. The server adds what it remembers of them."""
        ...

    def survey(self, clients: Ints, bank: Floats32, rnd: int) -> Survey:
        """Let clients try every model of the bank (models, P) on what is about to arrive first."""
        ...

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, told: Told | None = None
    ) -> Updates:
        """Let clients observe, remember and learn; the bank is (models, P). At least one job.

        Messages in `told` have a row per job.
        """
        ...
