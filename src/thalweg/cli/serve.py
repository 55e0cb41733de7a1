"""``thalweg serve``"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

import thalweg.flower  # noqa: F401  (says at once if Flower is missing)
from thalweg.cli.live import say_json, watching
from thalweg.cli.plan_view import plan_tree
from thalweg.cli.run import folder_for, plan_of, summary
from thalweg.cli.stopping import Stopped, until_stopped
from thalweg.core.config import from_dict, with_overrides
from thalweg.core.errors import ConfigError, RunError, require
from thalweg.engine.folder import RunFolder
from thalweg.engine.loop import Progress, Watch
from thalweg.engine.plan import Plan
from thalweg.flower.attending import claimed, is_attended
from thalweg.flower.following import Follower
from thalweg.flower.hosting import Hosting, Place
from thalweg.flower.processes import check_port
from thalweg.flower.project import write_app
from thalweg.flower.serving import FILE, Serving, serving_of
from thalweg.flower.trust import check_safe, server_trust
from thalweg.recipes.limits import Limits
from thalweg.streams.live import Live

LOOK_S = 0.2  # between two looks at what the ServerApp has written
KEYS_S = 10.0  # between two looks for keys of new nodes
FAREWELL_S = 20.0  # that a ServerApp may take to end after its last round


@dataclass(frozen=True)
class Asked:
    """How a run is served: the options of the command that are not part of the plan."""

    host: str = "127.0.0.1"
    port: int = 8470
    certs: Path | None = None
    state: Path | None = None
    min_clients: int | None = None
    deadline_s: float | None = None
    wait_s: float | None = None
    live: bool = False
    data_dir: Path | None = None
    insecure: bool = False
    limits: tuple[str, ...] = ()  # as NAME=VALUE

    def words(self) -> list[str]:
        """The same as words of a command, without what is as ever."""
        named = {
            "--host": None if self.host == Asked.host else self.host,
            "--port": None if self.port == Asked.port else self.port,
            "--certs": self.certs,
            "--state": self.state,
            "--min-clients": self.min_clients,
            "--deadline": self.deadline_s,
            "--wait": self.wait_s,
            "--data-dir": self.data_dir,
        }
        words = [word for key, value in named.items() if value is not None for word in (key, value)]
        words += [word for limit in self.limits for word in ("--limit", limit)]
        words += ["--insecure"] * self.insecure  # --live is part of the plan by then
        return [str(word) for word in words]

    def for_the_app(self, is_live: bool) -> dict[str, Any]:
        """What the ServerApp reads in the run folder; checked here, before there is one."""
        said = {
            "min_clients": self.min_clients,
            "deadline_s": self.deadline_s,
            "wait_s": self.wait_s,
            "live": is_live,
            "data_dir": None if self.data_dir is None else str(self.data_dir.absolute()),
        }
        options = {name: value for name, value in said.items() if value is not None}
        from_dict(Serving, options, "serve")
        limits = with_overrides(Limits(), self.limits)
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
    asked: Asked,
) -> None:
    console = Console()
    sets = [*sets, *(["world=live"] if asked.live and on is not None else [])]
    sets += [f"world.num_clients={clients}"] if clients is not None else []
    plan, default, command = plan_of(recipe, on, sets, seed, rounds, verb="serve")
    if not isinstance(plan, Plan):
        raise ConfigError(f"{recipe} is a baseline, which has no clients; serve a recipe.")
    if out is None:
        out = Path(recipe) if resume and Path(recipe).is_dir() else folder_for(plan, resume)
    warning = check_safe(asked.host, asked.certs, asked.insecure, "server")
    trust = None if asked.certs is None else server_trust(asked.certs, asked.host)
    place = Place(asked.host, asked.port, (asked.state or out / "server").absolute(), trust)
    require(1 <= place.port <= 65535, f"--port must lie in 1 to 65535, got {place.port}.")
    check_port(place.host, place.port)
    options = asked.for_the_app(isinstance(plan.scenario.world, Live))
    options = _as_before(out, options) if resume else options
    most = getattr(plan.scenario.world, "num_clients", None)
    require(
        most is None or options.get("min_clients", 1) <= most,
        f"--min-clients is {options.get('min_clients')}, but the run has {most} clients (--clients).",
    )
    words = shlex.join([*asked.words(), "--out", str(out)])
    _begin(plan, out, resume, f"{command} {words}", options)
    if warning is not None:
        typer.echo(warning, err=True)
    if not as_json:
        console.print(plan_tree(plan, default))
    again = shlex.join(["thalweg", "serve", str(out), *asked.words(), "--resume"])
    try:
        with watching(plan, console, as_json) as watch:
            _host(plan, out, place, watch, _Voice(console, as_json))
    except Stopped as stop:
        typer.echo(f"stopped; continue with: {again}", err=True)
        raise SystemExit(stop.code) from None
    metrics = RunFolder(out).metrics()
    if as_json:
        say_json({"folder": str(out), "final": metrics[-1]})
    else:
        alarms = RunFolder(out).summary().get("alarms")
        summary(console, metrics, alarms, out, (out / "command.txt").read_text().strip())


def _as_before(out: Path, options: dict[str, Any]) -> dict[str, Any]:
    """What a run that goes on was served with, where nothing else is said now."""
    if not (out / FILE).exists():
        return options
    before = asdict(serving_of(out))
    return {**before, **options, "limits": {**before["limits"], **options["limits"]}}


def _begin(plan: Plan, out: Path, resume: bool, command: str, options: dict[str, Any]) -> None:
    """Claim the folder and leave in it what the ServerApp needs; it goes on from there by itself."""
    folder = RunFolder(out)
    folder.open(plan, command=command, resume=resume)
    try:
        (out / FILE).write_text(json.dumps(options, indent=2) + "\n")
    finally:
        folder.close()


def _host(plan: Plan, out: Path, place: Place, watch: Watch, voice: _Voice) -> None:
    """From the start of Flower to the last round."""
    folder, total = RunFolder(out), plan.scenario.rounds
    if folder.is_finished(total):
        return
    rounds = _Rounds(plan, out, watch)
    events = Follower(out / "events.jsonl", from_end=True)
    hosting = Hosting(place, place.state / "app", out)
    busy = f"another `thalweg serve` runs in {place.state}; stop it, or choose another --state."
    with claimed(place.state / ".lock", busy), until_stopped():
        write_app(place.state / "app", out)
        try:
            voice.say({"event": "starting"})
            hosting.start()
            where = {"host": place.host, "port": place.port, "has_keys": place.trust is not None}
            is_live = isinstance(plan.scenario.world, Live)
            voice.say({"event": "listening", **where, "live": is_live})
            keys_at = time.monotonic()
            while not folder.is_finished(total):
                for event in events.objects():
                    voice.say(event)
                if rounds.show():
                    hosting.calm()
                for news in hosting.tend():
                    voice.say({"event": "restarted", "reason": news})
                if time.monotonic() - keys_at > KEYS_S:
                    keys_at = time.monotonic()
                    _let_in_new_keys(hosting, voice)
                time.sleep(LOOK_S)
            rounds.show()
            _await_farewell(out)
        finally:
            hosting.close()


def _let_in_new_keys(hosting: Hosting, voice: _Voice) -> None:
    """A key that cannot be read, or a SuperLink that is away, is no reason to stop."""
    try:
        for name in hosting.register():
            voice.say({"event": "key", "name": name})
    except RunError as error:
        voice.say({"event": "restarted", "reason": str(error)})


class _Rounds:
    """Shows rounds as the ServerApp writes them; one that is played again after a kill is shown once."""

    def __init__(self, plan: Plan, out: Path, watch: Watch) -> None:
        self._plan, self._watch = plan, watch
        self._rows = Follower(out / "metrics.jsonl")
        self._done = self._before = len(RunFolder(out).metrics())
        self._seconds = 0.0

    def show(self) -> bool:
        """Whether there was anything new."""
        new = [row for row in self._rows.objects() if row["round"] > self._done]
        for row in new:
            self._done = row["round"]
            self._seconds += row["seconds"]
            now = self._done - self._before
            self._watch(Progress(self._plan, row, self._done, now, self._seconds))
        return bool(new)


def _await_farewell(out: Path) -> None:
    until = time.monotonic() + FAREWELL_S
    while is_attended(out) and time.monotonic() < until:
        time.sleep(LOOK_S)


class _Voice:
    """Says what happens beside the rounds."""

    def __init__(self, console: Console, as_json: bool) -> None:
        self._console, self._as_json, self._last = console, as_json, ""

    def say(self, event: Mapping[str, Any]) -> None:
        if self._as_json:
            say_json(event)
            return
        line = server_line(event)
        if line and line != self._last:  # a node that cannot join yet is no news the second time
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)
            self._last = line


def server_line(event: Mapping[str, Any]) -> str:
    """An event as a line for people.

    >>> server_line({"event": "joined", "client": 2, "node": "77"})
    'client 2 joined (node 77)'
    """
    kind, node = event.get("event"), event.get("node")
    if kind == "listening":
        where = f"{event['host']}:{event['port']}"
        data = "SOURCE" if event.get("live") else "replay"
        keys = " --certs keys/nodes/0" if event.get("has_keys") else ""
        words_to_say = f"thalweg join {where} --data {data} --state DIR{keys}"
        return f"listening at {where}; clients join with: {words_to_say}"
    words = {
        "starting": "starting Flower ...",
        "joined": f"client {event.get('client')} joined (node {node})",
        "gone": f"client {event.get('client')} has gone (node {node})",
        "refused": f"node {node} was refused: {event.get('reason')}",
        "retry": f"node {node} has not joined yet: {event.get('reason')}",
        "waiting": f"waiting for clients: {event.get('here')} of {event.get('wanted')} are here",
        "restarted": str(event.get("reason")),
        "key": f"the key of node {event.get('name')} is let in",
    }
    return words.get(str(kind), "")
