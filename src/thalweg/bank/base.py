"""Interfaces of banks, and the bank with one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import require
from thalweg.core.types import Floats, Floats32, Ints, OracleRoster, Roster, SurveyResponses

MAX_JOBS = 32  # models that one client trains in a round, of banks that do not declare it


class BankAssignment(NamedTuple):
    """The models of a round and the training jobs of its cohort.

    Each model of the round is a weighted mean of the models of the previous round. One matrix
    therefore describes every change: a unit row keeps or copies a model, a row with several
    entries merges models, a model without a row is closed, and a row of zeros creates a
    model with random parameters.
    """

    state: Any  # the state of the bank for the next round
    mix: Floats
    """(models now, models before) rows sum to one, or to zero for a randomly initialised model."""
    is_new: npt.NDArray[np.bool_]  # (models now,) the server rule starts from its initial state
    clients: Ints
    """(J,) clients of the jobs, ascending by client and model; each client of the cohort has one
    job or more."""
    models: Ints  # (J,) models of the jobs
    broadcast: Mapping[str, Floats] = {}
    """(K, E) by name: values for each client of the cohort, see `SplitsSamples`."""


class Bank(Protocol):
    """Opens, merges and closes models, and assigns models to clients.

    Implement `init`, `assign` and `shares`; no base class is needed. The bank is a frozen value:
    its state is passed in and returned, and must survive a checkpoint.

    A bank that needs information from the clients before it assigns models also implements
    `core.capabilities.Surveys`. It may survey any present client; `Roster.cohort` holds the
    clients that were chosen for training.

    A bank may have an attribute `num_start_models`: random models are then added before its first
    survey, so that `assign` starts with that many models instead of one.

    A bank may have an attribute `max_jobs`: the largest number of models that one client trains in
    a round. Devices reject requests for more models; without it, for more than `MAX_JOBS`.
    """

    def init(self, num_clients: int, num_classes: int) -> Any:
        """Return the state before the first round. The bank then has one model."""
        ...

    def assign(
        self, state: Any, roster: Roster, responses: SurveyResponses, num_models: int
    ) -> BankAssignment:
        """Return the models of this round and the jobs of `roster.cohort`.

        `responses` maps names to arrays (number of surveyed clients, E), with one row for each
        client of `Roster.surveyed`; a row of nan means that this client sent no response.
        """
        ...

    def shares(self, state: Any, num_models: int) -> Floats:
        """Return (models,) the share of the clients that use each model; the sum is one."""
        ...


class SplitContext(NamedTuple):
    """The data with which a client weights its samples for each received model."""

    models: Ints  # (J,) ascending
    losses: Floats32  # (J, held) cross-entropy of each sample under each model, as received
    labels: Ints  # (held,)
    since: Ints  # (held,) the round in which each sample arrived
    rnd: int


@runtime_checkable
class SplitsSamples(Protocol):
    """A bank with a client part: the client weights its samples separately for each model.

    With the class attribute ``splits_single_models = False`` a client with a single model trains
    it on all samples with equal weight, as without this capability. `split_samples` then gets
    losses of zero, which saves a prediction of the whole memory. It is not called for a client to
    which the bank broadcasts nothing; the state of this client becomes that of `init_split`.

    With the class attribute ``separates_samples = True`` a client trains each model on mini-batches
    of the samples with a positive weight for it, and these weights are scaled to a mean of one.
    Without it, all models are trained on the same mini-batches, and a model with small weights
    takes small steps.
    """

    def init_split(self, num_classes: int) -> Any:
        """Return the state of a client before its first round."""
        ...

    def split_samples(
        self, kept: Any, split: SplitContext, received: Mapping[str, Floats32]
    ) -> tuple[Any, Floats]:
        """Return the next client state and the sample weights (J, held), not negative.

        A sample with weight zero for every model is not used for training. `received` is the
        client's row of `BankAssignment.broadcast`.
        """
        ...

    def main_model(self, kept: Any, models: Ints, received: Mapping[str, Floats32]) -> int:
        """Return the index, in `models` (J,), of the model that predicts for this client.

        It is called before `split_samples`. `received` is the client's row of
        `BankAssignment.broadcast`.
        """
        ...

    def upload(self, kept: Any) -> Mapping[str, Floats32]:
        """Return the vectors, by name, that the client sends to the server after training.

        Each vector has the same length at every client.
        """
        ...

    def collect(self, state: Any, clients: Ints, uploads: Mapping[str, Floats32]) -> Any:
        """Return the state of the bank after these uploads (K, E); clients are distinct."""
        ...


@runtime_checkable
class MixesModels(Protocol):
    """A bank whose clients predict with a mixture of models."""

    def mixtures(self, state: Any, num_models: int) -> Floats:
        """Return (N, models) the weight of each model at each client; rows sum to one."""
        ...


@runtime_checkable
class WatchesClients(Protocol):
    """A bank whose survey also depends on its state."""

    def find_watched(self, state: Any, roster: Roster) -> Ints:
        """Return clients of ``roster.present`` to survey beside those of `choose_surveyed`."""
        ...


@runtime_checkable
class ExtraBankMetrics(Protocol):
    """A bank that contributes metrics."""

    def extra_metrics(self, state: Any, roster: Roster) -> Mapping[str, Any]:
        """Return the metrics of the roster's round; called after `assign`."""
        ...


def require_cohort(roster: Roster) -> Ints:
    """Return the cohort (K,) of a roster; raise `ConfigError` if it has none."""
    require(
        roster.cohort is not None,
        "a bank assigns models to the cohort, expected a roster with a cohort, got one without. "
        "Set it with dataclasses.replace(roster, cohort=...).",
    )
    assert roster.cohort is not None
    return roster.cohort


def require_concepts(roster: Roster, setting: str) -> Ints:
    """Return the true concepts (N,) of a roster; raise `ConfigError` if it has none."""
    concepts = roster.concepts if isinstance(roster, OracleRoster) else None
    require(
        concepts is not None,
        f"{setting} needs the true concept of each client, which only a simulation provides; got a "
        "roster without concepts. Use a bank that estimates them, such as feddaa or feddrift.",
    )
    assert concepts is not None
    return concepts.astype(np.int64)


def is_step_start(every: int | None, roster: Roster) -> bool:
    """Return whether a time step starts in this round.

    A step starts every `every` rounds. With None it starts in round 0, and in each round whose
    cohort contains an alarmed client.
    """
    if every is not None:
        return roster.rnd % every == 0
    if roster.rnd == 0 or roster.alarmed is None or len(roster.alarmed) == 0:
        return roster.rnd == 0
    return bool(np.isin(roster.alarmed, require_cohort(roster)).any())


def find_max_jobs(bank: Bank) -> int:
    """Return the largest number of models that one client trains in a round.

    >>> find_max_jobs(OneModel())
    1
    """
    return int(getattr(bank, "max_jobs", MAX_JOBS))


@dataclass(frozen=True)
class OneModel:
    """One global model that all clients train and use, as in FedAvg.

    >>> bank = OneModel()
    >>> bank.shares(bank.init(num_clients=5, num_classes=2), num_models=1).tolist()
    [1.0]
    """

    is_single_model = True
    max_jobs = 1

    def init(self, num_clients: int, num_classes: int) -> None:
        return None

    def assign(
        self, state: None, roster: Roster, responses: SurveyResponses, num_models: int
    ) -> BankAssignment:
        cohort = require_cohort(roster)
        first = np.zeros(len(cohort), dtype=np.int64)
        return BankAssignment(None, np.eye(1), np.array([False]), cohort, first)

    def shares(self, state: None, num_models: int) -> Floats:
        return np.ones(1)
