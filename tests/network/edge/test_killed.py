"""Tests that processes killed at random moments neither lose nor duplicate samples."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from network.edge import killable_device as killed
from network.edge.doubles import plan_for
from network.edge.test_collector import until
from network.sources.conftest import MOSQUITTO, Mosquitto
from thalweg.network.edge.inbox import Inbox
from thalweg.network.edge.live_node import LiveNode, LiveSizes
from thalweg.network.edge.store import Store
from thalweg.network.sources import open_source

TESTS = Path(__file__).parents[2]
PATH = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])


def start_device(kind: str, folder: Path, capacity: int, *source: str) -> subprocess.Popen[bytes]:
    """Start a device process and wait until it has stored data or begun to read."""
    device = subprocess.Popen(
        [sys.executable, killed.__file__, kind, str(folder), str(capacity), *source],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": PATH},
    )
    assert device.stdout is not None
    assert device.stdout.readline(), "it is at work"
    return device


def run_and_kill(kind: str, folder: Path, capacity: int, seconds: float) -> None:
    """Start a device and kill it this many seconds after its first stored data."""
    device = start_device(kind, folder, capacity)
    time.sleep(seconds)
    device.send_signal(signal.SIGKILL)
    device.communicate()


def check_nothing_lost_nor_doubled(inbox: Inbox, held: list[int]) -> None:
    """`held`: numbers of the samples in the client's memory."""
    cursor, ahead = inbox.cursor
    read = killed.num_samples_before(int(cursor)) + ahead
    counts = inbox.counts
    assert counts.received == read, "what the source has delivered is what was received"
    assert (counts.duplicates, counts.rejected, counts.unmatched, counts.lost) == (0, 0, 0, 0)
    present = sorted(inbox.slots.x[inbox._is_taken, 0].astype(int).tolist())
    assert len(set(present)) == len(present), "none twice"
    assert len(present) == counts.received - counts.evicted - counts.expired, "none lost"
    assert set(held) <= set(present)
    if counts.evicted == counts.expired == 0:
        assert present == list(range(read)), "exactly what was delivered"


@pytest.mark.parametrize("capacity", [5, 20_000])
def test_killed_collector_neither_loses_nor_duplicates_samples(
    capacity: int, tmp_path: Path
) -> None:
    when, received = random.Random(capacity), 0
    for _ in range(3):
        run_and_kill("collect", tmp_path, capacity, when.uniform(0, 0.4))
        store = Store.open(tmp_path)
        inbox = Inbox(store, killed.SCHEMA, capacity, queue=40)
        stream_round = int.from_bytes(store.state() or b"", "big")
        held = inbox.slots.x[inbox._table.slots_before(stream_round), 0].astype(int).tolist()
        assert len(held) <= capacity
        check_nothing_lost_nor_doubled(inbox, held)
        assert inbox.counts.received > received, "it went on"
        received = inbox.counts.received
        inbox.close()
        store.close()


@pytest.mark.slow
def test_killed_client_neither_loses_nor_duplicates_samples(tmp_path: Path) -> None:
    when = random.Random(3)
    rounds = 0
    for _ in range(2):
        run_and_kill("client", tmp_path, 6, when.uniform(0, 0.5))
        store = Store.open(tmp_path)
        node = LiveNode(store, plan_for(), 0, killed.SCHEMA, LiveSizes(6, queue=40, batch=8))
        held = node.inbox.slots.x[node.state.client.rows, 0].astype(int).tolist()
        check_nothing_lost_nor_doubled(node.inbox, held)
        assert sorted(np.unique(held)) == sorted(held)
        assert node.inbox.counts.rounds == node.state.last_round + 1 >= rounds, "every round once"
        rounds = node.inbox.counts.rounds
        node.close()
        store.close()


@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
def test_killed_device_stores_every_broker_message_once(tmp_path: Path) -> None:
    """The messages have no keys, so only the delivery state identifies a second delivery."""
    from paho.mqtt.client import CallbackAPIVersion, Client

    broker, folder, number = Mosquitto(tmp_path), tmp_path / "state", 120
    broker.start()
    sensor = Client(CallbackAPIVersion.VERSION2)
    sensor.connect("127.0.0.1", broker.port)
    sensor.loop_start()
    try:
        source = f"{broker.address}/sensor/+?qos=1"
        subscribe(folder, source)
        device = start_device("collect", folder, 5, source)
        for n in range(number):
            said = json.dumps({"x": [n, -n], "y": n % 3})
            sensor.publish("sensor/1", said, qos=1).wait_for_publish(30)
            if n % 40 == 20:
                device.kill()
                device.communicate()
                device = start_device("collect", folder, 5, source)
        until(lambda: count_received(folder) >= number)
        device.kill()
        device.communicate()
    finally:
        sensor.disconnect()
        sensor.loop_stop()
        broker.stop()
    store = Store.open(folder)
    inbox = Inbox(store, killed.SCHEMA, 5, queue=40)
    counts = inbox.counts
    present = inbox.slots.x[inbox._is_taken, 0].astype(int).tolist()
    inbox.close()
    store.close()
    assert (counts.received, counts.duplicates, counts.rejected) == (number, 0, 0)
    assert len(set(present)) == len(present) == number - counts.evicted


def subscribe(folder: Path, spec: str) -> None:
    """Create the device's session at the broker, which then queues messages for it."""
    store = Store.open(folder)
    source = open_source(spec, killed.SCHEMA.sample_format, name=store.identity)
    store.close()
    events = source.events("")
    while next(events) and source.trouble:
        pass
    source.close()


def count_received(folder: Path) -> int:
    """Count the samples stored by a running device."""
    with closing(sqlite3.connect(f"file:{folder}/state.db?mode=ro", uri=True)) as db:
        row = db.execute("SELECT value FROM facts WHERE name = 'counts'").fetchone()
    return 0 if row is None else int(json.loads(row[0])["received"])
