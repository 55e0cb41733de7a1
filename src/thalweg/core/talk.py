"""What a policy may ask for beyond the ordinary round: a look at the model, and a talk with the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from thalweg.core.types import Floats32, Glance, Ints


class Look(Protocol):
    """One client's view of a model through its own samples. Rows are rows of the data set.

    The model is the one the client is training, as it is now, or the one it received.
    """

    def params(self) -> Floats32:
        """(P,) the client's parameters now; a copy."""
        ...

    def losses(self, rows: Ints) -> Floats32:
        """(n,) cross-entropy of every sample now."""
        ...

    def squared_gradients(self, rows: Ints) -> Floats32:
        """(P,) mean over samples of the squared gradient of each one's cross-entropy, now.

        Of the observed labels: the empirical Fisher information, its diagonal.
        """
        ...

    def glance(self, rows: Ints, received: bool) -> Glance:
        """What the last layer sees, now or of the received model."""
        ...


Told = Mapping[str, Mapping[str, Floats32]]  # stage -> name -> (K, E)


@runtime_checkable
class Talks(Protocol):
    """A policy with a half at the server: it sends more than a model down, or up, or both.

    The client's half is the policy itself: what it is told it finds in `Intake.told` (memory) or in
    the memo (objective); what it has to say, its method `say` returns. Messages are float32 vectors
    by name, of any length, the same for all clients.
    """

    def begin(self, num_clients: int, num_params: int) -> Any:
        """What the server's half knows before the first round."""
        ...

    def tell(self, notes: Any, clients: Ints) -> Mapping[str, Floats32]:
        """(K, E) messages to the clients about to train; empty if there is nothing to say yet."""
        ...

    def hear(self, notes: Any, clients: Ints, said: Mapping[str, Floats32]) -> Any:
        """What the server's half knows after the clients' messages (K, E)."""
        ...
