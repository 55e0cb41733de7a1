"""A timeline of the drifts and alarms of each client, as an SVG element."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from thalweg.core.wrapped_text import make_printable
from thalweg.report.cells import Cell, group_by_recipe
from thalweg.report.figure import choose_colour

MAX_CLIENTS = 30  # rows of a timeline
MAX_NAME = 10  # characters of a client's name
MAX_TICKS = 10  # numbers below it
WIDTH, LEFT, RIGHT, TOP, ROW, BOTTOM = 800.0, 72.0, 16.0, 6.0, 16.0, 38.0


class ClientEvent(NamedTuple):
    """A drift or an alarm of a client."""

    client: int
    rnd: int  # counted from 1
    kind: str  # of the drift; empty: an alarm


@dataclass(frozen=True)
class AlarmTimeline:
    """The events of one run."""

    recipe: str
    index: int  # of the recipe in the comparison; determines the colour
    seed: int
    rounds: int
    events: list[ClientEvent]
    names: Sequence[str] = ()  # of the clients, by number

    def name_client(self, client: int) -> str:
        """Return the name of a client, or its number."""
        return self.names[client] if client < len(self.names) else f"client {client}"

    @property
    def clients(self) -> list[int]:
        """The clients with events, in ascending order."""
        return sorted({event.client for event in self.events})


def find_timelines(cells: Sequence[Cell]) -> list[AlarmTimeline]:
    """Return the first finished run of each recipe in which an alarm was raised.

    >>> rows = [{"round": 1}, {"round": 2, "drifts": {"real": [4]}}, {"round": 3, "alarms": [4]}]
    >>> cell = Cell("fedavg", "digits-full", 0, "done", "", rows, "thalweg run", 1.0)
    >>> find_timelines([cell])[0].events
    [ClientEvent(client=4, rnd=2, kind='real'), ClientEvent(client=4, rnd=3, kind='')]
    """
    found = []
    for index, (recipe, group) in enumerate(group_by_recipe(cells).items()):
        for cell in group:
            if cell.is_done and any(row.get("alarms") for row in cell.rows):
                events = [event for row in cell.rows for event in _read_events(row)]
                rounds = int(cell.rows[-1]["round"])
                found.append(
                    AlarmTimeline(recipe, index, cell.seed, rounds, events, cell.client_names)
                )
                break
    return found


def _read_events(row: Mapping[str, Any]) -> Iterator[ClientEvent]:
    for kind, clients in row.get("drifts", {}).items():
        yield from (ClientEvent(client, row["round"], kind) for client in clients)
    yield from (ClientEvent(client, row["round"], "") for client in row.get("alarms", ()))


def timeline_svg(timeline: AlarmTimeline) -> str:
    """Return the timeline: one row per client; a bar is a drift, a dot is an alarm.

    At most `MAX_CLIENTS` clients are drawn. Each mark has its client, round and kind as a title,
    which browsers show beside the pointer.
    """
    clients = timeline.clients[:MAX_CLIENTS]
    place = {client: TOP + ROW * (number + 0.5) for number, client in enumerate(clients)}
    bottom = TOP + ROW * len(clients)
    colour = f"var(--series-{timeline.index + 1}, {choose_colour(timeline.index)})"

    def x_of(rnd: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (rnd - 1) / max(timeline.rounds - 1, 1)

    parts = []
    for client, y in place.items():
        parts.append(
            f'<line x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{y:g}" y2="{y:g}" '
            'stroke="var(--faint, #d8dce1)"/>'
            f'<text x="{LEFT - 8:g}" y="{y + 4:g}" text-anchor="end">'
            f"{escape(_shorten(timeline.name_client(client)))}</text>"
        )
    for rnd in choose_ticks(timeline.rounds):
        parts.append(
            f'<text x="{x_of(rnd):.1f}" y="{bottom + 16:g}" text-anchor="middle">{rnd}</text>'
        )
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:g}" y="{bottom + 33:g}" '
        'text-anchor="middle">round</text>'
    )
    for event in sorted(timeline.events, key=lambda event: event.kind == ""):  # alarms on top
        if event.client not in place:
            continue
        x, y = x_of(event.rnd), place[event.client]
        what = f"drift ({event.kind})" if event.kind else "alarm"
        who = make_printable(timeline.name_client(event.client))
        title = f"<title>{escape(f'{who}, round {event.rnd}: {what}')}</title>"
        if event.kind:
            parts.append(
                f'<rect x="{x - 2:.1f}" y="{y - 7:g}" width="4" height="14" '
                f'fill="var(--ink, #1b1f24)">{title}</rect>'
            )
        else:
            parts.append(f'<circle cx="{x:.1f}" cy="{y:g}" r="4" fill="{colour}">{title}</circle>')
    label = escape(describe_timeline(timeline))
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {WIDTH:g} {bottom + BOTTOM:g}" '
        'font-size="12" fill="var(--ink, #1b1f24)" xmlns="http://www.w3.org/2000/svg">\n'
        + "\n".join(parts)
        + "\n</svg>"
    )


def _shorten(name: str) -> str:
    """Return a name that fits left of the timeline.

    >>> _shorten("client 12"), _shorten("plant-0-north-east")
    ('client 12', 'plant-0-n…')
    """
    name = make_printable(name)
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def choose_ticks(rounds: int) -> list[int]:
    """Return rounds at equal distances, at most `MAX_TICKS` and the first one.

    >>> choose_ticks(40), choose_ticks(3)
    ([1, 5, 10, 15, 20, 25, 30, 35, 40], [1, 2, 3])
    """
    step = next(
        size * 10**power
        for power in range(12)
        for size in (1, 2, 5)
        if rounds <= MAX_TICKS * size * 10**power
    )
    return list(dict.fromkeys([1, *range(step, rounds + 1, step)]))


def describe_timeline(timeline: AlarmTimeline) -> str:
    """Return the timeline in words, for screen readers and captions.

    >>> events = [ClientEvent(1, 2, "real"), ClientEvent(1, 3, "")]
    >>> describe_timeline(AlarmTimeline("fedavg", 0, 7, 9, events))
    'fedavg, seed 7: 1 drift and 1 alarm at 1 client.'
    """
    alarms = sum(not event.kind for event in timeline.events)
    drifts = len(timeline.events) - alarms
    known = f"{_count(drifts, 'drift')} and " if drifts else ""
    clients = len(timeline.clients)
    text = f"{timeline.recipe}, seed {timeline.seed}: {known}{_count(alarms, 'alarm')} at "
    text += f"{_count(clients, 'client')}."
    if clients > MAX_CLIENTS:
        text += f" The first {MAX_CLIENTS} of them are drawn."
    return text


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
