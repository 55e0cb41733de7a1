"""What every alarm promises."""

from __future__ import annotations

from typing import Any

import numpy as np

from contracts.checkpoint import round_trip, to_comparable
from thalweg.core.types import Floats, Ints
from thalweg.drift import Alarm, resolve_effect

NO_CLIENTS = np.empty(0, dtype=np.int64)


def some_errors(rounds: int = 160, num_clients: int = 3) -> Floats:
    """(rounds, N) client 0 stays as it is, 1 gets worse half way, 2 is good, bad and good again."""
    rng = np.random.default_rng(5)
    errors = np.full((rounds, num_clients), 0.2)
    errors[rounds // 2 :, 1] = 0.9
    errors[rounds // 4 : rounds // 2, 2] = 0.95
    errors += rng.uniform(-0.05, 0.05, errors.shape)
    return errors


def check_alarm(alarm: Alarm) -> None:
    """Let it watch three clients that are not always there, through checkpoints, and each of them alone."""
    written = repr(alarm)
    assert alarm.watch in ("error", "loss"), "it says what it watches"
    resolve_effect(alarm)
    errors = some_errors()
    state: Any = alarm.init(3)
    fresh = alarm.init(3)
    assert to_comparable(state) == to_comparable(fresh), "it begins the same way"
    together: list[list[bool]] = [[], [], []]
    for rnd, values in enumerate(errors):
        clients = np.flatnonzero(np.arange(3) != rnd % 7)  # one is away now and then
        state, alarmed = _check_update(alarm, state, fresh, clients, values[clients])
        for client, is_alarmed in zip(clients.tolist(), alarmed.tolist(), strict=True):
            together[client].append(is_alarmed)
    for client, expected in enumerate(together):
        values = [row[client] for rnd, row in enumerate(errors) if client != rnd % 7]
        assert _alarms_alone(alarm, values) == expected, "a client's alarms are its own"
        _check_reset(alarm, values, expected)
    assert repr(alarm) == written, "an alarm remembers nothing itself"


def _check_update(
    alarm: Alarm, state: Any, fresh: Any, clients: Ints, values: Floats
) -> tuple[Any, Any]:
    before, given = to_comparable(state), (clients.copy(), values.copy())
    following, alarmed = alarm.update(state, clients, values)
    assert alarmed.shape == clients.shape, "a yes or no for each client"
    assert alarmed.dtype == bool, "a yes or no for each client"
    assert to_comparable(state) == before, "the old state is untouched"
    assert to_comparable((clients, values)) == to_comparable(given), "what it looks at is untouched"
    again, same = alarm.update(round_trip(state, fresh), clients, values)
    assert to_comparable(again) == to_comparable(following), "a checkpoint restores it"
    assert same.tolist() == alarmed.tolist(), "same question, same answer"
    unchanged, nobody = alarm.update(following, NO_CLIENTS, np.empty(0))
    assert nobody.shape == (0,), "nobody is no trouble"
    assert to_comparable(unchanged) == to_comparable(following), "without a value nothing changes"
    return following, alarmed


def _alarms_alone(alarm: Alarm, values: list[float]) -> list[bool]:
    state, found = alarm.init(1), []
    for value in values:
        state, alarmed = alarm.update(state, np.array([0]), np.array([value]))
        found.append(bool(alarmed[0]))
    return found


def _check_reset(alarm: Alarm, values: list[float], alarms: list[bool]) -> None:
    if True in alarms:
        first = alarms.index(True) + 1
        assert _alarms_alone(alarm, values[first:]) == alarms[first:], (
            "after an alarm it begins anew"
        )
