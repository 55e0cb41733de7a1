"""Common parts of banks whose clients train all models with weighted samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from thalweg.bank.base import BankAssignment, SplitContext, require_cohort
from thalweg.core.claims import Claim, Delivery, check_names, check_vector, first_reason
from thalweg.core.types import Floats, Floats32, Ints, Roster
from thalweg.theory import client_mixture, label_mass, label_priors, responsibilities

PRIORS = "label_priors"  # broadcast
SINCE = "learn_since"  # broadcast
BEGAN = "step_began"  # broadcast
MASS = "label_mass"  # upload

SLACK = 1e-3  # tolerance for sums in single precision

Prediction = Literal["mixture", "hard"]


class MixtureState(NamedTuple):
    """The state of a client."""

    began: int  # the first round of the step to which the mixture belongs; -1: none yet
    mixture: Floats  # (models,) mean responsibility of each model for the client's samples
    mass: Floats32  # (models, C) sum of the responsibilities over the samples of each label


class HasMass(Protocol):
    """The state of a bank that stores the label masses of its clients."""

    @property
    def mass(self) -> Floats32:
        """(N, models, C) label mass of each model at each client, as last received; zeros: none."""
        ...


class SoftBank:
    """Base class of FedRC and FedDAA: the client part, and the label masses at the server.

    At each tick a client weights each sample by the responsibilities of the received models
    (`theory.responsibilities`); their mean is its mixture of models. It uses only samples that
    arrived in round `learn_since` or later. When `step_began` changes, its mixture is reset to
    equal parts. A subclass is a frozen dataclass with a field `prediction`.
    """

    needs_class_labels: ClassVar[bool] = True  # mixtures depend on the label masses

    prediction: Prediction

    def init_split(self, num_classes: int) -> MixtureState:
        return MixtureState(-1, np.ones(1), np.zeros((1, num_classes), dtype=np.float32))

    def split_samples(
        self, kept: MixtureState, split: SplitContext, received: Mapping[str, Floats32]
    ) -> tuple[MixtureState, Floats]:
        J, num_classes = len(split.models), kept.mass.shape[1]
        began = int(received[BEGAN][0])
        mixture = kept.mixture
        if began != kept.began or len(mixture) != J:
            mixture = np.full(J, 1 / J)
        is_used = split.since >= received[SINCE][0]
        labels = split.labels[is_used]
        priors = received[PRIORS].astype(np.float64).reshape(J, num_classes)
        shares = responsibilities(split.losses[:, is_used], labels, mixture, priors)
        weights = np.zeros(split.losses.shape)
        weights[:, is_used] = shares
        if is_used.any():
            mixture = client_mixture(shares)
        mass = label_mass(shares, labels, num_classes).astype(np.float32)
        return MixtureState(began, mixture, mass), weights

    def validate_delivery(self, delivery: Delivery) -> str | None:
        num_priors = delivery.num_models * delivery.num_classes
        return first_reason(
            check_vector(delivery.values, SINCE, 1),
            check_vector(delivery.values, BEGAN, 1),
            check_vector(delivery.values, PRIORS, num_priors, least=0),
        )

    def main_model(self, kept: MixtureState, models: Ints, received: Mapping[str, Floats32]) -> int:
        return int(kept.mixture.argmax()) if len(kept.mixture) == len(models) else 0

    def upload(self, kept: MixtureState) -> Mapping[str, Floats32]:
        return {MASS: kept.mass.ravel()}

    def collect(self, state: Any, clients: Ints, uploads: Mapping[str, Floats32]) -> Any:
        mass: Floats32 = state.mass.copy()
        received = uploads.get(MASS)
        if received is None or received.shape[1] != mass[0].size:  # another number of models
            return state
        mass[clients] = received.reshape(len(clients), *mass.shape[1:])
        return state._replace(mass=mass)

    def validate_claim(self, claim: Claim) -> str | None:
        """Expect one mass per model and label, with a sum of at most the number of samples."""
        length = len(claim.broadcast[PRIORS]) if PRIORS in claim.broadcast else None
        return check_mass(claim, MASS, length)

    def mixtures(self, state: HasMass, num_models: int) -> Floats:
        """Return (N, models): each client's mixture, or its largest component only ("hard").

        Clients without an upload since the last reset use all models equally.
        """
        mixtures = client_mixtures(state.mass)
        if mixtures.shape[1] != num_models:  # before the first round there is one model
            return np.full((len(mixtures), num_models), 1 / num_models)
        if self.prediction == "mixture":
            return mixtures
        received = state.mass.any(axis=(1, 2))
        mixtures[received] = np.eye(num_models)[mixtures[received].argmax(axis=1)]
        return mixtures

    def shares(self, state: HasMass, num_models: int) -> Floats:
        shares: Floats = self.mixtures(state, num_models).mean(axis=0)
        return shares


def check_mass(claim: Claim, name: str, length: int | None) -> str | None:
    """Return why the only upload of a client is no label mass of its samples; None: it is one.

    `length` is the expected number of masses; None: any.
    """
    uploads, held = claim.uploads, claim.num_samples
    if reason := first_reason(
        check_names(uploads, name), check_vector(uploads, name, length, least=0)
    ):
        return reason
    total = float(uploads[name].sum(axis=-1).max())
    if held is not None and total > held * (1 + SLACK) + SLACK:
        return f"{name} sums to {total:g}, expected at most {held}, the client's samples."
    return None


def client_mixtures(mass: Floats32) -> Floats:
    """Return (N, models) the mixture of each client; equal parts if its masses are zero.

    >>> # 2 clients, 2 models, 2 labels
    >>> mass = np.array([[[3, 0], [0, 1]], [[0, 0], [0, 0]]], dtype=np.float32)
    >>> client_mixtures(mass).tolist()
    [[0.75, 0.25], [0.5, 0.5]]
    """
    per_model = mass.sum(axis=2, dtype=np.float64)
    total = per_model.sum(axis=1, keepdims=True)
    mixtures: Floats = np.where(total > 0, per_model, 1.0)
    mixtures /= mixtures.sum(axis=1, keepdims=True)
    return mixtures


def assign_all_models(
    state: HasMass, roster: Roster, mix: Floats, began: int, learn_since: Ints
) -> BankAssignment:
    """Assign all models of `mix` to each client of the cohort.

    Each client receives its entry of `learn_since` (N,), the round `began`, and the label priors
    (`theory.label_priors`) of the models, from the last uploads of all clients.
    """
    cohort, J = require_cohort(roster), len(mix)
    priors = label_priors(state.mass.sum(axis=0, dtype=np.float64))
    broadcast = {
        PRIORS: np.tile(priors.ravel(), (len(cohort), 1)),
        SINCE: learn_since[cohort, None].astype(np.float64),
        BEGAN: np.full((len(cohort), 1), float(began)),
    }
    return BankAssignment(
        state=state,
        mix=mix,
        is_new=find_random_models(mix),
        clients=np.repeat(cohort, J),
        models=np.tile(np.arange(J), len(cohort)),
        broadcast=broadcast,
    )


def find_random_models(mix: Floats) -> npt.NDArray[np.bool_]:
    """Return (models,) which models of a mix are random, that is, have a row of zeros."""
    return np.asarray(~mix.any(axis=1))


def grow_mix(num_models: int, num_wanted: int) -> Floats:
    """Return the mix of a bank that keeps its models and adds random ones up to `num_wanted`.

    >>> grow_mix(1, 3).tolist()
    [[1.0], [0.0], [0.0]]
    """
    return np.eye(max(num_models, num_wanted), num_models)
