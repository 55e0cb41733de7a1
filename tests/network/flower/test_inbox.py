"""Responses that have arrived in part do not stop the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.run import Run
from flwr.superlink.grid import HttpGrid

from network.flower import dying_node
from network.flower.faults import events_of
from network.flower.loopback import Loopback
from network.flower.runs import prepare_run, tiny_plan
from network.flower.test_client_app import message
from thalweg.core.errors import ConfigError
from thalweg.engine.run_folder import RunFolder
from thalweg.network.edge.socket import Frame
from thalweg.network.flower import runner
from thalweg.network.flower.inbox import DISCARDED, INVALID, OVERHEAD_BYTES, TOO_LARGE
from thalweg.network.flower.messenger import GridMessenger, pack

RUN, MAX_BYTES = 7, 1000


class FakeLink:
    """The part of a SuperLink that receives responses and passes them on, each of them once."""

    def __init__(self) -> None:
        self.announced: list[Any] = []  # not yet passed on
        self.objects: dict[str, bytes] = {}  # empty: not uploaded
        self.pulled: list[str] = []
        self.confirmed: list[str] = []

    def announce(self, message_id: str, payload: bytes) -> dict[str, bytes]:
        """Announce a response, and return its objects in the order of their upload."""
        request = message(pack(Frame("request")))
        request.metadata.__dict__["_message_id"] = message_id
        response = Message(pack(Frame("request", payload)), reply_to=request)
        response.metadata.__dict__["_message_id"] = response.object_id
        self.announced.append((message_to_proto(response), get_object_tree(response)))
        objects = {
            each: found.deflate() for each, found in get_all_nested_objects(response).items()
        }
        self.objects |= dict.fromkeys(objects, b"")
        return objects

    def PullMessages(self, request: Any) -> PullAppMessagesResponse:  # noqa: N802
        assert len(request.message_ids) > 0
        found, self.announced = self.announced, []
        return PullAppMessagesResponse(
            messages_list=[each for each, _ in found],
            message_object_trees=[tree for _, tree in found],
        )

    def PullObject(self, request: Any) -> PullObjectResponse:  # noqa: N802
        assert request.run_id == RUN
        self.pulled.append(request.object_id)
        content = self.objects.get(request.object_id)
        return PullObjectResponse(
            object_found=content is not None,
            object_available=bool(content),
            object_content=content or b"",
        )

    def ConfirmMessageReceived(self, request: Any) -> None:  # noqa: N802
        self.confirmed.append(request.message_object_id)


class Server:
    """A messenger with a Flower grid whose SuperLink is a fake."""

    def __init__(self, *message_ids: str) -> None:
        self.link = FakeLink()
        grid = HttpGrid(token="a token")
        grid._client = self.link  # type: ignore[assignment]
        grid.set_run(Run.create_empty(RUN))
        self.messenger = GridMessenger(grid, MAX_BYTES)
        self.messenger._until = dict.fromkeys(message_ids, float("inf"))

    def collect(self) -> dict[str, bytes | str]:
        """Return payloads and reasons by message."""
        return {
            message_id: frame.reason if frame.kind == "lost" else frame.payload
            for message_id, frame in self.messenger.collect()
        }


def test_incomplete_response_is_left_for_later_and_does_not_delay_others() -> None:
    server = Server("a", "b")
    slow = server.link.announce("a", b"slow")
    server.link.objects |= server.link.announce("b", b"fast")
    assert server.collect() == {"b": b"fast"}
    *parts, last = slow
    for part in parts:
        server.link.objects[part] = slow[part]
        assert server.collect() == {}
    server.link.objects[last] = slow[last]
    assert server.collect() == {"a": b"slow"}
    assert server.link.confirmed[1:] == [last]
    assert not server.messenger.is_pending("a")
    assert server.collect() == {}


def test_no_object_is_received_twice() -> None:
    """Also not if a client uploads the message itself first, and one part never."""
    server = Server("a")
    objects = server.link.announce("a", b"payload")
    missing, *others = objects
    server.link.objects |= {each: objects[each] for each in others}
    for _ in range(20):
        assert server.collect() == {}
    assert {server.link.pulled.count(each) for each in others} == {1}
    server.link.objects[missing] = objects[missing]
    assert server.collect() == {"a": b"payload"}


def test_response_that_flower_discards_is_lost() -> None:
    server = Server("a")
    server.link.announce("a", b"payload")
    assert server.collect() == {}
    server.link.objects.clear()
    assert server.collect() == {"a": DISCARDED}


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_incomplete_response_is_deleted_after_its_deadline(is_forgotten: bool) -> None:
    server = Server("a")
    objects = server.link.announce("a", b"payload")
    assert server.collect() == {}
    if is_forgotten:
        server.messenger.forget("a")
    else:
        server.messenger._until["a"] = 0.0
        assert server.collect() == {}
    server.link.objects |= objects
    assert server.collect() == {}
    assert server.link.confirmed == [list(objects)[-1]]


def test_response_that_is_no_message_is_lost() -> None:
    """The sender chooses the objects: here a message without its content, or another object."""
    server = Server("a", "b")
    for message_id in ("a", "b"):
        server.link.objects |= server.link.announce(message_id, b"payload")
    (_, tree), (_, other) = server.link.announced
    del tree.children[:]
    server.link.announced[1][0].metadata.message_id = other.children[0].object_id
    assert server.collect() == {"a": INVALID, "b": INVALID}


@pytest.mark.parametrize(
    "size, is_accepted", [(MAX_BYTES, True), (MAX_BYTES + OVERHEAD_BYTES, False)]
)
def test_response_that_is_too_large_is_lost(size: int, is_accepted: bool) -> None:
    server = Server("a")
    objects = server.link.announce("a", bytes(size))
    server.link.objects |= objects
    assert server.collect() == {"a": bytes(size) if is_accepted else TOO_LARGE}
    assert server.link.confirmed == [list(objects)[-1]]


def test_array_that_repeats_its_parts_is_lost_before_it_is_decoded() -> None:
    """The sender uploads about 1000 bytes, of which the array would have 1000 copies and more."""
    server = Server("a")
    server.link.objects |= server.link.announce("a", bytes(1000))
    for object_id, content in server.link.objects.items():
        count = OVERHEAD_BYTES // 1000 + 1
        repeated = b"[" + b", ".join([b"0"] * count) + b"]"
        server.link.objects[object_id] = content.replace(b"[0]", repeated)
    assert server.collect() == {"a": TOO_LARGE}


def test_other_version_of_flower_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner.metadata, "version", lambda name: "1.42.0")
    with pytest.raises(ConfigError, match=r"got 1\.42\.0: .* could not receive responses"):
        Server()


class OneDies(Loopback):
    def may_end(self, name: str, code: int) -> bool:
        return name in ("node1", "runner1")


@pytest.mark.slow
def test_client_that_dies_while_it_sends_its_response_is_absent_after_the_deadline(
    tmp_path: Path,
) -> None:
    """The fourth response of client 1, after two of the handshake, is that of round 2."""
    plan = tiny_plan("fedavg", "digits-partial", 4, "world.num_clients=2", "world.availability=1")
    run = prepare_run(tmp_path / "run", plan, min_clients=1, deadline_s=15)
    deployment = OneDies(tmp_path / "deployment")
    try:
        deployment.start_link()
        deployment.start_device(0)
        deployment.start_daemon(1)
        deployment.start_node(1, program=(dying_node.__file__, "4"))
        deployment.submit(run)
        deployment.await_finish(run, 4)
    finally:
        deployment.end()
    assert [event["client"] for event in events_of(run, "late")] == [1]
    assert [row["cohort"] for row in RunFolder(run).metrics()] == [2, 1, 1, 1]
