"""The whole boundary between an algorithm and the place where its clients live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from thalweg.core.capabilities import Broadcast
from thalweg.core.types import Floats32, Ints, Job, Roster, SurveyResponses, Updates

SurveyStage = Literal["sample_weights", "selection", "bank"]


class Federation(Protocol):
    """Clients somewhere: in this process, in workers, or on a network."""

    def roster(self, rnd: int) -> Roster:
        """Who is here in a round. The server adds what it remembers of them."""
        ...

    def survey(
        self, clients: Ints, stage: SurveyStage, bank: Floats32, rnd: int
    ) -> SurveyResponses:
        """What clients answer to the question of a stage's policy (`core.talk.Surveys`), a row for each.

        The bank is (models, P). Nobody trains. At least one client. A row of nan: this client had nothing to
        say, or was not heard in time.
        """
        ...

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        """Let clients observe, remember and learn; the bank is (models, P). At least one job.

        Messages in `broadcast` have a row per job. The result has a row for every job whose client was heard in
        time, so there may be fewer rows than jobs, or none; who was not heard has no say in this round. Rows of
        earlier rounds may be among them (`Updates.trained_in`). The server leaves out rows that it did not ask
        for, second rows of the same job, and late ones that the recipe does not want.
        """
        ...
