"""Real processes, killed at random moments: no sample is lost, none is there twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from edge import killed
from edge.doubles import plan_for
from thalweg.edge.inbox import Inbox
from thalweg.edge.live_node import LiveNode, LiveSizes
from thalweg.edge.store import Store

TESTS = Path(__file__).parents[1]
PATH = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])


def life(kind: str, folder: Path, capacity: int, seconds: float) -> None:
    """From the first thing that it has stored, so many seconds."""
    device = subprocess.Popen(
        [sys.executable, killed.__file__, kind, str(folder), str(capacity)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": PATH},
    )
    assert device.stdout is not None
    assert device.stdout.readline(), "it has stored something"
    time.sleep(seconds)
    device.send_signal(signal.SIGKILL)
    device.communicate()


def check_nothing_lost_nor_doubled(inbox: Inbox, held: list[int]) -> None:
    """`held`: numbers of the samples in the client's memory."""
    cursor, ahead = inbox.cursor
    read = killed.first_of(int(cursor)) + ahead
    counts = inbox.counts
    assert counts.received == read, "what the source has delivered is what was received"
    assert (counts.duplicates, counts.refused, counts.unmatched, counts.lost) == (0, 0, 0, 0)
    present = sorted(inbox.slots.x[inbox._is_taken, 0].astype(int).tolist())
    assert len(set(present)) == len(present), "none twice"
    assert len(present) == counts.received - counts.evicted - counts.expired, "none lost"
    assert set(held) <= set(present)
    if counts.evicted == counts.expired == 0:
        assert present == list(range(read)), "exactly what was delivered"


@pytest.mark.parametrize("capacity", [5, 20_000])
def test_a_killed_collector_neither_loses_nor_doubles_a_sample(
    capacity: int, tmp_path: Path
) -> None:
    when, received = random.Random(capacity), 0
    for _ in range(5):
        life("collect", tmp_path, capacity, when.uniform(0, 0.4))
        store = Store.open(tmp_path)
        inbox = Inbox(store, killed.BLANK, capacity, queue=40)
        lived = int.from_bytes(store.state() or b"", "big")
        held = inbox.slots.x[inbox._table.before(lived), 0].astype(int).tolist()
        assert len(held) <= capacity
        check_nothing_lost_nor_doubled(inbox, held)
        assert inbox.counts.received > received, "it went on"
        received = inbox.counts.received
        inbox.close()
        store.close()


def test_a_killed_client_neither_loses_nor_doubles_a_sample(tmp_path: Path) -> None:
    when = random.Random(3)
    rounds = 0
    for _ in range(3):
        life("client", tmp_path, 6, when.uniform(0, 0.5))
        store = Store.open(tmp_path)
        node = LiveNode(store, plan_for(), 0, killed.BLANK, LiveSizes(6, queue=40, batch=8))
        held = node.inbox.slots.x[node.state.client.rows, 0].astype(int).tolist()
        check_nothing_lost_nor_doubled(node.inbox, held)
        assert sorted(np.unique(held)) == sorted(held)
        assert node.inbox.counts.rounds == node.state.trained + 1 >= rounds, "every round once"
        rounds = node.inbox.counts.rounds
        node.close()
        store.close()
