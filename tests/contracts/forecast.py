"""What every prediction oracle promises."""

from __future__ import annotations

from typing import Any

import numpy as np

from contracts.checkpoint import round_trip, to_comparable
from thalweg.core.types import Floats, Outlook
from thalweg.forecast import Forecast, RecognisesStates

TRUTHS = (
    np.array([0.5, 0.3, 0.2]),
    np.array([0.0, 1.0, 0.0]),
    np.array([1.0]),
    np.full(60, 1 / 60),
)
BATCHES = (  # samples per class that arrive, tick after tick
    [0, 0, 0, 0],
    [8, 0, 0, 0],
    [8, 0, 0, 0],
    [2, 2, 2, 2],
    [0, 0, 9, 0],
    [0, 0, 0, 0],
    [0, 0, 9, 0],
    [1, 7, 0, 0],
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
        if isinstance(oracle, RecognisesStates):
            _check_recognising(oracle, oracle, truth)
        else:
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
    assert to_comparable(state) == to_comparable(again), "same generator, same oracle"
    fresh = oracle.init(truth, np.random.default_rng(4))
    for seen in (*ROUNDS, list(range(num_states))):
        outlook = oracle.outlook(state, histograms, importance)
        _check_outlook(outlook, num_states)
        assert outlook.importance.tolist() == importance.tolist(), "importance is passed on"
        # Only state 0 is skewed.
        assert (outlook.heterogeneity[1:] <= outlook.heterogeneity[0]).all(), "skewed is worse"
        assert outlook.heterogeneity[0] > 0, "skewed is bad"
        assert to_comparable(oracle.outlook(state, histograms, importance)) == to_comparable(
            outlook
        ), "same question, same answer"
        restored = round_trip(state, fresh)
        assert to_comparable(restored) == to_comparable(state), "a checkpoint restores it"
        assert to_comparable(oracle.outlook(restored, histograms, importance)) == to_comparable(
            outlook
        )
        before = to_comparable(state)
        following = oracle.observe(state, np.array(seen, dtype=np.int64))
        assert to_comparable(state) == before, "the old state is untouched"
        state = following
    assert truth.tolist() == given.tolist(), "what it looks at is untouched"


def _check_recognising(oracle: Forecast, recognises: RecognisesStates, truth: Floats) -> None:
    """The same for an oracle with states of its own, which may become more."""
    histograms = np.full((len(truth), 4), 0.25)
    importance = np.full(len(truth), 1 / len(truth))
    fresh: Any = oracle.init(truth, np.random.default_rng(4))
    state: Any = oracle.init(truth, np.random.default_rng(3))
    again = oracle.init(truth, np.random.default_rng(3))
    assert to_comparable(state) == to_comparable(again), "same generator, same oracle"
    num_states = len(oracle.outlook(state, histograms, importance).probs)
    for _ in range(3):  # rounds
        seen = []
        for batch in BATCHES:
            histogram, before = np.array(batch), to_comparable(state)
            following, name = recognises.recognise(state, histogram)
            answer = to_comparable((following, name))
            assert to_comparable(state) == before, "the old state is untouched"
            assert histogram.tolist() == batch, "what it looks at is untouched"
            restored = round_trip(state, fresh)
            assert to_comparable(restored) == before, "a checkpoint restores it"
            assert to_comparable(recognises.recognise(restored, histogram)) == answer, (
                "same question, same answer"
            )
            outlook = oracle.outlook(following, histograms, importance)
            assert num_states <= len(outlook.probs) <= num_states + 1, "one state at a time"
            num_states = len(outlook.probs)
            assert isinstance(name, int), "a state is a whole number"
            assert 0 <= name < num_states, "the outlook has the state that was named"
            _check_outlook(outlook, num_states)
            assert abs(outlook.importance.sum() - 1) < 1e-9, "importances sum to one"
            signatures = recognises.signatures(following, histograms)
            assert signatures.shape == (num_states, 4), "a signature per state"
            assert abs(signatures.sum(axis=1) - 1).max() < 1e-9, "signatures are shares"
            state, seen = following, [*seen, name]
        before = to_comparable(state)
        following = oracle.observe(state, np.array(seen, dtype=np.int64))
        assert to_comparable(state) == before, "the old state is untouched"
        assert to_comparable(
            oracle.observe(round_trip(state, fresh), np.array(seen))
        ) == to_comparable(following)
        state = following
    nothing = oracle.observe(fresh, np.empty(0, dtype=np.int64))
    _check_outlook(oracle.outlook(nothing, histograms, importance), 1)


def _check_outlook(outlook: Outlook, num_states: int) -> None:
    for part in outlook:
        assert part.shape == (num_states,), "one number per state"
        assert part.dtype == np.float64, "in double precision"
        assert np.isfinite(part).all(), "finite"
        assert (part >= 0).all(), "not negative"
    assert abs(outlook.probs.sum() - 1) < 1e-9, "probabilities sum to one"
