"""What happened in a run, in sentences: alarms, sessions, models and decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from thalweg.core.decisions import describe_decision

MAX_LISTED = 8  # ids of clients in one sentence


def explain_rows(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line per event, in the order of rounds.

    >>> rows = [{"round": 1}, {"round": 2, "alarms": [4, 7], "models": 2},
    ...         {"round": 3, "models": 2, "decisions": [
    ...             {"what": "restart-average", "reason": "2 of 9 clients raised an alarm"}]}]
    >>> print(*explain_rows(rows), sep="\\n")
    Round 2: alarms at clients 4 and 7.
    Round 2: 2 models, before 1.
    Round 3: 2 of 9 clients raised an alarm. Restarted the average of the models.
    """
    lines, models, session = [], 1, None
    for row in rows:
        events = list(_describe_events(row))
        decided = {decision["what"] for decision in row.get("decisions", ())}
        now, current = row.get("models", 1), row.get("session")
        if now != models and not decided & {"open-model", "close-model", "merge-models"}:
            events.append(f"{now} model{'s' * (now != 1)}, before {models}.")
        if current != session and session is not None and "open-session" not in decided:
            events.append(f"session {current} starts.")
        models, session = now, session if current is None else current
        lines += [f"Round {row['round']}: {event}" for event in events]
    return lines


def _describe_events(row: Mapping[str, Any]) -> Iterator[str]:
    if row.get("alarms"):
        yield f"alarm{'s' * (len(row['alarms']) > 1)} at {list_clients(row['alarms'])}."
    for decision in row.get("decisions", ()):
        text = describe_decision(decision)
        yield text


def list_clients(clients: Sequence[int]) -> str:
    """Return ids in words, at most `MAX_LISTED` of them.

    >>> list_clients([3]), list_clients([1, 2, 5]), list_clients(range(20))
    ('client 3', 'clients 1, 2 and 5', 'clients 0, 1, 2, 3, 4, 5, 6, 7 and 12 others')
    """
    ids = [str(client) for client in clients]
    if len(ids) == 1:
        return f"client {ids[0]}"
    if len(ids) > MAX_LISTED:
        return f"clients {', '.join(ids[:MAX_LISTED])} and {len(ids) - MAX_LISTED} others"
    return f"clients {', '.join(ids[:-1])} and {ids[-1]}"
