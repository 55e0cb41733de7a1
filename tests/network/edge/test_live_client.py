from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest

from contracts.examples import train_request_for
from network.edge.doubles import SCHEMA, ListSource, batch, late_labels, plan_for
from network.edge.test_collector import until
from thalweg.federation import TrainResponse
from thalweg.network.edge.live_client import LiveClient
from thalweg.network.edge.live_node import LiveSizes
from thalweg.network.edge.store import Store
from thalweg.network.wire import from_bytes, to_bytes


def make_request(device: LiveClient, rnd: int) -> bytes:
    params = np.zeros(device.net.num_params, dtype=np.float32)
    return to_bytes(train_request_for(rnd, 0, params), device.node.message_schema)


def test_live_client_runs_from_the_first_sample_to_the_last_round(tmp_path: Path) -> None:
    """Ten samples, of which six fit; one has no label and one is a duplicate."""
    events = [
        batch(range(8)),
        batch([8, 7], labels=[-1, 1]),
        late_labels(_8=0),
        batch([9], labels=[-1]),
    ]
    store = Store.open(tmp_path)
    sizes = LiveSizes(queue=16, batch=4)
    device = LiveClient(store, plan_for(), 0, SCHEMA, ListSource(events), sizes)
    device.start()
    until(lambda: device.collector.has_ended)
    reply = from_bytes(
        device.handle(make_request(device, 0)), device.node.message_schema, TrainResponse
    )
    assert reply.num_samples == 6
    device.close()
    status = device.status()
    assert json.loads((tmp_path / "status.json").read_text()) == status
    store.close()
    said = {name: status[name] for name in ("received", "kept", "evicted", "waiting", "inbox")}
    assert said == {"received": 10, "kept": 6, "evicted": 3, "waiting": 1, "inbox": 0}
    assert (status["duplicates"], status["lost"], status["rejected"]) == (1, 0, 0)
    assert (status["rounds"], status["last_round"], status["trouble"]) == (1, 0, "")
    assert status["last_loss"] > 0
    assert status["has_ended"]


def test_status_file_is_written_at_most_once_a_second(tmp_path: Path) -> None:
    now = [0.0]
    store = Store.open(tmp_path)
    source = ListSource([batch([0])])
    device = LiveClient(store, plan_for(), 0, SCHEMA, source, now=lambda: now[0])
    file = tmp_path / "status.json"
    for rnd, (moment, rounds) in enumerate([(0.0, 1), (0.9, 1), (1.0, 3), (1.5, 3), (2.1, 5)]):
        now[0] = moment
        device.handle(make_request(device, rnd))
        assert json.loads(file.read_text())["rounds"] == rounds
    device.close()
    store.close()


def test_status_counts_samples_rejected_by_the_source(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    source = ListSource([batch([0], labels=[5])])
    source.rejected, source.last_rejection, source.trouble = 2, "row 3 has 4 columns", "no network"
    device = LiveClient(store, plan_for(), 0, SCHEMA, source)
    device.start()
    until(lambda: device.collector.has_ended)
    status = device.status()
    device.close()
    store.close()
    assert (status["rejected"], status["last_rejection"]) == (3, "row 3 has 4 columns")
    assert status["trouble"] == "no network"


@pytest.mark.parametrize("recipe", ["fedavg", "ode"])
def test_samples_can_arrive_while_the_client_trains(recipe: str, tmp_path: Path) -> None:
    """Two threads use one inbox; no sample is lost in any order of operations."""
    events = [batch([n]) for n in range(60)]
    store = Store.open(tmp_path)
    sizes = LiveSizes(queue=16, batch=4)
    device = LiveClient(store, plan_for(recipe), 0, SCHEMA, ListSource(events), sizes)
    device.start()
    rnd = 0
    while not device.collector.has_ended and rnd < 5000:
        device.handle(make_request(device, rnd))
        rnd += 1
    status = device.status()
    device.close()
    store.close()
    assert (status["received"], status["lost"], status["trouble"]) == (60, 0, "")
    assert status["received"] == status["kept"] + status["inbox"] + status["evicted"]
    assert threading.active_count() < 10
