from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats32, ParamSlice
from thalweg.core.vectors import freeze
from thalweg.sessions.base import ProbeRound


class InitialModel(NamedTuple):
    """The model before anybody trained it."""

    sessions: int  # that have begun
    model: Floats32  # (P,)


@dataclass(frozen=True)
class Reset:
    """Begin with the model as it was drawn: nothing is learnt from earlier sessions.

    With a `session`, only that one begins anew and the others go on from the last model. The paper's baselines do
    so after the pilot sessions (`session=1` for one of them), where its own method has ``first_start="random"``.
    """

    session: int | None = None
    """Counted from 0; none: every one."""

    def __post_init__(self) -> None:
        check_ranges(self, session="[0, inf) or none")

    def init(self, model: Floats32, pieces: Sequence[ParamSlice]) -> InitialModel:
        return InitialModel(0, freeze(model))

    def choose_start(
        self, notes: InitialModel, last: Floats32, run_probe_round: ProbeRound
    ) -> tuple[InitialModel, Floats32]:
        is_reset = self.session is None or self.session == notes.sessions
        following = notes._replace(sessions=notes.sessions + 1)
        return following, notes.model.copy() if is_reset else last
