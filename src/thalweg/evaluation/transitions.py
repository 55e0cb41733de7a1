"""Transitions between sessions: the loss of accuracy and the rounds until recovery."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

FIRST_ROUNDS = 10  # rounds of a session in its transition accuracy
CROSSING_ROUNDS = 4  # rounds of a session in its crossing accuracy

MetricsRow = Mapping[str, Any]  # the metrics of one round


class Transition(NamedTuple):
    """The start of a session, from the second one on.

    Accuracies are shares of one, on the labels of the session's members; None: never measured. In
    a regression they are mean absolute errors on the members' test samples, and lower is better.
    """

    session: int  # number of the new session
    rounds: int  # of the session in this run
    counted_rounds: int  # including probe rounds, which take as long as rounds
    accuracy_before: float | None  # the last accuracy of the previous session
    transition_accuracy: float | None  # mean over the first ten rounds
    rounds_averaged: int  # evaluated rounds among those ten
    rounds_to_recover: int | None  # until accuracy is at least `accuracy_before`; None: never
    stayers_accuracy: float | None  # mean over the same rounds
    newcomers_accuracy: float | None
    crossing_accuracy: float | None = None  # mean of `accuracy_before` and of the first four rounds
    is_error: bool = False  # whether the accuracies are mean absolute errors

    def to_record(self) -> dict[str, Any]:
        """Return the fields by name; those of a regression are named after the error.

        >>> record = Transition(1, 5, 5, 2.0, 3.0, 5, None, None, 4.0, is_error=True).to_record()
        >>> record["mae_before"], record["transition_mae"], record["newcomers_mae"]
        (2.0, 3.0, 4.0)
        """
        fields = self._asdict()
        is_error = fields.pop("is_error")
        if not is_error:
            return fields
        return {name.replace("accuracy", "mae"): value for name, value in fields.items()}


def transitions(rows: Iterable[MetricsRow]) -> list[Transition]:
    """Measure the start of every session from the second one on, from the metrics of a run.

    Accuracy is measured on different labels before and after a transition, so a session with harder
    labels may never recover. In a regression the mean absolute error is used, which recovers when
    it is as low as before. Only evaluated rounds are used.

    >>> rows = [{"session": 0, "session_round": 1, "session_accuracy": 0.75},
    ...         {"session": 1, "session_round": 1, "session_accuracy": 0.25, "probe_rounds": 1},
    ...         {"session": 1, "session_round": 2, "session_accuracy": 0.75}]
    >>> (found,) = transitions(rows)
    >>> found.transition_accuracy, found.accuracy_before
    (0.5, 0.75)
    >>> found.rounds_to_recover, found.counted_rounds
    (2, 3)
    """
    sessions = group_by_session(rows)
    return [
        _transition(number, sessions[earlier], sessions[number])
        for earlier, number in pairwise(sorted(sessions))
    ]


def group_by_session(rows: Iterable[MetricsRow]) -> dict[int, list[MetricsRow]]:
    """The rounds of every session; rounds without a session are left out."""
    sessions: dict[int, list[MetricsRow]] = {}
    for row in rows:
        if "session" in row:
            sessions.setdefault(row["session"], []).append(row)
    return sessions


def take_until_transition(rows: Sequence[MetricsRow], session: int) -> list[MetricsRow]:
    """The rows up to the tenth round of a session, with ``transition_accuracy``, the mean so far.

    >>> rows = [{"session": 0}, *({"session": 1, "session_accuracy": a} for a in (0.25, 0.75))]
    >>> [row.get("transition_accuracy") for row in take_until_transition(rows, 1)]
    [None, 0.25, 0.5]
    """
    return _take_first_rounds(rows, session, "transition_accuracy", FIRST_ROUNDS, [])


def take_until_crossing(rows: Sequence[MetricsRow], session: int) -> list[MetricsRow]:
    """The rows up to the fourth round of a session, with ``crossing_accuracy``, the mean so far.

    The mean begins with the last accuracy before the session; without it there is no mean.

    >>> rows = [{"session": s, "session_accuracy": a} for s, a in ((0, 1.0), (1, 0.5), (1, 0.75))]
    >>> [row.get("crossing_accuracy") for row in take_until_crossing(rows, 1)]
    [None, 0.75, 0.75]
    """
    before = [row for row in rows if row.get("session", session) < session]
    last = _read_values(before, "session_accuracy")[-1:]
    name = "crossing_accuracy" if last else ""
    return _take_first_rounds(rows, session, name, CROSSING_ROUNDS, last)


def _take_first_rounds(
    rows: Sequence[MetricsRow], session: int, name: str, number: int, earlier: Sequence[float]
) -> list[MetricsRow]:
    """The rows up to some round of a session, with the mean so far under a name, if it has one."""
    shown: list[MetricsRow] = []
    measured = list(earlier)
    rounds = 0
    for row in rows:
        if row.get("session", session) > session:
            break
        if row.get("session") == session:
            rounds += 1
            if "session_accuracy" in row and name:
                measured.append(row["session_accuracy"])
                row = {**row, name: fmean(measured)}
        shown.append(row)
        if rounds == number:
            break
    return shown


def _transition(number: int, before: Sequence[MetricsRow], now: Sequence[MetricsRow]) -> Transition:
    first = [row for row in now if row["session_round"] <= FIRST_ROUNDS]
    is_error = any("session_mae" in row for row in (*before, *now))
    of = "mae" if is_error else "accuracy"
    earlier = _read_values(before, f"session_{of}")
    target = earlier[-1] if earlier else None
    back = (
        row["session_round"]
        for row in now
        if target is not None
        and f"session_{of}" in row
        and (row[f"session_{of}"] <= target if is_error else row[f"session_{of}"] >= target)
    )
    crossing = [row for row in now if row["session_round"] <= CROSSING_ROUNDS]
    crossed = _read_values(crossing, f"session_{of}")
    return Transition(
        session=number,
        rounds=len(now),
        counted_rounds=len(now) + sum(row.get("probe_rounds", 0) for row in now),
        accuracy_before=target,
        transition_accuracy=_mean(first, f"session_{of}"),
        rounds_averaged=len(_read_values(first, f"session_{of}")),
        rounds_to_recover=next(back, None),
        stayers_accuracy=_mean(first, f"stayers_{of}"),
        newcomers_accuracy=_mean(first, f"newcomers_{of}"),
        crossing_accuracy=None if target is None or not crossed else fmean([target, *crossed]),
        is_error=is_error,
    )


def _read_values(rows: Iterable[MetricsRow], measure: str) -> list[float]:
    return [row[measure] for row in rows if measure in row]


def _mean(rows: Iterable[MetricsRow], measure: str) -> float | None:
    values = _read_values(rows, measure)
    return fmean(values) if values else None
