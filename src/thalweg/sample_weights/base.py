"""What every emphasis promises."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from thalweg.core.types import Floats, Roster, SampleAges


class SampleWeights(Protocol):
    """Says how much each sample in a client's memory counts. Any object of this shape will do.

    Only proportions matter within a client. Between clients the sums do: weights by total weight
    (`aggregation.ByWeight`) let a client count by it. A client whose samples all count nothing does not
    train.
    """

    def weigh(self, holding: SampleAges) -> Floats:
        """(held,) finite and not negative."""
        ...


@runtime_checkable
class AssignsWeights(Protocol):
    """An emphasis with a half at the server, which gives every client a number before it trains."""

    def assign_weights(self, roster: Roster, num_params: int) -> Floats:
        """(N,) finite and not negative; a client finds its own in `SampleAges.assigned`."""
        ...
