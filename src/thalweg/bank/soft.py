"""What banks have in common whose clients train all models, each sample as far as a model explains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from thalweg.bank.base import BankAssignment, SplitContext, require_cohort
from thalweg.core.claims import Claim, check_vector
from thalweg.core.types import Floats, Floats32, Ints, Roster
from thalweg.theory import client_mixture, label_mass, label_priors, responsibilities

PRIORS = "label_priors"  # told
SINCE = "learn_since"
BEGAN = "step_began"
MASS = "label_mass"  # said

SLACK = 1e-3  # sums in single precision

Prediction = Literal["mixture", "hard"]


class MixtureState(NamedTuple):
    """What a client keeps for its half of the bank."""

    began: int  # the round in which the step began that the mixture is about; -1: none yet
    mixture: Floats  # (models,) how much of its samples each model explains
    mass: Floats32  # (models, C) and of each label


class HasMass(Protocol):
    """Notes of a bank that remembers what clients said."""

    @property
    def mass(self) -> Floats32:
        """(N, models, C) what each model explains of each client's labels, as last heard; zeros: nothing."""
        ...


class SoftBank:
    """The client's half of FedRC, and what its server remembers of the clients.

    At every tick a client weighs each sample by how far each model, as it was received, explains it, beyond what
    its label alone explains (`theory.responsibilities`), and takes the mean of that as its mixture of models. It
    learns only from samples that came in round `learn_since` or later, if it was told such a round; with another
    `step_began` its mixture begins anew, all models alike.
    """

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

    def main_model(self, kept: MixtureState, models: Ints) -> int:
        return int(kept.mixture.argmax()) if len(kept.mixture) == len(models) else 0

    def upload(self, kept: MixtureState) -> Mapping[str, Floats32]:
        return {MASS: kept.mass.ravel()}

    def collect(self, notes: Any, clients: Ints, uploads: Mapping[str, Floats32]) -> Any:
        mass: Floats32 = notes.mass.copy()
        words = uploads.get(MASS)
        if (
            words is None or words.shape[1] != mass[0].size
        ):  # about another number of models, or nonsense
            return notes
        mass[clients] = words.reshape(len(clients), *mass.shape[1:])
        return notes._replace(mass=mass)

    def validate_claim(self, claim: Claim) -> str | None:
        """A number for each model and label, and together no more than the client has samples."""
        length = len(claim.broadcast[PRIORS]) if PRIORS in claim.broadcast else None
        if reason := check_vector(claim.uploads, MASS, length, least=0):
            return reason
        total, held = float(claim.uploads[MASS].sum(axis=-1).max()), claim.num_samples
        if held is not None and total > held * (1 + SLACK) + SLACK:
            return f"{MASS} sums to {total:g}, but the client holds {held} samples."
        return None

    def mixtures(self, notes: HasMass, num_models: int) -> Floats:
        """(N, models) what clients use: the mixture, or the largest part of it alone.

        Who was not heard of since the mixtures began has all models alike.
        """
        mixtures = client_mixtures(notes.mass)
        if mixtures.shape[1] != num_models:  # before the first round there is one
            return np.full((len(mixtures), num_models), 1 / num_models)
        if self.prediction == "mixture":
            return mixtures
        received = notes.mass.any(axis=(1, 2))
        mixtures[received] = np.eye(num_models)[mixtures[received].argmax(axis=1)]
        return mixtures

    def shares(self, notes: HasMass, num_models: int) -> Floats:
        shares: Floats = self.mixtures(notes, num_models).mean(axis=0)
        return shares


def client_mixtures(mass: Floats32) -> Floats:
    """(N, models) of each client, out of what it said of its labels; all alike if it said nothing."""
    parts = mass.sum(axis=2, dtype=np.float64)
    total = parts.sum(axis=1, keepdims=True)
    mixtures: Floats = np.where(total > 0, parts, 1.0)
    mixtures /= mixtures.sum(axis=1, keepdims=True)
    return mixtures


def assign_all_models(
    notes: HasMass, roster: Roster, mix: Floats, began: int, learn_since: Ints
) -> BankAssignment:
    """Every client of the cohort trains every model; rows of zeros in the mix are models drawn anew.

    `learn_since` (N,) is told each client, and how the labels are distributed that each model explains
    (`theory.label_priors`), by the last words of all clients.
    """
    cohort, J = require_cohort(roster), len(mix)
    priors = label_priors(notes.mass.sum(axis=0, dtype=np.float64))
    broadcast = {
        PRIORS: np.tile(priors.ravel(), (len(cohort), 1)),
        SINCE: learn_since[cohort, None].astype(np.float64),
        BEGAN: np.full((len(cohort), 1), float(began)),
    }
    return BankAssignment(
        notes=notes,
        mix=mix,
        is_new=find_random_models(mix),
        clients=np.repeat(cohort, J),
        models=np.tile(np.arange(J), len(cohort)),
        broadcast=broadcast,
    )


def find_random_models(mix: Floats) -> npt.NDArray[np.bool_]:
    """(models,) which models of a mix are made of no other, and so drawn."""
    return np.asarray(~mix.any(axis=1))


def grow_mix(num_models: int, num_wanted: int) -> Floats:
    """The mix of a bank that keeps its models and gets some that are drawn.

    >>> grow_mix(1, 3).tolist()
    [[1.0], [0.0], [0.0]]
    """
    return np.eye(max(num_models, num_wanted), num_models)
