"""The messages of a round between the server and one client, and tables of many clients.

A client computes its part of a round from the recipe, its stream, its data, its state and the
message. Messages that only devices need are in `network.wire`, with the bytes of all messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from thalweg.core.capabilities import Broadcast
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Floats32, Ints, Job, Supply, SurveyResponses, Updates
from thalweg.federation.base import SurveyStage
from thalweg.federation.client_state import Received
from thalweg.federation.serving import STAGE as PER_MODEL

Octets = npt.NDArray[np.uint8]
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Hello:
    """A client's number and the samples it expects by the end of the run.

    Sent once, when it joins.
    """

    client: int
    supply: Supply


@dataclass(frozen=True, eq=False)
class TrainRequest:
    """Asks a client to take part in a round and to train one or several models."""

    rnd: int
    client: int
    models: Ints  # (J,) which models of the bank these are, ascending
    lr_scales: Floats  # (J,)
    params: Floats32  # (J, P)
    session: int = 0
    age: int = 0  # rounds of the session that are over
    probe_round: int = 0  # 0: an ordinary round; else the client must not keep its new state
    broadcast: Received = field(default_factory=dict)
    mask_group: Ints | None = None  # (n,) clients whose masks cancel; none: updates are not masked


@dataclass(frozen=True, eq=False)
class TrainResponse:
    """The result of a train request: a row of `Updates` for each model."""

    rnd: int
    client: int
    models: Ints  # (J,) of the request
    deltas: Floats32  # (J, P) trained minus received parameters
    num_samples: int
    num_steps: Ints  # (J,)
    losses: Floats  # (J,) nan without a step
    num_tested: Ints  # (J,) not zero only for the model that predicts for this client
    num_correct: Ints  # (J,)
    probe_round: int = 0  # copied from the request
    reports: Mapping[str, Floats] = field(default_factory=dict)  # (J,)
    uploads: Mapping[str, Floats32] = field(default_factory=dict)  # (J, E) by "stage.name"
    error_sums: Floats | None = None  # (J,) regression: sums of absolute errors; none: classes
    masked: npt.NDArray[np.uint64] | None = None  # (P,) then deltas have no columns


@dataclass(frozen=True, eq=False)
class SurveyRequest:
    """Asks a client for the values of one stage's policy, before training."""

    rnd: int
    client: int
    stage: SurveyStage
    bank: Floats32  # (models, P); no models if the policy does not send them


@dataclass(frozen=True, eq=False)
class SurveyResponse:
    """The values of one client; empty if it has none."""

    rnd: int
    client: int
    stage: SurveyStage
    values: Mapping[str, Floats] = field(default_factory=dict)  # (E,) by name


# --- from tables to messages ---


def make_train_requests(
    jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
) -> list[TrainRequest]:
    """Return one request per client, ascending; the order of the jobs does not matter."""
    positions = sorted(range(len(jobs)), key=lambda position: jobs[position][:2])
    requests = []
    for client, group in groupby(positions, key=lambda position: jobs[position].client):
        own = list(group)
        models = np.array([jobs[position].model for position in own], dtype=np.int64)
        lr_scales = np.array([jobs[position].lr_scale for position in own], dtype=np.float64)
        job, received = jobs[own[0]], select_client_broadcast(broadcast, own)
        requests.append(
            TrainRequest(
                rnd=rnd,
                client=client,
                models=models,
                lr_scales=lr_scales,
                params=bank[models],
                session=job.session,
                age=job.age,
                probe_round=job.probe_round,
                broadcast=received,
            )
        )
    return requests


def select_client_broadcast(broadcast: Broadcast | None, rows: Sequence[int]) -> Received:
    """Return one client's vectors of the broadcast, given the rows of its jobs.

    A vector is the row of the first job. Averaged models have one row for each job and are
    concatenated.
    """
    return {
        stage: {
            name: values[rows[0]] if stage != PER_MODEL or len(rows) == 1 else values[rows].ravel()
            for name, values in messages.items()
        }
        for stage, messages in (broadcast or {}).items()
    }


def split_updates(updates: Updates, rnd: int) -> list[TrainResponse]:
    """Return the rows of a round as responses, whose arrays are views.

    Inverse of `build_updates`.
    """
    starts = np.flatnonzero(np.diff(updates.clients, prepend=-1))
    ends = [*starts[1:].tolist(), len(updates)]
    return [
        TrainResponse(
            rnd=rnd,
            client=int(updates.clients[first]),
            models=updates.models[first:last],
            deltas=updates.deltas[first:last],
            num_samples=int(updates.num_samples[first]),
            num_steps=updates.num_steps[first:last],
            losses=updates.losses[first:last],
            num_tested=updates.num_tested[first:last],
            num_correct=updates.num_correct[first:last],
            error_sums=None if updates.error_sums is None else updates.error_sums[first:last],
            reports={name: values[first:last] for name, values in updates.reports.items()},
            uploads={name: values[first:last] for name, values in updates.uploads.items()},
        )
        for first, last in zip(starts.tolist(), ends, strict=True)
    ]


# --- from messages to tables ---


def build_updates(
    responses: Sequence[TrainResponse], num_params: int, rnd: int | None = None
) -> Updates:
    """Return a table with the rows of all responses, in their order.

    All responses must have the same report and upload names. Some may be late, if the round in
    which they were received is given.
    """
    counts = np.array([len(response.models) for response in responses], dtype=np.int64)

    def per_model(name: str, dtype: type) -> npt.NDArray[Any]:
        parts = [getattr(response, name) for response in responses]
        return np.concatenate([*parts, np.empty(0)]).astype(dtype, copy=False)

    def per_client(name: str) -> Ints:
        values = np.array([getattr(response, name) for response in responses], dtype=np.int64)
        return np.repeat(values, counts)

    has_sums = bool(responses) and all(each.error_sums is not None for each in responses)
    some_late = rnd is not None and any(response.rnd != rnd for response in responses)
    deltas = np.empty((int(counts.sum()), num_params), dtype=np.float32)
    ends = np.cumsum(counts).tolist()
    for response, end in zip(responses, ends, strict=True):
        deltas[end - len(response.models) : end] = response.deltas
    return Updates(
        clients=per_client("client"),
        models=per_model("models", np.int64),
        deltas=deltas,
        num_samples=per_client("num_samples"),
        num_steps=per_model("num_steps", np.int64),
        losses=per_model("losses", np.float64),
        num_tested=per_model("num_tested", np.int64),
        num_correct=per_model("num_correct", np.int64),
        error_sums=per_model("error_sums", np.float64) if has_sums else None,
        reports={
            name: np.concatenate([response.reports[name] for response in responses])
            for name in (responses[0].reports if responses else ())
        },
        uploads=stack_uploads(
            [uploads for response in responses for uploads in uploads_per_model(response)]
        ),
        trained_in=per_client("rnd") if some_late else None,
    )


def uploads_per_model(response: TrainResponse) -> list[dict[str, Floats32]]:
    """Return the uploads about each model, by name."""
    return [
        {name: values[position] for name, values in response.uploads.items()}
        for position in range(len(response.models))
    ]


def stack_uploads(uploads: Sequence[Mapping[str, Floats32]]) -> dict[str, Floats32]:
    """Return the uploads of K jobs as matrices (K, E) by name; an empty vector counts as zeros."""
    matrices = {}
    for name in uploads[0] if uploads else ():
        length = max(len(vectors[name]) for vectors in uploads)
        rows = [
            vectors[name] if len(vectors[name]) else np.zeros(length, dtype=np.float32)
            for vectors in uploads
        ]
        matrices[name] = np.stack(rows).astype(np.float32)
    return matrices


def tabulate_responses(responses: Sequence[Mapping[str, Floats]], policy: str) -> SurveyResponses:
    """Return tables (K, E) of the survey responses of K clients; nan where a client has no value.

    >>> tabulate_responses([{"a": np.array([1.0])}, {}], "Rule")["a"].tolist()
    [[1.0], [nan]]
    """
    tables: dict[str, Floats] = {}
    for k, vectors in enumerate(responses):
        for name, vector in vectors.items():
            vector = np.asarray(vector, dtype=np.float64)
            if name not in tables:
                tables[name] = np.full((len(responses), vector.size), np.nan)
            table = tables[name]
            if vector.shape != (table.shape[1],):
                raise ConfigError(
                    f"{policy}.answer_survey must return vectors of one length for {name!r}, got "
                    f"shape {vector.shape} after {table.shape[1]} numbers of another client."
                )
            table[k] = vector
    return tables


# --- messages from a network, which may not fit together ---


def select_uniform_responses(responses: Sequence[TrainResponse]) -> list[TrainResponse]:
    """Return the responses with the most frequent names and lengths; others do not fit in a table.

    An empty upload fits any length. Of two equally frequent forms the first one counts.
    """
    usual = _most_frequent(map(_names, responses))
    uniform = [response for response in responses if _names(response) == usual]
    for name in uniform[0].uploads if uniform else ():
        lengths = [response.uploads[name].shape[1] for response in uniform]
        length = _most_frequent(filter(None, lengths))
        uniform = [
            response for response in uniform if response.uploads[name].shape[1] in (0, length)
        ]
    return uniform


def drop_odd_lengths(responses: Sequence[Mapping[str, Floats]]) -> list[dict[str, Floats]]:
    """Replace responses by nothing if a vector in them has an unusual length for its name.

    >>> vectors = [{"a": np.ones(2)}, {"a": np.ones(3)}, {"a": np.ones(2)}]
    >>> [len(own) for own in drop_odd_lengths(vectors)]
    [1, 0, 1]
    """
    names = {name for vectors in responses for name in vectors}
    usual = {
        name: _most_frequent(len(vectors[name]) for vectors in responses if name in vectors)
        for name in names
    }
    return [
        dict(vectors) if all(len(vector) == usual[name] for name, vector in vectors.items()) else {}
        for vectors in responses
    ]


def _names(response: TrainResponse) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(response.reports), frozenset(response.uploads)


def _most_frequent(values: Iterable[T]) -> T | None:
    """Return the first of the most frequent values; None if there are no values."""
    return next((value for value, _ in Counter(values).most_common(1)), None)
