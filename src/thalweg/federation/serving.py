"""The client part of serving: predictions of arriving samples by all predictors of a client."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.recipes.base import Recipe, list_predictors
from thalweg.serving import (
    ADJUSTED,
    AVERAGED,
    LAST_LABEL,
    LATEST,
    MODEL,
    TRAINED,
    ArrivedSamples,
    RestartsServing,
    Serving,
)

STAGE, AVERAGES = "serving", "averages"  # of the broadcast: the averaged models, one after another


class ServingState(NamedTuple):
    """The state of one client."""

    policy: Any  # of the serving policy
    last: Floats  # (1,) the class or (D,) the numbers of the last sample; empty: none yet
    num_models: int = 0  # numbered models that predict; 0: it has never received several
    main: int = -1  # number of the model that the bank chose for the client in its last round
    num_served: int = 0  # samples since its last round


class Predictor(NamedTuple):
    """A model that predicts for a client. Equal keys at a client mean equal parameters."""

    name: str
    key: tuple[str, int]
    params: Floats32  # (P,)


def new_serving_state(serving: Serving | None, targets: npt.NDArray[Any]) -> ServingState | None:
    """Return the state of a client that has some samples with targets (n,) or (n, D)."""
    if serving is None:
        return None
    return record_last(ServingState(serving.init(), np.empty(0)), targets)


def record_last(state: ServingState, targets: npt.NDArray[Any]) -> ServingState:
    """Return the state after samples with targets (n,) or (n, D)."""
    if len(targets) == 0:
        return state
    return state._replace(last=targets[-1:].astype(np.float64).ravel())


def end_round(recipe: Recipe, state: ServingState, main: int) -> ServingState:
    """Return the state after a round in which the bank chose model `main` for the client.

    If it is another one than before, past losses of the predictor `latest` are those of the other
    model, so that the policy restarts.
    """
    policy = state.policy
    serving: Any = recipe.serving
    if _restarts(serving.__class__):
        if state.main not in (-1, main):
            policy = serving.restart(policy)
        elif state.num_served == 0:
            policy = serving.skip_round(policy)
    return state._replace(policy=policy, main=main, num_served=0)


@cache
def _restarts(kind: Hashable) -> bool:
    """Return whether a class restarts its weights; `isinstance` of a protocol is slow."""
    return isinstance(kind, type) and issubclass(kind, RestartsServing)


def shift_targets(last: Floats, targets: npt.NDArray[Any]) -> Floats:
    """Return (n, 1) or (n, D) the target before each sample; nan if there is none.

    >>> shift_targets(np.empty(0), np.array([4, 5])).tolist()
    [[nan], [4.0]]
    """
    flat = targets.reshape(len(targets), -1).astype(np.float64)
    before = last[None] if len(last) else np.full((1, flat.shape[1]), np.nan)
    return np.concatenate([before, flat[:-1]])


def list_models(
    recipe: Recipe,
    main: int,
    models: Sequence[int],
    received: Floats32,
    averages: Floats32 | None,
    trained: Floats32 | None,
    known_models: int,
) -> list[Predictor]:
    """Return the models that predict for a client in a round.

    `models` are the numbers of the received models (J, P) and of their averages (J, P), `main` is
    the position of the one that the bank chooses for the client. `trained` is the result (P,) of
    its last local steps. Each received model is a predictor of its own if the client has received
    several in this round, or knows them from earlier ones (`known_models`).
    """
    used = list_predictors(recipe)
    found = [Predictor(LATEST, (LATEST, models[main]), received[main])]
    if AVERAGED in used and averages is not None:
        found.append(Predictor(AVERAGED, (AVERAGED, models[main]), averages[main]))
    if TRAINED in used and trained is not None:
        found.append(Predictor(TRAINED, (TRAINED, 0), trained))
    if len(models) > 1 or known_models:
        found += [
            Predictor(f"{MODEL} {model}", (LATEST, model), params)
            for model, params in zip(models, received, strict=True)
        ]
    return found


def read_averages(
    received: Mapping[str, Mapping[str, Floats32]], num_models: int
) -> Floats32 | None:
    """Return the averaged models (J, P) of a client's broadcast; None: it has none."""
    values = received.get(STAGE, {}).get(AVERAGES)
    return None if values is None else values.reshape(num_models, -1)


def name_predictors(
    recipe: Recipe, num_models: int, *, is_regression: bool = False
) -> tuple[str, ...]:
    """Return the names of all predictors, with models up to a number.

    Numbers have no classes to which a model could be adjusted.

    >>> from thalweg.serving import BestRecent
    >>> name_predictors(Recipe("mine", memory="fifo", serving=BestRecent(trained=False)), 2)
    ('latest', 'last_label', 'adjusted', 'model 0', 'model 1')
    """
    used = list_predictors(recipe)
    if is_regression:
        used = tuple(name for name in used if name != ADJUSTED)
    return (*used, *(f"{MODEL} {number}" for number in range(num_models)))


def serve_samples(
    recipe: Recipe,
    state: ServingState,
    scores: Mapping[str, Floats32],
    targets: npt.NDArray[Any],
    previous: Floats,
) -> tuple[ServingState, npt.NDArray[Any]]:
    """Return the state after some samples, and the predictions, of the shape of `targets`.

    `scores` are log-probabilities (n, C) or numbers (n, D) by the name of the predictor; `previous`
    (n, 1) or (n, D) are the targets of the samples before, nan where there is none. The state
    records the last target separately (`record_last`).
    """
    return serve_clients(recipe, [ToServe(state, scores, targets, previous)])[0]


class ToServe(NamedTuple):
    """A client with some samples, as in `serve_samples`."""

    state: ServingState
    scores: Mapping[str, Floats32]
    targets: npt.NDArray[Any]
    previous: Floats


def serve_clients(
    recipe: Recipe, clients: Sequence[ToServe]
) -> list[tuple[ServingState, npt.NDArray[Any]]]:
    """Return the results of `serve_samples` for some clients, computed together if possible."""
    serving = recipe.serving
    assert serving is not None
    together = _serves_together(serving)
    groups: dict[tuple[int, ...], list[int]] = {}  # clients with the same predictors
    for number, client in enumerate(clients):
        is_alone = not together or client.targets.dtype.kind == "f"
        key = (_count_models(client), number if is_alone else -1)
        groups.setdefault(key, []).append(number)
    found: dict[int, tuple[ServingState, npt.NDArray[Any]]] = {}
    for (num_models, _), members in groups.items():
        mine = [clients[number] for number in members]
        found.update(zip(members, _serve_group(recipe, mine, num_models), strict=True))
    return [found[number] for number in range(len(clients))]


def _serves_together(serving: Serving) -> bool:
    """Return whether the class that defines `serve` also predicts for several clients at once."""
    owner = next(each for each in type(serving).__mro__ if "serve" in vars(each))
    return "serve_together" in vars(owner)


def _count_models(client: ToServe) -> int:
    numbers = [
        int(name.partition(" ")[2]) for name in client.scores if name.startswith(f"{MODEL} ")
    ]
    return max([client.state.num_models, *(number + 1 for number in numbers)])


def _serve_group(
    recipe: Recipe, clients: Sequence[ToServe], num_models: int
) -> list[tuple[ServingState, npt.NDArray[Any]]]:
    """Return the results for clients with the same predictors; in a regression for a single one."""
    serving: Any = recipe.serving
    is_regression = clients[0].targets.dtype.kind == "f"
    names = name_predictors(recipe, num_models, is_regression=is_regression)
    sizes = [len(client.targets) for client in clients]
    ends = np.cumsum([0, *sizes]).tolist()
    width = next(iter(clients[0].scores.values())).shape[1]
    outputs = np.full((len(names), ends[-1], width), np.nan)
    for client, first, last in zip(clients, ends, ends[1:], strict=False):
        for row, name in enumerate(names):
            if name in client.scores:
                outputs[row, first:last] = client.scores[name]
    if not is_regression:
        np.exp(outputs, out=outputs)
    previous = np.concatenate([client.previous for client in clients])
    if LAST_LABEL in names:
        last_labels = previous if is_regression else _encode(previous[:, 0], width)
        outputs[names.index(LAST_LABEL)] = last_labels
    targets = np.concatenate([client.targets for client in clients])
    samples = ArrivedSamples(
        names, outputs, targets.reshape(len(targets), -1) if is_regression else targets
    )
    policies = [client.state.policy for client in clients]
    if len(clients) == 1:
        policy, predicted = serving.serve(policies[0], samples)
        policies = [policy]
    else:
        policies, predicted = serving.serve_together(policies, samples, sizes)
    if predicted.shape != samples.targets.shape:
        raise ConfigError(
            f"{type(serving).__name__}.serve must return predictions of shape "
            f"{samples.targets.shape}, got {predicted.shape}."
        )
    predicted = predicted.reshape(targets.shape)
    return [
        (
            client.state._replace(
                policy=policy,
                num_models=num_models,
                num_served=client.state.num_served + last - first,
            ),
            predicted[first:last],
        )
        for client, policy, first, last in zip(clients, policies, ends, ends[1:], strict=False)
    ]


def _encode(labels: Floats, num_classes: int) -> Floats:
    """Return (n, C) a row with a single 1 for each label; nan for a label that is nan.

    >>> _encode(np.array([1.0, np.nan]), 2).tolist()
    [[0.0, 1.0], [nan, nan]]
    """
    rows: Floats = (labels[:, None] == np.arange(num_classes)).astype(np.float64)
    rows[np.isnan(labels)] = np.nan
    return rows


ComputeScores = Callable[[Floats32, Ints], Floats32]  # parameters (P,) and rows -> (n, C) or (n, D)


def compute_scores(
    predictors: Sequence[Predictor], rows: Ints, score: ComputeScores
) -> dict[str, Floats32]:
    """Return the scores of all predictors; equal models are computed once."""
    by_key: dict[tuple[str, int], Floats32] = {}
    for each in predictors:
        if each.key not in by_key:
            by_key[each.key] = score(each.params, rows)
    return {each.name: by_key[each.key] for each in predictors}
