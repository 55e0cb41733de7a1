"""Contract of alarms, and helpers for their tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from contracts.checkpoint import round_trip, to_comparable
from thalweg.core.types import Floats, Ints
from thalweg.drift import Alarm, resolve_effect

NO_CLIENTS = np.empty(0, dtype=np.int64)


def some_errors(rounds: int = 160, num_clients: int = 3) -> Floats:
    """Return errors (rounds, N): constant for client 0, rising for 1, rising and falling for 2."""
    rng = np.random.default_rng(5)
    errors = np.full((rounds, num_clients), 0.2)
    errors[rounds // 2 :, 1] = 0.9
    errors[rounds // 4 : rounds // 2, 2] = 0.95
    errors += rng.uniform(-0.05, 0.05, errors.shape)
    return errors


def find_alarms(alarm: Alarm, values: Sequence[float]) -> list[int]:
    """Return the indices of the values of one client that raised an alarm."""
    state, found = alarm.init(1), []
    for index, value in enumerate(values):
        state, alarmed = alarm.update(state, np.array([0]), np.array([value]))
        found += [index] * int(alarmed[0])
    return found


def to_values(alarm: Alarm, errors: Floats) -> Floats:
    """Return what an alarm receives for errors (...,): counts have a further axis of three."""
    if alarm.watch != "counts":
        return errors
    tested = np.full_like(errors, 20.0)
    return np.stack([np.round(errors * tested), tested, np.full_like(errors, 0.2)], axis=-1)


def find_river_alarms(detector: Any, values: Sequence[float]) -> list[int]:
    """Return the indices of the values at which a River detector raised an alarm."""
    found = []
    for index, value in enumerate(values):
        detector.update(value)
        found += [index] * int(detector.drift_detected)
    return found


def check_alarm(alarm: Alarm) -> None:
    """Watch three clients that are sometimes absent, with checkpoints, and each client alone."""
    fields = repr(alarm)
    assert alarm.watch in ("error", "loss", "counts"), "watch is error, loss or counts"
    resolve_effect(alarm)
    errors = to_values(alarm, some_errors())
    state: Any = alarm.init(3)
    fresh = alarm.init(3)
    assert to_comparable(state) == to_comparable(fresh), "init always returns the same state"
    together: list[list[int]] = [[], [], []]  # indices of the values that raised an alarm
    num_values = [0, 0, 0]
    for rnd, values in enumerate(errors):
        clients = np.flatnonzero(np.arange(3) != rnd % 7)  # one client is absent now and then
        state, alarmed = _check_update(alarm, state, fresh, clients, values[clients])
        for client, is_alarmed in zip(clients.tolist(), alarmed.tolist(), strict=True):
            together[client] += [num_values[client]] * int(is_alarmed)
            num_values[client] += 1
    for client, expected in enumerate(together):
        values = [row[client] for rnd, row in enumerate(errors) if client != rnd % 7]
        assert find_alarms(alarm, values) == expected, "clients are independent of each other"
        _check_reset(alarm, values, expected)
    assert repr(alarm) == fields, "an alarm object does not change"


def _check_update(
    alarm: Alarm, state: Any, fresh: Any, clients: Ints, values: Floats
) -> tuple[Any, Any]:
    before, given = to_comparable(state), (clients.copy(), values.copy())
    following, alarmed = alarm.update(state, clients, values)
    assert alarmed.shape == clients.shape, "one flag per client"
    assert alarmed.dtype == bool, "flags are booleans"
    assert to_comparable(state) == before, "the old state does not change"
    assert to_comparable((clients, values)) == to_comparable(given), "arguments do not change"
    again, same = alarm.update(round_trip(state, fresh), clients, values)
    assert to_comparable(again) == to_comparable(following), "the state survives a checkpoint"
    assert same.tolist() == alarmed.tolist(), "equal arguments give equal results"
    unchanged, no_flags = alarm.update(following, NO_CLIENTS, values[:0])
    assert no_flags.shape == (0,), "no flags without clients"
    assert to_comparable(unchanged) == to_comparable(following), "no change without values"
    return following, alarmed


def _check_reset(alarm: Alarm, values: list[float], alarms: list[int]) -> None:
    if alarms:
        first = alarms[0] + 1
        later = [index - first for index in alarms[1:]]
        assert find_alarms(alarm, values[first:]) == later, "an alarm resets its client"
