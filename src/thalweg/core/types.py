"""The values that stages exchange.

Letters of array shapes, used in the whole project:

    N  clients in the world      K  clients (jobs) in a round     M  latent states
    C  classes                   B  samples in a mini-batch       P  parameters of one model
    A  samples that arrive       S  steps                         E  numbers in a vector
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]  # small numbers: probabilities, weights, scores
Floats32 = npt.NDArray[np.float32]  # parameters and updates
Ints = npt.NDArray[np.int64]  # ids, labels, positions


class Arrival(NamedTuple):
    """The samples that one client receives in one tick."""

    items: Ints  # (A,) rows of the data set, in order of arrival
    state: int  # the latent state the client is in
    owners: Ints | None = None
    """(A,) the client of each sample if a learner receives the samples of several clients; -1 for
    samples that are not tested before training. None: all samples belong to the client."""


class Outlook(NamedTuple):
    """A client's forecast of its latent states, with their importance."""

    probs: Floats  # (M,) predicted probability of each state
    importance: Floats  # (M,) weight of each state in the global objective
    heterogeneity: Floats  # (M,) how far each state's labels are from balanced
    variance: Floats | None = None  # (M,) of `probs`, as random numbers; None: not estimated
    deviations: Floats | None = None  # (M, E) each state's signature minus the goal, if known


class LastLayer(NamedTuple):
    """Inputs and errors of a model's last layer; a sample's gradient is error x (feature, 1)."""

    errors: Floats32  # (n, C) predicted probabilities minus one-hot labels
    features: Floats32  # (n, F) inputs of the last layer


class MemoryContext(NamedTuple):
    """Everything that a memory policy can read when samples arrive at one client."""

    capacity: int  # samples this client can hold
    held: int  # samples it holds now, at most `capacity`
    num_new: int  # samples that have just arrived
    state: int  # their latent state; -1: unknown, or the memory does not declare `uses_forecast`
    held_labels: Ints  # (held,) classes; 0 in a regression
    new_labels: Ints  # (num_new,)
    outlook: Outlook
    last_layer: LastLayer | None = None  # of held and new samples, for policies that need it
    broadcast: Mapping[str, Floats32] = {}  # values from the policy's server part
    held_targets: Floats32 | None = None
    """(held,) or (held, D) the targets of a regression, for policies with `uses_targets`."""
    new_targets: Floats32 | None = None  # the same of the new samples


class SampleAges(NamedTuple):
    """The memory of one client after samples have arrived, as sample weights see it."""

    ages: Ints  # (held,) rounds that each sample has been in memory, including this one
    labels: Ints  # (held,)
    assigned: float = 1.0  # the factor that the server assigned to this client


class Supply(NamedTuple):
    """The number of samples that a client will have received by the end of the run."""

    total: float  # samples, including those at the start
    is_historical: bool  # whether it has all of them before the first round
    rounds: float  # expected number of rounds in which it is present


@dataclass(frozen=True, eq=False)
class Supplies:
    """The supply of every client, as arrays (N,)."""

    total: Floats
    is_historical: npt.NDArray[np.bool_]
    rounds: Floats


class Session(NamedTuple):
    """A sequence of rounds with one set of clients."""

    number: int  # counted from 0; -1: before the first session
    age: int  # rounds of the session that are over
    members: Ints  # (n,) ids of all its clients, ascending, including absent ones


class ParamSlice(NamedTuple):
    """One tensor of a model, as a slice of its flat parameter vector."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Roster:
    """The clients that are present in a round, and stored values of all clients."""

    rnd: int  # the round about to run, counted from 0
    present: Ints  # ids of the clients that can take part, ascending
    availability: Floats  # (N,) probability of being present in a round
    times_present: Ints  # (N,) earlier rounds in which each client was present
    known: Mapping[str, Floats] = field(default_factory=dict)
    """Last reports (N,) and last survey responses (N, E) by name; nan: none yet."""
    supplies: Supplies | None = None
    """The samples of all clients by the end of the run, if known."""
    surveyed: Ints | None = None
    """The clients that the reading stage surveyed in this round; none: unknown. `known` also has
    the responses of earlier rounds."""
    cohort: Ints | None = None
    """The chosen clients, ascending; none: not chosen yet."""
    session: Session | None = None
    """The current session; none: the run has no sessions."""
    alarmed: Ints | None = None
    """Clients with an alarm since they last took part, ascending; none: the recipe has no alarm
    that concerns the bank."""

    @property
    def num_clients(self) -> int:
        return len(self.availability)


@dataclass(frozen=True)
class OracleRoster(Roster):
    """A roster with ground truth. Only policies that declare ``is_oracle = True`` receive it."""

    concepts: Ints | None = None
    """(N,) the true concept of every client; none: unknown, as on a network."""


class Job(NamedTuple):
    """One client trains one model of the bank."""

    client: int
    model: int = 0
    lr_scale: float = 1.0  # factor of the learning rate
    session: int = 0  # number of the session
    age: int = 0  # rounds of the session that are over
    probe_round: int = 0  # 0: an ordinary round; else the number of a probe round


class Rejection(NamedTuple):
    """An invalid message that was rejected."""

    client: int  # the sender
    reason: str

    def __str__(self) -> str:
        return f"client {self.client}: {self.reason}"


@dataclass(frozen=True)
class Updates:
    """The updates of one round as arrays with one row per job.

    With one matrix instead of K vectors the weighted mean is a single matrix-vector product.
    """

    clients: Ints  # (K,) ascending; the rows of one client in the order in which it trained
    models: Ints  # (K,) the model of the bank that was trained; ascending for each client
    deltas: Floats32  # (K, P) trained minus received parameters
    num_samples: Ints  # (K,) samples in memory at the end of the round
    num_steps: Ints  # (K,) optimizer steps taken; 0 if the memory was empty
    losses: Floats  # (K,) mean training loss over the round; nan without a step
    num_tested: Ints  # (K,) arriving samples that were predicted before training on them
    num_correct: Ints  # (K,) correct predictions among them; 0 in a regression
    reports: Mapping[str, Floats] = field(default_factory=dict)  # (K,) numbers for the weights
    uploads: Mapping[str, Floats32] = field(default_factory=dict)  # (K, E) by "stage.name"
    error_sums: Floats | None = None
    """(K,) regression: the sum of the absolute errors of the tested samples; none: classes."""
    trained_in: Ints | None = None
    """(K,) the round in which each was trained; none: all in this round."""
    rejections: tuple[Rejection, ...] = ()
    bytes_down: int = 0  # sent by the server in this round
    extra_bytes_up: int = 0  # sent by clients besides these rows: survey responses, probe rounds
    extra_metrics: Mapping[str, Any] = field(default_factory=dict)  # for the metrics

    def __len__(self) -> int:
        return len(self.clients)

    def staleness(self, rnd: int) -> Ints:
        """Return (K,) the age in round `rnd` of the model from which each was trained."""
        if self.trained_in is None:
            return np.zeros(len(self), dtype=np.int64)
        return rnd - self.trained_in

    @property
    def is_newest(self) -> npt.NDArray[np.bool_]:
        """(K,) whether it is the last row of its client."""
        return np.append(self.clients[1:] != self.clients[:-1], True)[: len(self)]

    def only(self, rows: npt.NDArray[np.bool_]) -> Updates:
        """Return the rows of a mask (K,); copies the (K, P) matrix only if a row is left out."""
        return self if rows.all() else self.take(np.flatnonzero(rows))

    def take(self, rows: Ints) -> Updates:
        """Return some rows, in the given order."""
        arrays: dict[str, Any] = {
            name: value[rows]
            for name, value in vars(self).items()
            if isinstance(value, np.ndarray) or name == "deltas"
        }
        return replace(
            self,
            **arrays,
            reports={name: x[rows] for name, x in self.reports.items()},
            uploads={name: x[rows] for name, x in self.uploads.items()},
        )


SurveyResponses = Mapping[str, Floats]  # name -> (K, E); a row of nan: no response
