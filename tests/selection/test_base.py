from __future__ import annotations

import numpy as np

from contracts.examples import some_roster
from thalweg.selection import cohort_size, last_known


def test_cohort_size_is_the_rounded_share_and_at_least_one() -> None:
    assert [cohort_size(0.3, n) for n in (0, 1, 2, 10, 20)] == [0, 1, 1, 3, 6]
    assert cohort_size(1.0, 7) == 7


def test_last_known_accepts_reports_and_survey_answers() -> None:
    known = {"reported": np.array([1.0, np.nan]), "surveyed": np.array([[2.0], [np.nan]])}
    roster = some_roster([0, 1], 2, known=known)
    assert last_known(roster, "reported")[0] == 1.0
    assert last_known(roster, "surveyed").shape == (2,)
    assert last_known(roster, "surveyed")[0] == 2.0
    assert np.isnan(last_known(roster, "never sent")).all()
