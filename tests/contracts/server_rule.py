"""Contract of server rules."""

from __future__ import annotations

import numpy as np

from contracts.checkpoint import round_trip, to_comparable
from thalweg.aggregation import ServerRule

NUM_PARAMS = 6


def check_server_rule(rule: ServerRule) -> None:
    """Take a few steps with cohorts of several sizes."""
    fields = repr(rule)
    rng = np.random.default_rng(0)
    model = rng.normal(size=NUM_PARAMS).astype(np.float32)
    _check_zero_updates(rule, model)
    state = rule.init(NUM_PARAMS)
    for weights in ([1.0], [0.5, 0.5], [0.2, 0.0, 0.8], [0.1, 0.1], [1.0]):  # sums may be below one
        p = np.array(weights)
        deltas = rng.normal(scale=0.1, size=(len(p), NUM_PARAMS)).astype(np.float32)
        arguments = to_comparable([state, model, deltas, p])
        following, moved = rule.step(state, model, deltas, p)
        assert moved.shape == (NUM_PARAMS,), "the model keeps its size"
        assert moved.dtype == np.float32, "the model is in single precision"
        assert np.isfinite(moved).all(), "the model is finite"
        assert to_comparable([state, model, deltas, p]) == arguments, "arguments do not change"
        restored = round_trip(state, fresh=rule.init(NUM_PARAMS))
        assert to_comparable(restored) == to_comparable(state), "the state survives a checkpoint"
        again = rule.step(restored, model, deltas, p)
        assert to_comparable(list(again)) == to_comparable([following, moved]), (
            "equal arguments give equal results"
        )
        state, model = following, moved
    assert repr(rule) == fields, "a rule object does not change"


def _check_zero_updates(
    rule: ServerRule, model: np.ndarray[tuple[int], np.dtype[np.float32]]
) -> None:
    zeros = np.zeros((2, NUM_PARAMS), dtype=np.float32)
    _, moved = rule.step(rule.init(NUM_PARAMS), model, zeros, np.array([0.5, 0.5]))
    assert moved.tolist() == model.tolist(), "updates of zero do not change the model"
