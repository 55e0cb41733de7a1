"""What every robust rule promises."""

from __future__ import annotations

import numpy as np

from contracts.checkpoint import to_comparable
from thalweg.aggregation import CombinedUpdates, Robust
from thalweg.core.types import Floats, Floats32

NUM_PARAMS = 6
NUM_CLIENTS = 11


def check_robust(rule: Robust) -> None:
    """Show the rule cohorts of several sizes, such that agree, and such that are hostile."""
    written = repr(rule)
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
        _check_answer(rule, deltas, p)
        _check_agreement(rule, deltas[:1], p)
    _check_zero_weights(rule)
    _check_order_of_clients(rule, rng)
    _check_hostile(rule, rng)
    assert repr(rule) == written, "a rule remembers nothing itself"


def step_of(left: CombinedUpdates) -> Floats:
    """(P,) where a plain server rule would go."""
    return left.weights @ left.deltas.astype(np.float64)


def _check_answer(rule: Robust, deltas: Floats32, weights: Floats) -> None:
    asked = to_comparable([deltas, weights])
    left = rule.combine(deltas, weights)
    assert to_comparable([deltas, weights]) == asked, "what it looks at is untouched"
    assert left.deltas.shape == (len(left.weights), NUM_PARAMS), "a weight for every row"
    assert left.deltas.dtype == np.float32, "in single precision"
    assert np.isfinite(left.deltas).all(), "finite"
    assert (left.weights >= 0).all(), "no negative weights"
    if len(left.weights):
        assert np.isclose(left.weights.sum(), weights.sum()), "as much weight as there was"
    assert all(count > 0 for count in left.extra_metrics.values()), "nothing is said of nothing"
    again = rule.combine(deltas, weights)
    assert to_comparable(list(again[:2])) == to_comparable(list(left[:2])), (
        "same question, same answer"
    )


def _check_agreement(rule: Robust, delta: Floats32, weights: Floats) -> None:
    """Where all say the same, that is what is done."""
    left = rule.combine(np.repeat(delta, len(weights), axis=0), weights)
    if len(left.weights):
        expected = delta[0] * weights.sum()
        np.testing.assert_allclose(step_of(left), expected, rtol=1e-5)


def _check_zero_weights(rule: Robust) -> None:
    left = rule.combine(np.ones((3, NUM_PARAMS), dtype=np.float32), np.zeros(3))
    assert not step_of(left).any(), "what counts nothing moves nothing"


def _check_order_of_clients(rule: Robust, rng: np.random.Generator) -> None:
    deltas = rng.normal(size=(NUM_CLIENTS, NUM_PARAMS)).astype(np.float32)
    weights = rng.random(NUM_CLIENTS)
    order = rng.permutation(NUM_CLIENTS)
    there, back = rule.combine(deltas, weights), rule.combine(deltas[order], weights[order])
    np.testing.assert_allclose(step_of(there), step_of(back), rtol=1e-5, atol=1e-6)


def _check_hostile(rule: Robust, rng: np.random.Generator) -> None:
    """Two of eleven cannot carry the model off, whatever they send."""
    honest = rng.normal(scale=0.1, size=(NUM_CLIENTS, NUM_PARAMS)).astype(np.float32)
    farthest = float(np.linalg.norm(honest, axis=1).max())
    weights = np.full(NUM_CLIENTS, 1 / NUM_CLIENTS)
    for attack in (1e30, -1e30, 3e38, 50.0):
        deltas = honest.copy()
        deltas[[2, 7]] = attack
        left = rule.combine(deltas, weights)
        limit = max(farthest, getattr(rule, "bound", None) or 0.0)
        assert float(np.linalg.norm(step_of(left))) <= limit * (1 + 1e-6), "no farther than honest"
