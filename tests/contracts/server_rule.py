"""What every server rule promises."""

from __future__ import annotations

import numpy as np

from contracts.checkpoint import round_trip, to_comparable
from thalweg.aggregation import ServerRule

NUM_PARAMS = 6


def check_server_rule(rule: ServerRule) -> None:
    """Let the rule make a few steps with cohorts of several sizes."""
    written = repr(rule)
    rng = np.random.default_rng(0)
    model = rng.normal(size=NUM_PARAMS).astype(np.float32)
    _check_standstill(rule, model)
    state = rule.init(NUM_PARAMS)
    for weights in ([1.0], [0.5, 0.5], [0.2, 0.0, 0.8], [0.1, 0.1], [1.0]):  # may be below one
        p = np.array(weights)
        deltas = rng.normal(scale=0.1, size=(len(p), NUM_PARAMS)).astype(np.float32)
        asked = to_comparable([state, model, deltas, p])
        following, moved = rule.step(state, model, deltas, p)
        assert moved.shape == (NUM_PARAMS,), "a model of the same size"
        assert moved.dtype == np.float32, "in single precision"
        assert np.isfinite(moved).all(), "finite"
        assert to_comparable([state, model, deltas, p]) == asked, "what it looks at is untouched"
        restored = round_trip(state, fresh=rule.init(NUM_PARAMS))
        assert to_comparable(restored) == to_comparable(state), "a checkpoint restores it"
        again = rule.step(restored, model, deltas, p)
        assert to_comparable(list(again)) == to_comparable([following, moved]), (
            "same question, same answer"
        )
        state, model = following, moved
    assert repr(rule) == written, "a rule remembers nothing itself"


def _check_standstill(
    rule: ServerRule, model: np.ndarray[tuple[int], np.dtype[np.float32]]
) -> None:
    nothing = np.zeros((2, NUM_PARAMS), dtype=np.float32)
    _, moved = rule.step(rule.init(NUM_PARAMS), model, nothing, np.array([0.5, 0.5]))
    assert moved.tolist() == model.tolist(), "if nobody has moved, the model stays"
