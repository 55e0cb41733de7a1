"""Tests of joining a run with live data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.examples import train_request_for
from network.edge.doubles import SCHEMA, plan_for
from network.edge.test_collector import until
from network.edge.test_daemon import Home, rejection_of
from thalweg.engine.plan import plan_to_toml
from thalweg.federation import Hello, TrainResponse
from thalweg.network.edge.live_client import LiveClient
from thalweg.network.edge.schema import schema_to_json
from thalweg.network.edge.socket import Frame
from thalweg.network.handshake import Invitation, handshake_to_bytes
from thalweg.network.wire import MessageSchema, from_bytes, to_bytes

PLAN = plan_for()
NUM_PARAMS = 9  # two features and a bias for each of three classes
TERMS = MessageSchema(PLAN.recipe, NUM_PARAMS)
RUN, OTHER = "a" * 32, "b" * 32


def invitation(**changes: Any) -> bytes:
    schema = schema_to_json(SCHEMA)
    plain = Invitation(RUN, 2, plan_to_toml(PLAN), (2,), 3, NUM_PARAMS, True, schema)
    return handshake_to_bytes(replace(plain, **changes))


def make_request(rnd: int) -> Frame:
    params = np.zeros(NUM_PARAMS, dtype=np.float32)
    return Frame("request", to_bytes(train_request_for(rnd, 2, params), TERMS))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "state")
    yield home
    home.stop()


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A file with five lines, one of which is invalid."""
    file = tmp_path / "sensor.jsonl"
    rows = [{"x": [n, -n], "y": n % 3} for n in range(4)] + [{"x": [1], "y": 0}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def device_client(home: Home) -> LiveClient:
    client = home.daemon._device_client
    assert isinstance(client, LiveClient)
    return client


def test_invited_device_reads_its_source_and_trains(home: Home, lines: Path) -> None:
    daemon = home.start(data=str(lines))
    hello = from_bytes(daemon.handle(Frame("invitation", invitation())).payload, TERMS, Hello)
    assert hello.client == 2
    until(lambda: device_client(home).status()["received"] == 4)
    reply = from_bytes(daemon.handle(make_request(0)).payload, TERMS, TrainResponse)
    assert reply.num_samples == 4

    home.start(data=str(lines))  # resumes without an invitation and at the stored cursor
    with lines.open("a") as file:
        file.write('{"x": [7, 7], "y": 1}\n')
    until(lambda: device_client(home).status()["received"] == 5)
    reply = from_bytes(home.daemon.handle(make_request(1)).payload, TERMS, TrainResponse)
    assert reply.num_samples == 5
    assert device_client(home).status()["rounds"] == 2


def test_data_before_the_invitation_are_read_after_joining(home: Home, lines: Path) -> None:
    daemon = home.start(data=str(lines))
    assert daemon.handle(make_request(0)).kind == "rejected"
    daemon.handle(Frame("invitation", invitation()))
    until(lambda: device_client(home).status()["received"] == 4)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shape": (3,)}, r"samples of shape \(3,\), this client has samples of shape \(2,\)"),
        ({"num_params": 10}, "model parameters: 10, this client has model parameters: 9"),
        ({"schema": ""}, "is not a valid data schema"),
        ({"live": False}, "Join with --data replay"),
    ],
)
def test_run_with_another_data_schema_is_rejected(
    changes: dict[str, Any], said: str, home: Home, lines: Path
) -> None:
    daemon = home.start(data=str(lines))
    reason = rejection_of(daemon, invitation(**changes))
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(reason)


def test_plan_with_another_world_is_rejected(home: Home, lines: Path) -> None:
    plan = plan_to_toml(plan_for("fedavg", "world=replay"))
    daemon = home.start(data=str(lines))
    assert "the plan's world is Replay" in rejection_of(daemon, invitation(plan=plan))


def test_state_folder_of_another_run_is_not_changed(home: Home, lines: Path) -> None:
    home.start(data=str(lines)).handle(Frame("invitation", invitation()))
    until(lambda: device_client(home).status()["received"] == 4)
    home.stop()
    (home.folder / "invitation").unlink()
    lines.write_text(lines.read_text() * 2)
    daemon = home.start(data=str(lines))
    assert OTHER in rejection_of(daemon, invitation(run=OTHER))
    assert json.loads((home.folder / "status.json").read_text())["received"] == 4


def test_unusable_source_rejects_the_invitation(home: Home) -> None:
    daemon = home.start(data="mqtt://")
    assert "mqtt" in rejection_of(daemon, invitation())
