"""Everything goes wrong at once, with real processes: runs end as they should, and nobody loses a sample."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from network.flower.cli_processes import CliProcesses, Publisher
from network.flower.faults import (
    LONG_S,
    SETS,
    TWO_POINTS,
    LiveProcesses,
    SampleFeed,
    await_all_joined,
    await_all_received,
    await_finish,
    await_late,
    await_rounds,
    check_sample_counts,
    events_of,
    live_plan,
    run_undisturbed,
)
from network.flower.forger import FORGERIES, REASONS, Forger, ForgerServer
from network.flower.loopback import await_true
from network.flower.runs import prepare_run
from network.sources.conftest import MOSQUITTO, Mosquitto
from thalweg.engine.plan import Plan, read_plan
from thalweg.engine.run_folder import RunFolder

HONEST, FORGER = (0, 1, 2), 3
SAMPLES = 900  # of each client
LONG_ROUNDS = 18
TOO_LATE = ("no response of this client was expected", "the response is late")
SERVING = ("--live", "--min-clients", "2", "--deadline", "15")


class Story:
    """What happens to a park of three honest clients and a forger, round after round."""

    def __init__(self, park: LiveProcesses, run: Path, forger: Forger, seed: int) -> None:
        self.park, self.run, self.forger, self.chance = park, run, forger, random.Random(seed)
        self.supplies = {number: SampleFeed(number) for number in HONEST}

    def feed(self, number: int) -> None:
        """So many more samples for everybody, whether anybody is there to read them or not."""
        for client, supply in self.supplies.items():
            supply.append(self.park.file(client), min(number, SAMPLES - supply.sent))

    def kill_a_daemon(self) -> None:
        number = self.chance.choice((0, 1))
        self.park.kill(f"daemon{number}")
        self.feed(60)
        self.park.start_daemon(number)

    def kill_the_loop(self) -> None:
        """It goes on as another run of Flower's; whoever was there must find it."""
        since = len(events_of(self.run, "joined"))
        self.park.kill_loop()
        self.feed(60)
        self.park.submit(self.run)
        await_all_joined(self.run, since, {0, 1, FORGER}, self.park.keep_running)

    def kill_the_link(self) -> None:
        self.park.kill("superlink")
        self.feed(60)
        self.park.restart_link()

    def hold_up_a_reply(self) -> None:
        """A client stops in the middle of whatever it does, until the round is over without it."""
        number = self.chance.choice((0, 1))
        self.park.stop(f"daemon{number}")
        await_late(self.run, number, self.park.keep_running)
        self.park.resume_process(f"daemon{number}")

    def join_late(self) -> None:
        """Meanwhile the forger is silent, so that rounds last as long as they may, and are not over before."""
        since = len(events_of(self.run, "joined"))
        self.forger.may_answer.clear()
        self.park.start_node(2)
        await_all_joined(self.run, since, {2}, self.park.keep_running)
        self.forger.may_answer.set()


def test_a_run_survives_kills_delays_late_joins_and_forgeries(tmp_path: Path) -> None:
    rounds = 8
    plan = live_plan(rounds, 4)
    run = prepare_run(tmp_path / "run", plan, min_clients=3, deadline_s=6, live=True)
    park, forger = LiveProcesses(tmp_path / "park"), Forger(FORGER)
    door = ForgerServer(forger, park.socket(FORGER))
    try:
        story = Story(park, run, forger, seed=5)
        story.feed(450)
        park.start_link()
        for number in (0, 1):
            park.start_device(number)
        park.start_daemon(2)  # its way to the server comes later
        park.start_node(FORGER)
        park.submit(run)
        tell(story, [story.kill_a_daemon, story.kill_the_loop, story.kill_the_link])
        story.feed(SAMPLES)
        await_rounds(run, rounds - 1, park.keep_running)
        park.kill_node(0)  # the server hears of it only after the last round
        await_finish(run, rounds, park.keep_running)
        await_all_received([(park.state(number), story.supplies[number]) for number in HONEST])
    finally:
        park.end()
        door.close()
    check_ending(run, rounds)
    check_forgeries(run, forger)
    for number in HONEST:
        check_sample_counts(park.state(number), plan, story.supplies[number])
    check_accuracy(run, plan, tmp_path)


class LongStory:
    """The same with the commands, and samples that come over a broker."""

    def __init__(self, park: CliProcesses, run: Path, broker: Mosquitto, seed: int) -> None:
        self.park, self.run, self.broker, self.chance = park, run, broker, random.Random(seed)
        self.supplies = {number: SampleFeed(number) for number in HONEST}
        self.publisher = Publisher(broker.port)
        self.here: list[int] = []  # clients that have joined

    def begin(self) -> None:
        options = [word for each in SETS for word in ("--set", each)]
        options += ["--clients", "4", "--seed", "4", "--rounds", str(LONG_ROUNDS)]
        self.park.serve(self.run, "fedavg", "--on", "digits-full", *options, *SERVING)
        for number in (0, 1):
            self.join(number)
        self.feed(400)

    def join(self, number: int) -> None:
        """Comes with its first samples, as soon as it listens to the broker."""
        self.park.join(number, f"{self.broker.address}/samples/{number}")
        await_true(lambda: self.park.status(number).get("trouble") == "", LONG_S)
        self.here.append(number)

    def feed(self, number: int) -> None:
        for client in self.here:
            supply = self.supplies[client]
            self.publisher.publish(supply, min(number, SAMPLES - supply.sent))

    def faults(self) -> list[Callable[[], None]]:
        """Each once, and some of those that may come often a second time, in an order of chance."""
        kills = [self.kill_part_of_a_client] * 4 + [self.kill_part_of_the_server] * 3
        rare = [self.kill_a_client, self.kill_the_server, self.restart_the_broker]
        others = [self.hold_up_a_reply, self.hold_up_a_reply, lambda: self.join(2)]
        faults = [*kills, *rare, *others]
        self.chance.shuffle(faults)
        return faults

    def kill_part_of_a_client(self) -> None:
        part = self.chance.choice(("daemon", "daemon", "SuperNode"))
        self.park.send_signal(f"join{self.chance.choice(self.here)}", part)

    def kill_part_of_the_server(self) -> None:
        self.park.send_signal("serve", self.chance.choice(("SuperLink", "SuperExec", "ServerApp")))

    def kill_a_client(self) -> None:
        number = self.chance.choice(self.here)
        self.park.kill(f"join{number}")
        self.park.join(number, f"{self.broker.address}/samples/{number}")

    def kill_the_server(self) -> None:
        self.park.kill("serve")
        self.park.serve(self.run, str(self.run), *SERVING, "--resume")

    def restart_the_broker(self) -> None:
        self.broker.stop()
        self.feed(60)
        time.sleep(self.chance.uniform(1, 5))
        self.broker.start()

    def hold_up_a_reply(self) -> None:
        number = self.chance.choice(self.here)
        self.park.send_signal(f"join{number}", "daemon", signal.SIGSTOP)
        await_late(self.run, number)
        self.park.send_signal(f"join{number}", "daemon", signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_long_run_over_a_broker_survives_them_again_and_again(seed: int, tmp_path: Path) -> None:
    """As users start it, with all parts of it killed at random moments, by the commands started again."""
    (tmp_path / "broker").mkdir()
    broker, run = Mosquitto(tmp_path / "broker"), tmp_path / "run"
    broker.start()
    park, forger = CliProcesses(tmp_path / "park"), Forger(FORGER)
    story = LongStory(park, run, broker, seed)
    door = ForgerServer(forger, park.socket(FORGER))
    try:
        story.begin()
        park.start_node(FORGER)
        for number, fault in enumerate(story.faults(), start=1):
            await_rounds(run, number)
            story.feed(50)
            time.sleep(story.chance.uniform(0, 3))  # anywhere in a round
            fault()
        story.feed(SAMPLES)
        await_true(lambda: RunFolder(run).is_finished(LONG_ROUNDS), 2 * LONG_S)
        await_all_received([(park.state(number), story.supplies[number]) for number in HONEST])
    finally:
        park.end()
        broker.stop()
        door.close()
        story.publisher.close()
    check_ending(run, LONG_ROUNDS)
    check_forgeries(run, forger)
    plan = read_plan(run)
    for number in HONEST:
        check_sample_counts(park.state(number), plan, story.supplies[number])
    check_accuracy(run, plan, tmp_path)


def tell(story: Story, kills: list[Callable[[], None]]) -> None:
    """Faults in an order of chance, one after every round; a late join and a late reply are among them."""
    faults = [*kills, story.join_late, story.hold_up_a_reply]
    story.chance.shuffle(faults)
    for number, fault in enumerate(faults, start=1):
        await_rounds(story.run, number, story.park.keep_running)
        fault()


def check_ending(run: Path, rounds: int) -> None:
    rows = RunFolder(run).metrics()
    assert [row["round"] for row in rows] == list(range(1, rounds + 1)), "each round once"
    assert {event["client"] for event in events_of(run, "joined")} == {*HONEST, FORGER}


def check_forgeries(run: Path, forger: Forger) -> None:
    """None was let in, and the run folder says so for each."""
    rejections = RunFolder(run).rejections()
    assert forger.sent, "it was asked"
    assert FORGER in {refusal["client"] for refusal in rejections}, "and refused"
    for refusal in rejections:
        forged = REASONS.values() if refusal["client"] == FORGER else ()
        assert any(part in refusal["reason"] for part in (*forged, *TOO_LATE)), refusal


def check_accuracy(run: Path, plan: Plan, folder: Path) -> None:
    accuracy = RunFolder(run).metrics()[-1]["accuracy"]
    assert accuracy >= run_undisturbed(folder / "calm", plan, len(HONEST), SAMPLES) - TWO_POINTS


def test_there_is_a_reason_for_every_forgery() -> None:
    assert REASONS.keys() == FORGERIES.keys()
