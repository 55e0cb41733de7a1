"""Contract of session starts, and helpers for their tests."""

from __future__ import annotations

import numpy as np

from contracts.checkpoint import round_trip, to_comparable
from thalweg.core.types import Floats, Floats32, ParamSlice
from thalweg.sessions import JudgesModels, SessionStart

NUM_PARAMS = 7
PIECES = [
    ParamSlice("fc1.weight", 0, 3),
    ParamSlice("fc1.bias", 3, 4),
    ParamSlice("fc2.weight", 4, 7),
]
SESSIONS = 8


def vector(*values: float) -> Floats32:
    return np.array(values, dtype=np.float32)


def fail_probe_round(model: Floats32, lr_scale: float = 1.0) -> Floats32:
    raise AssertionError("no probe round is needed")


class FakeProbeRounds:
    """Probe rounds of clients that move any model towards their own goal."""

    def __init__(self, goal: Floats32) -> None:
        self.goal, self.calls = goal, 0

    def __call__(self, model: Floats32, lr_scale: float = 1.0) -> Floats32:
        self.calls += 1
        return model + np.float32(0.5 * lr_scale) * (self.goal - model)


def check_session_start(session_start: SessionStart) -> None:
    """Start some sessions, of which every third is similar to the one two before."""
    fields = repr(session_start)
    check_starts(session_start)
    policy: object = session_start
    if isinstance(policy, JudgesModels):
        check_judging(policy, session_start)
    assert repr(session_start) == fields, "a policy object does not change"


def check_starts(session_start: SessionStart) -> None:
    """Start the sessions with `choose_start`."""
    rng = np.random.default_rng(0)
    initial, *goals = rng.normal(size=(SESSIONS + 1, NUM_PARAMS)).astype(np.float32)
    goals = [goals[s - 2] if s % 3 == 2 else goal for s, goal in enumerate(goals)]
    state, last = session_start.init(initial.copy(), PIECES), initial
    for goal in goals:
        arguments = to_comparable([state, last])
        following, start = session_start.choose_start(state, last, FakeProbeRounds(goal))
        assert start.shape == (NUM_PARAMS,), "the model keeps its size"
        assert start.dtype == np.float32, "the model is in single precision"
        assert np.isfinite(start).all(), "the model is finite"
        assert to_comparable([state, last]) == arguments, "arguments do not change"
        restored = round_trip(state, fresh=session_start.init(initial.copy(), PIECES))
        again = session_start.choose_start(restored, last, FakeProbeRounds(goal))
        assert to_comparable(list(again)) == to_comparable([following, start]), (
            "the state survives a checkpoint"
        )
        kept = to_comparable(following)
        last = start + np.float32(0.9) * (goal - start)
        if start.flags.writeable:
            start += 1
        assert to_comparable(following) == kept, "the returned model is not part of the state"
        state = following


def check_judging(policy: JudgesModels, session_start: SessionStart) -> None:
    """Start the sessions with losses of the candidates: their distances to the goal."""
    rng = np.random.default_rng(0)
    initial, *goals = rng.normal(size=(SESSIONS + 1, NUM_PARAMS)).astype(np.float32)
    goals = [goals[s - 2] if s % 3 == 2 else goal for s, goal in enumerate(goals)]
    state, last = session_start.init(initial.copy(), PIECES), initial
    for number, goal in enumerate(goals):
        arguments = to_comparable([state, last])
        proposed, candidates = policy.propose_models(state, last)
        assert to_comparable([state, last]) == arguments, "arguments do not change"
        assert candidates.dtype == np.float32, "candidates are in single precision"
        assert candidates.shape == (len(candidates), NUM_PARAMS), "candidates are rows"
        assert 1 <= len(candidates) <= 32, "a message can hold the candidates"
        distances: Floats = np.linalg.norm(candidates - goal, axis=1).astype(np.float64)
        losses = np.stack([distances, distances + 1])[: number % 3]  # of two clients, one or none
        arguments = to_comparable([proposed, candidates, losses])
        following, start = policy.choose_model(proposed, candidates, losses)
        assert to_comparable([proposed, candidates, losses]) == arguments, "arguments do not change"
        if len(losses):
            assert np.array_equal(start, candidates[distances.argmin()]), "the lowest loss wins"
        else:
            assert np.array_equal(start, last), "without responses the latest model is chosen"
        restored = round_trip(state, fresh=session_start.init(initial.copy(), PIECES))
        again = policy.choose_model(policy.propose_models(restored, last)[0], candidates, losses)
        assert to_comparable(list(again)) == to_comparable([following, start]), (
            "the state survives a checkpoint"
        )
        kept = to_comparable(following)
        last = start + np.float32(0.9) * (goal - start)
        start += 1
        assert to_comparable(following) == kept, "the returned model is not part of the state"
        state = following if number != 4 else policy.skip_session(following)
