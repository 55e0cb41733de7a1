"""Live clients and processes that can be killed, and checks that no sample was lost."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from network.flower.fake_grid import Device, FakeGrid
from network.flower.loopback import LIMIT_S, Loopback, await_true
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

TWO_POINTS = 0.02
SETS = ["world=live", "capacity=700", "ticks=2", "evaluate_every=1", "staleness=polynomial"]
DATA = Digits().load(None, 0)


def live_plan(rounds: int, clients: int, *more: str) -> Plan:
    """Plan a live run on Digits; each client has about 900 samples and holds at most 700."""
    sets = [*SETS, f"world.num_clients={clients}", *more]
    return make_plan(
        "fedavg", "digits-full", seed=4, rounds=rounds, engine="reference", overrides=sets
    )


class SampleFeed:
    """The samples of one client in a random order; the id of sample n is "client-n".

    The label of each eighth sample is sent in a separate message, three samples later.
    """

    def __init__(self, client: int) -> None:
        self.client, self.sent = client, 0
        self._rows = np.random.default_rng(client).permutation(len(DATA.y))

    def messages(self, number: int) -> list[dict[str, Any]]:
        """Return the messages for the next `number` samples, as a sample source delivers them."""
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
    """Check that each sample was received once and is stored or was evicted by the policy."""
    store = Store.open(state)
    member = store.read_membership()
    assert member is not None
    node = LiveNode(store, plan, member.client, describe_dataset(DATA))
    try:
        inbox, counts = node.inbox, node.inbox.counts
        with store.read_transaction() as db:
            received_names = dict(db.execute("SELECT name, number FROM recent").fetchall())
            stored = db.execute("SELECT name, slot, label FROM samples").fetchall()
        sent = {f"{supply.client}-{n}" for n in range(supply.sent)}
        assert received_names.keys() == sent, "each sample was received"
        assert sorted(received_names.values()) == list(range(1, supply.sent + 1)), (
            "no sample was received twice"
        )
        assert counts.received == supply.sent
        assert (counts.rejected, counts.lost, counts.expired, counts.unmatched) == (0, 0, 0, 0)
        rows = node.state.client.rows.tolist()
        assert len(set(rows)) == len(rows)
        assert set(rows) <= {slot for _, slot, _ in stored}
        waiting = (
            inbox.num_new
            + inbox.num_waiting
            + len(inbox.marked_slots(node.state.client.stream_round))
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
    """Return the accuracy of a run in this process without faults and with all samples."""
    folder.mkdir()
    devices = {}
    for client in range(number):
        SampleFeed(client).append(file := folder / f"{client}.jsonl", samples)
        devices[100 + client] = Device(folder / f"{client}", client, DeviceOptions(data=str(file)))
    run = prepare_run(folder / "run", plan, min_clients=number, live=True)

    def fate(node: int, frame: Frame) -> str:
        if frame.kind == "request":  # the client has all its samples when it trains
            state = folder / f"{node - 100}"
            await_true(lambda: has_received(state, samples), LIMIT_S, state.__str__)
        return "arrives"

    try:
        return float(serve_run(FakeGrid(devices, fate), run).metrics[-1]["accuracy"])
    finally:
        for device in devices.values():
            device.stop()


class LiveProcesses(Loopback):
    """Real processes: clients read growing files, and the SuperLink has a database."""

    _was_running = False  # the ServerApp

    def start_link(self) -> None:
        self.restart_link()
        address = ("--insecure", "--runtime-api-address", f"127.0.0.1:{self.port}")
        self.start("superexec", "flower-superexec", *address)

    def submit(self, run: Path) -> str:
        self._was_running = False  # the new ServerApp
        return super().submit(run)

    def check_server(self, run: Path) -> None:
        """Submit a ServerApp that died before the end of the run again, as `thalweg serve` does."""
        if is_server_running(run):
            self._was_running = True
        elif self._was_running and not has_summary(run):
            super().check_server(run)
            self.submit(run)

    def restart_link(self) -> None:
        here = ("--insecure", "--host", "127.0.0.1", "--port", str(self.port))
        kept = ("--isolation", "process", "--database", str(self.folder / "superlink.db"))
        self.start("superlink", "flower-superlink", *here, *kept)
        await_true(self._is_healthy, LIMIT_S, lambda: self.last_lines("superlink"))

    def start_daemon(self, number: int, state_of: Path | None = None) -> None:
        assert state_of is None, "the state folder is fixed"
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
    """Return the events of the server that have this name."""
    found = []
    with suppress(FileNotFoundError):
        for line in (run / "events.jsonl").read_text().splitlines():
            with suppress(ValueError):  # a kill may have cut a line
                found.append(json.loads(line))
    return [event for event in found if event.get("event") == name]


def await_all_joined(deployment: Loopback, run: Path, since: int, clients: set[int]) -> None:
    """Wait until all of these clients have joined after the first `since` join events."""

    def missing() -> set[int]:
        return clients - {event["client"] for event in events_of(run, "joined")[since:]}

    deployment.await_true(
        run, lambda: not missing() or has_summary(run), f"clients {sorted(clients)} have joined"
    )
    assert not missing(), "the run ended before they joined"


def await_late(deployment: Loopback, run: Path, client: int) -> None:
    """Wait until a round ended without this client's response, or until two rounds ended."""
    rounds = len(RunFolder(run).metrics())

    def number() -> int:
        return sum(event["client"] == client for event in events_of(run, "late"))

    def condition() -> bool:
        return number() > before or len(RunFolder(run).metrics()) >= rounds + 2 or has_summary(run)

    before = number()
    deployment.await_true(run, condition, f"a round ended without client {client}")


def has_summary(run: Path) -> bool:
    return (run / "summary.json").exists()


def await_all_received(
    deployment: Loopback, run: Path, states: Sequence[tuple[Path, SampleFeed]]
) -> None:
    """Wait until each device has received all samples that were sent to it."""

    def missing() -> list[Path]:
        return [state for state, each in states if not has_received(state, each.sent)]

    deployment.await_true(run, lambda: not missing(), "each device has received all samples")


def has_received(state: Path, number: int) -> bool:
    """Whether the status file of a device reports this number of received samples."""
    with suppress(OSError, ValueError):
        return bool(json.loads((state / "status.json").read_text())["received"] == number)
    return False
