"""Federations in this process: what all of them can do, and what those have in common that are around another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from thalweg.core.trees import Tree
from thalweg.core.types import Floats32, Ints
from thalweg.federation.base import Federation

if TYPE_CHECKING:
    from thalweg.engine.client_pool import ClientPool
    from thalweg.engine.gather import Part


class SimulatedFederation(Federation, Protocol):
    """A federation in this process, which can also be asked to predict."""

    client_pool: ClientPool

    def predict(self, model: Floats32, part: Part, rows: Ints | None) -> tuple[Ints, Floats32]: ...

    def scores(self, model: Floats32, part: Part, rows: Ints | None) -> Floats32: ...

    def close(self) -> None: ...


@runtime_checkable
class HasPending(Protocol):
    """A federation that has something to remember between rounds, beside its clients' states."""

    def pending(self) -> Tree: ...

    def restore(self, pending: dict[str, Any]) -> None: ...


class FederationWrapper:
    """Hands on to another federation what has nothing to do with learning."""

    def __init__(self, inner: SimulatedFederation) -> None:
        self.inner, self.client_pool = inner, inner.client_pool

    def predict(self, model: Floats32, part: Part, rows: Ints | None) -> tuple[Ints, Floats32]:
        return self.inner.predict(model, part, rows)

    def scores(self, model: Floats32, part: Part, rows: Ints | None) -> Floats32:
        return self.inner.scores(model, part, rows)

    def close(self) -> None:
        self.inner.close()
