"""What every run promises: interruptions leave no trace, and both engines agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from thalweg.engine.loop import Progress, ProgressCallback, Result


class Interruption(Exception):
    """The run is interrupted here."""


def interrupt_after(rounds: int) -> ProgressCallback:
    """For `watch`: ends a run as a user would, once some rounds are done."""

    def watch(progress: Progress) -> None:
        if progress.rounds_done == rounds:
            raise Interruption

    return watch


def check_same_bits(whole: Result, resumed: Result) -> None:
    """A run in one go, and one that was interrupted and resumed."""
    assert np.array_equal(whole.model, resumed.model)
    assert _without_time(whole) == _without_time(resumed)


def check_engines_agree(fast: Result, slow: Result) -> None:
    """The same plan on both engines: all that is counted is equal, and so is the rest, up to rounding."""
    np.testing.assert_allclose(fast.model, slow.model, rtol=2e-3, atol=2e-5)
    for ours, theirs in zip(fast.metrics, slow.metrics, strict=True):
        assert ours["cohort"] == theirs["cohort"]
        assert ours.get("models", 1) == theirs.get("models", 1)
        assert ours.get("loss", 0) == pytest.approx(theirs.get("loss", 0), rel=1e-3)
        assert (ours["bytes_up"], ours["bytes_down"]) == (theirs["bytes_up"], theirs["bytes_down"])


def _without_time(result: Result) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if name != "seconds"} for row in result.metrics
    ]
