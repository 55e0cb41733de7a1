"""The contract of forecasts."""

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


def check_forecast(forecast: Forecast) -> None:
    """Run the forecast for several kinds of clients for a few rounds."""
    written = repr(forecast)
    for truth in TRUTHS:
        if isinstance(forecast, RecognisesStates):
            _check_recognising(forecast, forecast, truth)
        else:
            _check_client(forecast, truth)
    assert repr(forecast) == written, "a forecast object does not change"


def _check_client(forecast: Forecast, truth: Floats) -> None:
    num_states = len(truth)
    histograms = np.full((num_states, 4), 0.25)
    histograms[0] = [1.0, 0.0, 0.0, 0.0]  # only one class
    importance = np.arange(1, num_states + 1) / (num_states * (num_states + 1) / 2)
    given = truth.copy()
    state: Any = forecast.init(truth, np.random.default_rng(3))
    again = forecast.init(truth, np.random.default_rng(3))
    assert to_comparable(state) == to_comparable(again), "same generator, same state"
    fresh = forecast.init(truth, np.random.default_rng(4))
    for seen in (*ROUNDS, list(range(num_states))):
        outlook = forecast.outlook(state, histograms, importance)
        _check_outlook(outlook, num_states)
        assert outlook.importance.tolist() == importance.tolist(), (
            "the importance is returned unchanged"
        )
        # Only state 0 is skewed.
        assert (outlook.heterogeneity[1:] <= outlook.heterogeneity[0]).all(), (
            "the skewed state has the largest heterogeneity"
        )
        assert outlook.heterogeneity[0] > 0, "the heterogeneity of a skewed state is positive"
        assert to_comparable(forecast.outlook(state, histograms, importance)) == to_comparable(
            outlook
        ), "equal arguments give equal results"
        restored = round_trip(state, fresh)
        assert to_comparable(restored) == to_comparable(state), "a checkpoint restores the state"
        assert to_comparable(forecast.outlook(restored, histograms, importance)) == to_comparable(
            outlook
        )
        before = to_comparable(state)
        following = forecast.observe(state, np.array(seen, dtype=np.int64))
        assert to_comparable(state) == before, "the old state does not change"
        state = following
    assert truth.tolist() == given.tolist(), "arguments do not change"


def _check_recognising(forecast: Forecast, recognises: RecognisesStates, truth: Floats) -> None:
    """The same for a forecast with its own states, whose number may grow."""
    histograms = np.full((len(truth), 4), 0.25)
    importance = np.full(len(truth), 1 / len(truth))
    fresh: Any = forecast.init(truth, np.random.default_rng(4))
    state: Any = forecast.init(truth, np.random.default_rng(3))
    again = forecast.init(truth, np.random.default_rng(3))
    assert to_comparable(state) == to_comparable(again), "same generator, same state"
    num_states = len(forecast.outlook(state, histograms, importance).probs)
    for _ in range(3):  # rounds
        seen = []
        for batch in BATCHES:
            histogram, before = np.array(batch), to_comparable(state)
            following, name = recognises.recognise(state, histogram)
            expected_result = to_comparable((following, name))
            assert to_comparable(state) == before, "the old state does not change"
            assert histogram.tolist() == batch, "arguments do not change"
            restored = round_trip(state, fresh)
            assert to_comparable(restored) == before, "a checkpoint restores the state"
            assert to_comparable(recognises.recognise(restored, histogram)) == expected_result, (
                "equal arguments give equal results"
            )
            outlook = forecast.outlook(following, histograms, importance)
            assert num_states <= len(outlook.probs) <= num_states + 1, (
                "at most one state is added per tick"
            )
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
        following = forecast.observe(state, np.array(seen, dtype=np.int64))
        assert to_comparable(state) == before, "the old state does not change"
        assert to_comparable(
            forecast.observe(round_trip(state, fresh), np.array(seen))
        ) == to_comparable(following)
        state = following
    nothing = forecast.observe(fresh, np.empty(0, dtype=np.int64))
    _check_outlook(forecast.outlook(nothing, histograms, importance), 1)


def _check_outlook(outlook: Outlook, num_states: int) -> None:
    assert outlook.deviations is None, "added by the client"
    for part in outlook:
        if part is None:
            continue
        assert part.shape == (num_states,), "one number per state"
        assert part.dtype == np.float64, "in double precision"
        assert np.isfinite(part).all(), "finite"
        assert (part >= 0).all(), "not negative"
    assert abs(outlook.probs.sum() - 1) < 1e-9, "probabilities sum to one"
    if outlook.variance is not None:
        largest = outlook.probs * (1 - outlook.probs)  # of a number between 0 and 1
        assert (outlook.variance <= largest + 1e-12).all(), "a variance of probabilities"
