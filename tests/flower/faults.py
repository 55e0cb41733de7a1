"""Devices with data of their own, and a park of processes that can be hurt; the books are checked afterwards."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from flower.fake_grid import Device, FakeGrid
from flower.real import Loopback, await_true
from flower.runs import prepared
from thalweg.data import Digits
from thalweg.edge.blank import blank_of
from thalweg.edge.live_node import LiveNode
from thalweg.edge.resident import Means
from thalweg.edge.socket import Parcel
from thalweg.edge.store import Store
from thalweg.engine.folder import RunFolder
from thalweg.engine.plan import Plan, make_plan
from thalweg.flower.attending import is_attended
from thalweg.flower.server_app import serve_run

Tend = Callable[[Path], None]
LONG_S = 900.0  # nothing takes so long, on any machine; and nothing is measured by it
TWO_POINTS = 0.02
SETS = ["world=live", "capacity=700", "ticks=2", "evaluate_every=1", "staleness=polynomial"]
DATA = Digits().load(None, 0)


def live_plan(rounds: int, clients: int, *more: str) -> Plan:
    """Digits, of which every client has its own 900 or so and can hold 700."""
    sets = [*SETS, f"world.num_clients={clients}", *more]
    return make_plan(
        "fedavg", "digits-full", seed=4, rounds=rounds, engine="reference", overrides=sets
    )


class Supply:
    """The samples of one client, in an order of its own; sample n is called "client-n".

    Every eighth has its label in a message of its own, three samples later.
    """

    def __init__(self, client: int) -> None:
        self.client, self.sent = client, 0
        self._rows = np.random.default_rng(client).permutation(len(DATA.y))

    def messages(self, number: int) -> list[dict[str, Any]]:
        """The next so many samples, as a device's source has them."""
        found: list[dict[str, Any]] = []
        for n in range(self.sent, self.sent + number):
            sample = {"id": f"{self.client}-{n}", "x": self.input(n).tolist()}
            found.append(sample if n % 8 == 0 else {**sample, "y": self.label(n)})
            if n % 8 == 3:
                found.append({"id": f"{self.client}-{n - 3}", "y": self.label(n - 3)})
        self.sent += number
        return found

    def append(self, file: Path, number: int) -> None:
        lines = [json.dumps(message) + "\n" for message in self.messages(number)]
        with file.open("a") as out:
            out.writelines(lines)

    def input(self, n: int) -> Any:
        return DATA.x[self._rows[n]]

    def label(self, n: int) -> int:
        return int(DATA.y[self._rows[n]])


def check_books(state: Path, plan: Plan, supply: Supply) -> None:
    """Everything that was sent has come once, and is in memory or was let go by the policy; nobody else has it."""
    store = Store.open(state)
    member = store.member()
    assert member is not None
    node = LiveNode(store, plan, member.client, blank_of(DATA))
    try:
        inbox, counts = node.inbox, node.inbox.counts
        with store.reading() as db:
            came = dict(db.execute("SELECT name, number FROM recent").fetchall())
            stored = db.execute("SELECT name, slot, label FROM samples").fetchall()
        sent = {f"{supply.client}-{n}" for n in range(supply.sent)}
        assert came.keys() == sent, "each has come"
        assert sorted(came.values()) == list(range(1, supply.sent + 1)), "and none twice"
        assert counts.received == supply.sent
        assert (counts.refused, counts.lost, counts.expired, counts.unmatched) == (0, 0, 0, 0)
        rows = node.state.client.rows.tolist()
        assert len(set(rows)) == len(rows)
        assert set(rows) <= {slot for _, slot, _ in stored}
        waiting = inbox.num_new + inbox.num_waiting + len(inbox.marked(node.state.client.lived))
        assert len(stored) == len(rows) + waiting == counts.received - counts.evicted
        assert len({name for name, *_ in stored}) == len(stored)
        for name, slot, label in stored:
            n = int(name.split("-")[1])
            assert np.array_equal(inbox.slots.x[slot], supply.input(n)), name
            assert label in (supply.label(n), -1)
    finally:
        node.close()
        store.close()


def undisturbed(folder: Path, plan: Plan, number: int, samples: int) -> float:
    """Accuracy of a run in this process, to which nothing happens, with as many samples per client."""
    folder.mkdir()
    devices = {}
    for client in range(number):
        Supply(client).append(file := folder / f"{client}.jsonl", samples)
        devices[100 + client] = Device(folder / f"{client}", client, Means(data=str(file)))
    run = prepared(folder / "run", plan, min_clients=number, live=True)

    def fate(node: int, parcel: Parcel) -> str:
        if parcel.kind == "errand":  # whoever is asked has all its samples
            state = folder / f"{node - 100}"
            await_true(lambda: has_received(state, samples), LONG_S)
        return "arrives"

    try:
        return float(serve_run(FakeGrid(devices, fate), run).metrics[-1]["accuracy"])
    finally:
        for device in devices.values():
            device.stop()


class LivePark(Loopback):
    """Real processes whose clients read growing files, and a SuperLink that remembers what it was sent."""

    _is_at_work = False  # the server's loop

    def start_link(self) -> None:
        self.restart_link()
        address = ("--insecure", "--runtime-api-address", f"127.0.0.1:{self.port}")
        self.start("superexec", "flower-superexec", *address)

    def submit(self, run: Path) -> str:
        self._is_at_work = False  # not seen yet
        return super().submit(run)

    def tend(self, run: Path) -> None:
        """As `serve` does: a server's loop that was at work and is gone, without an end, is submitted again."""
        if is_attended(run):
            self._is_at_work = True
        elif self._is_at_work and not is_over(run):
            reason = RunFolder(run).failure()
            assert reason is None, reason
            self.submit(run)

    def restart_link(self) -> None:
        here = ("--insecure", "--host", "127.0.0.1", "--port", str(self.port))
        kept = ("--isolation", "process", "--database", str(self.folder / "superlink.db"))
        self.start("superlink", "flower-superlink", *here, *kept)
        await_true(self._is_well, LONG_S)

    def start_daemon(self, number: int, state_of: Path | None = None) -> None:
        assert state_of is None, "it is where the file is"
        state = ("--state", str(self.state(number)), "--data", str(self.file(number)))
        where = ("--socket", str(self.socket(number)), "--client", str(number))
        self.start(f"daemon{number}", sys.executable, "-m", "thalweg.edge", *state, *where)

    def stop(self, name: str) -> None:
        os.kill(self.processes[name].pid, signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        os.kill(self.processes[name].pid, signal.SIGCONT)

    def kill_node(self, number: int) -> None:
        self.kill(f"runner{number}")
        self.kill(f"node{number}")

    def file(self, number: int) -> Path:
        return self.folder / f"{number}.jsonl"

    def state(self, number: int) -> Path:
        return self.folder / f"state{number}"


def events_of(run: Path, name: str) -> list[dict[str, Any]]:
    """What the server has said of one kind."""
    found = []
    with suppress(FileNotFoundError):
        for line in (run / "events.jsonl").read_text().splitlines():
            with suppress(ValueError):  # a kill may have cut a line
                found.append(json.loads(line))
    return [event for event in found if event.get("event") == name]


def nothing(run: Path) -> None:
    """Who tends a run that tends itself."""


def await_rounds(run: Path, rounds: int, tend: Tend = nothing) -> None:
    def is_so() -> bool:
        tend(run)
        return len(RunFolder(run).metrics()) >= rounds

    await_true(is_so, LONG_S)


def await_finish(run: Path, rounds: int, tend: Tend) -> None:
    def is_so() -> bool:
        tend(run)
        return RunFolder(run).is_finished(rounds)

    await_true(is_so, LONG_S)


def await_all_joined(run: Path, since: int, clients: set[int], tend: Tend = nothing) -> None:
    """Until all of them have joined, or joined again, after so many had."""

    def missing() -> set[int]:
        return clients - {event["client"] for event in events_of(run, "joined")[since:]}

    def is_so() -> bool:
        tend(run)
        return not missing() or is_over(run)

    await_true(is_so, LONG_S)
    assert not missing(), "they have not joined before the run was over"


def await_late(run: Path, client: int, tend: Tend = nothing) -> None:
    """Until a round was closed without this client's reply, or two were, if nobody has asked it."""
    rounds = len(RunFolder(run).metrics())

    def number() -> int:
        return sum(event["client"] == client for event in events_of(run, "late"))

    def is_so() -> bool:
        tend(run)
        return number() > before or len(RunFolder(run).metrics()) >= rounds + 2 or is_over(run)

    before = number()
    await_true(is_so, LONG_S)


def is_over(run: Path) -> bool:
    return (run / "summary.json").exists()


def await_all_came(states: Sequence[tuple[Path, Supply]]) -> None:
    """Until every device has received what it was sent."""
    await_true(lambda: all(has_received(state, each.sent) for state, each in states), LONG_S)


def has_received(state: Path, number: int) -> bool:
    """So many samples, as the device itself says."""
    with suppress(OSError, ValueError):
        return bool(json.loads((state / "status.json").read_text())["received"] == number)
    return False
