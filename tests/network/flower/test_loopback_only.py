"""Only this machine can reach the control API of the SuperLink; nodes reach the fleet API."""

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from thalweg.network.flower import loopback_only
from thalweg.network.flower.loopback_only import BodyLimit, LoopbackOnly, Scope, is_allowed


def request(path: str, peer: str | None, here: str = "192.168.1.4") -> Scope:
    client = None if peer is None else (peer, 40000)
    return {"type": "http", "path": path, "client": client, "server": (here, 8470)}


@pytest.mark.parametrize(
    ("path", "peer", "is_open"),
    [
        ("/v1/fleet/pull-messages", "192.168.1.9", True),  # a node
        ("/v1/control/start-run", "192.168.1.9", False),  # starting a program on this machine
        ("/v1/runtime/acquire-task", "192.168.1.9", False),
        ("/v1/fleet/../control/start-run", "127.0.0.1", True),
        ("/docs", "192.168.1.9", False),
        ("/v1/control/start-run", "127.0.0.1", True),
        ("/v1/control/start-run", "::1", True),
        ("/v1/control/start-run", "::ffff:127.0.0.1", True),
        ("/v1/control/start-run", "::ffff:192.168.1.9", False),
        ("/v1/control/start-run", "192.168.1.4", True),  # another address of this machine
        ("/v1/control/start-run", None, False),
    ],
)
def test_other_machines_can_only_use_the_fleet_api(
    path: str, peer: str | None, is_open: bool
) -> None:
    assert is_allowed(request(path, peer)) is is_open


def test_path_with_parent_folders_is_rejected_for_other_machines() -> None:
    assert not is_allowed(request("/v1/fleet/../control/start-run", "192.168.1.9"))


@pytest.mark.parametrize(("peer", "status"), [("192.168.1.9", 403), ("127.0.0.1", 200)])
def test_rejected_request_gets_403_and_does_not_reach_the_app(peer: str, status: int) -> None:
    sent: list[int] = []

    async def app(scope: Scope, receive: object, send: object) -> None:
        sent.append(200)

    async def send(message: dict[str, int]) -> None:
        if "status" in message:
            sent.append(message["status"])

    asyncio.run(LoopbackOnly(app)(request("/v1/control/start-run", peer), None, send))  # type: ignore[arg-type]
    assert sent == [status]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Flower's own
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_middleware_protects_the_superlink_of_flower(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.superlink import extensions
    from flwr.superlink.main import create_app

    from thalweg.network.flower.loopback_only import install_middleware

    # pytest restores the function after the test
    monkeypatch.setattr(extensions, "get_middleware", extensions.get_middleware)
    install_middleware()
    app = create_app()

    def status(path: str, peer: str, headers: Any = ()) -> int:
        found: list[int] = []

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, int]) -> None:
            if "status" in message:
                found.append(message["status"])

        scope = request(path, peer)
        scope |= {"method": "POST", "query_string": b"", "scheme": "https"}
        scope["headers"] = list(headers)
        scope |= {"http_version": "1.1", "root_path": "", "raw_path": path.encode(), "state": {}}
        asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
        return found[0]

    for path in ("/v1/control/start-run", "/v1/control/list-runs", "/v1/runtime/acquire-task"):
        assert status(path, "192.168.1.9") == 403
        assert status(path, "127.0.0.1") not in (403, 404), "this machine can use it"
    assert status("/v1/fleet/activate-node", "192.168.1.9") not in (403, 404)
    large = [(b"content-length", b"300000000")]
    assert status("/v1/fleet/activate-node", "192.168.1.9", large) == 413


class Sender:
    """Sends a body in parts, and records what the app receives and what is answered."""

    def __init__(self, *parts: bytes, length: int | None = None) -> None:
        self.parts, self.received, self.statuses = list(parts), list[bytes](), list[int]()
        self.num_read = 0
        self.scope = request("/v1/fleet/push-object", "192.168.1.9")
        self.scope["headers"] = [] if length is None else [(b"content-length", b"%d" % length)]

    async def receive(self) -> dict[str, Any]:
        if self.num_read == len(self.parts):
            return {"type": "http.disconnect"}
        self.num_read += 1
        part, is_last = self.parts[self.num_read - 1], self.num_read == len(self.parts)
        return {"type": "http.request", "body": part, "more_body": not is_last}

    async def app(self, scope: Scope, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        message = await receive()
        assert not message["more_body"]
        self.received.append(message["body"])
        assert (await receive())["type"] == "http.disconnect"

    async def send(self, message: Any) -> None:
        if "status" in message:
            self.statuses.append(message["status"])

    def run(self, **limits: Any) -> None:
        asyncio.run(BodyLimit(self.app, **limits)(self.scope, self.receive, self.send))


def test_body_within_the_limit_reaches_the_app() -> None:
    sender = Sender(b"abc", b"de", length=5)
    sender.run(max_bytes=5)
    assert sender.received == [b"abcde"]
    assert sender.statuses == []


def test_declared_length_above_the_limit_is_rejected_before_anything_is_read() -> None:
    sender = Sender(b"abc", length=6)
    sender.run(max_bytes=5)
    assert (sender.statuses, sender.received, sender.num_read) == ([413], [], 0)


def test_streamed_body_is_rejected_as_soon_as_it_exceeds_the_limit() -> None:
    sender = Sender(*[b"abc"] * 100)
    sender.run(max_bytes=5)
    assert (sender.statuses, sender.received, sender.num_read) == ([413], [], 2)


def test_false_declared_length_does_not_raise_the_limit() -> None:
    sender = Sender(*[b"abc"] * 100, length=1)
    sender.run(max_bytes=5)
    assert sender.statuses == [413]


def test_slow_body_is_rejected() -> None:
    sender = Sender(b"abc")

    async def receive() -> Any:
        await asyncio.sleep(60)

    sender.receive = receive  # type: ignore[method-assign]
    sender.run(timeout_s=0.01)
    assert (sender.statuses, sender.received) == ([408], [])


def test_disconnected_client_does_not_reach_the_app() -> None:
    sender = Sender()
    sender.run()
    assert sender.received == []


def test_bodies_that_are_received_at_the_same_time_have_a_common_limit() -> None:
    first, second, third = Sender(b"abcd", b"e"), Sender(b"abcd"), Sender(b"abcd")
    limit = BodyLimit(first.app, max_bytes=5, max_total=5)

    async def run() -> None:
        may_continue = asyncio.Event()
        receive = first.receive

        async def receive_slowly() -> Any:
            if first.num_read == 1:
                await may_continue.wait()
            return await receive()

        task = asyncio.create_task(limit(first.scope, receive_slowly, first.send))
        await asyncio.sleep(0)
        await limit(second.scope, second.receive, second.send)
        may_continue.set()
        await task
        await limit(third.scope, third.receive, third.send)

    asyncio.run(run())
    assert second.statuses == [503]
    assert first.received == [b"abcde", b"abcd"], "the third has space again"


def test_bodies_count_until_the_app_has_answered() -> None:
    """The app checks keys after it has received the body."""
    first, second, third = Sender(b"abcde"), Sender(b"abcd"), Sender(b"abcd")

    async def run() -> None:
        may_answer = asyncio.Event()

        async def slow_app(scope: Scope, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
            await first.app(scope, receive, send)
            await may_answer.wait()

        limit = BodyLimit(slow_app, max_bytes=5, max_total=5)
        task = asyncio.create_task(limit(first.scope, first.receive, first.send))
        while not first.received:
            await asyncio.sleep(0)
        other = asyncio.create_task(limit(second.scope, second.receive, second.send))
        for _ in range(100):
            await asyncio.sleep(0)
        may_answer.set()
        await asyncio.gather(task, other)
        await limit(third.scope, third.receive, third.send)

    asyncio.run(run())
    assert (first.statuses, second.statuses, third.statuses) == ([], [503], [])
    assert first.received == [b"abcde", b"abcd"]


def test_space_is_free_again_after_an_error_of_the_app() -> None:
    sender, other = Sender(b"abcde"), Sender(b"abcde")

    async def broken_app(scope: Scope, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        await receive()
        raise ValueError("broken")

    limit = BodyLimit(broken_app, max_bytes=5, max_total=5)
    for each in (sender, other):
        with pytest.raises(ValueError, match="broken"):
            asyncio.run(limit(each.scope, each.receive, each.send))
    assert other.statuses == []


def test_body_in_single_bytes_needs_little_more_memory_than_its_size() -> None:
    """A list of 200,000 parts would need more than 10 MB."""
    sender = Sender(*[bytes([each % 256]) for each in range(200_000)])
    tracemalloc.start()
    try:
        sender.run()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(sender.received[0]) == 200_000
    assert peak < 1_500_000


def test_limit_allows_a_chunk_of_flower() -> None:
    from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE

    assert 2 * FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE < loopback_only.MAX_BODY_BYTES < 1 << 25
