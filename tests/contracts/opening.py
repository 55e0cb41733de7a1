"""What every opening promises."""

from __future__ import annotations

import numpy as np

from contracts.checkpoint import plain, stored
from thalweg.aggregation import Opening
from thalweg.core.types import Floats32, Piece

NUM_PARAMS = 7
PIECES = [Piece("fc1.weight", 0, 3), Piece("fc1.bias", 3, 4), Piece("fc2.weight", 4, 7)]
SESSIONS = 8


class Pulled:
    """Rehearsals of clients that draw any model towards their own goal."""

    def __init__(self, goal: Floats32) -> None:
        self.goal, self.calls = goal, 0

    def __call__(self, model: Floats32, pace: float = 1.0) -> Floats32:
        self.calls += 1
        return model + np.float32(0.5 * pace) * (self.goal - model)


def check_opening(opening: Opening) -> None:
    """Let it open some sessions, of which every third resembles the one two before."""
    written = repr(opening)
    rng = np.random.default_rng(0)
    drawn, *goals = rng.normal(size=(SESSIONS + 1, NUM_PARAMS)).astype(np.float32)
    goals = [goals[s - 2] if s % 3 == 2 else goal for s, goal in enumerate(goals)]
    notes, last = opening.init(drawn.copy(), PIECES), drawn
    for goal in goals:
        asked = plain([notes, last])
        following, start = opening.open(notes, last, Pulled(goal))
        assert start.shape == (NUM_PARAMS,), "a model of the same size"
        assert start.dtype == np.float32, "in single precision"
        assert np.isfinite(start).all(), "finite"
        assert plain([notes, last]) == asked, "what it looks at is untouched"
        restored = stored(notes, fresh=opening.init(drawn.copy(), PIECES))
        again = opening.open(restored, last, Pulled(goal))
        assert plain(list(again)) == plain([following, start]), "a checkpoint restores it"
        kept = plain(following)
        last = start + np.float32(0.9) * (goal - start)
        if start.flags.writeable:
            start += 1
        assert plain(following) == kept, "what it gives away is not what it keeps"
        notes = following
    assert repr(opening) == written, "an opening remembers nothing itself"
