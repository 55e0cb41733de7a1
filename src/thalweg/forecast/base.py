"""What every prediction oracle promises."""

from __future__ import annotations

from typing import Any, Protocol

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
