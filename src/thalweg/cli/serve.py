"""``thalweg serve``"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import typer
from rich.console import Console

import thalweg.network.flower  # noqa: F401  (fails early if Flower is missing)
from thalweg.cli.plan_view import plan_tree
from thalweg.cli.progress import print_json, show_progress
from thalweg.cli.run import default_run_folder, load_data, plan_from_options, print_summary
from thalweg.cli.signals import Stopped, stop_on_signal
from thalweg.core.config import from_dict, get_default, plan_fields, with_overrides
from thalweg.core.errors import ConfigError, RunError, require
from thalweg.core.metrics import make_final_row
from thalweg.core.registry import has_local_path
from thalweg.data.base import DataSource
from thalweg.engine.builders import (
    add_default_clipping,
    add_default_size_limit,
    check_can_be_served,
)
from thalweg.engine.loop import Progress, ProgressCallback
from thalweg.engine.plan import Plan
from thalweg.engine.run_folder import RunFolder
from thalweg.network.flower.liveness import is_server_running, lock_file
from thalweg.network.flower.node_keys import FILE as NODE_KEYS
from thalweg.network.flower.processes import Follower, check_port
from thalweg.network.flower.project import write_app
from thalweg.network.flower.serve_options import FILE, ServeOptions, read_serve_options
from thalweg.network.flower.server_processes import ServerProcesses, ServerSettings
from thalweg.network.flower.trust import check_safe, load_server_trust
from thalweg.network.limits import Limits
from thalweg.network.rejections import describe_absent
from thalweg.streams.live import Live

POLL_S = 0.2  # seconds between two reads of the ServerApp's output
KEY_POLL_S = 10.0  # seconds between two checks for keys of new nodes
# Seconds after which a server that waits for rejected clients says so again. With one event per
# 15 seconds the message comes at least once a minute.
REPEAT_S = 45.0
APP_EXIT_S = 20.0  # seconds for a ServerApp to end after its last round


@dataclass(frozen=True)
class ServeArguments:
    """Options of the command that are not part of the plan."""

    host: str = "127.0.0.1"
    port: int = 8470
    certs: Path | None = None
    state: Path | None = None
    min_clients: int | None = None
    deadline_s: float | None = None
    share: float | None = None
    grace_s: float | None = None
    wait_s: float | None = None
    live: bool = False
    data_dir: Path | None = None
    insecure: bool = False
    limits: tuple[str, ...] = ()  # as NAME=VALUE

    def to_args(self) -> list[str]:
        """The options as command-line arguments, without defaults."""
        named = {
            "--host": None if self.host == ServeArguments.host else self.host,
            "--port": None if self.port == ServeArguments.port else self.port,
            "--certs": self.certs,
            "--state": self.state,
            "--min-clients": self.min_clients,
            "--deadline": self.deadline_s,
            "--share": self.share,
            "--grace": self.grace_s,
            "--wait": self.wait_s,
            "--data-dir": self.data_dir,
        }
        words = [word for key, value in named.items() if value is not None for word in (key, value)]
        words += [word for limit in self.limits for word in ("--limit", limit)]
        words += ["--insecure"] * self.insecure  # --live is part of the plan
        return [str(word) for word in words]

    def to_app_config(self, is_live: bool) -> dict[str, Any]:
        """Options that the ServerApp reads from the run folder, validated here."""
        given = {
            "min_clients": self.min_clients,
            "deadline_s": self.deadline_s,
            "share": self.share,
            "grace_s": self.grace_s,
            "wait_s": self.wait_s,
            "live": is_live,
            "data_dir": None if self.data_dir is None else str(self.data_dir.absolute()),
        }
        options = {name: value for name, value in given.items() if value is not None}
        from_dict(ServeOptions, options, "serve")
        limits = with_overrides(Limits(), self.limits, "--limit")
        named = [limit.partition("=")[0].strip() for limit in self.limits]
        return options | {"limits": {name: getattr(limits, name) for name in named}}


def serve_command(
    recipe: str,
    on: str | None,
    sets: list[str],
    seed: int | None,
    rounds: int | None,
    clients: int | None,
    out: Path | None,
    resume: bool,
    as_json: bool,
    arguments: ServeArguments,
) -> None:
    console = Console()
    sets = [*sets, *(["world=live"] if arguments.live and on is not None else [])]
    sets += [f"world.num_clients={clients}"] if clients is not None else []
    plan, default, command = plan_from_options(
        recipe, on, sets, seed, rounds, verb="serve", data_dir=arguments.data_dir
    )
    if not isinstance(plan, Plan):
        raise ConfigError(f"{recipe} is a baseline, which has no clients; serve a recipe.")
    check_can_be_served(plan.recipe)
    plan, robust_note = add_default_clipping(plan, sets, is_complete=default is None)
    plan = add_default_size_limit(plan, sets, is_complete=default is None)
    if out is None:
        out = Path(recipe) if resume and Path(recipe).is_dir() else default_run_folder(plan, resume)
    warning = check_safe(arguments.host, arguments.certs, arguments.insecure, "server")
    trust = None if arguments.certs is None else load_server_trust(arguments.certs, arguments.host)
    settings = ServerSettings(
        arguments.host,
        arguments.port,
        (arguments.state or out / "server").absolute(),
        trust,
    )
    require(1 <= settings.port <= 65535, f"--port must lie in 1 to 65535, got {settings.port}.")
    check_port(settings.host, settings.port)
    options = arguments.to_app_config(isinstance(plan.scenario.world, Live))
    options = _merge_previous(out, options) if resume else options
    options["node_keys"] = None if trust is None else str(settings.state / NODE_KEYS)
    most = getattr(plan.scenario.world, "num_clients", None)
    require(
        most is None or options.get("min_clients", 1) <= most,
        f"--min-clients is {options.get('min_clients')}, but the run has {most} clients "
        "(--clients).",
    )
    words = shlex.join(arguments.to_args())
    _prepare_folder(plan, out, resume, f"{command} {words}".rstrip(), options)
    if warning is not None:
        typer.echo(warning, err=True)
    if not as_json:
        console.print(plan_tree(plan, default, load_data(plan, arguments.data_dir), is_remote=True))
        if robust_note:
            console.print(robust_note, highlight=False, markup=False)
    again = shlex.join(["thalweg", "serve", str(out), *arguments.to_args(), "--resume"])
    try:
        with show_progress(plan, console, as_json) as watch:
            _run_server(plan, out, settings, watch, _EventPrinter(console, as_json))
    except Stopped as stop:
        typer.echo(f"stopped; continue with: {again}", err=True)
        raise SystemExit(stop.code) from None
    metrics = RunFolder(out).metrics()
    if as_json:
        print_json({"folder": str(out), "final": make_final_row(metrics)})
    else:
        alarms = RunFolder(out).summary().get("alarms")
        print_summary(
            console, plan, metrics, alarms, out, (out / "command.txt").read_text().strip()
        )


def _merge_previous(out: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Options of a resumed run, with the defaults of its previous start."""
    if not (out / FILE).exists():
        return options
    before = asdict(read_serve_options(out))
    return {**before, **options, "limits": {**before["limits"], **options["limits"]}}


def _prepare_folder(
    plan: Plan, out: Path, resume: bool, command: str, options: dict[str, Any]
) -> None:
    """Prepare the run folder for the ServerApp."""
    folder = RunFolder(out)
    folder.open(plan, command=command, resume=resume)
    try:
        (out / FILE).write_text(json.dumps(options, indent=2) + "\n")
    finally:
        folder.close()


def _run_server(
    plan: Plan, out: Path, settings: ServerSettings, watch: ProgressCallback, printer: _EventPrinter
) -> None:
    """Run Flower from its start to the last round."""
    folder, total = RunFolder(out), plan.scenario.rounds
    if folder.is_finished(total):
        return
    rounds = _RoundPrinter(plan, out, watch)
    events = Follower(out / "events.jsonl", from_end=True)
    server_processes = ServerProcesses(settings, settings.state / "app", out)
    busy = f"another `thalweg serve` runs in {settings.state}; stop it, or choose another --state."
    with lock_file(settings.state / ".lock", busy), stop_on_signal():
        write_app(settings.state / "app", out)
        try:
            printer.print_event({"event": "starting"})
            server_processes.start()
            where = {
                "host": settings.host,
                "port": settings.port,
                "has_keys": settings.trust is not None,
            }
            is_live = isinstance(plan.scenario.world, Live)
            has_file = has_local_path(plan.scenario.data)
            event = {"event": "listening", **where, "live": is_live, "has_file": has_file}
            event["data_options"] = describe_data_options(plan.scenario.data)
            printer.print_event(event)
            keys_at = time.monotonic()
            while not folder.is_finished(total):
                for event in events.read_objects():
                    printer.print_event(event)
                if rounds.show():
                    server_processes.reset_backoff()
                for news in server_processes.supervise():
                    printer.print_event({"event": "restarted", "reason": news})
                if time.monotonic() - keys_at > KEY_POLL_S:
                    keys_at = time.monotonic()
                    _update_keys(server_processes, printer)
                time.sleep(POLL_S)
            rounds.show()
            _wait_for_app(out)
        finally:
            server_processes.close()


def _update_keys(server_processes: ServerProcesses, printer: _EventPrinter) -> None:
    """Register keys of new nodes, and revoke deleted ones.

    Unreadable keys and a missing SuperLink are reported and retried.
    """
    try:
        for digest in server_processes.revoke():
            printer.print_event({"event": "revoked", "key": digest})
        for name in server_processes.register():
            printer.print_event({"event": "key", "name": name})
    except RunError as error:
        printer.print_event({"event": "restarted", "reason": str(error)})


class _RoundPrinter:
    """Prints rounds as the ServerApp writes them.

    A round repeated after a crash is printed once.
    """

    def __init__(self, plan: Plan, out: Path, watch: ProgressCallback) -> None:
        self._plan, self._watch = plan, watch
        self._rows = Follower(out / "metrics.jsonl")
        self._done = len(RunFolder(out).metrics())

    def show(self) -> bool:
        """Print new rounds; True if there were any."""
        new = [row for row in self._rows.read_objects() if row["round"] > self._done]
        for row in new:
            self._done = row["round"]
            self._watch(Progress(self._plan, row, self._done))
        return bool(new)


def _wait_for_app(out: Path) -> None:
    until = time.monotonic() + APP_EXIT_S
    while is_server_running(out) and time.monotonic() < until:
        time.sleep(POLL_S)


class _EventPrinter:
    """Prints events other than rounds."""

    def __init__(self, console: Console, as_json: bool) -> None:
        self._console, self._as_json = console, as_json
        self._last, self._printed_at = "", 0.0

    def print_event(self, event: Mapping[str, Any]) -> None:
        if self._as_json:
            print_json(event)
            return
        line, now = format_event(event), time.monotonic()
        is_due = bool(describe_absent(event)) and now - self._printed_at >= REPEAT_S
        if line and (line != self._last or is_due):  # other repeated messages are printed once
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)
            self._last, self._printed_at = line, now


def describe_data_options(data: DataSource) -> str:
    """Return the settings of a data set but its path or name, as options of `thalweg join --data`.

    >>> from thalweg.data import Table
    >>> describe_data_options(Table("sales.csv", label="price", drop=("a", "b")))
    'label=price&drop=a,b'
    """
    changed = {
        field.name: value
        for field in plan_fields(data)
        if field.metadata.get("meaning") != "path"
        and (value := getattr(data, field.name)) != get_default(field)
    }
    texts = {
        name: ",".join(map(str, value if isinstance(value, tuple) else [value]))
        for name, value in changed.items()
    }
    return "&".join(f"{name}={quote(text, safe=',')}" for name, text in texts.items())


def format_event(event: Mapping[str, Any]) -> str:
    """Format an event as one line.

    >>> format_event({"event": "joined", "client": 2, "node": "77"})
    'client 2 joined (node 77)'
    """
    kind, node = event.get("event"), event.get("node")
    if kind == "listening":
        where = f"{event['host']}:{event['port']}"
        options = event.get("data_options")
        source = shlex.quote(f"replay:FILE?{options}" if options else "replay:FILE")
        data = source if event.get("has_file") else "replay"
        data = "SOURCE" if event.get("live") else data
        keys = " --certs keys/nodes/0" if event.get("has_keys") else ""
        command = f"thalweg join {where} --data {data} --state DIR{keys}"
        return f"listening at {where}; clients join with: {command}"
    present = f"{event.get('present')} of {event.get('wanted')}"
    words = {
        "starting": "starting Flower ...",
        "joined": f"client {event.get('client')} joined (node {node})",
        "gone": f"client {event.get('client')} disconnected (node {node})",
        "late": f"client {event.get('client')} has not responded in time",
        "rejected": f"node {node} was rejected: {event.get('reason')}",
        "retry": f"node {node} has not joined yet: {event.get('reason')}",
        "waiting": f"waiting for clients: {present} are present{describe_absent(event)}",
        "restarted": str(event.get("reason")),
        "key": f"the key of node {event.get('name')} is registered",
        "revoked": f"the key with the digest {str(event.get('key'))[:12]} is revoked",
    }
    return words.get(str(kind), "")
