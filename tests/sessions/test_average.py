from __future__ import annotations

import numpy as np
import pytest

from contracts.session_start import fail_probe_round, vector
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.sessions import Average

INITIAL = -1.0


def find_starts(session_start: Average, ends: list[float]) -> list[float]:
    """Return the starts of sessions that end with these numbers."""
    state, found, last = session_start.init(vector(INITIAL), []), [], vector(INITIAL)
    for end in [*ends, 0.0]:
        state, start = session_start.choose_start(state, last, fail_probe_round)
        found.append(float(start[0]))
        last = vector(end)
    return found


def test_session_starts_with_the_mean_of_past_sessions_without_pilots() -> None:
    assert find_starts(Average(), [100, 1, 2, 6]) == [INITIAL, 100, 1, 1.5, 3]


def test_first_session_after_the_pilots_can_start_with_the_initial_model() -> None:
    assert find_starts(Average(first_start="random"), [100, 1, 2]) == [INITIAL, INITIAL, 1, 1.5]


def test_pilot_sessions_are_excluded_from_the_mean() -> None:
    assert find_starts(Average(pilot_sessions=0), [8, 2]) == [INITIAL, 8, 5]
    assert find_starts(Average(pilot_sessions=2), [8, 2, 4, 5]) == [INITIAL, 8, 2, 4, 4.5]


def test_mean_of_one_session_is_exact() -> None:
    assert find_starts(Average(pilot_sessions=0), [0.1])[1] == np.float32(0.1)


def test_state_does_not_grow_with_the_number_of_sessions() -> None:
    session_start = Average()
    state = session_start.init(np.zeros(1000, dtype=np.float32), [])
    for _ in range(20):
        state, _ = session_start.choose_start(
            state, np.ones(1000, dtype=np.float32), fail_probe_round
        )
        assert state.initial_model.nbytes + state.total.nbytes == 8 * 1000


def test_model_of_another_architecture_is_rejected() -> None:
    state = Average().init(vector(1, 2), [])
    with pytest.raises(ConfigError, match="different architectures cannot be averaged"):
        Average().choose_start(state, vector(1, 2, 3), fail_probe_round)


def test_invalid_fields_are_rejected() -> None:
    with pytest.raises(UnknownName, match="unknown first_start 'pilot'; known: latest, random"):
        Average(first_start="pilot")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="pilot_sessions must not be negative"):
        Average(pilot_sessions=-1)
