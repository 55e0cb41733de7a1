"""When a bank looks at its clients anew."""

from __future__ import annotations

import numpy as np

from thalweg.bank.base import require_cohort
from thalweg.core.types import Roster


def is_step_start(every: int | None, roster: Roster) -> bool:
    """Does a time step begin with this round?

    Every so many rounds; none: in the first round, and when somebody who was alarmed is in the cohort.
    """
    if every is not None:
        return roster.rnd % every == 0
    alarmed = roster.present[:0] if roster.alarmed is None else roster.alarmed
    return roster.rnd == 0 or bool(np.isin(alarmed, require_cohort(roster)).any())
