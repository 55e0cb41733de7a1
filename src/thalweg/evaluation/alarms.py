"""Alarms compared with the true drifts: delay, missed drifts, false alarms."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, Protocol, runtime_checkable

DriftRecord = tuple[int, int, str]  # the round (counted from 0), the client, the kind of drift
AlarmEvent = tuple[int, int]  # the round and the client of an alarm


@runtime_checkable
class HasChanges(Protocol):
    """A world whose drifts are known."""

    def drift_events(self) -> Sequence[DriftRecord]: ...


class KindScores(NamedTuple):
    """Scores for the drifts of one kind."""

    drifts: int
    missed: int
    mean_delay: float | None


class AlarmScores(NamedTuple):
    """Scores for the alarms of a run."""

    raised: int  # alarms
    drifts: int  # true drifts; several of one client in one round count once
    missed: int  # drifts without an alarm before the client's next drift
    false_alarms: int  # alarms that detect no new drift
    mean_delay: float | None
    """Mean number of rounds from a detected drift to its alarm; None: no drift was detected."""
    by_kind: dict[str, KindScores]
    """By real, virtual and label drift; a drift of two kinds counts for both."""


def alarm_scores(
    raised: Iterable[AlarmEvent], drifts: Iterable[DriftRecord], within: int | None = None
) -> AlarmScores:
    """Compare alarms with the true drifts.

    The first alarm after a drift, and before the same client's next drift, detects it; an alarm in
    the round of the drift has delay 0. All other alarms are false. A detector that raises an alarm
    in every round therefore misses no drift and has no delay, but is false in all rounds without a
    drift. With `within`, an alarm more than so many rounds after the drift is false, and the drift
    is missed.

    >>> drifts = [(10, 0, "real"), (20, 0, "real"), (10, 1, "virtual")]
    >>> scores = alarm_scores([(4, 0), (12, 0), (13, 0)], drifts)
    >>> scores.drifts, scores.missed, scores.false_alarms, scores.mean_delay
    (3, 2, 2, 2.0)
    """
    kinds: dict[AlarmEvent, set[str]] = {}
    for rnd, client, kind in drifts:
        kinds.setdefault((rnd, client), set()).add(kind)
    alarms = sorted(set(raised))
    rounds, drift_rounds = _by_client(alarms), _by_client(sorted(kinds))
    delays = {
        (drift, client): _delay(drift, following, rounds.get(client, []), within)
        for client, mine in drift_rounds.items()
        for drift, following in zip(mine, [*mine[1:], math.inf], strict=True)
    }
    detected = [delay for delay in delays.values() if delay is not None]
    return AlarmScores(
        raised=len(alarms),
        drifts=len(delays),
        missed=len(delays) - len(detected),
        false_alarms=len(alarms) - len(detected),
        mean_delay=_mean(detected),
        by_kind={
            kind: _score_kind([delay for drift, delay in delays.items() if kind in kinds[drift]])
            for kind in sorted(set().union(*kinds.values()))
        },
    )


def read_alarms(rows: Iterable[Mapping[str, Any]]) -> list[AlarmEvent]:
    """The alarms in the metrics of a run, with rounds counted from 0."""
    return [(row["round"] - 1, client) for row in rows for client in row.get("alarms", ())]


def read_drifts(rows: Iterable[Mapping[str, Any]]) -> list[DriftRecord]:
    """The drifts in the metrics of a run, with rounds counted from 0.

    >>> read_drifts([{"round": 5, "drifts": {"real": [0, 3], "virtual": [3]}}])
    [(4, 0, 'real'), (4, 3, 'real'), (4, 3, 'virtual')]
    """
    return [
        (row["round"] - 1, client, kind)
        for row in rows
        for kind, clients in row.get("drifts", {}).items()
        for client in clients
    ]


def alarm_summary(rows: Sequence[Mapping[str, Any]], are_drifts_known: bool) -> dict[str, Any]:
    """Summarise the alarms of a run; if the true drifts are unknown, only their number.

    >>> alarm_summary([{"round": 1}, {"round": 2, "alarms": [0, 3]}], are_drifts_known=False)
    {'raised': 2}
    """
    raised = read_alarms(rows)
    if not are_drifts_known:
        return {"raised": len(raised)}
    scores = alarm_scores(raised, read_drifts(rows))
    by_kind = {kind: found._asdict() for kind, found in scores.by_kind.items()}
    return {**scores._asdict(), "by_kind": by_kind}


def _by_client(events: Iterable[AlarmEvent]) -> dict[int, list[int]]:
    """The rounds of each client's events, in the given order."""
    found: dict[int, list[int]] = {}
    for rnd, client in events:
        found.setdefault(client, []).append(rnd)
    return found


def _delay(drift: int, following: float, rounds: list[int], within: int | None) -> int | None:
    """Rounds from a drift to the alarm that detects it, before the next drift; None if missed."""
    index = bisect_left(rounds, drift)
    if index == len(rounds) or rounds[index] >= following:
        return None
    delay = rounds[index] - drift
    return delay if within is None or delay <= within else None


def _score_kind(delays: Sequence[int | None]) -> KindScores:
    detected = [delay for delay in delays if delay is not None]
    return KindScores(len(delays), len(delays) - len(detected), _mean(detected))


def _mean(values: Sequence[int]) -> float | None:
    return fmean(values) if values else None
