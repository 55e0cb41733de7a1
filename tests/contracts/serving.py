"""Contract of serving policies."""

from __future__ import annotations

import numpy as np

from contracts.checkpoint import round_trip, to_comparable
from thalweg.serving import (
    ADJUSTED,
    OPTIONAL,
    AdjustsModel,
    ArrivedSamples,
    ServesTogether,
    Serving,
)

NAMES = ("latest", "trained", "adjusted", "last_label", "model 0", "model 1")


def some_samples(seed: int, number: int, num_predictors: int, width: int = 3) -> ArrivedSamples:
    """Return random class probabilities, or numbers if the width is 1; some are missing."""
    rng = np.random.default_rng(seed)
    outputs = rng.random((num_predictors, number, width)) + 0.01
    is_regression = width == 1
    if not is_regression:
        outputs /= outputs.sum(axis=2, keepdims=True)
    outputs[1:, rng.random(number) < 0.2] = np.nan  # the latest model is always available
    names = [name for name in NAMES if not (is_regression and name == ADJUSTED)][:num_predictors]
    if ADJUSTED in names:
        outputs[names.index(ADJUSTED)] = np.nan  # the policy computes it
    targets = rng.normal(size=(number, 1)) if is_regression else rng.integers(0, width, number)
    return ArrivedSamples(tuple(names), outputs, targets)


def check_serving(serving: Serving) -> None:
    """Check the predictions and weights of a client that learns of new predictors."""
    assert set(serving.predictors) <= set(OPTIONAL), "known predictors"
    written = repr(serving)
    for width in (3, 1):
        state = serving.init()
        _check_weights(serving, state, some_samples(0, 0, 3, width).names)
        for seed, (number, num_predictors) in enumerate([(0, 3), (1, 3), (7, 3), (20, 5), (4, 5)]):
            samples = some_samples(seed, number, num_predictors, width)
            before, old = to_comparable(samples), to_comparable(state)
            after, predicted = serving.serve(state, samples)
            again, repeated = serving.serve(state, samples)
            assert to_comparable(samples) == before, "the samples do not change"
            assert to_comparable(state) == old, "the state is not changed in place"
            assert to_comparable(after) == to_comparable(again), "serving is deterministic"
            assert np.array_equal(predicted, repeated), "predictions are deterministic"
            assert predicted.shape == samples.targets.shape, "one prediction per sample"
            assert np.isfinite(predicted).all(), "finite"
            if width > 1:
                assert ((predicted >= 0) & (predicted < width)).all(), "classes"
            _check_weights(serving, after, samples.names)
            if isinstance(serving, AdjustsModel) and width > 1:
                offsets = serving.get_offsets(after)
                assert offsets.shape in ((0,), (width,)), "one offset per class, or none yet"
                assert np.isfinite(offsets).all(), "finite offsets"
            state = round_trip(after, serving.init())
        _check_knows_no_targets(serving, state, width)
    if isinstance(serving, ServesTogether):
        _check_serves_together(serving)
    assert repr(serving) == written, "a policy object does not change"


def _check_weights(serving: Serving, state: object, names: tuple[str, ...]) -> None:
    for available in (np.ones(len(names), bool), np.arange(len(names)) != 1):
        weights = serving.mix(state, names, available)
        assert weights.shape == (len(names),), "one weight per predictor"
        assert (weights >= 0).all(), "not negative"
        assert np.isclose(weights.sum(), 1), "the sum is one"
        assert not weights[~available].any(), "unavailable predictors have no weight"


def _check_serves_together(serving: Serving) -> None:
    """Check that clients together have the states and predictions of each one alone."""
    assert isinstance(serving, ServesTogether)
    start = serving.init()
    states = [start, serving.serve(start, some_samples(1, 9, 4))[0], start]
    parts = [some_samples(seed, number, 5) for seed, number in ((2, 25), (3, 14), (4, 1))]
    samples = parts[0]._replace(
        outputs=np.concatenate([part.outputs for part in parts], axis=1),
        targets=np.concatenate([part.targets for part in parts]),
    )
    found, predicted = serving.serve_together(states, samples, [25, 14, 1])
    alone = [serving.serve(state, part) for state, part in zip(states, parts, strict=True)]
    assert to_comparable(found) == to_comparable([state for state, _ in alone]), "the same states"
    assert predicted.tolist() == [each for _, mine in alone for each in mine.tolist()]


def _check_knows_no_targets(serving: Serving, state: object, width: int) -> None:
    samples = some_samples(9, 6, 5, width)
    other = samples.targets.copy()
    other[3:] = 2 - other[3:]
    _, first = serving.serve(state, samples)
    _, second = serving.serve(state, samples._replace(targets=other))
    assert np.array_equal(first[:4], second[:4]), "a prediction precedes its target"
