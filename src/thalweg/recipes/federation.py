"""The whole boundary between an algorithm and the place where its clients live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from thalweg.core.talk import Told
from thalweg.core.types import Answers, Floats32, Ints, Job, Roster, Updates

AskingStage = Literal["emphasis", "selection", "bank"]


class Federation(Protocol):
    """Clients somewhere: in this process, in workers, or on a network."""

    def roster(self, rnd: int) -> Roster:
        """Who is here in a round. The server adds what it remembers of them."""
        ...

    def survey(self, clients: Ints, stage: AskingStage, bank: Floats32, rnd: int) -> Answers:
        """What clients answer to the question of a stage's policy (`core.talk.Asks`), a row for each.

        The bank is (models, P). Nobody trains. At least one client.
        """
        ...

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, told: Told | None = None
    ) -> Updates:
        """Let clients observe, remember and learn; the bank is (models, P). At least one job.

        Messages in `told` have a row per job.
        """
        ...
