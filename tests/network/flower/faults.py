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

from network.flower.fake_grid import Device, FakeGrid
from network.flower.loopback import Loopback, await_true
from network.flower.runs import prepare_run
from thalweg.data import Digits
from thalweg.engine.plan import Plan, make_plan
from thalweg.engine.run_folder import RunFolder
from thalweg.network.edge.device_client import DeviceOptions
from thalweg.network.edge.live_node import LiveNode
from thalweg.network.edge.schema import describe_dataset
from thalweg.network.edge.socket import Frame
from thalweg.network.edge.store import Store
from thalweg.network.flower.liveness import is_server_running
from thalweg.network.flower.server_app import serve_run

KeepRunning = Callable[[Path], None]
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


class SampleFeed:
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


def check_sample_counts(state: Path, plan: Plan, supply: SampleFeed) -> None:
    """Everything that was sent has come once, and is in memory or was let go by the policy; nobody else has it."""
    store = Store.open(state)
    member = store.read_membership()
    assert member is not None
    node = LiveNode(store, plan, member.client, describe_dataset(DATA))
    try:
        inbox, counts = node.inbox, node.inbox.counts
        with store.read_transaction() as db:
            came = dict(db.execute("SELECT name, number FROM recent").fetchall())
            stored = db.execute("SELECT name, slot, label FROM samples").fetchall()
        sent = {f"{supply.client}-{n}" for n in range(supply.sent)}
        assert came.keys() == sent, "each has come"
        assert sorted(came.values()) == list(range(1, supply.sent + 1)), "and none twice"
        assert counts.received == supply.sent
        assert (counts.rejected, counts.lost, counts.expired, counts.unmatched) == (0, 0, 0, 0)
        rows = node.state.client.rows.tolist()
        assert len(set(rows)) == len(rows)
        assert set(rows) <= {slot for _, slot, _ in stored}
        waiting = (
            inbox.num_new + inbox.num_waiting + len(inbox.marked_slots(node.state.client.lived))
        )
        assert len(stored) == len(rows) + waiting == counts.received - counts.evicted
        assert len({name for name, *_ in stored}) == len(stored)
        for name, slot, label in stored:
            n = int(name.split("-")[1])
            assert np.array_equal(inbox.slots.x[slot], supply.input(n)), name
            assert label in (supply.label(n), -1)
    finally:
        node.close()
        store.close()


def run_undisturbed(folder: Path, plan: Plan, number: int, samples: int) -> float:
    """Accuracy of a run in this process, to which nothing happens, with as many samples per client."""
    folder.mkdir()
    devices = {}
    for client in range(number):
        SampleFeed(client).append(file := folder / f"{client}.jsonl", samples)
        devices[100 + client] = Device(folder / f"{client}", client, DeviceOptions(data=str(file)))
    run = prepare_run(folder / "run", plan, min_clients=number, live=True)

    def fate(node: int, frame: Frame) -> str:
        if frame.kind == "request":  # whoever is asked has all its samples
            state = folder / f"{node - 100}"
            await_true(lambda: has_received(state, samples), LONG_S)
        return "arrives"

    try:
        return float(serve_run(FakeGrid(devices, fate), run).metrics[-1]["accuracy"])
    finally:
        for device in devices.values():
            device.stop()


class LiveProcesses(Loopback):
    """Real processes whose clients read growing files, and a SuperLink that remembers what it was sent."""

    _was_running = False  # the server's loop

    def start_link(self) -> None:
        self.restart_link()
        address = ("--insecure", "--runtime-api-address", f"127.0.0.1:{self.port}")
        self.start("superexec", "flower-superexec", *address)

    def submit(self, run: Path) -> str:
        self._was_running = False  # not seen yet
        return super().submit(run)

    def keep_running(self, run: Path) -> None:
        """As `serve` does: a server's loop that was at work and is gone, without an end, is submitted again."""
        if is_server_running(run):
            self._was_running = True
        elif self._was_running and not has_summary(run):
            reason = RunFolder(run).failure()
            assert reason is None, reason
            self.submit(run)

    def restart_link(self) -> None:
        here = ("--insecure", "--host", "127.0.0.1", "--port", str(self.port))
        kept = ("--isolation", "process", "--database", str(self.folder / "superlink.db"))
        self.start("superlink", "flower-superlink", *here, *kept)
        await_true(self._is_healthy, LONG_S)

    def start_daemon(self, number: int, state_of: Path | None = None) -> None:
        assert state_of is None, "it is where the file is"
        state = ("--state", str(self.state(number)), "--data", str(self.file(number)))
        where = ("--socket", str(self.socket(number)), "--client", str(number))
        self.start(f"daemon{number}", sys.executable, "-m", "thalweg.network.edge", *state, *where)

    def stop(self, name: str) -> None:
        os.kill(self.processes[name].pid, signal.SIGSTOP)

    def resume_process(self, name: str) -> None:
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


def do_nothing(run: Path) -> None:
    """Who tends a run that tends itself."""


def await_rounds(run: Path, rounds: int, keep_running: KeepRunning = do_nothing) -> None:
    def condition() -> bool:
        keep_running(run)
        return len(RunFolder(run).metrics()) >= rounds

    await_true(condition, LONG_S)


def await_finish(run: Path, rounds: int, keep_running: KeepRunning) -> None:
    def condition() -> bool:
        keep_running(run)
        return RunFolder(run).is_finished(rounds)

    await_true(condition, LONG_S)


def await_all_joined(
    run: Path, since: int, clients: set[int], keep_running: KeepRunning = do_nothing
) -> None:
    """Until all of them have joined, or joined again, after so many had."""

    def missing() -> set[int]:
        return clients - {event["client"] for event in events_of(run, "joined")[since:]}

    def condition() -> bool:
        keep_running(run)
        return not missing() or has_summary(run)

    await_true(condition, LONG_S)
    assert not missing(), "they have not joined before the run was over"


def await_late(run: Path, client: int, keep_running: KeepRunning = do_nothing) -> None:
    """Until a round was closed without this client's reply, or two were, if nobody has asked it."""
    rounds = len(RunFolder(run).metrics())

    def number() -> int:
        return sum(event["client"] == client for event in events_of(run, "late"))

    def condition() -> bool:
        keep_running(run)
        return number() > before or len(RunFolder(run).metrics()) >= rounds + 2 or has_summary(run)

    before = number()
    await_true(condition, LONG_S)


def has_summary(run: Path) -> bool:
    return (run / "summary.json").exists()


def await_all_received(states: Sequence[tuple[Path, SampleFeed]]) -> None:
    """Until every device has received what it was sent."""
    await_true(lambda: all(has_received(state, each.sent) for state, each in states), LONG_S)


def has_received(state: Path, number: int) -> bool:
    """So many samples, as the device itself says."""
    with suppress(OSError, ValueError):
        return bool(json.loads((state / "status.json").read_text())["received"] == number)
    return False
