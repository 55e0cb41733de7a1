"""Small values of the project's nouns, for the contracts and for tests of your own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from thalweg.core.types import Floats, Floats32, MemoryContext, Outlook, Roster, Updates
from thalweg.federation import TrainRequest

PROBS = (0.5, 0.3, 0.2)
HETEROGENEITY = (0.1, 0.5, 2.0)


def some_outlook(
    probs: Sequence[float] = PROBS, heterogeneity: Sequence[float] = HETEROGENEITY
) -> Outlook:
    """What a client expects; all states matter the same."""
    num_states = len(probs)
    return Outlook(
        probs=np.array(probs, dtype=np.float64),
        importance=np.full(num_states, 1 / num_states),
        heterogeneity=np.array(heterogeneity, dtype=np.float64),
        variance=None,
        deviations=np.outer(heterogeneity, [0.5, -0.5]),  # class shares of two classes
    )


def some_memory_context(
    capacity: int,
    held: int,
    num_new: int,
    state: int = 0,
    outlook: Outlook | None = None,
    num_classes: int = 3,
) -> MemoryContext:
    """`num_new` samples arrive at a memory that holds `held` of at most `capacity`."""
    labels = np.arange(held + num_new) % num_classes
    return MemoryContext(
        capacity=capacity,
        held=held,
        num_new=num_new,
        state=state,
        held_labels=labels[:held],
        new_labels=labels[held:],
        outlook=some_outlook() if outlook is None else outlook,
    )


def some_roster(
    present: Sequence[int],
    num_clients: int,
    *,
    rnd: int = 4,
    availability: Sequence[float] | None = None,
    times_present: Sequence[int] | None = None,
    known: Mapping[str, Floats] | None = None,
) -> Roster:
    """A round in which some of the clients are here."""
    return Roster(
        rnd=rnd,
        present=np.array(present, dtype=np.int64),
        availability=np.array([0.5] * num_clients if availability is None else availability),
        times_present=np.array([2] * num_clients if times_present is None else times_present),
        known={} if known is None else known,
    )


def some_updates(
    clients: Sequence[int],
    num_params: int,
    *,
    deltas: Sequence[Sequence[float]] | None = None,
    num_samples: Sequence[int] | None = None,
    num_steps: Sequence[int] | None = None,
    reports: Mapping[str, Sequence[float]] | None = None,
) -> Updates:
    """What a cohort sends back; without `deltas`, small different numbers."""
    size = len(clients)
    rows = np.arange(size * num_params).reshape(size, num_params) / 8 if deltas is None else deltas
    steps = np.array([3] * size if num_steps is None else num_steps)
    return Updates(
        clients=np.array(clients, dtype=np.int64),
        models=np.zeros(size, dtype=np.int64),
        deltas=np.array(rows, dtype=np.float32).reshape(size, num_params),
        num_samples=np.array([10] * size if num_samples is None else num_samples),
        num_steps=steps,
        losses=np.where(steps > 0, 1.5, np.nan),
        num_tested=np.full(size, 8),
        num_correct=np.full(size, 4),
        reports={name: np.array(values) for name, values in (reports or {}).items()},
    )


def train_request_for(
    rnd: int, client: int, params: Floats32, model: int = 0, lr_scale: float = 1.0, **more: Any
) -> TrainRequest:
    """An order to train one model."""
    return TrainRequest(rnd, client, np.array([model]), np.array([lr_scale]), params[None], **more)
