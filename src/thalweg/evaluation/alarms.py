"""Alarms against what really happened: how late, how many missed, how many false."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, Protocol, runtime_checkable

DriftRecord = tuple[int, int, str]  # the round (counted from 0), the client, and what kind of drift
AlarmEvent = tuple[int, int]  # the round and the client of an alarm


@runtime_checkable
class HasChanges(Protocol):
    """A world that knows when the data of its clients change."""

    def drift_events(self) -> Sequence[DriftRecord]: ...


class KindScores(NamedTuple):
    """Of the drifts of one kind."""

    drifts: int
    missed: int
    mean_delay: float | None


class AlarmScores(NamedTuple):
    """What the alarms of a run are worth."""

    raised: int  # alarms
    drifts: int  # real changes; several at once at one client are one
    missed: int  # of those, without an alarm before the client's next one
    false_alarms: int  # with no change before them that was still to be noticed
    mean_delay: float | None
    """Rounds from a change to its alarm, over those that were noticed; none: none was."""
    by_kind: dict[str, KindScores]
    """By real, virtual and label drift; a change of two kinds counts for both."""


def alarm_scores(
    raised: Iterable[AlarmEvent], changes: Iterable[DriftRecord], within: int | None = None
) -> AlarmScores:
    """Judge alarms by the changes that there were.

    The first alarm after a change, and before the same client's next one, notices it; in the very round of the
    change its delay is 0. All other alarms are false. So one that is raised in every round misses nothing, is
    never late, and is false in all rounds but those of a change. With `within`, an alarm that is later than so many
    rounds is false, and the change missed.

    >>> changes = [(10, 0, "real"), (20, 0, "real"), (10, 1, "virtual")]
    >>> scores = alarm_scores([(4, 0), (12, 0), (13, 0)], changes)
    >>> scores.drifts, scores.missed, scores.false_alarms, scores.mean_delay
    (3, 2, 2, 2.0)
    """
    kinds: dict[AlarmEvent, set[str]] = {}
    for rnd, client, kind in changes:
        kinds.setdefault((rnd, client), set()).add(kind)
    alarms = sorted(set(raised))
    rounds, drifts = _by_client(alarms), _by_client(sorted(kinds))
    delays = {
        (drift, client): _delay(drift, following, rounds.get(client, []), within)
        for client, mine in drifts.items()
        for drift, following in zip(mine, [*mine[1:], math.inf], strict=True)
    }
    noticed = [delay for delay in delays.values() if delay is not None]
    return AlarmScores(
        raised=len(alarms),
        drifts=len(delays),
        missed=len(delays) - len(noticed),
        false_alarms=len(alarms) - len(noticed),
        mean_delay=_mean(noticed),
        by_kind={
            kind: _score_kind([delay for change, delay in delays.items() if kind in kinds[change]])
            for kind in sorted(set().union(*kinds.values()))
        },
    )


def read_alarms(rows: Iterable[Mapping[str, Any]]) -> list[AlarmEvent]:
    """The alarms that the metrics of a run tell of, with rounds counted from 0."""
    return [(row["round"] - 1, client) for row in rows for client in row.get("alarms", ())]


def read_drifts(rows: Iterable[Mapping[str, Any]]) -> list[DriftRecord]:
    """The drifts that the metrics of a run tell of by name, each in the round in which its client met with it.

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
    """What a run says of its alarms; if nobody knows when data drift, only how many there were.

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
    """The rounds of each client's events, ascending as they are."""
    found: dict[int, list[int]] = {}
    for rnd, client in events:
        found.setdefault(client, []).append(rnd)
    return found


def _delay(drift: int, following: float, rounds: list[int], within: int | None) -> int | None:
    """Rounds from a drift to the first alarm that notices it, before the following drift; none: no alarm does."""
    place = bisect_left(rounds, drift)
    if place == len(rounds) or rounds[place] >= following:
        return None
    delay = rounds[place] - drift
    return delay if within is None or delay <= within else None


def _score_kind(delays: Sequence[int | None]) -> KindScores:
    noticed = [delay for delay in delays if delay is not None]
    return KindScores(len(delays), len(delays) - len(noticed), _mean(noticed))


def _mean(values: Sequence[int]) -> float | None:
    return fmean(values) if values else None
