"""Contract of runs: resumed runs have the same bits, and both engines agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from thalweg.engine.loop import Progress, ProgressCallback, Result


class Interruption(Exception):
    """Raised by `watch` to interrupt a run."""


def interrupt_after(rounds: int) -> ProgressCallback:
    """Return a `watch` that interrupts a run after some rounds."""

    def watch(progress: Progress) -> None:
        if progress.rounds_done == rounds:
            raise Interruption

    return watch


def check_same_bits(whole: Result, resumed: Result) -> None:
    """Check that a run and a resumed run have the same model and metrics."""
    assert np.array_equal(whole.model, resumed.model)
    assert _without_time(whole) == _without_time(resumed)


def check_engines_agree(fast: Result, slow: Result) -> None:
    """Check that counts are equal, and models and losses are equal up to rounding."""
    np.testing.assert_allclose(fast.model, slow.model, rtol=2e-3, atol=2e-5)
    for ours, theirs in zip(fast.metrics, slow.metrics, strict=True):
        assert ours["cohort"] == theirs["cohort"]
        assert ours.get("models", 1) == theirs.get("models", 1)
        assert ours.get("loss", 0) == pytest.approx(theirs.get("loss", 0), rel=1e-3)
        assert (ours["bytes_up"], ours["bytes_down"]) == (theirs["bytes_up"], theirs["bytes_down"])


def _without_time(result: Result) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if "seconds" not in name}
        for row in result.metrics
    ]
