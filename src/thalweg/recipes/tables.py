"""What many clients send, set beside each other: a row for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from thalweg.core.errors import ConfigError
from thalweg.core.types import Answers, Floats, Floats32, Ints, Updates
from thalweg.recipes.messages import Reply

T = TypeVar("T", bound=Hashable)


def updates_of(replies: Sequence[Reply], num_params: int, rnd: int | None = None) -> Updates:
    """Replies of one form, in their order; without replies a struct without rows.

    Some may be late, if the round in which they came is given.
    """

    def column(name: str) -> Ints:
        return np.array([getattr(reply, name) for reply in replies], dtype=np.int64)

    some_late = rnd is not None and any(reply.rnd != rnd for reply in replies)
    deltas = np.empty((len(replies), num_params), dtype=np.float32)
    for row, reply in zip(deltas, replies, strict=True):
        row[:] = reply.delta
    return Updates(
        clients=column("client"),
        models=column("model"),
        deltas=deltas,
        num_samples=column("num_samples"),
        num_steps=column("num_steps"),
        losses=np.array([reply.loss for reply in replies], dtype=np.float64),
        num_tested=column("num_tested"),
        num_correct=column("num_correct"),
        reports={
            name: np.array([reply.reports[name] for reply in replies], dtype=np.float64)
            for name in (replies[0].reports if replies else ())
        },
        said=side_by_side([reply.said for reply in replies]),
        trained_in=column("rnd") if some_late else None,
    )


def replies_of(updates: Updates, rnd: int) -> list[Reply]:
    """The rows of a round as replies; `updates_of` is the inverse. Their vectors are views."""
    return [
        Reply(
            rnd=rnd,
            client=int(updates.clients[k]),
            model=int(updates.models[k]),
            delta=updates.deltas[k],
            num_samples=int(updates.num_samples[k]),
            num_steps=int(updates.num_steps[k]),
            loss=float(updates.losses[k]),
            num_tested=int(updates.num_tested[k]),
            num_correct=int(updates.num_correct[k]),
            reports={name: float(values[k]) for name, values in updates.reports.items()},
            said={name: words[k] for name, words in updates.said.items()},
        )
        for k in range(len(updates))
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
        length = _most_frequent(len(reply.said[name]) for reply in alike if len(reply.said[name]))
        alike = [reply for reply in alike if len(reply.said[name]) in (0, length)]
    return alike


def of_one_length(words: Sequence[Mapping[str, Floats]]) -> list[dict[str, Floats]]:
    """What is said, without vectors of another length than most have under that name.

    >>> [len(mine) for mine in of_one_length([{"a": np.ones(2)}, {"a": np.ones(3)}, {"a": np.ones(2)}])]
    [1, 0, 1]
    """
    names = {name for mine in words for name in mine}
    usual = {
        name: _most_frequent(len(mine[name]) for mine in words if name in mine) for name in names
    }
    return [
        {name: vector for name, vector in mine.items() if len(vector) == usual[name]}
        for mine in words
    ]


def _names(reply: Reply) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(reply.reports), frozenset(reply.said)


def _most_frequent(values: Iterable[T]) -> T | None:
    """The first of the most frequent; None if there are no values."""
    return next((value for value, _ in Counter(values).most_common(1)), None)
