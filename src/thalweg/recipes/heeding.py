"""The client's half of an alarm: what it does when it is told that its data have changed."""

from __future__ import annotations

import numpy as np

from thalweg.core.types import Ints
from thalweg.forecast import Opens
from thalweg.memory.base import rounded
from thalweg.recipes.client import Clients, ClientState, Heard, Rows


def heeded(
    clients: Clients, client: int, state: ClientState, heard: Heard | None = None
) -> ClientState:
    """The client before samples arrive: its memory shrunk, a state opened in its forecast, if it was told so."""
    words, forecast = (heard or {}).get("alarm", {}), clients.recipe.forecast
    if "shrink" in words:
        state = _shrunk(clients, client, state, float(words["shrink"][0]))
    if "open" in words and words["open"][0] > 0 and isinstance(forecast, Opens):
        state = state._replace(forecast=forecast.open_next(state.forecast))
    return state


def _shrunk(clients: Clients, client: int, state: ClientState, keep: float) -> ClientState:
    """The newest share of the memory, whose policy begins anew with it; what the client knows else stays."""
    if keep >= 1:
        return state
    stay = newest(state.since, len(state.rows), rounded(max(keep, 0.0) * len(state.rows), None))
    return state._replace(
        rows=state.rows[stay],
        memory=clients.recipe.memory.init(clients.stream.capacity(client), len(stay)),
        since=None if state.since is None else state.since[stay],
    )


def newest(since: Rows | None, held: int, count: int) -> Ints:
    """Positions, ascending, of the samples that came last; of those of one round, the last in memory.

    >>> newest(np.array([3, 1, 3, 2], dtype=np.int32), 4, 2).tolist()
    [0, 2]
    """
    order = np.arange(held) if since is None else np.argsort(since, kind="stable")
    return np.sort(order[held - count :])
