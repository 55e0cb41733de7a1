"""What policies answer, checked: one of the user's own may be wrong."""

from __future__ import annotations

import numpy as np

from thalweg.core.errors import ConfigError
from thalweg.core.talk import Look
from thalweg.core.types import Floats, Intake, Ints
from thalweg.emphasis import Emphasis
from thalweg.local import Stopping


def check_kept(kept: Ints, intake: Intake, policy: object) -> None:
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


def check_weights(weights: Floats, held: int, emphasis: Emphasis) -> None:
    """An emphasis of the user's own may be wrong."""
    if weights.shape != (held,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise ConfigError(
            f"{type(emphasis).__name__}.weigh must return {held} finite weights of at least 0, got "
            f"shape {weights.shape} from {weights.min(initial=0)} to {weights.max(initial=0)}."
        )


def check_held_out(aside: Ints, num_rows: int, stopping: Stopping) -> None:
    """A stopping of the user's own may be wrong."""
    right = aside.ndim == 1 and np.isin(aside, np.arange(num_rows)).all()
    if not right or (np.diff(aside) <= 0).any():
        raise ConfigError(
            f"{type(stopping).__name__}.held_out must return different positions in [0, {num_rows}), "
            f"ascending, got {aside.tolist()}."
        )


def required(look: Look | None) -> Look:
    """A view of the model, where a recipe cannot do without."""
    assert look is not None, "an attentive recipe needs a look at the model"
    return look
