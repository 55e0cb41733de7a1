"""What clients may claim. Whatever is beyond is refused at the server's door, with a reason."""

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
from thalweg.local import Sgd
from thalweg.recipes.base import Recipe
from thalweg.streams import World
from thalweg.theory import row_norms

UPLOAD_STAGES = ("memory", "objective", "bank")  # stages whose words come with a reply


@dataclass(frozen=True)
class Limits:
    """How far a server believes its clients. They bound what one of them can do, honest or not.

    The defaults let in all that could be meant seriously. `limits_for` has tighter ones, for a known world.
    """

    max_norm: float = 1e6
    """Length of an update, and of any vector that is said beside it."""
    norm_factor: float | None = None
    """The same as a multiple of the median length of a round's updates of one model; none: it does not matter."""
    max_samples: int = 10_000_000
    """That a client says it holds."""
    max_tested: int = 10_000_000
    """That it says it has predicted before it learnt from them; they are no part of its memory."""
    max_steps: int = 1_000_000
    """That it says it has made."""
    max_value: float = 1e9
    """Of any other number that it sends: losses, reports, answers."""
    num_classes: int | None = None
    """Of the data; none: vectors with a number per class may have any length that most agree on."""

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


def limits_for(world: World, local: Sgd, num_classes: int, **others: Any) -> Limits:
    """As many samples as the largest memory of a world holds, and as many steps as can be made with them."""
    held = max(world.capacity(client) for client in range(world.num_clients))
    per_tick = local.steps
    if per_tick is None:
        assert local.passes is not None
        whole, part = divmod(local.passes, 1.0)
        per_pass = -(-held // local.batch_size)
        per_tick = int(whole + (part > 0)) * per_pass + 1
    tighter = {"max_samples": held, "max_steps": per_tick * world.ticks, "num_classes": num_classes}
    return Limits(**{**tighter, **others})


def check_train_response(
    reply: TrainResponse, order: TrainRequest, recipe: Recipe, limits: Limits
) -> None:
    """Refuse a reply that claims what cannot be; its form has been checked before."""
    _check_counts(reply, limits)
    vectors = {"the update": reply.deltas, **reply.uploads}
    for name, rows in vectors.items():
        longest = float(row_norms(rows).max(initial=0))
        if longest > limits.max_norm:
            raise BadMessage(
                f"TrainResponse: {name} has length {longest:.3g}, at most {limits.max_norm:g} is let in."
            )
    for name, values in {"losses": reply.losses, **reply.reports}.items():
        _check_magnitude("TrainResponse", name, values, limits)
    common = (reply.deltas.shape[1], len(order.models))
    for stage in UPLOAD_STAGES:
        uploads = {
            name.removeprefix(f"{stage}."): values
            for name, values in reply.uploads.items()
            if name.startswith(f"{stage}.")
        }
        if uploads:
            broadcast = order.broadcast.get(stage, {})
            claim = Claim(uploads, *common, broadcast, reply.num_samples, limits.num_classes)
            _check_claim(getattr(recipe, stage), claim, "TrainResponse")
    if reply.reports:
        claim = Claim(reply.reports, *common, {}, reply.num_samples, limits.num_classes)
        _check_claim(recipe.weights, claim, "TrainResponse")


def check_survey_response(
    answer: SurveyResponse, question: SurveyRequest, recipe: Recipe, limits: Limits
) -> None:
    """Refuse an answer that cannot be true. One without words is always right."""
    for name, values in answer.values.items():
        if np.isnan(values).any():
            raise BadMessage(
                f"SurveyResponse: {name} is not a number; who has nothing to say says nothing."
            )
        _check_magnitude("SurveyResponse", name, values, limits)
    if answer.values:
        num_models, num_params = question.bank.shape
        classes = limits.num_classes
        claim = Claim(
            answer.values, num_params, num_models, num_classes=classes, is_survey_response=True
        )
        _check_claim(getattr(recipe, answer.stage), claim, "SurveyResponse")


def find_oversized_updates(replies: Sequence[TrainResponse], limits: Limits) -> dict[int, str]:
    """Whose update is much longer than those of the same model in this round: places, and why.

    Of two or fewer updates of a model nobody can say which is the usual one.
    """
    if limits.norm_factor is None:
        return {}
    found: dict[int, str] = {}
    by_model: dict[int, list[tuple[int, float]]] = {}
    for place, reply in enumerate(replies):
        for model, length in zip(reply.models.tolist(), _update_norms(reply).tolist(), strict=True):
            if length > 0:
                by_model.setdefault(model, []).append((place, length))
    for mine in by_model.values():
        usual = float(np.median([length for _, length in mine]))
        for place, length in mine if len(mine) > 2 else ():
            if length > limits.norm_factor * usual:
                found[place] = (
                    f"TrainResponse: the update has length {length:.3g}, more than {limits.norm_factor:g} times "
                    f"that of most, {usual:.3g}."
                )
    return found


def _update_norms(reply: TrainResponse) -> Floats:
    """(J,) lengths of the updates; 0 for models of which no step was made."""
    return np.where(reply.num_steps > 0, row_norms(reply.deltas), 0.0)


def _check_counts(reply: TrainResponse, limits: Limits) -> None:
    claims: Mapping[str, tuple[int, int]] = {
        "num_samples": (reply.num_samples, limits.max_samples),
        "num_tested": (int(reply.num_tested.max(initial=0)), limits.max_tested),
        "num_steps": (int(reply.num_steps.max(initial=0)), limits.max_steps),
    }
    for name, (claimed, most) in claims.items():
        if claimed > most:
            raise BadMessage(f"TrainResponse: {name} is {claimed}, at most {most} is possible.")


def _check_magnitude(kind: str, name: str, values: npt.NDArray[Any], limits: Limits) -> None:
    largest = float(np.abs(np.nan_to_num(values, nan=0.0)).max(initial=0.0))
    if largest > limits.max_value:
        raise BadMessage(
            f"{kind}: {name} is {largest:.3g}, at most {limits.max_value:g} is let in."
        )


def _check_claim(policy: object, claim: Claim, kind: str) -> None:
    if isinstance(policy, ValidatesClaims) and (reason := policy.validate_claim(claim)):
        raise BadMessage(f"{kind}: {reason}")
