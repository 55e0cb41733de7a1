"""Runs Flower's SuperLink; requests from other machines can reach only the interface for nodes.

``python -P loopback_only.py ARGUMENT ...`` is ``flower-superlink ARGUMENT ...``. A SuperLink serves
nodes (``/v1/fleet``), programs (``/v1/runtime``) and control commands (``/v1/control``) on one
port, and control commands need no account: any machine that reaches the port could run programs on
the server and on all its nodes. This middleware lets requests from other machines through only to
the interface for nodes, where keys are checked.

It uses ``flwr.superlink.extensions.get_middleware``, which is not a public interface; the version
of flwr is pinned, and a test checks that the middleware is effective.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

NODE_PATH_PREFIX = "/v1/fleet/"


class LoopbackOnly:
    """ASGI middleware that answers 403 to requests that only this machine may send."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or is_allowed(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send(
                {"type": "http.response.body", "body": b"only available on the server's machine\n"}
            )
        else:
            await send({"type": "websocket.close", "code": 1008})


def is_allowed(scope: Scope) -> bool:
    """Return whether a request is for the interface for nodes or comes from this machine."""
    path = str(scope.get("path", ""))
    if path.startswith(NODE_PATH_PREFIX) and ".." not in path:
        return True
    peer, server = scope.get("client"), scope.get("server")
    if not peer:
        return False
    return _is_loopback(peer[0]) or bool(server and peer[0] == server[0])


def _is_loopback(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    ipv4 = getattr(parsed, "ipv4_mapped", None)
    return bool((ipv4 or parsed).is_loopback)


def install_middleware() -> None:
    """Add the middleware to every SuperLink that is created in this process."""
    from flwr.superlink import extensions
    from starlette.middleware import Middleware

    original = extensions.get_middleware
    extensions.get_middleware = lambda: (Middleware(LoopbackOnly), *original())


def main() -> None:
    from flwr.superlink.cli import flower_superlink

    install_middleware()
    sys.argv[0] = "flower-superlink"
    flower_superlink()


if __name__ == "__main__":
    main()
