"""What many clients send, set beside each other: a row for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Answers, Floats, Floats32, Ints, Updates
from thalweg.recipes.messages import Reply

T = TypeVar("T", bound=Hashable)


def updates_of(replies: Sequence[Reply], num_params: int, rnd: int | None = None) -> Updates:
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
        said=side_by_side([words for reply in replies for words in words_of(reply)]),
        trained_in=per_client("rnd") if some_late else None,
    )


def replies_of(updates: Updates, rnd: int) -> list[Reply]:
    """The rows of a round as replies; `updates_of` is the inverse. Their arrays are views."""
    starts = np.flatnonzero(np.diff(updates.clients, prepend=-1))
    ends = [*starts[1:].tolist(), len(updates)]
    return [
        Reply(
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
            said={name: words[first:last] for name, words in updates.said.items()},
        )
        for first, last in zip(starts.tolist(), ends, strict=True)
    ]


def words_of(reply: Reply) -> list[dict[str, Floats32]]:
    """What is said about each model, by name."""
    return [
        {name: words[place] for name, words in reply.said.items()}
        for place in range(len(reply.models))
    ]


def side_by_side(said: Sequence[Mapping[str, Floats32]]) -> dict[str, Floats32]:
    """Messages of all clients as matrices (K, E); an empty one counts as zeros."""
    matrices = {}
    for name in said[0] if said else ():
        length = max(len(words[name]) for words in said)
        rows = [
            words[name] if len(words[name]) else np.zeros(length, dtype=np.float32)
            for words in said
        ]
        matrices[name] = np.stack(rows).astype(np.float32)
    return matrices


def tabled(words: Sequence[Mapping[str, Floats]], who: str) -> Answers:
    """(K, E) tables of what K clients say; nan where one says nothing.

    >>> tabled([{"a": np.array([1.0])}, {}], "Rule")["a"].tolist()
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


def of_one_form(replies: Sequence[Reply]) -> list[Reply]:
    """The replies with the names and lengths that most have; others cannot be set beside them.

    An empty message has any length. Of two forms that are equally frequent the first one counts.
    """
    usual = _most_frequent(map(_names, replies))
    alike = [reply for reply in replies if _names(reply) == usual]
    for name in alike[0].said if alike else ():
        lengths = [reply.said[name].shape[1] for reply in alike]
        length = _most_frequent(filter(None, lengths))
        alike = [reply for reply in alike if reply.said[name].shape[1] in (0, length)]
    return alike


def of_one_length(words: Sequence[Mapping[str, Floats]]) -> list[dict[str, Floats]]:
    """What is said, without the answers in which a vector has another length than most have under its name.

    >>> [len(mine) for mine in of_one_length([{"a": np.ones(2)}, {"a": np.ones(3)}, {"a": np.ones(2)}])]
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


def _names(reply: Reply) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(reply.reports), frozenset(reply.said)


def _most_frequent(values: Iterable[T]) -> T | None:
    """The first of the most frequent; None if there are no values."""
    return next((value for value, _ in Counter(values).most_common(1)), None)
