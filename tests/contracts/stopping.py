"""What every stopping promises."""

from __future__ import annotations

import numpy as np

from thalweg.local import Stopping


def check_stopping(stopping: Stopping) -> None:
    """Show it memories of several sizes, and ticks that gained much or nothing."""
    written = repr(stopping)
    for num_rows in (0, 1, 2, 9, 10, 11, 100):
        aside = stopping.hold_out(num_rows)
        assert np.isin(aside, np.arange(num_rows)).all(), "positions in the memory"
        assert (np.diff(aside) > 0).all(), "each of them once, ascending"
        assert num_rows < 2 or len(aside) < num_rows, "something is left to learn from"
        assert stopping.hold_out(num_rows).tolist() == aside.tolist(), "same answer again"
    for tick in (1, 2, 50):
        verdicts = [stopping.should_stop(1.0, after, tick) for after in (0.0, 0.9, 0.999, 1.0, 2.0)]
        assert verdicts == sorted(verdicts), "who gained more goes on rather than who gained less"
        assert verdicts == [
            stopping.should_stop(1.0, after, tick) for after in (0.0, 0.9, 0.999, 1.0, 2.0)
        ], "same verdict again"
    assert repr(stopping) == written, "a stopping remembers nothing itself"
