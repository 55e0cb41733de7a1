"""What weights and server rules promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from thalweg.core.types import Floats, Floats32, Outlook, Roster, Updates


class MemorySummary(NamedTuple):
    """How a client's memory ages, as far as weights may look at it: all of it small numbers."""

    outlook: Outlook
    renewal: Floats  # (M,) fraction of the memory renewed by one tick in each state
    ticks: int  # ticks per round
    embeddings: Floats | None = None  # (M, E) what each state is like; none: nothing is known
    total_weight: float = (
        0.0  # of the samples learnt from; their number unless somebody weighs them
    )
    mass: float = (
        0.0  # the part of it that counts for this model, if a client divides it among several
    )


class Weights(Protocol):
    """Says how much each update counts. Any object of this shape will do."""

    def weigh(self, updates: Updates, roster: Roster) -> Floats:
        """(K,) not negative; they sum to one, or to less where the step should shrink."""
        ...


@runtime_checkable
class Reports(Protocol):
    """A rule that needs a few numbers from each client, computed there, beside the update."""

    def report(self, summary: MemorySummary) -> Mapping[str, float]:
        """Finite scalars by name; the server finds them in ``Updates.reports`` and ``Roster.known``."""
        ...


class ServerRule(Protocol):
    """Turns weighted updates into the next model. Any object of this shape will do."""

    def init(self, num_params: int) -> Any:
        """What the rule remembers of one model before the first round."""
        ...

    def step(
        self, state: Any, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[Any, Floats32]:
        """Model (P,), updates (K, P) and weights (K,) to the next model; K is at least one."""
        ...


@runtime_checkable
class ScalesLr(Protocol):
    """A server rule that also says how fast the clients shall learn."""

    def lr_scale(self, state: Any) -> float:
        """What the clients' learning rate is multiplied by in the next round."""
        ...


@runtime_checkable
class HasEvalModel(Protocol):
    """A server rule whose model in use is not the one it goes on from."""

    def eval_model(self, state: Any, model: Floats32) -> Floats32:
        """The model (P,) to evaluate and to deploy."""
        ...
