"""``thalweg join``"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

import thalweg.flower  # noqa: F401  (says at once if Flower is missing)
from thalweg.cli.live import say_json
from thalweg.cli.stopping import Stopped, until_stopped
from thalweg.core.errors import ConfigError, require
from thalweg.flower.attending import claimed
from thalweg.flower.joining import Joining
from thalweg.flower.processes import reach
from thalweg.flower.trust import NodeTrust, check_safe, meet, node_trust

PORT = 8470
LOOK_S = 0.2
MEET_S = 2.0  # between two looks whether the server is up
COUNTERS = (
    "received",
    "kept",
    "waiting",
    "lost",
    "refused",
)  # of status.json, if the data are live


def join_command(
    server: str,
    data: str,
    state: Path,
    certs: Path | None,
    client: int | None,
    data_dir: Path | None,
    capacity: int | None,
    queue: int | None,
    own_code: bool,
    insecure: bool,
    as_json: bool,
) -> None:
    host, port = address_of(server)
    warning = check_safe(host, certs, insecure, "client")
    trust = None if certs is None else node_trust(certs)
    if warning is not None:
        typer.echo(warning, err=True)
    options = ["--data", data]
    options += ["--client", str(client)] if client is not None else []
    options += ["--data-dir", str(data_dir.absolute())] if data_dir is not None else []
    options += ["--capacity", str(capacity)] if capacity is not None else []
    options += ["--queue", str(queue)] if queue is not None else []
    options += ["--own-code"] if own_code else []
    _, address = reach(host, port)
    busy = (
        f"another `thalweg join` runs in {state}; every client needs a folder of its own (--state)."
    )
    try:
        with claimed(state / ".join", busy), until_stopped(), _showing(as_json) as show:
            joining = Joining(address, state, trust, options)
            try:
                _live(joining, host, port, trust, state, show)
            finally:
                joining.close()
    except Stopped:
        typer.echo(f"left; the state stays in {state}, and the same command goes on.", err=True)
        return
    typer.echo(f"thalweg: {joining.refused}", err=True)
    raise SystemExit(1)


def address_of(server: str) -> tuple[str, int]:
    """The host and the port of SERVER[:PORT].

    >>> address_of("example.org"), address_of("127.0.0.1:9000"), address_of("[::1]:9000")
    (('example.org', 8470), ('127.0.0.1', 9000), ('::1', 9000))
    """
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]") or (server.count(":") > 1 and not server.startswith("[")):
        host, port = server, str(PORT)
    is_port = port.isascii() and port.isdigit() and 1 <= int(port) <= 65535
    require(bool(host) and is_port, f"expected SERVER or SERVER:PORT, got {server!r}.")
    if "//" in host:
        raise ConfigError(f"expected SERVER:PORT without {host.split('//')[0]}//, got {server!r}.")
    return host.strip("[]"), int(port)


@dataclass
class Standing:
    """What a client has done so far, as `join` shows it."""

    client: int | None = None
    rounds: int = 0
    last_round: int | None = None
    loss: float | None = None

    def hear(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "joined":
            self.client = event.get("client")
        if event["event"] == "round":
            self.rounds += event.get("round") != self.last_round  # asked again, it answers again
            self.last_round, self.loss = event.get("round"), event.get("loss")

    def line(self, counters: Mapping[str, Any]) -> str:
        """One line for people.

        >>> Standing(client=2, rounds=7, last_round=9, loss=0.5).line({"received": 120, "kept": 50})
        'client 2   round 9   took part in 7   loss 0.5000   received 120   kept 50'
        """
        words = ["not joined yet" if self.client is None else f"client {self.client}"]
        if self.last_round is not None:
            words += [f"round {self.last_round}", f"took part in {self.rounds}"]
        if self.loss is not None:
            words.append(f"loss {self.loss:.4f}")
        words += [f"{name} {counters[name]}" for name in COUNTERS if name in counters]
        return "   ".join(words)


Show = Callable[[Mapping[str, Any] | None, str], None]


def _live(
    joining: Joining, host: str, port: int, trust: NodeTrust | None, state: Path, show: Show
) -> None:
    """Until this client is stopped, or may not take part."""
    standing, status = Standing(), state / "status.json"
    joining.start_daemon()  # loads its data while we look for the server
    has_met, looked, trouble = False, 0.0, ""
    while joining.refused is None:
        if not has_met and time.monotonic() - looked > MEET_S:
            if has_met := meet(host, port, trust):
                joining.start_node()
                show({"event": "connecting", "server": f"{host}:{port}"}, "")
            elif looked == 0.0:
                show({"event": "waiting", "reason": f"nobody answers at {host}:{port} yet"}, "")
            looked = time.monotonic()
        for event in joining.events():
            standing.hear(event)
            show(event, standing.line(_counters(status)))
        for news in joining.tend(with_node=has_met):
            show({"event": "restarted", "reason": news}, "")
        counters = _counters(status)
        if (now := str(counters.get("trouble") or counters.get("last_refusal") or "")) != trouble:
            trouble = now
            show({"event": "trouble", "reason": trouble}, "")
        show(None, standing.line(counters))
        time.sleep(LOOK_S)


def _counters(status: Path) -> dict[str, Any]:
    """What the collector has counted, if there is one."""
    try:
        counters = json.loads(status.read_text())
    except (OSError, ValueError):
        return {}
    return counters if isinstance(counters, dict) else {}


@contextmanager
def _showing(as_json: bool) -> Iterator[Show]:
    """A line that changes on a terminal, plain lines elsewhere, JSON lines for programs."""
    console = Console()
    if as_json:
        yield lambda event, line: None if event is None else say_json(event)
    elif not console.is_terminal:
        yield lambda event, line: _say(console, event, line)
    else:
        with console.status("starting", spinner="dots") as bar:

            def show(event: Mapping[str, Any] | None, line: str) -> None:
                if event is not None and event["event"] != "round":
                    _say(console, event, line)
                if line:
                    bar.update(line)

            yield show


def _say(console: Console, event: Mapping[str, Any] | None, line: str) -> None:
    if event is None:
        return
    words = {
        "connecting": f"connecting to {event.get('server')} ...",
        "joined": f"joined as client {event.get('client')}: {event.get('plan')}",
        "waiting": f"waiting: {event.get('reason')}",
        "restarted": str(event.get("reason")),
        "trouble": f"trouble with the data: {event['reason']}" if event.get("reason") else "",
        "round": line,
    }
    if said := words.get(str(event["event"])):
        console.print(said, highlight=False, soft_wrap=True, markup=False)
