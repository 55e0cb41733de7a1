"""Covering arrays: few rows that contain each pair of values of two factors.

The rows are built factor by factor (Lei and Tai, "In-parameter-order", 1998): the product of the
two largest factors, then a column for each further factor, then rows for the pairs that are still
missing. The result is deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

ANY_VALUE = -1  # not chosen yet
Pair = tuple[int, int, int, int]  # value a of factor i beside value b of factor j, i < j


def covering_array(factors: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Return rows with one value per factor such that each pair of values is in some row.

    >>> factors = {"size": ["S", "L"], "colour": ["red", "blue"], "lid": ["no", "yes"]}
    >>> for row in covering_array(factors):
    ...     print(*row.values())
    S red no
    S blue yes
    L red yes
    L blue no
    """
    names = sorted(factors, key=lambda name: -len(factors[name]))
    sizes = [len(factors[name]) for name in names]
    rows: list[list[int]] = [list(row) for row in product(*map(range, sizes[:2]))]
    for column in range(2, len(sizes)):
        missing = {
            (i, a, column, b)
            for i in range(column)
            for a, b in product(range(sizes[i]), range(sizes[column]))
        }
        _widen(rows, sizes[column], missing)
        _lengthen(rows, missing)
    filled = [
        [
            number % size if value == ANY_VALUE else value
            for value, size in zip(row, sizes, strict=True)
        ]
        for number, row in enumerate(rows)
    ]
    return [{name: factors[name][row[names.index(name)]] for name in factors} for row in filled]


def pairs_of(row: Sequence[int]) -> Iterator[Pair]:
    """The pairs that a row covers."""
    for i, j in combinations(range(len(row)), 2):
        if ANY_VALUE not in (row[i], row[j]):
            yield i, row[i], j, row[j]


def _widen(rows: list[list[int]], size: int, missing: set[Pair]) -> None:
    """One column more: in each row the value that meets most values it has not met yet."""
    used = [0] * size
    for row in rows:
        column = len(row)
        gains = [
            sum((i, a, column, value) in missing for i, a in enumerate(row))
            for value in range(size)
        ]
        best = min(range(size), key=lambda value: (-gains[value], used[value]))
        row.append(best if gains[best] else ANY_VALUE)
        used[best] += 1
        missing.difference_update(pairs_of(row))


def _lengthen(rows: list[list[int]], missing: set[Pair]) -> None:
    """Put each missing pair into a row that leaves room for it, or into a new one."""
    for i, a, j, b in sorted(missing):
        row = next(
            (row for row in rows if row[i] in (ANY_VALUE, a) and row[j] in (ANY_VALUE, b)), None
        )
        if row is None:
            row = [ANY_VALUE] * (j + 1)
            rows.append(row)
        row[i], row[j] = a, b
    missing.clear()
