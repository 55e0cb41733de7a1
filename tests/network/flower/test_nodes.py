"""The server assigns client numbers to nodes that join, return, or use a copied state folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from network.flower.fake_grid import Device, FakeGrid
from network.flower.runs import tiny_plan
from thalweg.core.errors import RunError
from thalweg.core.files import seal
from thalweg.engine.plan import plan_to_toml
from thalweg.network.edge.device_client import DeviceOptions
from thalweg.network.edge.socket import Frame
from thalweg.network.flower import nodes as module
from thalweg.network.flower.node_keys import NodeKeys
from thalweg.network.flower.nodes import Nodes
from thalweg.network.flower.registry import ClientRegistry
from thalweg.network.handshake import Invitation
from thalweg.network.rejections import RejectionCode
from thalweg.network.wire import MessageSchema

PLAN = tiny_plan("fedavg", "digits-partial", 3)
SCHEMA = MessageSchema(PLAN.recipe, 4810)
INVITATION = Invitation("0" * 32, 0, plan_to_toml(PLAN), (1, 8, 8), 10, 4810, live=False)


class Server:
    """The nodes of a server and the events that it emits."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.events = folder, list[Any]()
        self.fates: dict[int, str] = {}
        self.grid = FakeGrid({}, lambda node, frame: self.fates.get(node, "arrives"))
        self.devices: list[Device] = []
        self.restart()

    def restart(self, node_keys: Path | None = None) -> None:
        self.registry = ClientRegistry(self.folder, 5, node_keys)
        self.nodes = Nodes(self.grid, self.registry, SCHEMA, self._invite, self.events.append)

    def connect(
        self,
        node: int,
        name: str = "",
        requested: int | None = None,
        options: DeviceOptions | None = None,
    ) -> Device:
        device = Device(self.folder / (name or f"device{node}"), requested, options)
        self.grid.devices[node] = device
        self.devices.append(device)
        return device

    def poll(self, times: int = 4) -> dict[int, int]:
        for _ in range(times):
            self.nodes.poll()
        return self.nodes.present

    def reasons(self, event: str) -> list[str]:
        return [each["reason"] for each in self.events if each["event"] == event]

    def _invite(self, run: str, client: int) -> Invitation:
        return replace(INVITATION, run=run, client=client)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    monkeypatch.setattr(module, "MAX_RETRY_S", 0.0)
    server = Server(tmp_path)
    yield server
    for device in server.devices:
        device.stop()


def test_clients_get_the_requested_number_or_the_lowest_free_one(server: Server) -> None:
    server.connect(100, requested=1)
    server.connect(101)
    server.connect(102)
    assert server.poll() == {1: 100, 0: 101, 2: 102}
    assert [event["event"] for event in server.events] == ["joined"] * 3


def test_nodes_can_join_later_and_disconnect(server: Server) -> None:
    server.connect(100)
    assert server.poll() == {0: 100}
    server.connect(101)
    assert server.poll() == {0: 100, 1: 101}
    del server.grid.devices[100]
    assert server.poll() == {1: 101}
    assert server.events[-1] == {"event": "gone", "client": 0, "node": "100"}


def test_joined_node_is_invited_once(server: Server) -> None:
    device = server.connect(100)
    server.poll(10)
    assert device.handled == ["identity", "invitation"]


def test_client_keeps_its_number_under_another_node_id(server: Server) -> None:
    server.connect(100)
    server.connect(101).stop()
    server.devices.pop()
    del server.grid.devices[101]
    first = server.connect(102)
    assert server.poll() == {0: 100, 1: 102}
    del server.grid.devices[102]
    first.stop()
    server.devices.remove(first)
    server.connect(103, name="device102")
    assert server.poll() == {0: 100, 1: 103}


def test_restarted_server_keeps_client_numbers(server: Server) -> None:
    server.connect(100, requested=3)
    server.connect(101)
    assert server.poll() == {3: 100, 0: 101}
    run = server.registry.run
    server.restart()
    assert server.registry.run == run
    assert server.poll() == {3: 100, 0: 101}


def test_client_of_another_run_is_rejected_with_a_reason(server: Server, tmp_path: Path) -> None:
    device = server.connect(100)
    server.poll()
    run = server.registry.run
    (tmp_path / "clients.json").unlink()
    server.restart()
    assert server.poll(2) == {}
    for run_id in (run, server.registry.run):
        assert run_id in server.reasons("rejected")[0]
    assert device.daemon.rejection_reason is not None
    assert "belongs to another run" in device.daemon.rejection_reason


def test_taken_or_too_large_client_number_is_rejected(server: Server) -> None:
    server.connect(100, requested=1)
    server.poll()
    other, far = server.connect(101, requested=1), server.connect(102, requested=5)
    assert server.poll(2) == {1: 100}
    assert server.reasons("rejected") == [
        "this client requests number 1, but another client has it.",
        "this client requests number 5, but the run has 5 clients, counted from 0.",
    ]
    for device in (other, far):
        assert "requests a number that is not free" in str(device.daemon.rejection_reason)


def test_clients_beyond_the_size_of_the_run_are_rejected(server: Server) -> None:
    for node in range(100, 106):
        server.connect(node)
    assert sorted(server.poll(3)) == [0, 1, 2, 3, 4]
    assert "has 5 clients, and all of them have joined already" in server.reasons("rejected")[0]


def test_number_of_a_client_that_rejects_its_first_invitation_is_free(server: Server) -> None:
    server.connect(100, options=DeviceOptions(model="other.py:model"))
    assert server.poll(3) == {}
    assert server.nodes.rejected == {RejectionCode.MODEL: 1}
    assert server.registry.entries == {}
    del server.grid.devices[100]
    server.connect(101)
    server.connect(102)
    assert server.poll() == {0: 101, 1: 102}
    assert [event["event"] for event in server.events] == ["rejected", "joined", "joined"]


def test_client_that_has_joined_keeps_its_number_when_it_rejects_an_invitation(
    server: Server,
) -> None:
    server.connect(100)
    assert server.poll() == {0: 100}
    server.devices.pop().stop()
    server.connect(100, options=DeviceOptions(model="other.py:model"))
    server.nodes.recheck(0)
    assert server.poll() == {}
    assert server.nodes.rejected == {RejectionCode.MODEL: 1}
    server.connect(101)
    assert server.poll() == {1: 101}


def test_client_whose_acceptance_was_lost_keeps_its_number(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state folder has the number, although the server does not know that it accepted."""
    monkeypatch.setattr(module, "RESPONSE_TIMEOUT_S", 1e-9)
    device = server.connect(100)
    server.grid.fate = lambda node, frame: "dropped" if frame.kind == "invitation" else "arrives"
    server.poll()
    assert "invitation" in device.handled
    device.stop()
    server.devices.remove(device)
    server.grid.fate = lambda node, frame: "arrives"
    monkeypatch.setattr(module, "RESPONSE_TIMEOUT_S", 60.0)
    server.connect(100, options=DeviceOptions(model="other.py:model"))
    assert server.poll() == {}
    assert server.nodes.rejected == {RejectionCode.MODEL: 1}
    server.connect(101)
    assert server.poll() == {1: 101}


def test_rejected_nodes_are_counted_by_code_until_they_join(server: Server) -> None:
    server.connect(100, requested=1)
    server.poll()
    for node, requested in ((101, 1), (102, 5), (103, None)):
        server.connect(node, requested=requested)
    server.fates[103] = "error"
    server.poll(8)
    assert server.nodes.rejected == {RejectionCode.CLIENT_NUMBER: 2}, "each node once"
    assert server.nodes.num_failing == 1, "the node that Flower cannot reach"
    del server.grid.devices[101]
    server.connect(102, name="another")
    server.fates.clear()
    assert server.poll(8) == {1: 100, 0: 102, 2: 103}
    assert server.nodes.rejected == {RejectionCode.CLIENT_NUMBER: 1}, "the disconnected node"
    assert server.nodes.num_failing == 0


def test_copied_state_folder_is_rejected_after_the_stale_node_timeout(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = server.connect(100)
    assert server.poll() == {0: 100}
    server.grid.devices[101] = device  # the same identity at another node
    assert server.poll() == {0: 100}
    assert server.reasons("retry") == ["client 0 is still connected as node 100"]
    assert device.daemon.rejection_reason is None, (
        "the first node may be stale, so no client is rejected yet"
    )
    monkeypatch.setattr(module, "STALE_NODE_S", 0.0)
    server.poll(2)
    assert "in use at two nodes, 100 and 101; was it copied?" in server.reasons("rejected")[0]
    assert server.nodes.present == {0: 100}


def test_returning_client_joins_after_its_old_node_disconnects(server: Server) -> None:
    device = server.connect(100)
    server.poll()
    server.grid.devices[101] = device
    server.poll()
    del server.grid.devices[100]
    assert server.poll() == {0: 101}


@pytest.mark.parametrize("fate", ["error", "lost"])
def test_node_without_response_is_retried(
    fate: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESPONSE_TIMEOUT_S", 1e-9)
    server.connect(100)
    server.fates[100] = fate
    assert server.poll() == {}
    reasons = {"error": "Node Unavailable", "lost": "it does not respond"}
    assert server.reasons("retry") == [reasons[fate]], "once, not with every poll"
    server.fates.clear()
    monkeypatch.setattr(module, "RESPONSE_TIMEOUT_S", 60.0)
    assert server.poll() == {0: 100}


def test_recheck_finds_another_client_at_a_node(server: Server) -> None:
    old = server.connect(100)
    server.poll()
    new = server.connect(100, name="another")
    server.nodes.recheck(0)
    assert server.poll() == {0: 100}, "a node has one number"
    assert len(server.registry.entries) == 1
    assert (old.handled, new.handled) == (["identity", "invitation"], ["identity", "invitation"])


def test_device_with_a_lost_state_folder_keeps_its_number_only_at_the_same_node(
    server: Server,
) -> None:
    """Flower gives a device the same node id as before if it joins with the same key."""
    server.connect(100)
    server.connect(101)
    assert server.poll() == {0: 100, 1: 101}
    for node in (100, 101):
        del server.grid.devices[node]
    assert server.poll() == {}
    server.connect(100, name="new-folder-same-key")
    server.connect(102, name="new-folder-without-key")
    assert server.poll() == {0: 100, 2: 102}
    numbers = sorted(entry.number for entry in server.registry.entries.values())
    assert numbers == [0, 1, 2], "number 1 remains in use"


def test_invalid_identity_response_is_rejected(server: Server) -> None:
    device = server.connect(100)
    device.daemon.handle = lambda frame: Frame("identity", b"hello!")  # type: ignore[method-assign]
    assert server.poll() == {}
    assert "6 bytes are not a tree of Thalweg" in server.reasons("rejected")[0]


def test_client_registry_is_private_and_has_a_checksum(tmp_path: Path) -> None:
    ClientRegistry(tmp_path, 3).record("a" * 32, 1, 7)
    file = tmp_path / "clients.json"
    assert file.stat().st_mode & 0o777 == 0o600, "identities identify clients to the server"
    file.write_text(file.read_text().replace('"number": 1', '"number": 2'))
    with pytest.raises(RunError, match="is damaged: its checksum does not match"):
        ClientRegistry(tmp_path, 3)


def test_identity_belongs_to_the_key_with_which_it_joined(server: Server, tmp_path: Path) -> None:
    """An identity is no secret of its own: another registered node cannot use it."""
    keys = NodeKeys(tmp_path / "node_keys.json")
    for node in (100, 101, 102):
        keys.add(node, f"key of {node}")
    server.restart(tmp_path / "node_keys.json")
    device = server.connect(100)
    server.connect(102)
    assert server.poll() == {0: 100, 1: 102}
    del server.grid.devices[100]
    server.poll()
    server.grid.devices[101] = device  # a copy of the state folder, with another key
    assert server.poll() == {1: 102}
    assert "client 0 joined with another key than that of node 101" in server.reasons("rejected")[0]
    server.restart(tmp_path / "node_keys.json")
    assert server.poll() == {1: 102}, "also after a restart"
    entries = server.registry.entries[device.store.identity]
    assert (entries.number, entries.node, entries.key) == (0, 100, "key of 100")


def test_new_state_folder_with_the_same_key_keeps_the_number(
    server: Server, tmp_path: Path
) -> None:
    NodeKeys(tmp_path / "node_keys.json").add(100, "key of 100")
    server.restart(tmp_path / "node_keys.json")
    server.connect(100, requested=3)
    assert server.poll() == {3: 100}
    server.connect(100, name="new")
    server.nodes.recheck(3)
    assert server.poll() == {3: 100}


def test_damaged_client_registry_is_reported(tmp_path: Path) -> None:
    registry = ClientRegistry(tmp_path, 3)
    registry.record("a" * 32, 0, 7)
    assert ClientRegistry(tmp_path, 3).entries == registry.entries
    for text in ("", "[]", '{"run": "x", "clients": {}}', '{"run": 3}'):
        (tmp_path / "clients.json").write_text(text)
        with pytest.raises(RunError, match="is damaged"):
            ClientRegistry(tmp_path, 3)
    two = {"a" * 32: {"number": 1, "node": 2, "key": ""}}
    two["b" * 32] = {"number": 1, "node": 3, "key": ""}
    (tmp_path / "clients.json").write_bytes(seal({"run": "c" * 32, "clients": two}))
    with pytest.raises(RunError, match="two clients have the same number"):
        ClientRegistry(tmp_path, 3)


def test_late_client_is_asked_at_once_and_after_repeated_late_rounds_later(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    server.connect(100)
    assert server.poll() == {0: 100}
    server.nodes.recheck_late(0)
    assert server.nodes.present == {}
    assert server.poll() == {0: 100}, "the first time at once"
    for delay in (60.0, 120.0, 240.0):
        server.nodes.recheck_late(0)
        now[0] += delay - 1
        assert server.poll() == {}
        now[0] += 1
        assert server.poll() == {0: 100}
    server.nodes.record_response(0)
    server.nodes.recheck_late(0)
    assert server.poll() == {0: 100}, "a response ends the delays"
    server.nodes.recheck_late(0)
    assert server.poll() == {}
    server.nodes.recall_late()  # a round lacks clients
    assert server.poll() == {0: 100}
