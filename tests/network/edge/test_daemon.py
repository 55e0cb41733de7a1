"""Tests of the device daemon: joining, rejected requests and duplicate requests."""

from __future__ import annotations

import errno
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.examples import train_request_for
from contracts.faults import FailingSystem, using
from network.flower.runs import tiny_plan
from thalweg.core.errors import ConfigError
from thalweg.core.registry import NotRegistered
from thalweg.data.in_memory import InMemory
from thalweg.data.table import Table
from thalweg.engine.plan import plan_to_toml
from thalweg.federation import Hello, TrainResponse
from thalweg.network.edge.daemon import INVITATION_FILE, Daemon
from thalweg.network.edge.device_client import DeviceOptions, ReplayClient
from thalweg.network.edge.invitations import read_server_plan
from thalweg.network.edge.socket import Frame
from thalweg.network.edge.store import Store
from thalweg.network.handshake import (
    IdentityRequest,
    IdentityResponse,
    Invitation,
    JoinRejection,
    handshake_from_bytes,
    handshake_to_bytes,
)
from thalweg.network.rejections import RejectionCode
from thalweg.network.wire import MessageSchema, from_bytes, to_bytes

RUN, OTHER = "a" * 32, "b" * 32
PLAN = tiny_plan("fedavg", "digits-partial", 3)
TERMS = MessageSchema(PLAN.recipe, 4810)


def invitation(**changes: Any) -> bytes:
    plain = Invitation(RUN, 2, plan_to_toml(PLAN), (1, 8, 8), 10, 4810, live=False)
    return handshake_to_bytes(replace(plain, **changes))


class Home:
    """A daemon that can be started again on the same folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.events = folder, list[Any]()
        self.store: Store | None = None

    def start(self, wish: int | None = None, **options: Any) -> Daemon:
        self.stop()
        self.store = Store.open(self.folder)
        self.daemon = Daemon(self.store, DeviceOptions(**options), wish, self.events.append)
        return self.daemon

    def stop(self) -> None:
        if self.store is not None:
            self.daemon.close()
            self.store.close()
            self.store = None


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "state")
    yield home
    home.stop()


def join_run(daemon: Daemon) -> Hello:
    return from_bytes(daemon.handle(Frame("invitation", invitation())).payload, TERMS, Hello)


def rejection_of(daemon: Daemon, letter: bytes, code: str | None = None) -> str:
    """Return why the daemon rejected an invitation; the daemon then stops.

    The server gets the code only.
    """
    said = daemon.handle(Frame("invitation", letter))
    rejection = handshake_from_bytes(said.payload, JoinRejection)
    assert said == Frame("invitation", handshake_to_bytes(rejection))
    assert code in (None, rejection.code)
    assert daemon.rejection_reason is not None
    return daemon.rejection_reason


def make_request(rnd: int) -> Frame:
    params = np.zeros(TERMS.num_params, dtype=np.float32)
    return Frame("request", to_bytes(train_request_for(rnd, 2, params), TERMS))


def test_daemon_states_its_identity_and_joins(home: Home) -> None:
    daemon = home.start(wish=2)
    assert home.store is not None
    said = daemon.handle(Frame("identity", handshake_to_bytes(IdentityRequest(RUN))))
    who = handshake_from_bytes(said.payload, IdentityResponse)
    assert (who.identity, who.requested_number, who.run) == (home.store.identity, 2, None)
    assert join_run(daemon).client == 2
    assert join_run(daemon).client == 2, "an invitation may come twice"
    again = handshake_from_bytes(
        daemon.handle(Frame("identity", handshake_to_bytes(IdentityRequest(RUN)))).payload,
        IdentityResponse,
    )
    assert (again.identity, again.run) == (who.identity, RUN)
    assert [event["event"] for event in home.events] == ["joined"]


def test_duplicate_train_request_is_trained_once(home: Home) -> None:
    daemon = home.start()
    join_run(daemon)
    first = daemon.handle(make_request(0))
    reply = from_bytes(first.payload, TERMS, TrainResponse)
    assert (first.kind, reply.rnd, reply.client) == ("request", 0, 2)
    assert daemon.handle(make_request(0)) == first
    second = daemon.handle(make_request(1))
    assert daemon.handle(make_request(0)) == first, "also when the next round is over"
    daemon = home.start()
    assert daemon.handle(make_request(1)) == second, (
        "also in another process, without an invitation"
    )
    assert daemon.handle(make_request(2)).kind == "request"
    rounds = [event["round"] for event in home.events if event["event"] == "round"]
    assert rounds == [1, 1, 2, 1, 2, 3]


def test_daemon_killed_in_a_round_gives_the_same_response_after_restart(
    home: Home, tmp_path: Path
) -> None:
    daemon = home.start()
    join_run(daemon)
    daemon.handle(make_request(0))
    whole = daemon.handle(make_request(1))
    other = Home(tmp_path / "other")
    daemon = other.start()
    join_run(daemon)
    daemon.handle(make_request(0))
    device_client = daemon._device_client
    assert isinstance(device_client, ReplayClient)
    device_client._remote.handle(
        device_client._state, make_request(1).payload
    )  # trained, but not stored
    daemon = other.start()
    assert daemon.handle(make_request(1)) == whole
    other.stop()


def test_rejected_requests_leave_the_daemon_unchanged(home: Home) -> None:
    daemon = home.start()
    assert daemon.handle(make_request(0)) == Frame("rejected", reason="no-invitation")
    join_run(daemon)
    daemon.handle(make_request(4))
    assert home.store is not None
    before = home.store.state()
    for frame, reason in (
        (make_request(3), "round"),
        (Frame("request", b"nonsense"), "message"),
        (Frame("request", make_request(5).payload[:-8]), "message"),
        (Frame("picnic", b""), "message"),
    ):
        assert daemon.handle(frame) == Frame("rejected", reason=reason)
    assert home.store.state() == before
    assert daemon.rejection_reason is None
    assert daemon.handle(make_request(5)).kind == "request"


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"version": "0.0.7"}, "the server has thalweg 0.0.7 .* this client has thalweg"),
        (
            {"shape": (1, 28, 28)},
            r"server has samples of shape \(1, 28, 28\), this client .* \(1, 8, 8\)",
        ),
        ({"num_classes": 2}, "server has classes: 2, this client has classes: 10"),
        (
            {"num_params": 7},
            "server has model parameters: 7, this client has model parameters: 4810",
        ),
        ({"client": 5}, "server has a client 5, but this client's plan has 5"),
        (
            {"live": True},
            "live run, whose clients have their own samples, but this client has --data replay",
        ),
        ({"plan": "["}, "not TOML"),
        ({"plan": "seed = 1"}, "scenario"),
        ({"plan": plan_to_toml(PLAN).replace("uniform-ratio", "unform")}, "unknown"),
    ],
)
def test_unsuitable_invitations_are_rejected(
    changes: dict[str, Any], reason: str, home: Home
) -> None:
    daemon = home.start()
    said = rejection_of(daemon, invitation(**changes))
    assert re.search(reason, said), said
    assert home.store is not None
    assert home.store.read_membership() is None


def test_state_folder_of_another_run_or_client_is_rejected(home: Home) -> None:
    join_run(home.start())
    for changes, words in (
        ({"run": OTHER}, (RUN, OTHER)),
        ({"client": 3}, ("client 3", "client 2")),
        ({"plan": plan_to_toml(replace(PLAN, seed=9))}, ("seed",)),
    ):
        reason = rejection_of(home.start(), invitation(**changes))
        assert all(word in reason for word in words), reason


def test_client_number_other_than_requested_is_rejected(home: Home) -> None:
    reason = rejection_of(home.start(wish=4), invitation())
    assert "as number 2, but this client has --client 4" in reason


def test_server_rejection_is_recorded(home: Home) -> None:
    daemon = home.start()
    daemon.handle(Frame("rejection", handshake_to_bytes(JoinRejection(RejectionCode.FULL))))
    assert daemon.rejection_reason == (
        "the server rejects this client: all clients of the run have joined already."
    )


def test_server_of_another_version_is_rejected_at_the_identity_request(home: Home) -> None:
    daemon = home.start()
    daemon.handle(Frame("identity", handshake_to_bytes(IdentityRequest(RUN, version="9.9"))))
    assert daemon.rejection_reason is not None
    assert "9.9" in daemon.rejection_reason


def test_plan_from_the_network_executes_no_local_code(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("raise SystemExit('it was run')")
    text = plan_to_toml(PLAN).replace('kind = "uniform-ratio"', f'kind = "{mine}:Mine"')
    assert "Mine" in text
    with pytest.raises(NotRegistered, match=r"join with --component FILE.py:Mine"):
        read_server_plan(text, DeviceOptions())
    with pytest.raises(ConfigError, match="it was run"):
        read_server_plan(text, DeviceOptions(components=(f"{mine}:Mine",)))


@pytest.mark.parametrize(
    "old, new, code",
    [
        ('kind = "uniform-ratio"', 'kind = "{secret}:a b"', "not-registered"),
        ('kind = "uniform-ratio"', 'kind = "this:a b"', "not-registered"),
        ('drift = "none"', 'drift = {{kind = "table", path = "{secret}"}}', "not-registered"),
        ('sessions = "none"', 'sessions = {{kind = "trace", path = "{secret}"}}', "not-registered"),
        ('loss = "none"', 'loss = "{secret}:f"', "not-registered"),
        ("metrics = []", 'metrics = ["{secret}:f"]', "not-registered"),
        ('start_from = "none"', 'start_from = "{secret}"', "not-registered"),
        ('kind = "digits"', 'kind = "table"\npath = "{secret}"', "not-registered"),
        ('kind = "digits"', 'kind = "huggingface"\nname = "{secret}"', "not-registered"),
        ("capacity = 16", "capacity = 1000000000000", "too-large"),
        ("rounds = 3", "rounds = 9223372036854775807", "too-large"),
        ("capacity = 16", 'capacity = "{secret}"', "plan"),
    ],
)
def test_server_reads_no_file_of_the_device(
    old: str, new: str, code: str, home: Home, tmp_path: Path
) -> None:
    """The plan names a file of the device: nothing is opened, and the answer is a code."""
    secret = tmp_path / "secret.py"
    secret.write_text("password,raise SystemExit('it was run')\n")
    text = plan_to_toml(PLAN)
    assert old in text
    rejection_of(home.start(), invitation(plan=text.replace(old, new.format(secret=secret))), code)


@pytest.mark.parametrize("live", [False, True])
def test_rejection_discloses_nothing_about_the_data_of_the_owner(
    live: bool, home: Home, tmp_path: Path
) -> None:
    source = f"{tmp_path / 'my diary.csv'}?y=mood"
    daemon = home.start(data="replay" if live else source)
    reason = rejection_of(daemon, invitation(live=live), "data-mode")
    assert "--data replay" in reason if live else source in reason


def test_only_the_owner_chooses_the_file_of_a_replay(home: Home, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs.csv", tmp_path / "ours.csv"
    theirs.write_text("a,label\n" + "1,x\n2,y\n" * 20)
    ours.write_text("a,b,mood\n" + "1,1,x\n2,2,y\n" * 20)
    text = plan_to_toml(PLAN).replace('kind = "digits"', f'kind = "table"\npath = "{theirs}"')
    with pytest.raises(NotRegistered):
        read_server_plan(text, DeviceOptions())
    plan = read_server_plan(text, DeviceOptions(data=f"replay:{ours}?label=mood"))
    assert plan.scenario.data == Table(str(ours), label="mood")
    live = read_server_plan(text, DeviceOptions(data=f"{ours}?y=mood"), is_live=True)
    assert live.scenario.data == InMemory("the data of this device")


def test_internal_error_is_returned_as_a_response(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = home.start()
    join_run(daemon)

    def broken(self: ReplayClient, letter: bytes) -> bytes:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(ReplayClient, "handle", broken)
    said = daemon.handle(make_request(0))
    assert said == Frame("rejected", reason="internal")
    assert "out of luck" in capsys.readouterr().err


@pytest.mark.parametrize("at", range(5))  # open, write, sync, replace, sync of the folder
def test_full_disk_while_joining_is_one_line_and_another_attempt_succeeds(
    at: int, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = home.start()
    with using(FailingSystem(at, errno.ENOSPC)):
        assert "the disk is full" in rejection_of(daemon, invitation(), "state")
    assert "Traceback" not in capsys.readouterr().err
    daemon = home.start()
    assert join_run(daemon).client == 2
    assert daemon.handle(make_request(0)).kind == "request"
    assert stat.S_IMODE((home.folder / INVITATION_FILE).stat().st_mode) == 0o600
