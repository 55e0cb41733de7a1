"""Contract of early stopping."""

from __future__ import annotations

import numpy as np

from thalweg.local import Stopping


def check_stopping(stopping: Stopping) -> None:
    """Check held-out positions for several memory sizes, and decisions for several gains."""
    written = repr(stopping)
    for num_rows in (0, 1, 2, 9, 10, 11, 100):
        held_out = stopping.hold_out(num_rows)
        assert np.isin(held_out, np.arange(num_rows)).all(), "positions are in the memory"
        assert (np.diff(held_out) > 0).all(), "positions are ascending and different"
        assert num_rows < 2 or len(held_out) < num_rows, "some samples are left for training"
        assert stopping.hold_out(num_rows).tolist() == held_out.tolist(), (
            "hold_out is deterministic"
        )
    for tick in (1, 2, 50):
        decisions = [
            stopping.should_stop(1.0, after, tick) for after in (0.0, 0.9, 0.999, 1.0, 2.0)
        ]
        assert decisions == sorted(decisions), "a smaller gain never prevents stopping"
        assert decisions == [
            stopping.should_stop(1.0, after, tick) for after in (0.0, 0.9, 0.999, 1.0, 2.0)
        ], "should_stop is deterministic"
    assert repr(stopping) == written, "a policy object does not change"
