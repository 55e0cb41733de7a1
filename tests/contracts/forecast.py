"""What every prediction oracle promises."""

from __future__ import annotations

from typing import Any

import numpy as np

from contracts.checkpoint import plain, stored
from thalweg.core.types import Floats, Outlook
from thalweg.forecast import Forecast

TRUTHS = (
    np.array([0.5, 0.3, 0.2]),
    np.array([0.0, 1.0, 0.0]),
    np.array([1.0]),
    np.full(60, 1 / 60),
)
ROUNDS: tuple[list[int], ...] = (
    [],
    [0],
    [0, 0, 0, 0, 0],
)  # states seen, as far as there are as many


def check_forecast(oracle: Forecast) -> None:
    """Let the oracle watch clients of several kinds for a few rounds."""
    written = repr(oracle)
    for truth in TRUTHS:
        _check_client(oracle, truth)
    assert repr(oracle) == written, "an oracle remembers nothing itself"


def _check_client(oracle: Forecast, truth: Floats) -> None:
    num_states = len(truth)
    histograms = np.full((num_states, 4), 0.25)
    histograms[0] = [1.0, 0.0, 0.0, 0.0]  # as skewed as can be
    importance = np.arange(1, num_states + 1) / (num_states * (num_states + 1) / 2)
    given = truth.copy()
    state: Any = oracle.init(truth, np.random.default_rng(3))
    again = oracle.init(truth, np.random.default_rng(3))
    assert plain(state) == plain(again), "same generator, same oracle"
    fresh = oracle.init(truth, np.random.default_rng(4))
    for seen in (*ROUNDS, list(range(num_states))):
        outlook = oracle.outlook(state, histograms, importance)
        _check_outlook(outlook, importance, num_states)
        assert plain(oracle.outlook(state, histograms, importance)) == plain(outlook), (
            "same question, same answer"
        )
        restored = stored(state, fresh)
        assert plain(restored) == plain(state), "a checkpoint restores it"
        assert plain(oracle.outlook(restored, histograms, importance)) == plain(outlook)
        before = plain(state)
        following = oracle.observe(state, np.array(seen, dtype=np.int64))
        assert plain(state) == before, "the old state is untouched"
        state = following
    assert truth.tolist() == given.tolist(), "what it looks at is untouched"


def _check_outlook(outlook: Outlook, importance: Floats, num_states: int) -> None:
    for part in outlook:
        assert part.shape == (num_states,), "one number per state"
        assert part.dtype == np.float64, "in double precision"
        assert np.isfinite(part).all(), "finite"
        assert (part >= 0).all(), "not negative"
    assert abs(outlook.probs.sum() - 1) < 1e-9, "probabilities sum to one"
    assert outlook.importance.tolist() == importance.tolist(), "importance is passed on"
    # Only state 0 is skewed.
    assert (outlook.heterogeneity[1:] <= outlook.heterogeneity[0]).all(), "skewed is worse"
    assert outlook.heterogeneity[0] > 0, "skewed is bad"
