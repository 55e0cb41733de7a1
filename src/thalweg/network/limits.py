"""Limits on the values that clients send; the server rejects responses that exceed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.claims import Claim, ValidatesClaims
from thalweg.core.config import check_ranges
from thalweg.core.errors import BadMessage
from thalweg.core.types import Floats
from thalweg.federation import SurveyRequest, SurveyResponse, TrainRequest, TrainResponse
from thalweg.local import LocalTraining
from thalweg.network.wire import Request, Response
from thalweg.recipes.base import Recipe
from thalweg.streams import World
from thalweg.theory import row_norms

UPLOAD_STAGES = ("memory", "objective", "bank")  # stages with uploads in a TrainResponse


@dataclass(frozen=True)
class Limits:
    """Upper limits on the values in a client's responses.

    They bound the influence of a single client. The defaults are loose enough for any honest
    client; `limits_for` computes tighter limits for a known world.
    """

    max_norm: float = 1e6
    """Norm of an update, and of any uploaded vector."""
    norm_factor: float | None = None
    """Norm of an update, as a multiple of the median norm of the round's updates of the same model;
    None: no limit."""
    max_samples: int = 10_000_000
    """Samples in the client's memory."""
    max_tested: int = 10_000_000
    """Arriving samples that the client predicted before it trained on them."""
    max_steps: int = 1_000_000
    """Training steps."""
    max_value: float = 1e9
    """Absolute value of any other number: losses, mean errors, reports, survey responses."""
    num_classes: int | None = None
    """Length of vectors with one number per class; None: the length that most clients send."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            max_norm="(0, inf]",
            norm_factor="[1, inf) or none",
            max_samples="[0, inf)",
            max_tested="[0, inf)",
            max_steps="[0, inf)",
            max_value="(0, inf]",
            num_classes="[1, inf) or none",
        )


def limits_for(world: World, local: LocalTraining, num_classes: int, **others: Any) -> Limits:
    """Limits for a known world: the samples of its largest memory, and the steps they allow."""
    held = max(world.capacity(client) for client in range(world.num_clients))
    per_tick = local.steps
    if per_tick is None:
        assert local.passes is not None
        whole, part = divmod(local.passes, 1.0)
        per_pass = -(-held // local.batch_size)
        per_tick = int(whole + (part > 0)) * per_pass + 1
    tighter = {"max_samples": held, "max_steps": per_tick * world.ticks, "num_classes": num_classes}
    return Limits(**{**tighter, **others})


def check_response(response: Response, request: Request, recipe: Recipe, limits: Limits) -> None:
    """Reject a response whose values exceed the limits or are impossible for the recipe.

    The response has been decoded and matches its request. Mask responses have no limits.
    """
    if isinstance(response, TrainResponse) and isinstance(request, TrainRequest):
        check_train_response(response, request, recipe, limits)
    elif isinstance(response, SurveyResponse) and isinstance(request, SurveyRequest):
        check_survey_response(response, request, recipe, limits)


def check_train_response(
    response: TrainResponse, request: TrainRequest, recipe: Recipe, limits: Limits
) -> None:
    """Reject a train response whose values exceed the limits or are impossible."""
    _check_counts(response, limits)
    vectors = {"the update": response.deltas, **response.uploads}
    for name, rows in vectors.items():
        norm = float(row_norms(rows).max(initial=0))
        if norm > limits.max_norm:
            raise BadMessage(
                f"TrainResponse: {name} has norm {norm:.3g}, at most {limits.max_norm:g} is "
                "allowed."
            )
    others = {"losses": response.losses, **response.reports}
    if response.error_sums is not None:
        others["the mean absolute error"] = response.error_sums / np.maximum(response.num_tested, 1)
    for name, values in others.items():
        _check_magnitude("TrainResponse", name, values, limits)
    common = (response.deltas.shape[1], len(request.models))
    for stage in UPLOAD_STAGES:
        uploads = {
            name.removeprefix(f"{stage}."): values
            for name, values in response.uploads.items()
            if name.startswith(f"{stage}.")
        }
        if uploads:
            broadcast = request.broadcast.get(stage, {})
            claim = Claim(uploads, *common, broadcast, response.num_samples, limits.num_classes)
            _check_claim(getattr(recipe, stage), claim, "TrainResponse")
    if response.reports:
        claim = Claim(response.reports, *common, {}, response.num_samples, limits.num_classes)
        _check_claim(recipe.weights, claim, "TrainResponse")


def check_survey_response(
    response: SurveyResponse, request: SurveyRequest, recipe: Recipe, limits: Limits
) -> None:
    """Reject a survey response with impossible values. One without values is always valid."""
    for name, values in response.values.items():
        if np.isnan(values).any():
            raise BadMessage(
                f"SurveyResponse: {name} contains nan; leave out values that are not available."
            )
        _check_magnitude("SurveyResponse", name, values, limits)
    if response.values:
        num_models, num_params = request.bank.shape
        claim = Claim(
            response.values,
            num_params,
            num_models,
            num_classes=limits.num_classes,
            is_survey_response=True,
        )
        _check_claim(getattr(recipe, response.stage), claim, "SurveyResponse")


def find_oversized_updates(responses: Sequence[TrainResponse], limits: Limits) -> dict[int, str]:
    """Find updates with a much larger norm than others of the same model: indices and reasons.

    A model with fewer than three updates has no usual norm, so none of its updates is rejected.
    """
    if limits.norm_factor is None:
        return {}
    found: dict[int, str] = {}
    by_model: dict[int, list[tuple[int, float]]] = {}
    for index, response in enumerate(responses):
        norms = _update_norms(response).tolist()
        for model, norm in zip(response.models.tolist(), norms, strict=True):
            if norm > 0:
                by_model.setdefault(model, []).append((index, norm))
    for updates in by_model.values():
        median = float(np.median([norm for _, norm in updates]))
        for index, norm in updates if len(updates) > 2 else ():
            if norm > limits.norm_factor * median:
                found[index] = (
                    f"TrainResponse: the update has norm {norm:.3g}, at most "
                    f"{limits.norm_factor:g} times the median {median:.3g} is allowed "
                    "(norm_factor)."
                )
    return found


def _update_norms(response: TrainResponse) -> Floats:
    """(J,) norms of the updates; 0 for models without a training step."""
    return np.where(response.num_steps > 0, row_norms(response.deltas), 0.0)


def _check_counts(response: TrainResponse, limits: Limits) -> None:
    counts: Mapping[str, tuple[int, int]] = {
        "num_samples": (response.num_samples, limits.max_samples),
        "num_tested": (int(response.num_tested.max(initial=0)), limits.max_tested),
        "num_steps": (int(response.num_steps.max(initial=0)), limits.max_steps),
    }
    for name, (count, maximum) in counts.items():
        if count > maximum:
            raise BadMessage(f"TrainResponse: {name} is {count}, at most {maximum} is allowed.")


def _check_magnitude(kind: str, name: str, values: npt.NDArray[Any], limits: Limits) -> None:
    largest = float(np.abs(np.nan_to_num(values, nan=0.0)).max(initial=0.0))
    if largest > limits.max_value:
        raise BadMessage(
            f"{kind}: {name} is {largest:.3g}, at most {limits.max_value:g} is allowed."
        )


def _check_claim(policy: object, claim: Claim, kind: str) -> None:
    if isinstance(policy, ValidatesClaims) and (reason := policy.validate_claim(claim)):
        raise BadMessage(f"{kind}: {reason}")
