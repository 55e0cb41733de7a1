"""The nouns that travel between the stages.

Letters for shapes, used all over the project:

    N  clients in the world      K  clients (jobs) in a round     M  latent states
    C  classes                   B  samples in a mini-batch       P  parameters of one model
    A  samples that arrive       S  steps                         E  numbers in a message
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
    """What one client receives in one tick."""

    items: Ints  # (A,) rows of the data set, in order of arrival
    state: int  # the latent state the client is in


class Outlook(NamedTuple):
    """What a client expects of its stream, and what each latent state is worth."""

    probs: Floats  # (M,) predicted probability of each state
    importance: Floats  # (M,) weight of each state in the global objective
    heterogeneity: Floats  # (M,) how far each state's labels are from balanced


class LastLayer(NamedTuple):
    """Samples as the last layer of a model sees them; the gradient of one is error x (feature, 1)."""

    errors: Floats32  # (n, C) predicted probabilities minus the right answer
    features: Floats32  # (n, F) what goes into the last layer


class MemoryContext(NamedTuple):
    """Everything a memory policy may look at when samples arrive at one client."""

    capacity: int  # samples this client can hold
    held: int  # samples it holds now, at most `capacity`
    num_new: int  # samples that have just arrived
    state: int  # the latent state they come from
    held_labels: Ints  # (held,)
    new_labels: Ints  # (num_new,)
    outlook: Outlook
    last_layer: LastLayer | None = (
        None  # of held and new samples, for policies that look at the model
    )
    broadcast: Mapping[str, Floats32] = {}  # what the server's half of the policy has to say


class SampleAges(NamedTuple):
    """What an emphasis may look at: the memory of one client, after samples have arrived."""

    ages: Ints  # (held,) rounds in which each sample has been in memory, this one included
    labels: Ints  # (held,)
    assigned: float = 1.0  # what the server's half of the emphasis gave this client


class Supply(NamedTuple):
    """What is known beforehand of the samples that a client will have had by the end of the run."""

    total: float  # samples, those that it starts with included
    is_historical: bool  # it has all of them before the first round
    rounds: float  # in which it is expected to be here


@dataclass(frozen=True, eq=False)
class Supplies:
    """The supply of every client, as arrays (N,)."""

    total: Floats
    is_historical: npt.NDArray[np.bool_]
    rounds: Floats


class Session(NamedTuple):
    """A stretch of rounds with one set of clients."""

    number: int  # counted from 0; -1: nobody has come yet
    age: int  # rounds of it that are over
    members: (
        Ints  # (n,) ids ascending, also of those who are away in this round; empty: nobody is here
    )


class ParamSlice(NamedTuple):
    """One tensor of a model, as a stretch of its flat vector of parameters."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Roster:
    """Who is here in this round, and what the server knows of everybody."""

    rnd: int  # the round about to run, counted from 0
    present: Ints  # ids of the clients that can take part, ascending
    availability: Floats  # (N,) probability of being here in a round
    times_present: Ints  # (N,) earlier rounds in which each client was here
    known: Mapping[str, Floats] = field(default_factory=dict)
    """Last reports (N,) and last answers (N, E) by name; nan: none yet."""
    supplies: Supplies | None = None
    """What clients will have had by the end of the run, if anybody can say."""
    surveyed: Ints | None = None
    """Who was asked in this round by the stage that reads this; none: not known. Answers of earlier rounds
    stay in `known` beside theirs."""
    cohort: Ints | None = None
    """Who was chosen, ascending; none: nobody yet."""
    session: Session | None = None
    """Whose turn it is; none: there is one session for ever, and everybody belongs to it."""
    alarmed: Ints | None = None
    """Clients whose data have changed, as an alarm says, and who have not taken part since, ascending; none: there
    is no alarm, or it is not for the bank to do something about it."""

    @property
    def num_clients(self) -> int:
        return len(self.availability)


@dataclass(frozen=True)
class OracleRoster(Roster):
    """A roster with ground truth. Only policies that declare ``is_oracle = True`` receive it."""

    concepts: Ints | None = None
    """(N,) the true concept of every client; none: the federation does not know it, as on a
    network."""


class Job(NamedTuple):
    """One client trains one model of the bank."""

    client: int
    model: int = 0
    lr_scale: float = 1.0  # what its learning rate is multiplied by
    session: int = 0  # number of the session
    age: int = 0  # rounds of the session that are over
    probe_round: int = (
        0  # 0: for good; else the number of a rehearsal, after which nobody remembers anything
    )


class Rejection(NamedTuple):
    """A message that was not let in."""

    client: int  # from whom it came
    reason: str

    def __str__(self) -> str:
        return f"client {self.client}: {self.reason}"


@dataclass(frozen=True)
class Updates:
    """What the cohort of one round sends back: a struct of arrays, one row per job.

    One matrix instead of K vectors, because every rule of the server is then one line of NumPy and
    the weighted mean one matrix-vector product at the speed of memory.
    """

    clients: Ints  # (K,) ascending; of one client, what was trained first comes first
    models: Ints  # (K,) which model of the bank each one trained; ascending for each client
    deltas: Floats32  # (K, P) trained minus received parameters
    num_samples: Ints  # (K,) samples in memory at the end of the round
    num_steps: Ints  # (K,) optimiser steps taken; 0 if the memory was empty
    losses: Floats  # (K,) mean training loss over the round; nan without a step
    num_tested: Ints  # (K,) arriving samples that were predicted before they were learnt from
    num_correct: Ints  # (K,) how many of those predictions were right
    reports: Mapping[str, Floats] = field(default_factory=dict)  # (K,) scalars a rule asked for
    uploads: Mapping[str, Floats32] = field(
        default_factory=dict
    )  # (K, E) by "stage.name", see `ServerHalf`
    trained_in: Ints | None = None
    """(K,) the round whose model each was trained from; none: all of them this round's."""
    rejections: tuple[Rejection, ...] = ()  # of messages that were not let in
    bytes_down: int = 0  # that the server sent in this round
    extra_bytes_up: int = 0  # that clients sent in answer to questions
    extra_metrics: Mapping[str, Any] = field(default_factory=dict)  # of policies, for the metrics

    def __len__(self) -> int:
        return len(self.clients)

    def staleness(self, rnd: int) -> Ints:
        """(K,) rounds by which the model that each was trained from is older than that of round `rnd`."""
        if self.trained_in is None:
            return np.zeros(len(self), dtype=np.int64)
        return rnd - self.trained_in

    @property
    def is_newest(self) -> npt.NDArray[np.bool_]:
        """(K,) is it the last row of its client? A late one, or one of another model, may stand before it."""
        return np.append(self.clients[1:] != self.clients[:-1], True)[: len(self)]

    def only(self, rows: npt.NDArray[np.bool_]) -> Updates:
        """The rows of a mask (K,). Copies the big matrix only if some row is left out."""
        return self if rows.all() else self.take(np.flatnonzero(rows))

    def take(self, rows: Ints) -> Updates:
        """Some rows, in the order given."""
        arrays: dict[str, Any] = {
            name: value[rows] for name, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        return replace(
            self,
            **arrays,
            reports={name: x[rows] for name, x in self.reports.items()},
            uploads={name: x[rows] for name, x in self.uploads.items()},
        )


SurveyResponses = Mapping[
    str, Floats
]  # name -> (K, E); rows of nan: this client had nothing to say
