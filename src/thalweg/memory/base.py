"""Memory policies: the protocols, and helpers shared by several policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from thalweg.core.types import Floats, Floats32, Ints, LastLayer, MemoryContext, Outlook


class MemoryPolicy(Protocol):
    """Decides which samples a client keeps when new ones arrive.

    Implement `init` and `keep`; no base class is needed. A policy is an immutable object that
    serves all clients: the values that it stores for one client are the `state` that `keep` takes
    and returns. A policy identifies samples by position and never sees the samples themselves:
    positions 0 .. held - 1 are the held samples, in the order in which the last call of `keep`
    returned them, and positions held .. held + num_new - 1 are the new samples, in order of
    arrival.
    """

    def init(self, capacity: int, held: int) -> Any:
        """Return the state of a client that starts with `held` samples."""
        ...

    def keep(
        self, state: Any, context: MemoryContext, rng: np.random.Generator
    ) -> tuple[Any, Ints]:
        """Return the next state and the positions of the samples to keep.

        Positions are an integer array (n,) of different values, n at most `context.capacity`.
        All randomness must come from `rng`.
        """
        ...


@runtime_checkable
class PredictsRenewal(Protocol):
    """A memory policy that predicts how much of the memory it will renew.

    Aggregation weights that depend on how memories age (SAW) use the prediction. For a policy
    without this method they use the renewal measured in the round.
    """

    def predict_renewal(self, state: Any, context: MemoryContext) -> Floats:
        """Return (M,) the expected share of new samples after one tick in each latent state."""
        ...


@runtime_checkable
class NeedsLastLayer(Protocol):
    """A memory policy that reads `MemoryContext.last_layer`.

    It contains the errors and features of all held and new samples under one model.
    """

    @property
    def probed_model(self) -> Literal["current", "received"]:
        """Which model: "current", which the client is training, or "received" from the server."""
        ...


@runtime_checkable
class UploadsFromMemory(Protocol):
    """A memory policy that sends vectors to its server part (`core.capabilities.ServerPart`)."""

    def upload(self, state: Any) -> tuple[Any, Mapping[str, Floats32]]:
        """Return the state after sending, and float32 vectors by name, at the end of a round."""
        ...


def make_context(
    capacity: int,
    held: int,
    num_new: int,
    *,
    state: int = 0,
    held_labels: Sequence[int] | None = None,
    new_labels: Sequence[int] | None = None,
    outlook: Outlook | None = None,
    last_layer: LastLayer | None = None,
    broadcast: Mapping[str, Floats32] | None = None,
    held_targets: Sequence[float] | None = None,
    new_targets: Sequence[float] | None = None,
) -> MemoryContext:
    """Build a `MemoryContext` by hand, to try a policy without a federation.

    By default all labels are 0 and there is a single latent state.

    >>> make_context(capacity=4, held=2, num_new=3, new_labels=[0, 1, 1]).new_labels.tolist()
    [0, 1, 1]
    """
    one = np.ones(1)
    both = (held_targets, new_targets)
    old, new = (None if each is None else np.array(each, dtype=np.float32) for each in both)
    return MemoryContext(
        capacity=capacity,
        held=held,
        num_new=num_new,
        state=state,
        held_labels=np.array([0] * held if held_labels is None else held_labels, dtype=np.int64),
        new_labels=np.array([0] * num_new if new_labels is None else new_labels, dtype=np.int64),
        outlook=Outlook(one, one, one) if outlook is None else outlook,
        last_layer=last_layer,
        broadcast={} if broadcast is None else broadcast,
        held_targets=old,
        new_targets=new,
    )


def renew(context: MemoryContext, count: int, rng: np.random.Generator) -> Ints:
    """Overwrite `count` held samples, chosen uniformly, with the first `count` new ones.

    Free slots are filled first and count as renewed. Returns the positions to keep.

    >>> context = make_context(capacity=4, held=4, num_new=4)
    >>> sorted(renew(context, 4, np.random.default_rng(0)).tolist())
    [4, 5, 6, 7]
    >>> (renew(context, 1, np.random.default_rng(0)) == 4).sum().item()
    1
    """
    held, free = context.held, context.capacity - context.held
    added = min(free, context.num_new)
    overwritten = max(min(count, context.num_new) - added, 0)
    kept = np.arange(held + added)
    if overwritten:
        # A full renewal draws nothing, so that it gives the same bits as `Replace`.
        slots = rng.permutation(held)[:overwritten] if overwritten < held else np.arange(held)
        kept[slots] = held + added + np.arange(len(slots))
    return kept


def round_count(amount: float, rng: np.random.Generator | None) -> int:
    """Round `amount` to a whole number of samples.

    Without `rng` to the nearest integer (halves up). With `rng` up or down at random, such that the
    mean is `amount`.

    >>> round_count(0.535193 * 500, None)  # 267.6
    268
    """
    if rng is None:
        return int(np.floor(amount + 0.5))
    return int(np.floor(amount + rng.random()))


class RenewsShare:
    """Base class of policies without a state that renew a share of the memory at each tick.

    A subclass is a frozen dataclass with a field `stochastic_rounding`.
    """

    stochastic_rounding: bool

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(
        self, state: None, context: MemoryContext, rng: np.random.Generator
    ) -> tuple[None, Ints]:
        amount = self.find_share(context) * context.capacity
        return None, renew(
            context, round_count(amount, rng if self.stochastic_rounding else None), rng
        )

    def find_share(self, context: MemoryContext) -> float:
        """Return the share of the memory to renew now."""
        return float(self.predict_renewal(None, context)[context.state])

    def predict_renewal(self, state: None, context: MemoryContext) -> Floats:
        """Return (M,) the share of the memory to renew in each latent state."""
        raise NotImplementedError


def split_slots(shares: Floats, available: Ints, num_slots: int) -> Ints:
    """Split `num_slots` among classes by `shares`, with at most `available` per class.

    Uses largest remainders. Slots that a class cannot fill go to the others in proportion.

    >>> split_slots(np.array([0.5, 0.3, 0.2]), np.array([9, 1, 9]), 5).tolist()
    [3, 1, 1]
    """
    counts, is_open = np.zeros(len(available), dtype=np.int64), available > 0
    while True:
        left = num_slots - int(counts.sum())
        weight = np.where(is_open, shares, 0.0)
        if weight.sum() < 1e-12:  # only classes of share 0 are left
            weight = np.where(is_open, available, 0).astype(np.float64)
        exact = left * weight / max(weight.sum(), 1e-12)
        full = is_open & (exact >= available)
        if not full.any():
            break
        counts[full] = available[full]
        is_open &= ~full
    whole = np.floor(exact).astype(np.int64)
    order = np.argsort(whole - exact, kind="stable")  # largest remainder first
    whole[order[: left - int(whole.sum())]] += 1
    counts += whole
    return counts


def take_per_class(order: Ints, labels: Ints, counts: Ints) -> Ints:
    """Return the positions, ascending, of the first ``counts[c]`` samples of each class in `order`.

    `order` holds all positions, the preferred ones first; `labels` are in the order of positions.

    >>> take_per_class(np.array([3, 2, 1, 0]), np.array([0, 0, 1, 1]), np.array([1, 2])).tolist()
    [1, 2, 3]
    """
    by_class = order[np.argsort(labels[order], kind="stable")]
    available = np.bincount(labels, minlength=len(counts))
    first = np.cumsum(available) - available
    kept = [by_class[start : start + count] for start, count in zip(first, counts, strict=True)]
    return np.sort(np.concatenate(kept))
