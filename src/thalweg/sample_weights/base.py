"""Sample weights: the protocols."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from thalweg.core.types import Floats, Roster, SampleAges


class SampleWeights(Protocol):
    """Weights the samples in a client's memory in its local loss.

    Implement `weigh`; no base class is needed. Within a client only the proportions of the weights
    matter. Between clients their sums matter if the aggregation uses them (`aggregation.ByWeight`).
    A client whose weights are all 0 does not train.
    """

    def weigh(self, samples: SampleAges) -> Floats:
        """Return (held,) weights, finite and not negative."""
        ...


@runtime_checkable
class AssignsWeights(Protocol):
    """Sample weights with a server part that assigns a number to every client."""

    def assign_weights(self, roster: Roster, num_params: int) -> Floats:
        """Return (N,) numbers, finite and not negative.

        Called before a round; a client reads its own number in `SampleAges.assigned`. With the
        class attribute ``skips_unweighted = True``, clients with the number 0 are not contacted.
        """
        ...
