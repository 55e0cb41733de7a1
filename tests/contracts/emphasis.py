"""What every emphasis promises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from contracts.checkpoint import plain
from contracts.examples import some_roster
from contracts.views import SomeView
from thalweg.core.talk import Asks
from thalweg.core.types import Holding, Supplies
from thalweg.emphasis import Assigns, Emphasis

SUPPLIES = Supplies(
    total=np.array([100.0, 50.0, 20.0, 0.0]),
    is_historical=np.array([True, True, False, False]),
    rounds=np.array([10.0, 10.0, 10.0, 0.0]),
)


def check_emphasis(emphasis: Emphasis) -> None:
    """Let it weigh memories of several kinds, and share out what it has at the server."""
    written = repr(emphasis)
    for held in (0, 1, 5):
        for assigned in (0.0, 0.25, 3.0):
            holding = Holding(np.arange(held) + 1, np.arange(held) % 2, assigned)
            asked = plain(holding)
            weights = emphasis.weigh(holding)
            assert weights.shape == (held,), "a weight for every sample"
            assert np.isfinite(weights).all(), "finite"
            assert (weights >= 0).all(), "not negative"
            assert emphasis.weigh(holding).tolist() == weights.tolist(), "same answer again"
            assert plain(holding) == asked, "what it looks at is untouched"
    if isinstance(emphasis, Assigns):
        _check_server(emphasis)
    assert repr(emphasis) == written, "an emphasis remembers nothing itself"


def _check_server(emphasis: Assigns) -> None:
    roster = replace(some_roster([0, 2], 4), supplies=SUPPLIES)
    if isinstance(emphasis, Asks):
        asked = emphasis.whom(roster, np.random.default_rng(0))
        assert np.isin(asked, roster.here).all(), "only clients that are here are asked"
        if len(asked):
            _check_assigned(emphasis, roster)  # nobody has answered yet
            known = {}
            for client in asked.tolist():
                _, words = emphasis.answer(SomeView(seed=client))
                for name, vector in words.items():
                    known.setdefault(name, np.full((4, len(vector)), np.nan))[client] = vector
            roster = replace(roster, known=known)
    _check_assigned(emphasis, roster)


def _check_assigned(emphasis: Assigns, roster) -> None:  # type: ignore[no-untyped-def]
    assigned = emphasis.assign(roster, num_params=7)
    assert assigned.shape == (4,), "a number for every client"
    assert np.isfinite(assigned).all(), "finite"
    assert (assigned >= 0).all(), "not negative"
    assert assigned.any(), "not for nobody"
    assert assigned[3] == 0, "nothing for a client without data"
