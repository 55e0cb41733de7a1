from __future__ import annotations

import numpy as np

from contracts.examples import some_roster
from thalweg.selection.base import cohort_size, last_known


def test_a_share_of_those_who_are_here_at_least_one() -> None:
    assert [cohort_size(0.3, n) for n in (0, 1, 2, 10, 20)] == [0, 1, 1, 3, 6]
    assert cohort_size(1.0, 7) == 7


def test_what_is_known_is_one_number_per_client_however_it_came() -> None:
    known = {"reported": np.array([1.0, np.nan]), "answered": np.array([[2.0], [np.nan]])}
    roster = some_roster([0, 1], 2, known=known)
    assert last_known(roster, "reported")[0] == 1.0
    assert last_known(roster, "answered").shape == (2,)
    assert last_known(roster, "answered")[0] == 2.0
    assert np.isnan(last_known(roster, "never heard of")).all()
