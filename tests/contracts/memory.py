"""What every memory policy promises."""

from __future__ import annotations

from typing import Any

import numpy as np

from contracts.checkpoint import round_trip, to_comparable
from contracts.examples import some_memory_context as plain_memory_context
from contracts.model_probes import some_last_layer
from thalweg.core.types import Ints, MemoryContext
from thalweg.memory import MemoryPolicy, PredictsRenewal

# Arrivals of one client: nothing, a few, as many as fit, many more than fit, and quiet again.
ARRIVALS = (0, 3, 8, 30, 1, 0, 0, 8)


def some_memory_context(capacity: int, held: int, num_new: int, state: int = 0) -> MemoryContext:
    """An intake for any policy, also for one that looks at the model."""
    intake = plain_memory_context(capacity, held, num_new, state=state)
    return intake._replace(last_layer=some_last_layer(held + num_new))


def check_memory_policy(policy: MemoryPolicy) -> None:
    """Let clients with memories of several sizes live with the policy for a while."""
    written = repr(policy)
    for capacity, held in ((8, 0), (8, 5), (8, 8), (1, 0), (1, 1), (40, 40)):
        _check_ticks(policy, capacity, held)
        _check_it_fills_up(policy, capacity, held)
    if isinstance(policy, PredictsRenewal):
        for num_new in (40, 4, 0):
            _check_foresight(policy, policy, num_new)
    assert repr(policy) == written, "a policy remembers nothing itself"


def _check_ticks(policy: MemoryPolicy, capacity: int, held: int) -> None:
    state = policy.init(capacity, held)
    for tick, num_new in enumerate(ARRIVALS):
        intake = some_memory_context(capacity, held, num_new, state=tick % 3)
        before, asked = to_comparable(state), to_comparable(intake)
        following, kept = policy.keep(state, intake, np.random.default_rng(tick))
        _check_positions(kept, intake)
        assert to_comparable(state) == before, "the old state is untouched"
        assert to_comparable(intake) == asked, "what it looks at is untouched"
        answer = to_comparable((following, kept))
        again = policy.keep(state, intake, np.random.default_rng(tick))
        assert to_comparable(tuple(again)) == answer, "same generator, same choice"
        restored = round_trip(state, fresh=policy.init(capacity, capacity))
        later = policy.keep(restored, intake, np.random.default_rng(tick))
        assert to_comparable(tuple(later)) == answer, "a checkpoint restores it"
        state, held = following, len(kept)


def _check_positions(kept: Ints, intake: MemoryContext) -> None:
    assert isinstance(kept, np.ndarray), "positions are an array"
    assert kept.ndim == 1, "one position per sample that stays"
    assert np.issubdtype(kept.dtype, np.integer), "positions are whole numbers"
    assert len(kept) <= intake.capacity, "never more than the capacity"
    assert len(set(kept.tolist())) == len(kept), "no sample twice"
    total = intake.held + intake.num_new
    assert ((kept >= 0) & (kept < total)).all(), "only samples that are there"


def _check_it_fills_up(policy: MemoryPolicy, capacity: int, held: int) -> None:
    for num_new in (capacity, 3 * capacity):
        intake = some_memory_context(capacity, held, num_new)
        _, kept = policy.keep(policy.init(capacity, held), intake, np.random.default_rng(0))
        assert len(kept) == capacity, "with enough arrivals no room stays empty"


def _check_foresight(policy: MemoryPolicy, foresees: PredictsRenewal, num_new: int) -> None:
    """The renewal that a policy announces is the one that a full memory has on average."""
    capacity = 40
    state: Any = policy.init(capacity, capacity)
    for latent in range(3):
        intake = some_memory_context(capacity, capacity, num_new, state=latent)
        foreseen = foresees.predict_renewal(state, intake)
        assert foreseen.shape == (3,), "one share per state"
        assert ((foreseen >= 0) & (foreseen <= 1)).all(), "shares of the memory"
        shares = []
        for trial in range(200):
            _, kept = policy.keep(state, intake, np.random.default_rng(trial))
            shares.append(np.count_nonzero(kept >= intake.held) / max(len(kept), 1))
        # Rounding to whole samples is worth 0.0125, and a standard deviation is below 0.006.
        assert abs(np.mean(shares) - foreseen[latent]) < 0.0125 + 5 * 0.006, "it does as it says"
