"""Contract of robust rules."""

from __future__ import annotations

import numpy as np

from contracts.checkpoint import to_comparable
from thalweg.aggregation import CombinedUpdates, Robust
from thalweg.core.types import Floats, Floats32

NUM_PARAMS = 6
NUM_CLIENTS = 11


def check_robust(rule: Robust) -> None:
    """Check the rule with cohorts of several sizes, with equal and with hostile updates."""
    fields = repr(rule)
    rng = np.random.default_rng(0)
    for weights in (
        [1.0],
        [0.5, 0.5],
        [0.2, 0.0, 0.8],
        [0.1, 0.1],
        [0.1] * 4,
        [1 / 11] * NUM_CLIENTS,
    ):
        p = np.array(weights)
        deltas = rng.normal(scale=0.1, size=(len(p), NUM_PARAMS)).astype(np.float32)
        _check_result(rule, deltas, p)
        _check_agreement(rule, deltas[:1], p)
    _check_zero_weights(rule)
    _check_order_of_clients(rule, rng)
    _check_hostile(rule, rng)
    assert repr(rule) == fields, "a rule object does not change"


def step_of(combined: CombinedUpdates) -> Floats:
    """Return the step (P,) of a plain server rule."""
    return combined.weights @ combined.deltas.astype(np.float64)


def _check_result(rule: Robust, deltas: Floats32, weights: Floats) -> None:
    arguments = to_comparable([deltas, weights])
    combined = rule.combine(deltas, weights)
    assert to_comparable([deltas, weights]) == arguments, "arguments do not change"
    assert combined.deltas.shape == (len(combined.weights), NUM_PARAMS), "one weight per row"
    assert combined.deltas.dtype == np.float32, "updates are in single precision"
    assert np.isfinite(combined.deltas).all(), "updates are finite"
    assert (combined.weights >= 0).all(), "weights are not negative"
    if len(combined.weights):
        assert np.isclose(combined.weights.sum(), weights.sum()), "the sum of the weights is kept"
    assert all(count > 0 for count in combined.extra_metrics.values()), (
        "metrics count events that happened"
    )
    again = rule.combine(deltas, weights)
    assert to_comparable(list(again[:2])) == to_comparable(list(combined[:2])), (
        "equal arguments give equal results"
    )


def _check_agreement(rule: Robust, delta: Floats32, weights: Floats) -> None:
    """If all updates are equal, the step is that update."""
    combined = rule.combine(np.repeat(delta, len(weights), axis=0), weights)
    if len(combined.weights):
        expected = delta[0] * weights.sum()
        np.testing.assert_allclose(step_of(combined), expected, rtol=1e-5)


def _check_zero_weights(rule: Robust) -> None:
    combined = rule.combine(np.ones((3, NUM_PARAMS), dtype=np.float32), np.zeros(3))
    assert not step_of(combined).any(), "updates of weight zero have no effect"


def _check_order_of_clients(rule: Robust, rng: np.random.Generator) -> None:
    deltas = rng.normal(size=(NUM_CLIENTS, NUM_PARAMS)).astype(np.float32)
    weights = rng.random(NUM_CLIENTS)
    order = rng.permutation(NUM_CLIENTS)
    there, back = rule.combine(deltas, weights), rule.combine(deltas[order], weights[order])
    np.testing.assert_allclose(step_of(there), step_of(back), rtol=1e-5, atol=1e-6)


def _check_hostile(rule: Robust, rng: np.random.Generator) -> None:
    """Two of eleven hostile clients cannot make the step longer than that of an honest client."""
    honest = rng.normal(scale=0.1, size=(NUM_CLIENTS, NUM_PARAMS)).astype(np.float32)
    farthest = float(np.linalg.norm(honest, axis=1).max())
    weights = np.full(NUM_CLIENTS, 1 / NUM_CLIENTS)
    for attack in (1e30, -1e30, 3e38, 50.0):
        deltas = honest.copy()
        deltas[[2, 7]] = attack
        combined = rule.combine(deltas, weights)
        limit = max(farthest, getattr(rule, "bound", None) or 0.0)
        assert float(np.linalg.norm(step_of(combined))) <= limit * (1 + 1e-6), (
            "hostile updates are bounded"
        )
