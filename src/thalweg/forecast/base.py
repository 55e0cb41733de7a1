"""What every prediction oracle promises."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from thalweg.core.types import Floats, Ints, Outlook


class Forecast(Protocol):
    """Predicts in which latent states a client will be. Any object of this shape will do.

    What a client has seen in a round is told after its upload, so that no prediction uses the round
    it is made for.
    """

    def init(self, truth: Floats, rng: np.random.Generator) -> Any:
        """What the oracle remembers of one client, given its real state probabilities (M,).

        Only oracles that are exact by design may keep the truth; the others take its length.
        """
        ...

    def outlook(self, state: Any, histograms: Floats, importance: Floats) -> Outlook:
        """The prediction for one client, with what is known of the states: (M, C) and (M,)."""
        ...

    def observe(self, state: Any, states_seen: Ints) -> Any:
        """What the oracle remembers after a round in which the client saw these states."""
        ...


@runtime_checkable
class RecognisesStates(Protocol):
    """An oracle that tells states apart by itself, from what arrives.

    For an oracle without these methods a state is what the world says it is. With them the world's
    states stay hidden: memory and weights see the oracle's own, whose number may grow, and `outlook`
    describes those.
    """

    def recognise(self, state: Any, histogram: Ints) -> tuple[Any, int]:
        """What the oracle remembers next, and which of its states this batch belongs to.

        Asked once per tick, before the memory is, with the batch's samples per class (C,), all zero
        if nothing arrived. The state it names is one that the next `outlook` has. No visit is
        counted yet: that is for `observe`, when the round is over.
        """
        ...

    def signatures(self, state: Any, histograms: Floats) -> Floats:
        """(M, C) share of each class in each state of its own; only the width of the world's
        `histograms` may be looked at."""
        ...


@runtime_checkable
class OpensStates(Protocol):
    """An oracle with states of its own that can be told that the next one is new."""

    def open_next_state(self, state: Any) -> Any:
        """What the oracle remembers when it has been told: the next samples are a state of their own."""
        ...
