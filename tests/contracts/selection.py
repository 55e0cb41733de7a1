"""What every selection rule promises."""

from __future__ import annotations

import numpy as np

from contracts.examples import some_roster
from thalweg.core.types import Roster
from thalweg.selection import Selection

REPORTED = {"shift_score": np.array([0.5, np.nan, 1.5, np.nan, 0.25, 2.0])}
ROSTERS = (
    some_roster([], 6),
    some_roster([3], 6),
    some_roster([0, 2, 5], 6),
    some_roster(range(6), 6, rnd=0, times_here=[0] * 6),
    some_roster(range(6), 6, known=REPORTED),
    some_roster(range(0, 1000, 2), 1000, rnd=99),
)


def check_selection(rule: Selection) -> None:
    """Ask the rule in rounds with nobody, somebody and everybody, before and after reports."""
    written = repr(rule)
    for roster in ROSTERS:
        _check_choice(rule, roster)
    assert repr(rule) == written, "a rule remembers nothing itself"


def _check_choice(rule: Selection, roster: Roster) -> None:
    here, times_here = roster.here.copy(), roster.times_here.copy()
    for seed in range(20):
        chosen = rule.choose(roster, np.random.default_rng(seed))
        assert chosen.ndim == 1, "ids of clients"
        assert chosen.dtype == np.int64, "ids are whole numbers"
        assert set(chosen.tolist()) <= set(here.tolist()), "only clients that are here"
        assert len(set(chosen.tolist())) == len(chosen), "nobody twice"
        again = rule.choose(roster, np.random.default_rng(seed))
        assert chosen.tolist() == again.tolist(), "same generator, same choice"
    assert roster.here.tolist() == here.tolist(), "what it looks at is untouched"
    assert roster.times_here.tolist() == times_here.tolist(), "what it looks at is untouched"
