from __future__ import annotations

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats32
from thalweg.sessions import Previous, Reset
from thalweg.sessions.base import check_same_net


def never(model: Floats32, lr_scale: float = 1.0) -> Floats32:
    raise AssertionError("nobody needs to rehearse")


def vector(*values: float) -> Floats32:
    return np.array(values, dtype=np.float32)


def test_the_next_session_goes_on_where_the_last_one_ended() -> None:
    last = vector(1, 2)
    assert Previous().choose_start(Previous().init(vector(0, 0), []), last, never)[1] is last


def test_every_session_may_begin_with_the_model_as_it_was_drawn() -> None:
    drawn = vector(5, 7)
    notes = Reset().init(drawn, [])
    drawn += 1  # somebody else's affair
    for _ in range(3):
        notes, start = Reset().choose_start(notes, vector(1, 2), never)
        assert start.tolist() == [5, 7]
        start += 1


def test_one_session_alone_may_begin_anew() -> None:
    session_start = Reset(session=1)
    notes, starts = session_start.init(vector(0), []), []
    for last in (0, 1, 2):
        notes, start = session_start.choose_start(notes, vector(last), never)
        starts.append(start.tolist())
    assert starts == [[0], [0], [2]]
    with pytest.raises(ConfigError, match=r"session must lie in \[0, inf\), or none, got -1"):
        Reset(session=-1)


def test_models_of_another_architecture_are_not_mixed() -> None:
    check_same_net(vector(1, 2), np.zeros(2))
    with pytest.raises(ConfigError, match=r"past sessions have 3 parameters, .* has 2; .* new run"):
        check_same_net(vector(1, 2), np.zeros(3))
