"""What a policy may ask for beyond the ordinary round: a look at the model, a question to the clients
before they train, a talk between client and server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Floats32, Ints, LastLayer, Roster, Supplies, Supply


class ModelProbe(Protocol):
    """One client's view of a model through its own samples. Rows are rows of the data set.

    The model is the one the client is training, as it is now, or the one it received.
    """

    def params(self) -> Floats32:
        """(P,) the client's parameters now; a copy."""
        ...

    def losses(self, rows: Ints) -> Floats32:
        """(n,) cross-entropy of every sample now."""
        ...

    def is_correct(self, rows: Ints) -> npt.NDArray[np.bool_]:
        """(n,) is the model's first guess of every sample the right one, now?"""
        ...

    def outputs(self, rows: Ints) -> Floats32:
        """(n, C) what the model answers to every sample now, before it is made a probability."""
        ...

    def gradient(self, rows: Ints) -> Floats32:
        """(P,) of the mean cross-entropy of some samples, now."""
        ...

    def at(self, params: Floats32) -> ModelProbe:
        """The same samples through other parameters (P,), which nobody trains."""
        ...

    def squared_gradients(self, rows: Ints) -> Floats32:
        """(P,) mean over samples of the squared gradient of each one's cross-entropy, now.

        Of the observed labels: the empirical Fisher information, its diagonal.
        """
        ...

    def last_layer(self, rows: Ints, received: bool) -> LastLayer:
        """What the last layer sees, now or of the received model."""
        ...


Broadcast = Mapping[str, Mapping[str, Floats32]]  # stage -> name -> (K, E)


@runtime_checkable
class ServerHalf(Protocol):
    """A policy with a half at the server: it sends more than a model down, or up, or both.

    The client's half is the policy itself: what it is told it finds in `MemoryContext.broadcast` (memory) or in
    the memo (objective); what it has to say, its method `say` returns. Messages are float32 vectors
    by name, of any length, the same for all clients.
    """

    def init_server(self, num_clients: int, num_params: int) -> Any:
        """What the server's half knows before the first round."""
        ...

    def broadcast(self, notes: Any, clients: Ints) -> Mapping[str, Floats32]:
        """(K, E) messages to the clients about to train; empty if there is nothing to say yet."""
        ...

    def collect(self, notes: Any, clients: Ints, uploads: Mapping[str, Floats32]) -> Any:
        """What the server's half knows after the clients' messages (K, E); no client comes twice.

        A client whose words come late may be heard twice in a round, what it said first before what it said last.
        """
        ...


class SurveyContext(Protocol):
    """One client, as a question sees it. Asking changes nothing but the tally."""

    @property
    def rnd(self) -> int:
        """The round that is about to run."""
        ...

    @property
    def held(self) -> Ints:
        """Rows of the data set in memory now."""
        ...

    @property
    def since(self) -> Ints | None:
        """(held,) the round in which each of them came; none: no policy of the recipe wants that noted."""
        ...

    @property
    def newest(self) -> Ints:
        """Rows that arrive first in this round; what is held if none do."""
        ...

    @property
    def supply(self) -> Supply: ...

    @property
    def num_classes(self) -> int: ...

    @property
    def num_models(self) -> int:
        """Models that came with the question; 0 if the policy does not show them."""
        ...

    @property
    def lr(self) -> float:
        """The learning rate with which clients train."""
        ...

    @property
    def rng(self) -> np.random.Generator:
        """This client's, for this round and the stage that asks."""
        ...

    @property
    def label_counts(self) -> Any:
        """What the policy keeps at the client, see `CountsLabels`; None if it keeps none."""
        ...

    @property
    def split(self) -> Any:
        """What the bank keeps at the client, if clients divide their samples among models; else None."""
        ...

    def labels(self, rows: Ints) -> Ints: ...

    def probe_model(self, model: int = 0) -> ModelProbe:
        """A model of the bank, through this client's samples."""
        ...


@runtime_checkable
class Surveys(Protocol):
    """A policy that asks clients something before they train, and answers it at the client.

    An emphasis asks first, then the selection, then the bank, which asks the chosen clients only.
    The server keeps the newest answers to the first two in `Roster.known`, as (N, E).
    """

    @property
    def sends_models(self) -> bool:
        """Must the bank be sent along with the question? Else there is no model to look at."""
        ...

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        """At the server: some of ``roster.present``, none twice; possibly nobody."""
        ...

    def answer_survey(self, view: SurveyContext) -> tuple[Any, Mapping[str, Floats]]:
        """At the client: its tally afterwards, and vectors by name; none: nothing to say this time."""
        ...


@runtime_checkable
class CountsLabels(Protocol):
    """A policy that keeps a tally at every client: numbers about the labels that arrive."""

    def init_counts(self, num_classes: int) -> Any: ...

    def count_labels(self, label_counts: Any, labels: Ints) -> Any:
        """The tally after labels (A,) have arrived."""
        ...


@runtime_checkable
class TracksSessions(Protocol):
    """A policy whose half at the server (`ServerHalf`) takes notice of sessions."""

    def start_session(self, notes: Any, last: Floats32, members: Ints) -> Any:
        """What the server's half knows as a session of some clients begins.

        `last` (P,) is the model with which the session before ended; of no elements if there was none.
        """
        ...


@runtime_checkable
class ExtraMetrics(Protocol):
    """A policy that has something to say about a round, for the metrics."""

    def extra_metrics(self, roster: Roster, cohort: Ints) -> Mapping[str, float | list[float]]: ...


@runtime_checkable
class ChecksWorld(Protocol):
    """A policy that makes no sense in some worlds, and says so before anything runs."""

    def check_world(self, supplies: Supplies, num_classes: int) -> None:
        """Raise a `ConfigError` that says what to change, if it cannot work with such clients."""
        ...
