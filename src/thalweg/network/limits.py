"""Limits on the values that clients send; the server rejects responses that exceed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.aggregation import Reports
from thalweg.core.claims import Claim, ValidatesClaims
from thalweg.core.config import check_ranges
from thalweg.core.errors import BadMessage
from thalweg.core.types import Floats
from thalweg.federation import SurveyRequest, SurveyResponse, TrainRequest, TrainResponse
from thalweg.local import LocalTraining
from thalweg.network.wire import Request, Response
from thalweg.recipes.base import Recipe
from thalweg.streams import World
from thalweg.theory import clip_rows, row_norms

UPLOAD_STAGES = ("memory", "objective", "bank")  # stages with uploads in a TrainResponse
SERVER_NAMES = ("loss", "num_samples")  # that the server itself writes to `Roster.known`


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
    report_factor: float | None = 10.0
    """Losses, mean errors, reports and surveyed losses, as a multiple of the median of the clients
    that respond, or of a floor if the median is below it; larger values are replaced by the median,
    with two clients by the smaller value. In a regression losses may be the square of this multiple
    of the median, because they may be squared errors. Uploaded vectors of the objective and the
    memory are shortened to this multiple of the median norm. The floor is 1, or the loss of a
    guess, log(num_classes), if that is larger. None: no limit."""
    count_factor: float | None = None
    """Numbers of samples and tested samples, as a multiple of the median of at least three clients;
    larger ones are reduced to it. None: no limit."""
    num_classes: int | None = None
    """Length of vectors with one number per class; 1 in a regression; None: the length that most
    clients send."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            max_norm="(0, inf]",
            norm_factor="[1, inf) or none",
            max_samples="[0, 1e15]",
            max_tested="[0, 1e15]",
            max_steps="[0, 1e15]",
            max_value="(0, inf]",
            report_factor="[1, inf) or none",
            count_factor="[1, inf) or none",
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
    _check_names("TrainResponse", response.reports)
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
    if isinstance(recipe.weights, Reports):
        claim = Claim(response.reports, *common, {}, response.num_samples, limits.num_classes)
        _check_claim(recipe.weights, claim, "TrainResponse")


def check_survey_response(
    response: SurveyResponse, request: SurveyRequest, recipe: Recipe, limits: Limits
) -> None:
    """Reject a survey response with impossible values. One without values is always valid."""
    _check_names("SurveyResponse", response.values)
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


# --- values that are implausible among those of other clients ---


def bound_train_reports(
    responses: Sequence[TrainResponse], limits: Limits
) -> tuple[list[TrainResponse], dict[int, str]]:
    """Replace implausible losses, errors and reports by the median of all clients.

    Of two clients, the larger value is replaced by the smaller one. Counts and uploaded vectors are
    reduced to the largest plausible size instead, if there are at least three clients: the sizes of
    honest clients differ much. A single response is not changed. Return the responses, and the
    reasons by the indices of changed responses.
    """
    changed: dict[int, str] = {}
    results = list(responses)

    def bound(name: str, values: list[Floats], factor: float | None, floor: float) -> list[Floats]:
        bounded, found = _replace_implausible(values, factor, floor)
        for index, change in found.items():
            changed[index] = f"TrainResponse: {name} {change}."
        return bounded

    def bound_counts(name: str, values: list[Floats]) -> list[Floats]:
        bounded, found = _reduce_counts(values, limits.count_factor)
        for index, change in found.items():
            changed[index] = f"TrainResponse: {name} {change}."
        return bounded

    def column(name: str) -> list[Floats]:
        return [np.asarray(getattr(each, name), dtype=np.float64) for each in results]

    floor = _loss_floor(limits)
    losses = bound("losses", column("losses"), _loss_factor(limits), floor)
    results = [replace(each, losses=new) for each, new in zip(results, losses, strict=True)]
    for name in results[0].reports if results else ():
        values = [each.reports[name] for each in results]
        values = bound(name, values, limits.report_factor, 1.0)
        results = [
            replace(each, reports={**each.reports, name: new})
            for each, new in zip(results, values, strict=True)
        ]
    results = _clip_uploads(results, limits.report_factor, changed)
    samples = [np.array([each.num_samples], dtype=np.float64) for each in results]
    samples = bound_counts("num_samples", samples)
    results = [
        replace(each, num_samples=int(new[0])) for each, new in zip(results, samples, strict=True)
    ]
    tested = bound_counts("num_tested", column("num_tested"))
    results = [_scale_tested(each, new) for each, new in zip(results, tested, strict=True)]
    if all(each.error_sums is not None for each in results):
        counts = [np.maximum(each.num_tested, 1) for each in results]
        errors = [sums / count for sums, count in zip(column("error_sums"), counts, strict=True)]
        errors = bound("the mean absolute error", errors, limits.report_factor, 1.0)
        results = [
            replace(each, error_sums=new * count)
            for each, new, count in zip(results, errors, counts, strict=True)
        ]
    return [new if index in changed else responses[index] for index, new in enumerate(results)], (
        changed
    )


def bound_survey_values(
    values: Sequence[Mapping[str, Floats]], policy: object, limits: Limits
) -> tuple[list[Mapping[str, Floats]], dict[int, str]]:
    """Replace implausible survey values as in `bound_train_reports`, number by number.

    This concerns the values whose names the policy declares in `bounded_values`: losses and similar
    magnitudes. The vectors of a name have one length. Return the values, and the reasons by the
    indices of changed clients.
    """
    results, changed = [dict(each) for each in values], dict[int, str]()
    for name in getattr(policy, "bounded_values", ()):
        rows = [index for index, each in enumerate(values) if name in each]
        for position in range(len(results[rows[0]][name]) if rows else 0):
            column = [np.asarray(results[row][name][position : position + 1]) for row in rows]
            bounded, found = _replace_implausible(column, _loss_factor(limits), _loss_floor(limits))
            for index, change in found.items():
                row = rows[index]
                vector = np.array(results[row][name], dtype=np.float64)
                vector[position] = bounded[index][0]
                results[row][name] = vector
                changed[row] = f"SurveyResponse: {name} {change}."
    return list(results), changed


def _clip_uploads(
    responses: list[TrainResponse], factor: float | None, changed: dict[int, str]
) -> list[TrainResponse]:
    """Shorten uploaded vectors of the objective and the memory to `factor` times the median norm.

    The uploads of a bank are masses of samples, which its `validate_claim` bounds.
    """
    results = list(responses)
    names = [name for name in (results[0].uploads if results else ()) if name[:5] != "bank."]
    for name in names:
        norms = [row_norms(each.uploads[name]) for each in results]
        positive = np.concatenate(norms)
        positive = positive[positive > 0]
        if factor is None or sum(bool(each.any()) for each in norms) < 3:
            continue
        bound = factor * float(np.median(positive))
        for index, own in enumerate(norms):
            if own.max(initial=0.0) > bound:
                rows, _ = clip_rows(results[index].uploads[name], bound)
                uploads = {**results[index].uploads, name: rows}
                results[index] = replace(results[index], uploads=uploads)
                changed[index] = (
                    f"TrainResponse: {name} has norm {own.max():.3g} and is shortened to "
                    f"{bound:.3g}, {factor:g} times the median."
                )
    return results


def _replace_implausible(
    values: list[Floats], factor: float | None, floor: float
) -> tuple[list[Floats], dict[int, str]]:
    """Replace values above `factor` times the larger of a usual value and the floor by the former.

    The usual value is the median of the positive values of all clients; of two clients, the
    smaller median. Return the values, and by the index of each changed client what was changed.

    >>> values = [np.array([each]) for each in (0.5, 1.0, 2.0, 1e9)]
    >>> [float(each[0]) for each in _replace_implausible(values, 10.0, 1.0)[0]]
    [0.5, 1.0, 2.0, 1.5]
    >>> _replace_implausible(values[2:], 10.0, 1.0)[1]
    {1: 'was 1e+09 and is replaced by 2, that of the other client'}
    """
    sizes = [np.abs(np.nan_to_num(each, nan=0.0)) for each in values]
    positive = [size[size > 0] for size in sizes if (size > 0).any()]
    if factor is None or len(positive) < 2:
        return values, {}
    if len(positive) == 2:
        usual = min(float(np.median(each)) for each in positive)
        source = f"{usual:.3g}, that of the other client"
    else:
        usual = float(np.median(np.concatenate(positive)))
        source = f"the median {usual:.3g}"
    bound = factor * max(usual, floor)
    found = {
        index: f"was {each.max():.3g} and is replaced by {source}"
        for index, each in enumerate(sizes)
        if each.max(initial=0.0) > bound
    }
    bounded = [
        np.where(size > bound, np.sign(each) * usual, each) if index in found else each
        for index, (each, size) in enumerate(zip(values, sizes, strict=True))
    ]
    return bounded, found


def _reduce_counts(
    counts: list[Floats], factor: float | None
) -> tuple[list[Floats], dict[int, str]]:
    """Reduce counts above `factor` times the median of the positive ones of at least three clients.

    >>> counts = [np.array([each]) for each in (20.0, 25.0, 30.0, 4000.0)]
    >>> [float(each[0]) for each in _reduce_counts(counts, 10.0)[0]]
    [20.0, 25.0, 30.0, 275.0]
    """
    positive = [each[each > 0] for each in counts if (each > 0).any()]
    if factor is None or len(positive) < 3:
        return counts, {}
    median = float(np.median(np.concatenate(positive)))
    bound = np.floor(factor * median)
    found = {
        index: f"was {each.max():.0f} and is reduced to {bound:.0f}, {factor:g} times the median"
        for index, each in enumerate(counts)
        if each.max(initial=0.0) > bound
    }
    return [np.minimum(each, bound) for each in counts], found


def _scale_tested(response: TrainResponse, tested: Floats) -> TrainResponse:
    """Return the response with other numbers of tested samples and the same share correct."""
    new = tested.astype(np.int64)
    if np.array_equal(new, response.num_tested):
        return response
    ratio = new / np.maximum(response.num_tested, 1)
    correct = np.minimum(np.round(response.num_correct * ratio).astype(np.int64), new)
    sums = None if response.error_sums is None else response.error_sums * ratio
    return replace(response, num_tested=new, num_correct=correct, error_sums=sums)


def _loss_floor(limits: Limits) -> float:
    return 1.0 if limits.num_classes is None else max(1.0, float(np.log(limits.num_classes)))


def _loss_factor(limits: Limits) -> float | None:
    """The factor of losses: in a regression they may be squared errors."""
    is_regression = limits.num_classes == 1
    factor = limits.report_factor
    return factor**2 if is_regression and factor is not None else factor


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


def _check_names(kind: str, values: Mapping[str, Floats]) -> None:
    """Reject names under which the server stores other numbers."""
    for name in SERVER_NAMES:
        if name in values:
            raise BadMessage(f"{kind}: the name {name!r} is reserved for a number of the server.")


def _check_magnitude(kind: str, name: str, values: npt.NDArray[Any], limits: Limits) -> None:
    largest = float(np.abs(np.nan_to_num(values, nan=0.0)).max(initial=0.0))
    if largest > limits.max_value:
        raise BadMessage(
            f"{kind}: {name} is {largest:.3g}, at most {limits.max_value:g} is allowed."
        )


def _check_claim(policy: object, claim: Claim, kind: str) -> None:
    if isinstance(policy, ValidatesClaims) and (reason := policy.validate_claim(claim)):
        raise BadMessage(f"{kind}: {reason}")
