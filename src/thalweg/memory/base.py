"""What every memory policy promises, and the one move that most of them make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from thalweg.core.types import Floats, Floats32, Ints, MemoryContext


class MemoryPolicy(Protocol):
    """Decides what a client keeps when samples arrive. Any object of this shape will do.

    The answer names samples by position: 0 .. held - 1 are the samples held so far, held ..
    held + num_new - 1 the new ones, in order of arrival. Positions are all different and at most
    `capacity` many. The policy never sees or moves the samples themselves.
    """

    def init(self, capacity: int, held: int) -> Any:
        """What the policy remembers when a client starts with `held` samples."""
        ...

    def keep(self, state: Any, intake: MemoryContext, rng: np.random.Generator) -> tuple[Any, Ints]:
        """What the policy remembers next, and the positions of the samples that stay."""
        ...


@runtime_checkable
class PredictsRenewal(Protocol):
    """A memory policy that can also say beforehand how much of itself it will renew.

    Weights that depend on how a memory ages (SAW) ask for it; for a policy without this method they
    use the renewal measured in the round.
    """

    def predict_renewal(self, state: Any, intake: MemoryContext) -> Floats:
        """(M,) expected fraction of the memory that is new after one tick in each latent state."""
        ...


@runtime_checkable
class NeedsLastLayer(Protocol):
    """A memory policy that wants `MemoryContext.last_layer`: held and new samples as the model sees them."""

    @property
    def probed_model(self) -> Literal["current", "received"]:
        """The model the client is training, as it is now, or the one it received."""
        ...


@runtime_checkable
class UploadsFromMemory(Protocol):
    """A memory policy that sends something to its half at the server; see `core.talk.ServerHalf`."""

    def upload(self, state: Any) -> tuple[Any, Mapping[str, Floats32]]:
        """What the policy remembers after sending, and vectors by name, at the end of a round."""
        ...


def renew(intake: MemoryContext, count: int, rng: np.random.Generator) -> Ints:
    """Overwrite `count` samples, chosen uniformly, with the first `count` new ones.

    Free places are filled first and count as renewed.

    >>> from thalweg.core.types import Outlook
    >>> nothing = np.empty(0, dtype=np.int64)
    >>> one = np.ones(1)
    >>> intake = MemoryContext(4, 4, 4, 0, nothing, nothing, Outlook(one, one, one))
    >>> sorted(renew(intake, 4, np.random.default_rng(0)).tolist())
    [4, 5, 6, 7]
    >>> (renew(intake, 1, np.random.default_rng(0)) == 4).sum().item()
    1
    """
    held, free = intake.held, intake.capacity - intake.held
    added = min(free, intake.num_new)
    overwritten = max(min(count, intake.num_new) - added, 0)
    kept = np.arange(held + added)
    if overwritten:
        # Everything new is no draw at all: then this is `Replace`, to the bit.
        slots = rng.permutation(held)[:overwritten] if overwritten < held else np.arange(held)
        kept[slots] = held + added + np.arange(len(slots))
    return kept


def round_count(amount: float, rng: np.random.Generator | None) -> int:
    """A whole number of samples: to the nearest, or at random with the right mean.

    >>> round_count(0.535193 * 500, None)
    268
    """
    if rng is None:
        return int(np.floor(amount + 0.5))
    return int(np.floor(amount + rng.random()))
