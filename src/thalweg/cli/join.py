"""``thalweg join``"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

import thalweg.network.flower  # noqa: F401  (fails early if Flower is missing)
from thalweg.aggregation.secure_aggregation import MAX_CLIENTS
from thalweg.cli.progress import print_json
from thalweg.cli.signals import Stopped, stop_on_signal
from thalweg.core.config import UPPER_BOUNDS
from thalweg.core.errors import ConfigError, require
from thalweg.core.registry import Registry
from thalweg.core.wrapped_text import make_printable
from thalweg.nets.module import make_path_absolute
from thalweg.network.edge.device_limits import DeviceLimits
from thalweg.network.flower.client_processes import ClientProcesses
from thalweg.network.flower.liveness import lock_file
from thalweg.network.flower.processes import local_address
from thalweg.network.flower.runner import check_flower_version
from thalweg.network.flower.trust import NodeTrust, check_safe, check_server, load_node_trust

PORT = 8470
POLL_S = 0.2
CONNECT_POLL_S = 2.0  # seconds between two connection attempts
# After a rejection, until the SuperNode stops: the server reads the last response meanwhile,
# so that it reports the rejection and the client's number is free.
DELIVERY_S = 3.0
COUNTERS = (
    "received",
    "kept",
    "waiting",
    "lost",
    "rejected",
)  # of status.json, for live data


def join_command(
    server: str,
    data: str,
    state: Path,
    certs: Path | None,
    client: int | None,
    data_dir: Path | None,
    capacity: int | None,
    queue: int | None,
    components: Sequence[str],
    model: str | None,
    limits: DeviceLimits,
    insecure: bool,
    as_json: bool,
    peers: Path | None = None,
    min_participants: int | None = None,
    account: Path | None = None,
) -> None:
    require(
        account is None or limits.max_epsilon is not None,
        "--privacy-account needs a budget: add --max-epsilon.",
    )
    host, port = parse_address(server)
    check_flower_version()
    warning = check_safe(host, certs, insecure, "client")
    trust = None if certs is None else load_node_trust(certs)
    if warning is not None:
        typer.echo(warning, err=True)
    options = ["--data", data]
    options += ["--client", str(client)] if client is not None else []
    options += ["--data-dir", str(data_dir.absolute())] if data_dir is not None else []
    options += ["--capacity", str(capacity)] if capacity is not None else []
    options += ["--queue", str(queue)] if queue is not None else []
    _check_range("--client", client, 0, UPPER_BOUNDS["CLIENTS"] - 1)
    _check_range("--capacity", capacity, 1, UPPER_BOUNDS["COUNT"])
    _check_range("--queue", queue, 2, UPPER_BOUNDS["COUNT"])
    Registry.from_paths([*components, *([] if model is None else [model])])  # reports wrong paths
    for component in components:
        options += ["--component", make_path_absolute(component)]
    options += ["--model", make_path_absolute(model)] if model is not None else []
    options += _secure_aggregation_options(trust, peers, min_participants)
    options += ["--max-params", str(limits.max_params)]
    options += ["--max-samples", str(limits.max_samples)]
    options += ["--min-interval", str(limits.min_interval_s)]
    options += ["--max-memory", str(limits.max_memory)] if limits.max_memory is not None else []
    options += ["--min-noise", str(limits.min_noise), "--delta", str(limits.delta)]
    options += ["--max-epsilon", str(limits.max_epsilon)] if limits.max_epsilon is not None else []
    options += ["--privacy-account", str(account.absolute())] if account is not None else []
    for recipe in limits.recipes:
        options += ["--recipe", recipe]
    _, address = local_address(host, port)
    busy = f"another `thalweg join` runs in {state}; every client needs its own folder (--state)."
    try:
        with lock_file(state / ".join", busy), stop_on_signal(), _open_display(as_json) as show:
            client_processes = ClientProcesses(address, state, trust, options)
            try:
                _run_client(client_processes, host, port, trust, state, show)
            finally:
                client_processes.close()
    except Stopped:
        text = f"stopped; the state is kept in {state}, and the same command continues."
        typer.echo(text, err=True)
        return
    reason = make_printable(str(client_processes.rejection_reason))
    typer.echo(f"thalweg: {reason}", err=True)
    raise SystemExit(1)


def _check_range(option: str, value: int | None, least: int, most: float) -> None:
    require(
        value is None or least <= value <= most,
        f"{option} must be from {least} to {most:,}, got {value}.",
    )


def _secure_aggregation_options(
    trust: NodeTrust | None, peers: Path | None, min_participants: int | None
) -> list[str]:
    """The daemon's options for secure aggregation; unusable ones are reported at once."""
    from thalweg.network.secure_aggregation.keys import read_trusted_keys

    options = ["--node-key", str(trust.key.absolute())] if trust is not None else []
    if peers is not None:
        read_trusted_keys(peers)
        options += ["--peers", str(peers.absolute())]
    if min_participants is not None:
        require(
            3 <= min_participants <= MAX_CLIENTS,
            f"--min-participants must be from 3 to {MAX_CLIENTS:,}, got {min_participants}: a sum "
            "of fewer clients reveals too much about each.",
        )
        options += ["--min-participants", str(min_participants)]
    return options


def parse_address(server: str) -> tuple[str, int]:
    """Host and port of SERVER[:PORT].

    >>> parse_address("example.org"), parse_address("127.0.0.1:9000"), parse_address("[::1]:9000")
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
class ClientProgress:
    """Progress of a client, as shown by `join`."""

    client: int | None = None
    rounds: int = 0
    last_round: int | None = None
    loss: float | None = None

    def update(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "joined":
            self.client = event.get("client")
        if event["event"] == "round":
            self.rounds += event.get("round") != self.last_round  # a repeated request counts once
            self.last_round, self.loss = event.get("round"), event.get("loss")

    def line(self, counters: Mapping[str, Any]) -> str:
        """Format the progress as one line.

        >>> progress = ClientProgress(client=2, rounds=7, last_round=9, loss=0.5)
        >>> progress.line({"received": 120, "kept": 50})
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


def _run_client(
    client_processes: ClientProcesses,
    host: str,
    port: int,
    trust: NodeTrust | None,
    state: Path,
    show: Show,
) -> None:
    """Run until the client is stopped or rejected.

    The server is contacted when the daemon is ready: it has checked the owner's files by then.
    """
    progress, status = ClientProgress(), state / "status.json"
    client_processes.start_daemon()
    is_ready, is_connected, looked, trouble = False, False, 0.0, ""
    while client_processes.rejection_reason is None:
        is_late = time.monotonic() - looked > CONNECT_POLL_S
        if is_ready and not is_connected and is_late:
            if is_connected := check_server(host, port, trust):
                client_processes.start_node()
                show({"event": "connecting", "server": f"{host}:{port}"}, "")
            elif looked == 0.0:
                show({"event": "waiting", "reason": f"no server responds at {host}:{port} yet"}, "")
            looked = time.monotonic()
        for event in client_processes.events():
            is_ready = is_ready or event["event"] == "ready"
            progress.update(event)
            show(event, progress.line(_counters(status)))
        for news in client_processes.supervise(with_node=is_connected):
            show({"event": "restarted", "reason": news}, "")
        counters = _counters(status)
        if (now := str(counters.get("trouble") or counters.get("last_rejection") or "")) != trouble:
            trouble = now
            show({"event": "trouble", "reason": trouble}, "")
        show(None, progress.line(counters))
        time.sleep(POLL_S)
    if is_connected:
        time.sleep(DELIVERY_S)


def _counters(status: Path) -> dict[str, Any]:
    """Counters of the collector, if there is one."""
    try:
        counters = json.loads(status.read_text())
    except (OSError, ValueError):
        return {}
    return counters if isinstance(counters, dict) else {}


@contextmanager
def _open_display(as_json: bool) -> Iterator[Show]:
    """A status line on a terminal, plain lines elsewhere, JSON lines for programs."""
    console = Console()
    if as_json:
        yield lambda event, line: None if event is None else print_json(event)
    elif not console.is_terminal:
        yield lambda event, line: _print_event(console, event, line)
    else:
        with console.status("starting", spinner="dots") as bar:

            def show(event: Mapping[str, Any] | None, line: str) -> None:
                if event is not None and event["event"] != "round":
                    _print_event(console, event, line)
                if line:
                    bar.update(line)

            yield show


def _print_event(console: Console, event: Mapping[str, Any] | None, line: str) -> None:
    if event is None:
        return
    words = {
        "connecting": f"connecting to {event.get('server')} ...",
        "joined": f"joined as client {event.get('client')}: {event.get('plan')}"
        + (f"\n{event['note']}" if event.get("note") else ""),
        "waiting": f"waiting: {event.get('reason')}",
        "restarted": str(event.get("reason")),
        "refused": f"refused a request of the server: {event.get('reason')}",
        "trouble": f"trouble with the data: {event['reason']}" if event.get("reason") else "",
        "round": line,
    }
    if text := words.get(str(event["event"])):
        console.print(make_printable(text), highlight=False, soft_wrap=True, markup=False)
