from __future__ import annotations

import numpy as np
import pytest

from contracts.session_start import fail_probe_round, vector
from thalweg.core.errors import ConfigError
from thalweg.sessions import Previous, Reset
from thalweg.sessions.base import check_same_net


def test_previous_starts_with_the_last_model() -> None:
    last = vector(1, 2)
    assert (
        Previous().choose_start(Previous().init(vector(0, 0), []), last, fail_probe_round)[1]
        is last
    )


def test_reset_starts_every_session_with_the_initial_model() -> None:
    initial = vector(5, 7)
    state = Reset().init(initial, [])
    initial += 1  # the policy has its own copy
    for _ in range(3):
        state, start = Reset().choose_start(state, vector(1, 2), fail_probe_round)
        assert start.tolist() == [5, 7]
        start += 1


def test_reset_of_one_session_only() -> None:
    session_start = Reset(session=1)
    state, starts = session_start.init(vector(0), []), []
    for last in (0, 1, 2):
        state, start = session_start.choose_start(state, vector(last), fail_probe_round)
        starts.append(start.tolist())
    assert starts == [[0], [0], [2]]
    with pytest.raises(ConfigError, match=r"session must lie in \[0, inf\), or none, got -1"):
        Reset(session=-1)


def test_models_of_another_architecture_are_rejected() -> None:
    check_same_net(vector(1, 2), np.zeros(2))
    with pytest.raises(
        ConfigError, match=r"expected a model with 3 parameters, .* got one with 2; .* new run"
    ):
        check_same_net(vector(1, 2), np.zeros(3))
