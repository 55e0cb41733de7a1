"""Protocols of forecasts."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from thalweg.core.types import Floats, Ints, Outlook


class Forecast(Protocol):
    """Predicts the latent states of a client's data. Any object with these methods can be used.

    The states of a round are passed to `observe` after the client's upload, so that no prediction
    uses the round for which it is made. A forecast that cannot work in a world without known states
    declares ``needs_known_states = True``.
    """

    def init(self, truth: Floats, rng: np.random.Generator) -> Any:
        """Return the forecast's state of one client, given its true state probabilities (M,).

        Only forecasts that are exact by design may store `truth`; others use only its length.
        """
        ...

    def outlook(self, state: Any, histograms: Floats, importance: Floats) -> Outlook:
        """Return the prediction for one client.

        `histograms` (M, C) and `importance` (M,) describe the latent states of the world.
        """
        ...

    def observe(self, state: Any, states_seen: Ints) -> Any:
        """Return the forecast's state after a round in which the client's data had these states."""
        ...


@runtime_checkable
class RecognisesStates(Protocol):
    """A forecast that defines its own latent states from the data that arrive.

    Without these methods the latent states are those of the world. With them, memory and weights
    use the forecast's own states, whose number may grow, and `outlook` describes those.
    """

    def recognise(self, state: Any, histogram: Ints) -> tuple[Any, int]:
        """Return the forecast's next state, and the latent state to which a batch belongs.

        Called once per tick, before the memory policy, with the number of samples per class (C,);
        all zero if no samples arrived. The next `outlook` describes the returned latent state.
        Visits are counted by `observe` at the end of the round, not here.
        """
        ...

    def signatures(self, state: Any, histograms: Floats) -> Floats:
        """(M, C) the share of each class in each of its own states.

        Of `histograms`, those of the world, only the number of columns may be used.
        """
        ...


@runtime_checkable
class OpensStates(Protocol):
    """A forecast with its own states that can open a new one on request, such as after an alarm."""

    def open_next_state(self, state: Any) -> Any:
        """Return the forecast's state that makes the next samples a new latent state."""
        ...
