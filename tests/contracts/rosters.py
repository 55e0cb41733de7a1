"""Rosters that are easy to arrange models for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thalweg.core.types import OracleRoster, Roster


def roster_for(
    rnd: int,
    cohort: Sequence[int],
    *,
    num_clients: int = 6,
    present: Sequence[int] | None = None,
    surveyed: Sequence[int] | None = None,
    concepts: Sequence[int] | None = None,
    alarmed: Sequence[int] | None = None,
) -> Roster:
    """Return a roster; by default all clients are present and the cohort was surveyed."""

    def ids(values: Sequence[int] | None) -> np.ndarray | None:
        return None if values is None else np.array(values, dtype=np.int64)

    roster = Roster(
        rnd=rnd,
        present=np.arange(num_clients) if present is None else np.array(present, dtype=np.int64),
        availability=np.ones(num_clients),
        times_present=np.zeros(num_clients, dtype=np.int64),
        surveyed=ids(cohort if surveyed is None else surveyed),
        cohort=ids(cohort),
        alarmed=ids(alarmed),
    )
    return roster if concepts is None else OracleRoster(**vars(roster), concepts=ids(concepts))
