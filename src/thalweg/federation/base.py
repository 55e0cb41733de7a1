"""The interface between the server and its clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from thalweg.core.capabilities import Broadcast
from thalweg.core.types import Floats32, Ints, Job, Roster, SurveyResponses, Updates

SurveyStage = Literal["sample_weights", "selection", "bank", "session_start"]


class Federation(Protocol):
    """Clients in this process, in worker processes or on a network."""

    def roster(self, rnd: int) -> Roster:
        """Return which clients are present in a round.

        The server fills in `times_present` and `known`.
        """
        ...

    def survey(
        self, clients: Ints, stage: SurveyStage, bank: Floats32, rnd: int
    ) -> SurveyResponses:
        """Send the survey of a stage's policy to clients and return one row for each.

        The bank is (models, P). There is at least one client. A row of nan means that the client
        had no values or did not respond in time.
        """
        ...

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        """Run the client part of a round for at least one job; the bank is (models, P).

        `broadcast` has one row per job. The result has a row for every job whose client responded
        in time, so it may have fewer rows than jobs. It may contain updates of earlier rounds
        (`Updates.trained_in`). The server rejects rows that it did not ask for, second rows of the
        same job, and late rows that the recipe does not accept.
        """
        ...


@runtime_checkable
class KnowsConcepts(Protocol):
    """A simulated federation, which has the ground truth about its clients."""

    def true_concepts(self, rnd: int) -> Ints:
        """Return (N,) the true concept of every client at the start of a round."""
        ...
