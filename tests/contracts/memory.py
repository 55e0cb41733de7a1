"""Contract of memory policies."""

from __future__ import annotations

from typing import Any

import numpy as np

from contracts.checkpoint import round_trip, to_comparable
from contracts.examples import some_memory_context as plain_memory_context
from contracts.model_probes import some_last_layer
from thalweg.core.types import Ints, MemoryContext
from thalweg.memory import MemoryPolicy, PredictsRenewal

# Arrivals per tick at one client: none, a few, as many as fit, many more than fit, none again.
ARRIVALS = (0, 3, 8, 30, 1, 0, 0, 8)


def some_memory_context(capacity: int, held: int, num_new: int, state: int = 0) -> MemoryContext:
    """Return a context for any policy, also for one that needs the last layer."""
    context = plain_memory_context(capacity, held, num_new, state=state)
    return context._replace(last_layer=some_last_layer(held + num_new))


def check_memory_policy(policy: MemoryPolicy) -> None:
    """Check a policy over several ticks, at clients with memories of several sizes.

    Positions must be in range, the choice deterministic, states restorable from a checkpoint, and
    free slots filled.
    """
    written = repr(policy)
    for capacity, held in ((8, 0), (8, 5), (8, 8), (1, 0), (1, 1), (40, 40)):
        _check_ticks(policy, capacity, held)
        _check_free_slots_are_filled(policy, capacity, held)
    if isinstance(policy, PredictsRenewal):
        for num_new in (40, 4, 0):
            _check_predicted_renewal(policy, policy, num_new)
    assert repr(policy) == written, "a policy object does not change"


def _check_ticks(policy: MemoryPolicy, capacity: int, held: int) -> None:
    state = policy.init(capacity, held)
    for tick, num_new in enumerate(ARRIVALS):
        context = some_memory_context(capacity, held, num_new, state=tick % 3)
        state_before, context_before = to_comparable(state), to_comparable(context)
        next_state, kept = policy.keep(state, context, np.random.default_rng(tick))
        _check_positions(kept, context)
        assert to_comparable(state) == state_before, "the old state does not change"
        assert to_comparable(context) == context_before, "the context does not change"
        result = to_comparable((next_state, kept))
        again = policy.keep(state, context, np.random.default_rng(tick))
        assert to_comparable(tuple(again)) == result, "same generator, same choice"
        restored = round_trip(state, fresh=policy.init(capacity, capacity))
        later = policy.keep(restored, context, np.random.default_rng(tick))
        assert to_comparable(tuple(later)) == result, "a checkpoint restores the state"
        state, held = next_state, len(kept)


def _check_positions(kept: Ints, context: MemoryContext) -> None:
    assert isinstance(kept, np.ndarray), "positions are an array"
    assert kept.ndim == 1, "positions are one-dimensional"
    assert np.issubdtype(kept.dtype, np.integer), "positions are integers"
    assert len(kept) <= context.capacity, "at most capacity samples are kept"
    assert len(set(kept.tolist())) == len(kept), "no sample is kept twice"
    total = context.held + context.num_new
    assert ((kept >= 0) & (kept < total)).all(), "positions are those of held or new samples"


def _check_free_slots_are_filled(policy: MemoryPolicy, capacity: int, held: int) -> None:
    for num_new in (capacity, 3 * capacity):
        context = some_memory_context(capacity, held, num_new)
        _, kept = policy.keep(policy.init(capacity, held), context, np.random.default_rng(0))
        assert len(kept) == capacity, "enough arrivals fill the memory"


def _check_predicted_renewal(
    policy: MemoryPolicy, predictor: PredictsRenewal, num_new: int
) -> None:
    """Check that the predicted renewal is the mean renewal of a full memory."""
    capacity = 40
    state: Any = policy.init(capacity, capacity)
    for latent in range(3):
        context = some_memory_context(capacity, capacity, num_new, state=latent)
        predicted = predictor.predict_renewal(state, context)
        assert predicted.shape == (3,), "one share per state"
        assert ((predicted >= 0) & (predicted <= 1)).all(), "predictions are shares of the memory"
        shares = []
        for trial in range(200):
            _, kept = policy.keep(state, context, np.random.default_rng(trial))
            shares.append(np.count_nonzero(kept >= context.held) / max(len(kept), 1))
        # Rounding to whole samples is at most 0.0125; the standard deviation is below 0.006.
        assert abs(np.mean(shares) - predicted[latent]) < 0.0125 + 5 * 0.006, (
            "the prediction is the mean renewal"
        )
