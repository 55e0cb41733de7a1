from __future__ import annotations

import numpy as np
import pytest

from sessions.test_base import never, vector
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.sessions import Average

DRAWN = -1.0


def starts(session_start: Average, ends: list[float]) -> list[float]:
    """What sessions begin with, if they end with these numbers."""
    notes, found, last = session_start.init(vector(DRAWN), []), [], vector(DRAWN)
    for end in [*ends, 0.0]:
        notes, start = session_start.choose_start(notes, last, never)
        found.append(float(start[0]))
        last = vector(end)
    return found


def test_a_session_begins_with_the_mean_of_all_but_the_pilot_sessions() -> None:
    assert starts(Average(), [100, 1, 2, 6]) == [DRAWN, 100, 1, 1.5, 3]


def test_the_first_session_that_counts_may_begin_with_the_model_as_it_was_drawn() -> None:
    assert starts(Average(first_start="random"), [100, 1, 2]) == [DRAWN, DRAWN, 1, 1.5]


def test_the_number_of_pilot_sessions_decides_which_ones_count() -> None:
    assert starts(Average(pilot_sessions=0), [8, 2]) == [DRAWN, 8, 5]
    assert starts(Average(pilot_sessions=2), [8, 2, 4, 5]) == [DRAWN, 8, 2, 4, 4.5]


def test_one_session_is_its_own_mean_to_the_bit() -> None:
    assert starts(Average(pilot_sessions=0), [0.1])[1] == np.float32(0.1)


def test_what_is_remembered_does_not_grow_with_the_sessions() -> None:
    session_start = Average()
    notes = session_start.init(np.zeros(1000, dtype=np.float32), [])
    for _ in range(20):
        notes, _ = session_start.choose_start(notes, np.ones(1000, dtype=np.float32), never)
        assert notes.initial_model.nbytes + notes.total.nbytes == 8 * 1000


def test_a_model_of_another_architecture_is_refused() -> None:
    notes = Average().init(vector(1, 2), [])
    with pytest.raises(ConfigError, match="another architecture cannot be mixed"):
        Average().choose_start(notes, vector(1, 2, 3), never)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(UnknownName, match="unknown first_start 'pilot'; known: latest, random"):
        Average(first_start="pilot")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="pilot_sessions must not be negative"):
        Average(pilot_sessions=-1)
