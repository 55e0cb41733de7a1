"""What policies answer, checked: one of the user's own may be wrong."""

from __future__ import annotations

import numpy as np

from thalweg.aggregation import CombinedUpdates
from thalweg.bank import BankAssignment
from thalweg.core.capabilities import ModelProbe
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Ints, MemoryContext
from thalweg.local import Stopping
from thalweg.sample_weights import SampleWeights


def check_kept(kept: Ints, intake: MemoryContext, policy: object) -> None:
    """A policy of the user's own may be wrong; one count of every position finds out."""
    total = intake.held + intake.num_new
    try:
        uses = np.bincount(kept, minlength=total)  # refuses negative positions and fractions
        right = len(kept) <= intake.capacity and len(uses) == total and uses.max(initial=0) <= 1
    except (TypeError, ValueError):
        right = False
    if not right:
        raise ConfigError(
            f"{type(policy).__name__}.keep must return at most {intake.capacity} different "
            f"positions in [0, {total}), got {len(kept)} from {np.min(kept)} to {np.max(kept)}, "
            f"{len(np.unique(kept))} of them different."
        )


def check_sample_weights(weights: Floats, held: int, sample_weights: SampleWeights) -> None:
    """An emphasis of the user's own may be wrong."""
    if weights.shape != (held,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise ConfigError(
            f"{type(sample_weights).__name__}.weigh must return {held} finite weights of at least 0, got "
            f"shape {weights.shape} from {weights.min(initial=0)} to {weights.max(initial=0)}."
        )


def check_held_out(aside: Ints, num_rows: int, stopping: Stopping) -> None:
    """A stopping of the user's own may be wrong."""
    right = aside.ndim == 1 and np.isin(aside, np.arange(num_rows)).all()
    if not right or (np.diff(aside) <= 0).any():
        raise ConfigError(
            f"{type(stopping).__name__}.hold_out must return different positions in [0, {num_rows}), "
            f"ascending, got {aside.tolist()}."
        )


def check_split(weights: Floats, shape: tuple[int, ...], bank: object) -> None:
    """A bank of the user's own may be wrong."""
    if weights.shape != shape or not np.isfinite(weights).all() or (weights < 0).any():
        raise ConfigError(
            f"{type(bank).__name__}.split_samples must return finite weights of at least 0 of shape {shape}, a row for "
            f"each model and a column for each sample, got shape {weights.shape} from "
            f"{weights.min(initial=0)} to {weights.max(initial=0)}."
        )


def check_bank_assignment(
    plan: BankAssignment, cohort: Ints, num_models: int, bank: object
) -> None:
    """A bank of the user's own may be wrong."""
    sums, models = plan.mix.sum(axis=-1), plan.models
    right = plan.mix.ndim == 2 and plan.mix.shape[1] == num_models and len(plan.mix) >= 1
    right = right and plan.is_new.shape == (len(plan.mix),)
    right = right and (np.isclose(sums, 1) | ((sums == 0) & plan.is_new)).all()
    right = right and plan.clients.shape == models.shape
    right = right and np.array_equal(np.unique(plan.clients), cohort)
    right = right and ((models >= 0) & (models < len(plan.mix))).all()
    steps = np.diff(plan.clients), np.diff(models) if right else np.zeros(1)
    right = right and ((steps[0] > 0) | ((steps[0] == 0) & (steps[1] > 0))).all()
    right = right and all(len(words) == len(cohort) for words in plan.broadcast.values())
    if not right:
        raise ConfigError(
            f"{type(bank).__name__}.arrange must mix the {num_models} models of the bank with rows that sum to one "
            f"(or to zero, if the model is new and to be drawn), give each of {len(cohort)} clients one of the "
            f"mixtures or several, ascending by client and model, and tell all of them something or nobody; got a "
            f"mix of shape {plan.mix.shape}, clients {plan.clients.tolist()} and models {models.tolist()}."
        )


def check_combined(left: CombinedUpdates, num_params: int, robust: object) -> None:
    """A robust rule of the user's own may be wrong."""
    deltas, weights = left.deltas, left.weights
    right = deltas.ndim == 2 and deltas.shape[1] == num_params and weights.shape == (len(deltas),)
    right = right and deltas.dtype == np.float32 and np.isfinite(deltas).all()
    if not right or not np.isfinite(weights).all() or (weights < 0).any():
        raise ConfigError(
            f"{type(robust).__name__}.combine must return finite updates of {num_params} numbers in single "
            f"precision and a weight of at least 0 for each, got {deltas.dtype} of shape {deltas.shape} and "
            f"weights of shape {weights.shape} from {weights.min(initial=0)} to {weights.max(initial=0)}."
        )


def require_probe(probe: ModelProbe | None) -> ModelProbe:
    """A view of the model, where a recipe cannot do without."""
    assert probe is not None, "an attentive recipe needs a look at the model"
    return probe
