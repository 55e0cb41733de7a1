"""Only this machine can reach the control API of the SuperLink; nodes reach the fleet API."""

import asyncio

import pytest

from thalweg.network.flower.loopback_only import LoopbackOnly, Scope, is_allowed


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

    def status(path: str, peer: str) -> int:
        found: list[int] = []

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, int]) -> None:
            if "status" in message:
                found.append(message["status"])

        scope = request(path, peer)
        scope |= {"method": "POST", "headers": [], "query_string": b"", "scheme": "https"}
        scope |= {"http_version": "1.1", "root_path": "", "raw_path": path.encode(), "state": {}}
        asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
        return found[0]

    for path in ("/v1/control/start-run", "/v1/control/list-runs", "/v1/runtime/acquire-task"):
        assert status(path, "192.168.1.9") == 403
        assert status(path, "127.0.0.1") not in (403, 404), "this machine can use it"
    assert status("/v1/fleet/activate-node", "192.168.1.9") not in (403, 404)
