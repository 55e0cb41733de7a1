"""What many clients send, set beside each other: a row for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Floats32, Ints, SurveyResponses, Updates
from thalweg.federation.messages import TrainResponse

T = TypeVar("T", bound=Hashable)


def build_updates(
    replies: Sequence[TrainResponse], num_params: int, rnd: int | None = None
) -> Updates:
    """Replies of one form, in their order; without replies a struct without rows.

    Some may be late, if the round in which they came is given.
    """

    counts = np.array([len(reply.models) for reply in replies], dtype=np.int64)

    def per_model(name: str, dtype: type) -> npt.NDArray[Any]:
        parts = [getattr(reply, name) for reply in replies]
        return np.concatenate([*parts, np.empty(0)]).astype(dtype, copy=False)

    def per_client(name: str) -> Ints:
        values = np.array([getattr(reply, name) for reply in replies], dtype=np.int64)
        return np.repeat(values, counts)

    some_late = rnd is not None and any(reply.rnd != rnd for reply in replies)
    deltas = np.empty((int(counts.sum()), num_params), dtype=np.float32)
    ends = np.cumsum(counts).tolist()
    for reply, end in zip(replies, ends, strict=True):
        deltas[end - len(reply.models) : end] = reply.deltas
    return Updates(
        clients=per_client("client"),
        models=per_model("models", np.int64),
        deltas=deltas,
        num_samples=per_client("num_samples"),
        num_steps=per_model("num_steps", np.int64),
        losses=per_model("losses", np.float64),
        num_tested=per_model("num_tested", np.int64),
        num_correct=per_model("num_correct", np.int64),
        reports={
            name: np.concatenate([reply.reports[name] for reply in replies])
            for name in (replies[0].reports if replies else ())
        },
        uploads=stack_uploads([words for reply in replies for words in uploads_per_model(reply)]),
        trained_in=per_client("rnd") if some_late else None,
    )


def split_updates(updates: Updates, rnd: int) -> list[TrainResponse]:
    """The rows of a round as replies; `build_updates` is the inverse. Their arrays are views."""
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
            reports={name: values[first:last] for name, values in updates.reports.items()},
            uploads={name: words[first:last] for name, words in updates.uploads.items()},
        )
        for first, last in zip(starts.tolist(), ends, strict=True)
    ]


def uploads_per_model(reply: TrainResponse) -> list[dict[str, Floats32]]:
    """What is said about each model, by name."""
    return [
        {name: words[place] for name, words in reply.uploads.items()}
        for place in range(len(reply.models))
    ]


def stack_uploads(uploads: Sequence[Mapping[str, Floats32]]) -> dict[str, Floats32]:
    """Messages of all clients as matrices (K, E); an empty one counts as zeros."""
    matrices = {}
    for name in uploads[0] if uploads else ():
        length = max(len(words[name]) for words in uploads)
        rows = [
            words[name] if len(words[name]) else np.zeros(length, dtype=np.float32)
            for words in uploads
        ]
        matrices[name] = np.stack(rows).astype(np.float32)
    return matrices


def tabulate_answers(words: Sequence[Mapping[str, Floats]], who: str) -> SurveyResponses:
    """(K, E) tables of what K clients say; nan where one says nothing.

    >>> tabulate_answers([{"a": np.array([1.0])}, {}], "Rule")["a"].tolist()
    [[1.0], [nan]]
    """
    tables: dict[str, Floats] = {}
    for k, mine in enumerate(words):
        for name, vector in mine.items():
            vector = np.asarray(vector, dtype=np.float64)
            table = tables.setdefault(name, np.full((len(words), vector.size), np.nan))
            if vector.shape != (table.shape[1],):
                raise ConfigError(
                    f"{who}.answer must give vectors of one length for {name!r}, got shape "
                    f"{vector.shape} after {table.shape[1]} numbers of another client."
                )
            table[k] = vector
    return tables


# --- what comes from outside need not fit together ---


def select_uniform_responses(replies: Sequence[TrainResponse]) -> list[TrainResponse]:
    """The replies with the names and lengths that most have; others cannot be set beside them.

    An empty message has any length. Of two forms that are equally frequent the first one counts.
    """
    usual = _most_frequent(map(_names, replies))
    alike = [reply for reply in replies if _names(reply) == usual]
    for name in alike[0].uploads if alike else ():
        lengths = [reply.uploads[name].shape[1] for reply in alike]
        length = _most_frequent(filter(None, lengths))
        alike = [reply for reply in alike if reply.uploads[name].shape[1] in (0, length)]
    return alike


def drop_odd_lengths(words: Sequence[Mapping[str, Floats]]) -> list[dict[str, Floats]]:
    """What is said, without the answers in which a vector has another length than most have under its name.

    >>> [len(mine) for mine in drop_odd_lengths([{"a": np.ones(2)}, {"a": np.ones(3)}, {"a": np.ones(2)}])]
    [1, 0, 1]
    """
    names = {name for mine in words for name in mine}
    usual = {
        name: _most_frequent(len(mine[name]) for mine in words if name in mine) for name in names
    }
    return [
        dict(mine) if all(len(vector) == usual[name] for name, vector in mine.items()) else {}
        for mine in words
    ]


def _names(reply: TrainResponse) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(reply.reports), frozenset(reply.uploads)


def _most_frequent(values: Iterable[T]) -> T | None:
    """The first of the most frequent; None if there are no values."""
    return next((value for value, _ in Counter(values).most_common(1)), None)
