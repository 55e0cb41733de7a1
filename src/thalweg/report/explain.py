"""What happened in a run, in sentences: alarms, sessions, models and decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from thalweg.core.decisions import describe_decision
from thalweg.core.wrapped_text import make_printable

MAX_LISTED = 8  # ids of clients in one sentence
PREDICTORS = {
    "latest": "the received model",
    "averaged": "the averaged model",
    "trained": "the locally trained model",
    "adjusted": "the adjusted model",
    "model": "single models of the bank",
    "last_label": "the last label",
}


def explain_rows(
    rows: Sequence[Mapping[str, Any]],
    *,
    alarm: str = "",
    has_trigger: bool = False,
    names: Sequence[str] = (),
) -> list[str]:
    """Return one line per event, in the order of rounds, and one about the predictors at the end.

    `alarm` says what an alarm of this run means. With a trigger (`has_trigger`, or a session that
    a decision has opened), the sessions of the scenario are not those of the run, and are left out.
    `names` are those of the clients, by number.

    >>> rows = [{"round": 1}, {"round": 2, "alarms": [4, 7], "models": 2},
    ...         {"round": 3, "models": 2, "decisions": [
    ...             {"what": "restart-average", "reason": "2 of 9 clients raised an alarm"}]}]
    >>> print(*explain_rows(rows, alarm="the error changed (ddm)"), sep="\\n")
    Round 2: Alarms at clients 4 and 7: the error changed (ddm).
    Round 2: 2 models, before 1.
    Round 3: 2 of 9 clients raised an alarm. Restarted the average of the models.
    """
    has_trigger = has_trigger or any("open-session" in _list_decided(row) for row in rows)
    lines, models, session = [], None, None
    for row in rows:
        events = list(_describe_events(row, alarm, names))
        decided = _list_decided(row)
        now, current = row.get("models", 1), None if has_trigger else row.get("session")
        is_other = models not in (None, now)  # a bank may start with several models
        if is_other and not decided & {"open-model", "close-model", "merge-models"}:
            events.append(f"{now} model{'s' * (now != 1)}, before {models}.")
        if current != session and session is not None:
            events.append(f"Session {current} starts.")
        models, session = now, session if current is None else current
        lines += [f"Round {row['round']}: {event}" for event in events]
    return [make_printable(line) for line in lines + _describe_serving(rows)]


def _list_decided(row: Mapping[str, Any]) -> set[str]:
    """Return the codes of the decisions of a round."""
    return {decision["what"] for decision in row.get("decisions", ())}


def _describe_events(row: Mapping[str, Any], alarm: str, names: Sequence[str]) -> Iterator[str]:
    if alarmed := row.get("alarms"):
        reason = f": {alarm}" if alarm else ""
        yield f"Alarm{'s' * (len(alarmed) > 1)} at {list_clients(alarmed, names)}{reason}."
    for decision in row.get("decisions", ()):
        yield describe_decision(decision)


def _describe_serving(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence about the predictors that clients use, by the last round that has them.

    >>> _describe_serving([{"round": 4, "serving_weights": {"latest": 0.3, "last_label": 0.7}}])
    ['After round 4: Clients predict with the last label (70%) and the received model (30%).']
    """
    found = [row for row in rows if row.get("serving_weights")]
    if not found:
        return []
    weights = found[-1]["serving_weights"]
    names = sorted((name for name in weights if weights[name] >= 0.005), key=lambda n: -weights[n])
    texts = [f"{PREDICTORS.get(name, name)} ({weights[name]:.0%})" for name in names]
    if not texts:
        return []
    listed = f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]
    return [f"After round {found[-1]['round']}: Clients predict with {listed}."]


def list_clients(clients: Sequence[int], names: Sequence[str] = ()) -> str:
    """Return ids, or names, in words, at most `MAX_LISTED` of them.

    >>> list_clients([3]), list_clients([1, 2, 5]), list_clients(range(20))
    ('client 3', 'clients 1, 2 and 5', 'clients 0, 1, 2, 3, 4, 5, 6, 7 and 12 others')
    >>> list_clients([2, 0], names=("north", "south", "west"))
    'clients west and north'
    """
    ids = [names[client] if client < len(names) else str(client) for client in clients]
    if len(ids) == 1:
        return f"client {ids[0]}"
    if len(ids) > MAX_LISTED:
        return f"clients {', '.join(ids[:MAX_LISTED])} and {len(ids) - MAX_LISTED} others"
    return f"clients {', '.join(ids[:-1])} and {ids[-1]}"
