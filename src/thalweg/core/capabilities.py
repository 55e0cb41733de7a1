"""Optional capabilities of policies: protocols beyond the basic protocol of a stage.

A policy has a capability if it implements all members of the protocol. The engines look for
capabilities with ``isinstance``; `find_partial_capability` finds incomplete ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from thalweg.core.noise import NoiseGenerator
from thalweg.core.types import Floats, Floats32, Ints, LastLayer, Roster, Supplies, Supply


class Descent(NamedTuple):
    """The result of some steps of a client's optimizer on fixed samples."""

    params: Floats32  # (P,) after the last step
    max_gradient: float  # the largest length of the gradient before a step


class ModelProbe(Protocol):
    """Evaluates a model on samples of one client, given by their rows in the data set.

    The model is the one that the client is training, in its current state, or the one it received.
    """

    def params(self) -> Floats32:
        """(P,) a copy of the client's current parameters."""
        ...

    def losses(self, rows: Ints) -> Floats32:
        """(n,) the current cross-entropy of each sample."""
        ...

    def is_correct(self, rows: Ints) -> npt.NDArray[np.bool_]:
        """(n,) whether the model currently predicts each sample correctly."""
        ...

    def outputs(self, rows: Ints) -> Floats32:
        """(n, C) the current logits of each sample."""
        ...

    def gradient(self, rows: Ints) -> Floats32:
        """(P,) the current gradient of the mean loss of the samples."""
        ...

    def descend(self, rows: Ints, steps: int, lr_scale: float = 1.0) -> Descent:
        """Take steps of the client's optimizer on the mean loss of the samples.

        The optimizer starts with a new state, and `lr_scale` multiplies its learning rate. The
        probed model does not change.
        """
        ...

    def squared_gradients(self, rows: Ints) -> Floats32:
        """(P,) the mean over samples of the squared gradient of each sample's cross-entropy.

        With the observed labels: the diagonal of the empirical Fisher information.
        """
        ...

    def last_layer(self, rows: Ints, received: bool) -> LastLayer:
        """Return the inputs and errors of the last layer, of the current or the received model."""
        ...


Broadcast = Mapping[str, Mapping[str, Floats32]]  # stage -> name -> (K, E)


@runtime_checkable
class ServerPart(Protocol):
    """A policy with a part at the server, which exchanges vectors with the part at the clients.

    The part at the client is the policy itself. It finds the broadcast in `MemoryContext.broadcast`
    (memory) or in the memo (objective), and returns its upload from the method `upload`. Messages
    are float32 vectors by name, of any length that is the same for all clients.
    """

    def init_server(self, num_clients: int, num_params: int) -> Any:
        """Return the state at the server before the first round."""
        ...

    def broadcast(self, state: Any, clients: Ints) -> Mapping[str, Floats32]:
        """(K, E) messages to the clients about to train; empty if there are none yet."""
        ...

    def collect(self, state: Any, clients: Ints, uploads: Mapping[str, Floats32]) -> Any:
        """Return the state at the server after the clients' uploads (K, E); clients are distinct.

        If late uploads of a client arrive with a newer one, this is called once for each, in order.
        """
        ...


class SurveyContext(Protocol):
    """One client as a survey sees it. Answering changes only the label counts."""

    @property
    def rnd(self) -> int:
        """The round that is about to run."""
        ...

    @property
    def held(self) -> Ints:
        """Rows of the data set in memory."""
        ...

    @property
    def since(self) -> Ints | None:
        """(held,) the round in which each sample arrived.

        None if no policy of the recipe needs it.
        """
        ...

    @property
    def capacity(self) -> int:
        """Number of samples that the client can store."""
        ...

    @property
    def newest(self) -> Ints:
        """Rows that arrive first in this round; the rows in memory if none arrive."""
        ...

    @property
    def supply(self) -> Supply: ...

    @property
    def num_classes(self) -> int: ...

    @property
    def num_models(self) -> int:
        """Number of models sent with the survey; 0 if the policy does not send them."""
        ...

    @property
    def lr(self) -> float:
        """The learning rate with which clients train."""
        ...

    @property
    def rng(self) -> np.random.Generator:
        """The generator of this client for this round and the surveying stage.

        The server knows its numbers: choose samples with it, and draw noise from `noise`.
        """
        ...

    @property
    def noise(self) -> NoiseGenerator:
        """The generator of privacy noise, which the server does not know if this is a device."""
        ...

    @property
    def label_counts(self) -> Any:
        """The policy's label counts at the client (see `CountsLabels`), or None."""
        ...

    @property
    def split(self) -> Any:
        """The bank's state at the client if clients split their samples among models, else None."""
        ...

    def labels(self, rows: Ints) -> Ints: ...

    def probe_model(self, model: int = 0) -> ModelProbe:
        """Return a probe of a model of the bank on this client's samples."""
        ...


@runtime_checkable
class Surveys(Protocol):
    """A policy that sends a survey to clients before they train, and answers it at the client.

    Surveys run in the order session start, sample weights, selection, bank; that of the bank runs
    after the cohort is chosen. The server keeps the newest responses to those of the sample weights
    and the selection in `Roster.known`, as (N, E). A session start surveys in the first round of a
    session and sends candidates in place of the models of the bank.

    Losses and similar magnitudes should be listed in the class attribute ``bounded_values``, a
    tuple of names: on a network, implausible ones are replaced by the median of all clients.
    """

    @property
    def sends_models(self) -> bool:
        """Whether the models of the bank are sent with the survey.

        Without them there is no probe.
        """
        ...

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        """At the server: return distinct clients of ``roster.present``; possibly none."""
        ...

    def answer_survey(self, context: SurveyContext) -> tuple[Any, Mapping[str, Floats]]:
        """At the client: return the new label counts, and vectors by name, which may be empty."""
        ...


@runtime_checkable
class CountsLabels(Protocol):
    """A policy that counts the labels that arrive at each client."""

    def init_counts(self, num_classes: int) -> Any: ...

    def count_labels(self, label_counts: Any, labels: Ints) -> Any:
        """Return the counts after labels (A,) have arrived."""
        ...


@runtime_checkable
class TracksSessions(Protocol):
    """A policy whose part at the server (`ServerPart`) depends on sessions."""

    def start_session(self, state: Any, last: Floats32, members: Ints) -> Any:
        """Return the state at the server when a session of some clients starts.

        `last` (P,) is the final model of the previous session; it is empty if there was none.
        """
        ...


@runtime_checkable
class ExtraMetrics(Protocol):
    """A policy that contributes extra metrics to each round."""

    def extra_metrics(self, roster: Roster, cohort: Ints) -> Mapping[str, float | list[float]]: ...


@runtime_checkable
class RecordsChoices(Protocol):
    """A selection that stores numbers about its choices in `Roster.known`."""

    def record_choice(self, roster: Roster, chosen: Ints) -> Mapping[str, Floats]:
        """Return numbers (N,) by name, which replace those of the same names.

        Called once per round with the chosen clients, ascending; not in probe rounds.
        """
        ...


@runtime_checkable
class ChecksWorld(Protocol):
    """A policy that rejects worlds in which it cannot work, before the run starts."""

    def check_world(self, supplies: Supplies, num_classes: int) -> None:
        """Raise a `ConfigError` with a remedy if the policy cannot work with these clients."""
        ...


class PartialCapability(NamedTuple):
    """A capability that a policy implements only in part."""

    protocol: type
    present: list[str]
    missing: list[str]


def get_members(protocol: type) -> list[str]:
    """Return the public methods and properties that a protocol defines."""
    return [name for name in vars(protocol) if not name.startswith("_")]


def find_partial_capability(
    policy: object, capabilities: Mapping[type, tuple[type, ...]]
) -> PartialCapability | None:
    """Return the first capability of which a policy has some methods but not all members.

    `capabilities` maps each protocol to other protocols that it requires. Only methods count as
    evidence: an attribute may have the name of a property by chance.

    >>> class Broken:
    ...     def init_counts(self, num_classes): ...
    >>> find_partial_capability(Broken(), {ServerPart: (), CountsLabels: ()}).missing
    ['count_labels']
    """
    for protocol, required in capabilities.items():
        methods = [
            name
            for name in get_members(protocol)
            if callable(getattr(protocol, name)) and callable(getattr(policy, name, None))
        ]
        for each in (protocol, *required) if methods else ():
            missing = [name for name in get_members(each) if not hasattr(policy, name)]
            if missing:
                return PartialCapability(each, methods, missing)
    return None
