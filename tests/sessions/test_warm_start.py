from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from contracts.session_start import vector
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.core.types import Floats32, ParamSlice
from thalweg.core.vectors import is_frozen
from thalweg.sessions import WarmStart
from thalweg.sessions.warm_start import WarmStartState, older_of_nearest

RAW = WarmStart(distance="raw")
INITIAL = vector(-1, -1)


class FakeProbeRound:
    """Adds a constant to any model, and records models and learning rate scales."""

    def __init__(self, *by: float) -> None:
        self.by = vector(*by)
        self.calls: list[tuple[list[float], float]] = []

    def __call__(self, model: Floats32, lr_scale: float = 1.0) -> Floats32:
        self.calls.append((model.tolist(), lr_scale))
        return model + self.by


def run_sessions(
    session_start: WarmStart, ends: Sequence[Floats32], fingerprints: Sequence[Sequence[float]]
) -> tuple[WarmStartState, list[Floats32], list[FakeProbeRound]]:
    """Run sessions with these final models and fingerprints, and one more session."""
    state, last = session_start.init(INITIAL, []), INITIAL
    starts, moves = [], [FakeProbeRound(*by) for by in fingerprints]
    for run_probe_round, end in zip(moves, [*ends, INITIAL], strict=True):
        state, start = session_start.choose_start(state, last, run_probe_round)
        starts.append(start)
        last = end
    return state, starts, moves


PILOT = vector(10, 20)
TWO_MODELS = [PILOT, vector(1, 0), vector(0, 2)]
TWO_FINGERPRINTS = [(0, 0), (3, 4), (0, 1), (3, 3.5)]  # the pilot session has no probe round


def test_start_of_a_worked_example_is_the_weighted_mean_of_two_models() -> None:
    session_start = WarmStart(distance="raw", scale=1.0)
    _, starts, _ = run_sessions(session_start, TWO_MODELS, TWO_FINGERPRINTS)
    np.testing.assert_allclose(starts[-1], [0.967864, 0.064271], atol=1e-6)


def test_default_distance_and_scale_nearly_select_one_session() -> None:
    _, starts, _ = run_sessions(WarmStart(), TWO_MODELS, TWO_FINGERPRINTS)
    np.testing.assert_allclose(starts[-1], [0.998145, 2 * 0.001855], atol=2e-6)


def test_distances_and_weights_of_the_last_start_are_recorded() -> None:
    session_start = WarmStart(distance="raw", scale=1.0)
    state, _, _ = run_sessions(session_start, TWO_MODELS, TWO_FINGERPRINTS)
    recorded = session_start.extra_metrics(state)["blend"]
    assert recorded["sessions"] == [1, 2]
    assert recorded["distances"] == pytest.approx([0.5, 3.905125], abs=1e-6)
    assert recorded["weights"] == pytest.approx([0.967864, 0.032136], abs=1e-6)


def test_nothing_is_recorded_before_the_first_past_session() -> None:
    state, _, _ = run_sessions(RAW, [PILOT], [(0, 0), (1, 0)])
    assert RAW.extra_metrics(RAW.init(INITIAL, [])) == RAW.extra_metrics(state) == {}
    state, _, _ = run_sessions(RAW, TWO_MODELS[:2], [(0, 0), (1, 0), (1, 0)])
    recorded = RAW.extra_metrics(state)["blend"]
    assert recorded == {"sessions": [1], "distances": [0.0], "weights": [1.0]}


def test_recorded_sessions_are_those_that_are_stored() -> None:
    limited = WarmStart(distance="raw", history=2)
    state, _, _ = run_sessions(limited, [PILOT, *map(vector, range(4), range(4))], [(1, 0)] * 6)
    assert limited.extra_metrics(state)["blend"]["sessions"] == [3, 4]


def test_pilot_sessions_start_with_the_last_model_without_probe_rounds() -> None:
    session_start = WarmStart(pilot_sessions=2, distance="raw")
    _, starts, moves = run_sessions(session_start, [vector(2, 2), vector(4, 8)], [(9, 9)] * 3)
    assert [start.tolist() for start in starts[:2]] == [[-1, -1], [2, 2]]
    assert [len(each.calls) for each in moves] == [0, 0, 1]


def test_pilot_is_the_mean_of_the_final_models_of_pilot_sessions() -> None:
    session_start = WarmStart(pilot_sessions=2, distance="raw")
    state, starts, moves = run_sessions(session_start, [vector(2, 2), vector(4, 8)], [(0, 0)] * 3)
    assert state.pilot.tolist() == [3, 5]
    assert starts[2].tolist() == [3, 5]
    assert moves[2].calls[0][0] == [3, 5]
    assert state.pilots == []
    assert state.models == [], "models of pilot sessions are not averaged later"


def test_pilot_is_computed_once() -> None:
    ends = [PILOT, vector(1, 1), vector(2, 2), vector(3, 3)]
    state, _, moves = run_sessions(RAW, ends, [(0, 0)] * 5)
    assert state.pilot.tolist() == PILOT.tolist()
    assert [each.calls for each in moves[1:]] == [[(PILOT.tolist(), 0.5)]] * 4
    assert [model.tolist() for model in state.models] == [[1, 1], [2, 2], [3, 3]]


def test_without_pilot_sessions_the_pilot_is_the_initial_model() -> None:
    session_start = WarmStart(pilot_sessions=0, distance="raw")
    state, starts, moves = run_sessions(session_start, [vector(1, 1)], [(1, 0), (1, 0)])
    assert state.pilot.tolist() == INITIAL.tolist()
    assert [start.tolist() for start in starts] == [INITIAL.tolist(), [1, 1]]
    assert len(moves[0].calls) == 1


@pytest.mark.parametrize("first_start", ["random", "latest"])
def test_random_pilot_is_the_initial_model_and_changes_no_session(first_start: str) -> None:
    fields: dict[str, Any] = {"distance": "raw", "first_start": first_start}
    trained = run_sessions(WarmStart(**fields), TWO_MODELS, TWO_FINGERPRINTS)
    state, starts, moves = run_sessions(
        WarmStart(**fields, random_pilot=True), TWO_MODELS, TWO_FINGERPRINTS
    )
    assert state.pilot.tolist() == INITIAL.tolist()
    assert [each.calls for each in moves[1:]] == [[(INITIAL.tolist(), 0.5)]] * 3
    assert [model.tolist() for model in state.models] == [[1, 0], [0, 2]]
    np.testing.assert_array_equal(starts, trained[1])  # the fingerprints are the same here


def test_random_pilot_without_pilot_sessions_is_rejected() -> None:
    with pytest.raises(ConfigError, match="remove random_pilot"):
        WarmStart(pilot_sessions=0, random_pilot=True)


@pytest.mark.parametrize(
    ("first_start", "expected"), [("pilot", [3, 5]), ("latest", [4, 8]), ("random", [-1, -1])]
)
def test_first_session_after_the_pilot_starts_as_configured(
    first_start: Any, expected: Any
) -> None:
    session_start = WarmStart(pilot_sessions=2, first_start=first_start)
    state, starts, _ = run_sessions(session_start, [vector(2, 2), vector(4, 8)], [(1, 0)] * 3)
    assert starts[2].tolist() == expected
    assert state.initial_model.size == 0, "it is no longer needed"
    assert len(state.fingerprints) == 1


def test_second_session_after_the_pilot_starts_exactly_with_the_first_ones_model() -> None:
    end = vector(0.1, 1 / 3)
    _, starts, _ = run_sessions(RAW, [PILOT, end], [(0, 0), (1, 0), (0, 1)])
    assert starts[2].tobytes() == end.tobytes()


def test_fingerprint_is_the_change_of_all_probe_rounds() -> None:
    session_start = WarmStart(probe_rounds=3, probe_lr_scale=0.25, distance="raw")
    state, _, moves = run_sessions(session_start, [vector(10, 20)], [(0, 0), (1, 2)])
    assert state.fingerprints[0].tolist() == [3, 6]
    assert moves[1].calls == [([10, 20], 0.25), ([11, 22], 0.25), ([12, 24], 0.25)]


def test_scale_zero_gives_the_mean_and_infinity_the_nearest_model() -> None:
    even = WarmStart(distance="raw", scale=0.0)
    assert run_sessions(even, TWO_MODELS, TWO_FINGERPRINTS)[1][-1].tolist() == [0.5, 1]
    nearest = WarmStart(distance="raw", scale=math.inf)
    assert run_sessions(nearest, TWO_MODELS, TWO_FINGERPRINTS)[1][-1].tolist() == [1, 0]


def test_returning_clients_get_the_model_of_their_session() -> None:
    ends = [PILOT, vector(5, 5), vector(-7, 3), vector(0, 9)]
    session_start = WarmStart(scale=200.0)
    _, starts, _ = run_sessions(session_start, ends, [(0, 0), (1, 0), (0, 1), (-1, 0), (2, 0)])
    np.testing.assert_allclose(starts[-1], [5, 5], atol=1e-6)


def test_per_tensor_distances_ignore_biases() -> None:
    pieces = [ParamSlice("fc.weight", 0, 1), ParamSlice("fc.bias", 1, 2)]
    for distance, expected in [("per_tensor_unit", [1, 2]), ("global_unit", [3, 4])]:
        session_start = WarmStart(distance=distance, scale=1000.0)  # type: ignore[arg-type]
        state, last = session_start.init(INITIAL, pieces), INITIAL
        # The last session is similar in the weight to the first, in the bias to the second.
        for by, end in [
            ((0, 0), (0, 0)),
            ((1, 50), (1, 2)),
            ((-1, -50), (3, 4)),
            ((1, -50), (0, 0)),
        ]:
            state, start = session_start.choose_start(state, last, FakeProbeRound(*by))
            last = vector(*end)
        assert start.tolist() == pytest.approx(expected, abs=1e-5)


def test_net_with_biases_only_is_compared_as_one_vector() -> None:
    state = WarmStart().init(INITIAL, [ParamSlice("bias", 0, 2)])
    assert state.compared_slices.tolist() == [[0, 2]]


def test_worked_example_with_two_tensors() -> None:
    pieces = [
        ParamSlice("a.weight", 0, 2),
        ParamSlice("a.bias", 2, 3),
        ParamSlice("b.weight", 3, 6),
    ]
    session_start = WarmStart()
    fingerprints = [(0,) * 6, (3, 4, 9, 1, 0, 0), (0, 1, -5, 0, 1, 0), (3, 3.5, 7, 0.9, 0.1, 0)]
    ends = [np.zeros(6, dtype=np.float32), *np.eye(6, dtype=np.float32)[:3]]
    state = session_start.init(np.zeros(6, dtype=np.float32), pieces)
    last = np.zeros(6, dtype=np.float32)
    for by, end in zip(fingerprints, ends, strict=True):
        state, start = session_start.choose_start(state, last, FakeProbeRound(*by))
        last = end
    np.testing.assert_allclose(start, [0.999905, 0.000095, 0, 0, 0, 0], atol=1e-6)


# History


def test_older_of_the_two_closest_sessions_is_dropped() -> None:
    points = np.array([(0, 0), (0, 1), (5, 0), (5, 0.5)])
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    assert older_of_nearest(apart) == 2  # the third session


FOUR = [
    (0, 0),
    (0, 0),
    (0, 1),
    (5, 0),
    (5, 0.5),
    (0, 0),
]  # pilot, four sessions, the one that starts
ENDS = [PILOT, *(vector(n, n) for n in (1, 2, 3, 4))]


def test_diverse_history_keeps_distant_sessions() -> None:
    session_start = WarmStart(distance="raw", history=3, keep="diverse", scale=0.0)
    state, starts, _ = run_sessions(session_start, ENDS, FOUR)
    assert [model.tolist() for model in state.models] == [[1, 1], [2, 2], [4, 4]]
    assert [each.tolist() for each in state.fingerprints] == [[0, 0], [0, 1], [5, 0.5], [0, 0]]
    points = np.array(state.fingerprints)
    np.testing.assert_allclose(
        state.fingerprint_distances,
        np.linalg.norm(points[:, None] - points[None], axis=2),
        rtol=1e-6,
    )
    assert starts[-1].tolist() == pytest.approx([7 / 3, 7 / 3])


def test_limited_history_keeps_the_newest_sessions() -> None:
    state, _, _ = run_sessions(WarmStart(distance="raw", history=3), ENDS, FOUR)
    assert [model.tolist() for model in state.models] == [[2, 2], [3, 3], [4, 4]]
    assert [each.tolist() for each in state.fingerprints] == [[0, 1], [5, 0], [5, 0.5], [0, 0]]


@pytest.mark.parametrize("keep", ["newest", "diverse"])
def test_history_of_one_starts_with_the_last_session(keep: Any) -> None:
    _, starts, _ = run_sessions(WarmStart(history=1, keep=keep), ENDS, FOUR)
    assert [start.tolist() for start in starts[2:]] == [[1, 1], [2, 2], [3, 3], [4, 4]]


def test_long_history_changes_nothing() -> None:
    whole, long = WarmStart(scale=1.0), WarmStart(scale=1.0, history=4, keep="diverse")
    for one, other in zip(
        run_sessions(whole, ENDS, FOUR)[1], run_sessions(long, ENDS, FOUR)[1], strict=True
    ):
        assert one.tobytes() == other.tobytes()


# Memory use


def count_bytes(state: WarmStartState) -> int:
    """Return the bytes of all stored vectors of the size of a model."""
    vectors = [state.initial_model, state.pilot, *state.pilots, *state.models, *state.fingerprints]
    assert all(each.dtype == np.float32 for each in vectors)
    assert all(map(is_frozen, vectors)), "stored vectors are read-only"
    return sum(each.nbytes for each in vectors)


@pytest.mark.parametrize("pilots", [0, 1, 3])
def test_state_holds_one_model_and_two_per_session_after_the_pilots(pilots: int) -> None:
    session_start, size = WarmStart(pilot_sessions=pilots, first_start="random"), 1000
    model = np.zeros(size, dtype=np.float32)
    state, W = session_start.init(model, []), 4 * size
    for session in range(10):
        state, model = session_start.choose_start(
            state, model, lambda model, lr_scale=1.0: model + 1
        )
        finished = session + 1  # sessions after this one
        if session >= pilots:
            # The final model of this session is stored when the next one starts.
            assert count_bytes(state) == W + 2 * W * (finished - pilots) - W
        else:
            assert count_bytes(state) <= pilots * W + W, "the pilots so far and the initial model"


def test_history_bounds_the_size_of_the_state() -> None:
    session_start, model = WarmStart(history=3), np.zeros(1000, dtype=np.float32)
    state = session_start.init(model, [])
    for _ in range(12):
        state, model = session_start.choose_start(
            state, model, lambda model, lr_scale=1.0: model + 1
        )
    assert count_bytes(state) == 4000 * (1 + 2 * 3 + 1)


def test_stored_vectors_are_not_copied_between_sessions() -> None:
    state, _, _ = run_sessions(RAW, TWO_MODELS, TWO_FINGERPRINTS)
    following, _ = RAW.choose_start(state, vector(0, 0), FakeProbeRound(1, 1))
    assert following.pilot is state.pilot
    assert all(a is b for a, b in zip(following.models, state.models, strict=False))
    assert all(a is b for a, b in zip(following.fingerprints, state.fingerprints, strict=False))


# Validation


def test_model_of_another_architecture_is_rejected() -> None:
    state, _, _ = run_sessions(RAW, TWO_MODELS, TWO_FINGERPRINTS)
    with pytest.raises(ConfigError, match=r"expected a model with 2 parameters, .* got one with 3"):
        RAW.choose_start(state, vector(1, 2, 3), FakeProbeRound(1, 1, 1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pilot_sessions": -1}, "pilot_sessions must not be negative"),
        ({"probe_rounds": 0}, "probe_rounds must be at least 1"),
        ({"scale": -1.0}, r"scale must lie in \[0, inf\]"),
        ({"scale": math.nan}, r"scale must lie in \[0, inf\]"),
        ({"probe_lr_scale": 0.0}, "probe_lr_scale must be positive"),
        ({"history": 0}, "history must be at least 1, or none"),
        ({"keep": "diverse"}, 'keep="diverse" needs a history'),
    ],
)
def test_invalid_fields_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WarmStart(**settings)


def test_unknown_choices_are_rejected() -> None:
    with pytest.raises(UnknownName, match="unknown distance 'unit'"):
        WarmStart(distance="unit")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="unknown first_start 'average'"):
        WarmStart(first_start="average")  # type: ignore[arg-type]
