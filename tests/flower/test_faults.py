"""Everything goes wrong at once, with real processes: the run ends as it was asked to, and nobody loses a sample."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from flower.faults import (
    LONG_S,
    TWO_POINTS,
    LivePark,
    Supply,
    await_all_came,
    await_rounds,
    check_books,
    events_of,
    live_plan,
    undisturbed,
)
from flower.forger import FORGERIES, REASONS, Forger, ForgersDoor
from flower.real import await_true
from flower.runs import prepared
from thalweg.engine.folder import RunFolder
from thalweg.engine.plan import Plan

HONEST, FORGER = (0, 1, 2), 3
SAMPLES = 600  # of each client


class Story:
    """What happens to a park of three honest clients and a forger, round after round."""

    def __init__(self, park: LivePark, run: Path, seed: int) -> None:
        self.park, self.run, self.chance = park, run, random.Random(seed)
        self.supplies = {number: Supply(number) for number in HONEST}

    def feed(self, number: int) -> None:
        """So many more samples for everybody, whether anybody is there to read them or not."""
        for client, supply in self.supplies.items():
            supply.append(self.park.file(client), min(number, SAMPLES - supply.sent))

    def kill_a_daemon(self) -> None:
        number = self.chance.choice((0, 1))
        self.park.kill(f"daemon{number}")
        self.feed(40)
        self.park.start_daemon(number)

    def kill_the_loop(self) -> None:
        self.park.kill_loop()
        self.feed(40)
        self.park.submit(self.run)

    def kill_the_link(self) -> None:
        self.park.kill("superlink")
        self.feed(40)
        self.park.restart_link()

    def hold_up_a_reply(self) -> None:
        """A client stops in the middle of whatever it does, until the round is over without it."""
        number, before = self.chance.choice((0, 1)), len(events_of(self.run, "late"))
        self.park.stop(f"daemon{number}")
        await_true(lambda: len(events_of(self.run, "late")) > before, LONG_S)
        self.park.go_on(f"daemon{number}")

    def join_late(self) -> None:
        self.park.start_device(2)


def test_a_run_survives_kills_delays_late_joins_and_forgeries(tmp_path: Path) -> None:
    rounds = 10
    plan = live_plan(rounds, 4)
    run = prepared(tmp_path / "run", plan, min_clients=2, deadline_s=8, live=True)
    park, forger = LivePark(tmp_path / "park"), Forger(FORGER)
    door = ForgersDoor(forger, park.socket(FORGER))
    try:
        story = Story(park, run, seed=8)
        story.feed(300)
        park.start_link()
        for number in (0, 1):
            park.start_device(number)
        park.start_node(FORGER)
        park.submit(run)
        tell(story, [story.kill_a_daemon, story.kill_the_loop, story.kill_the_link])
        story.feed(SAMPLES)
        await_rounds(run, rounds - 1)
        park.kill_node(0)  # the server hears of it only after the last round
        await_true(lambda: RunFolder(run).is_finished(rounds), LONG_S)
        await_all_came([(park.state(number), story.supplies[number]) for number in HONEST])
    finally:
        park.end()
        door.close()
    check_ending(run, rounds)
    check_forgeries(run, forger)
    for number in HONEST:
        check_books(park.state(number), plan, story.supplies[number])
    check_accuracy(run, plan, tmp_path)


def tell(story: Story, kills: list[Callable[[], None]]) -> None:
    """Faults in an order of chance, one after every round; a late join and a late reply are among them."""
    faults = [*kills, story.join_late, story.hold_up_a_reply]
    story.chance.shuffle(faults)
    for number, fault in enumerate(faults, start=1):
        await_rounds(story.run, number)
        fault()


def check_ending(run: Path, rounds: int) -> None:
    rows = RunFolder(run).metrics()
    assert [row["round"] for row in rows] == list(range(1, rounds + 1)), "each round once"
    assert {event["client"] for event in events_of(run, "joined")} == {*HONEST, FORGER}


def check_forgeries(run: Path, forger: Forger) -> None:
    """None was let in, and the run folder says so for each."""
    refusals = RunFolder(run).refusals()
    assert forger.sent, "it was asked"
    assert refusals, "and refused"
    for refusal in refusals:
        assert refusal["client"] == FORGER, refusal
        assert any(part in refusal["reason"] for part in REASONS.values()), refusal


def check_accuracy(run: Path, plan: Plan, folder: Path) -> None:
    accuracy = RunFolder(run).metrics()[-1]["accuracy"]
    assert accuracy >= undisturbed(folder / "calm", plan, len(HONEST), SAMPLES) - TWO_POINTS


def test_there_is_a_reason_for_every_forgery() -> None:
    assert REASONS.keys() == FORGERIES.keys()
