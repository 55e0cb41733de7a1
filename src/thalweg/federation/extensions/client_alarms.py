"""The client's half of an alarm: what it does when it is told that its data have changed."""

from __future__ import annotations

import numpy as np

from thalweg.core.types import Ints
from thalweg.federation.client_state import ClientProgram, ClientState, Received, Rows
from thalweg.forecast import OpensStates
from thalweg.memory.base import round_count


def apply_alarm(
    clients: ClientProgram, client: int, state: ClientState, received: Received | None = None
) -> ClientState:
    """The client before samples arrive: its memory shrunk, a state opened in its forecast, if it was told so."""
    words, forecast = (received or {}).get("alarm", {}), clients.recipe.forecast
    if "shrink" in words:
        state = _shrink_memory(clients, client, state, float(words["shrink"][0]))
    if "open" in words and words["open"][0] > 0 and isinstance(forecast, OpensStates):
        state = state._replace(forecast=forecast.open_next_state(state.forecast))
    return state


def _shrink_memory(
    clients: ClientProgram, client: int, state: ClientState, keep: float
) -> ClientState:
    """The newest share of the memory, whose policy begins anew with it; what the client knows else stays."""
    if keep >= 1:
        return state
    stay = find_newest(
        state.since, len(state.rows), round_count(max(keep, 0.0) * len(state.rows), None)
    )
    return state._replace(
        rows=state.rows[stay],
        memory=clients.recipe.memory.init(clients.stream.capacity(client), len(stay)),
        since=None if state.since is None else state.since[stay],
    )


def find_newest(since: Rows | None, held: int, count: int) -> Ints:
    """Positions, ascending, of the samples that came last; of those of one round, the last in memory.

    >>> find_newest(np.array([3, 1, 3, 2], dtype=np.int32), 4, 2).tolist()
    [0, 2]
    """
    order = np.arange(held) if since is None else np.argsort(since, kind="stable")
    return np.sort(order[held - count :])
