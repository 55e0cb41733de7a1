"""Runs with real processes finish under many faults, and clients lose no samples."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from network.flower.cli_processes import CliProcesses, Publisher
from network.flower.faults import (
    SETS,
    TWO_POINTS,
    LiveProcesses,
    SampleFeed,
    await_all_joined,
    await_all_received,
    await_late,
    check_sample_counts,
    events_of,
    live_plan,
    run_undisturbed,
)
from network.flower.forger import FORGERIES, REASONS, Forger, ForgerServer
from network.flower.runs import prepare_run
from network.sources.conftest import MOSQUITTO, Mosquitto
from thalweg.engine.plan import Plan, read_plan
from thalweg.engine.run_folder import RunFolder

HONEST, FORGER = (0, 1, 2), 3
SAMPLES = 900  # of each client
LONG_ROUNDS = 18
TOO_LATE = ("no response of this client was expected", "the response is late")
SERVING = ("--live", "--min-clients", "2", "--deadline", "15")


class FaultInjector:
    """Faults for three honest clients and a forger, in the order of the rounds."""

    def __init__(self, deployment: LiveProcesses, run: Path, forger: Forger, seed: int) -> None:
        self.deployment, self.run, self.forger = deployment, run, forger
        self.chance = random.Random(seed)
        self.supplies = {number: SampleFeed(number) for number in HONEST}

    def feed(self, number: int) -> None:
        """Append `number` samples for each client, also for clients that are not running."""
        for client, supply in self.supplies.items():
            supply.append(self.deployment.file(client), min(number, SAMPLES - supply.sent))

    def kill_daemon(self) -> None:
        number = self.chance.choice((0, 1))
        self.deployment.kill(f"daemon{number}")
        self.feed(60)
        self.deployment.start_daemon(number)

    def kill_server_app(self) -> None:
        """Kill the ServerApp and submit a new Flower run; the clients must rejoin it."""
        since = len(events_of(self.run, "joined"))
        self.deployment.kill_server_app()
        self.feed(60)
        self.deployment.submit(self.run)
        await_all_joined(self.deployment, self.run, since, {0, 1, FORGER})

    def restart_superlink(self) -> None:
        self.deployment.kill("superlink")
        self.feed(60)
        self.deployment.restart_link()

    def delay_response(self) -> None:
        """Pause a client until a round ends without it."""
        number = self.chance.choice((0, 1))
        self.deployment.stop(f"daemon{number}")
        await_late(self.deployment, self.run, number)
        self.deployment.resume_process(f"daemon{number}")

    def join_late(self) -> None:
        """Start client 2; the forger pauses, so each round lasts until its deadline."""
        since = len(events_of(self.run, "joined"))
        self.forger.may_answer.clear()
        self.deployment.start_node(2)
        await_all_joined(self.deployment, self.run, since, {2})
        self.forger.may_answer.set()

    def run_faults(self) -> None:
        """Run all faults in a random order, one after each round."""
        faults = [
            *(self.kill_daemon, self.kill_server_app, self.restart_superlink),
            *(self.join_late, self.delay_response),
        ]
        self.chance.shuffle(faults)
        for number, fault in enumerate(faults, start=1):
            self.deployment.await_rounds(self.run, number)
            fault()


@pytest.mark.slow
def test_run_survives_kills_delays_late_joins_and_invalid_responses(tmp_path: Path) -> None:
    rounds = 8
    plan = live_plan(rounds, 4)
    run = prepare_run(tmp_path / "run", plan, min_clients=3, deadline_s=6, live=True)
    deployment, forger = LiveProcesses(tmp_path / "deployment"), Forger(FORGER)
    forger_server = ForgerServer(forger, deployment.socket(FORGER))
    deployment.checks.append(forger_server.check)
    try:
        injector = FaultInjector(deployment, run, forger, seed=5)
        injector.feed(450)
        deployment.start_link()
        for number in (0, 1):
            deployment.start_device(number)
        deployment.start_daemon(2)  # its node is started later
        deployment.start_node(FORGER)
        deployment.submit(run)
        injector.run_faults()
        injector.feed(SAMPLES)
        deployment.await_rounds(run, rounds - 1)
        deployment.kill_node(0)  # the server notices it only after the last round
        deployment.await_finish(run, rounds)
        await_all_received(
            deployment,
            run,
            [(deployment.state(number), injector.supplies[number]) for number in HONEST],
        )
    finally:
        deployment.end()
        forger_server.close()
    check_ending(run, rounds)
    check_forgeries(run, forger)
    for number in HONEST:
        check_sample_counts(deployment.state(number), plan, injector.supplies[number])
    check_accuracy(run, plan, tmp_path)


class CliFaultInjector:
    """Faults for a run started with the CLI whose samples come from a broker."""

    def __init__(self, deployment: CliProcesses, run: Path, broker: Mosquitto, seed: int) -> None:
        self.deployment, self.run, self.broker = deployment, run, broker
        self.chance = random.Random(seed)
        self.supplies = {number: SampleFeed(number) for number in HONEST}
        self.publisher = Publisher(broker.port)
        self.present: list[int] = []  # clients that have joined

    def start_run(self) -> None:
        options = [word for each in SETS for word in ("--set", each)]
        options += ["--clients", "4", "--seed", "4", "--rounds", str(LONG_ROUNDS)]
        self.deployment.serve(self.run, "fedavg", "--on", "digits-full", *options, *SERVING)
        for number in (0, 1):
            self.join(number)
        self.feed(400)

    def join(self, number: int) -> None:
        """Start a client and wait until it is connected to the broker."""
        self.deployment.join(number, f"{self.broker.address}/samples/{number}")
        self.deployment.await_true(
            self.run,
            lambda: self.deployment.status(number).get("trouble") == "",
            f"client {number} is connected to the broker",
        )
        self.present.append(number)

    def feed(self, number: int) -> None:
        for client in self.present:
            supply = self.supplies[client]
            self.publisher.publish(supply, min(number, SAMPLES - supply.sent))

    def faults(self) -> list[Callable[[], None]]:
        """Return all faults in a random order; frequent faults occur several times."""
        kills = [self.kill_client_process] * 4 + [self.kill_server_process] * 3
        rare = [self.restart_client, self.restart_server, self.restart_broker]
        others = [self.delay_response, self.delay_response, lambda: self.join(2)]
        faults = [*kills, *rare, *others]
        self.chance.shuffle(faults)
        return faults

    def kill_client_process(self) -> None:
        part = self.chance.choice(("daemon", "daemon", "SuperNode"))
        self.deployment.send_signal(f"join{self.chance.choice(self.present)}", part)

    def kill_server_process(self) -> None:
        self.deployment.send_signal(
            "serve", self.chance.choice(("SuperLink", "SuperExec", "ServerApp"))
        )

    def restart_client(self) -> None:
        number = self.chance.choice(self.present)
        self.deployment.kill(f"join{number}")
        self.deployment.join(number, f"{self.broker.address}/samples/{number}")

    def restart_server(self) -> None:
        self.deployment.kill("serve")
        self.deployment.serve(self.run, str(self.run), *SERVING, "--resume")

    def restart_broker(self) -> None:
        self.broker.stop()
        self.feed(60)
        time.sleep(self.chance.uniform(1, 5))
        self.broker.start()

    def delay_response(self) -> None:
        number = self.chance.choice(self.present)
        self.deployment.send_signal(f"join{number}", "daemon", signal.SIGSTOP)
        await_late(self.deployment, self.run, number)
        self.deployment.send_signal(f"join{number}", "daemon", signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
@pytest.mark.parametrize("seed", [1, 2])
def test_long_run_with_a_broker_survives_repeated_faults(seed: int, tmp_path: Path) -> None:
    """Kills parts of the server and clients at random times; the commands restart them."""
    (tmp_path / "broker").mkdir()
    broker, run = Mosquitto(tmp_path / "broker"), tmp_path / "run"
    broker.start()
    deployment, forger = CliProcesses(tmp_path / "deployment"), Forger(FORGER)
    injector = CliFaultInjector(deployment, run, broker, seed)
    forger_server = ForgerServer(forger, deployment.socket(FORGER))
    deployment.checks.append(forger_server.check)
    try:
        injector.start_run()
        deployment.start_node(FORGER)
        for number, fault in enumerate(injector.faults(), start=1):
            deployment.await_rounds(run, number)
            injector.feed(50)
            time.sleep(injector.chance.uniform(0, 3))  # anywhere in a round
            fault()
        injector.feed(SAMPLES)
        deployment.await_finish(run, LONG_ROUNDS)
        await_all_received(
            deployment,
            run,
            [(deployment.state(number), injector.supplies[number]) for number in HONEST],
        )
    finally:
        deployment.end()
        broker.stop()
        forger_server.close()
        injector.publisher.close()
    check_ending(run, LONG_ROUNDS)
    check_forgeries(run, forger)
    plan = read_plan(run)
    for number in HONEST:
        check_sample_counts(deployment.state(number), plan, injector.supplies[number])
    check_accuracy(run, plan, tmp_path)


def check_ending(run: Path, rounds: int) -> None:
    rows = RunFolder(run).metrics()
    assert [row["round"] for row in rows] == list(range(1, rounds + 1)), "each round once"
    assert {event["client"] for event in events_of(run, "joined")} == {*HONEST, FORGER}


def check_forgeries(run: Path, forger: Forger) -> None:
    """Check that the run folder lists each forged response with a reason."""
    rejections = RunFolder(run).rejections()
    assert forger.sent, "the forger received no request"
    assert FORGER in {rejection["client"] for rejection in rejections}, (
        "no response of the forger was rejected"
    )
    for rejection in rejections:
        forged = REASONS.values() if rejection["client"] == FORGER else ()
        assert any(part in rejection["reason"] for part in (*forged, *TOO_LATE)), rejection


def check_accuracy(run: Path, plan: Plan, folder: Path) -> None:
    accuracy = RunFolder(run).metrics()[-1]["accuracy"]
    assert (
        accuracy >= run_undisturbed(folder / "undisturbed", plan, len(HONEST), SAMPLES) - TWO_POINTS
    )


def test_each_forgery_has_an_expected_reason() -> None:
    assert REASONS.keys() == FORGERIES.keys()
