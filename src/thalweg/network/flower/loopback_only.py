"""Flower's SuperLink with a door in front of it: from outside only the way for nodes is open.

``python -P loopback_only.py ARGUMENT ...`` is ``flower-superlink ARGUMENT ...``. A SuperLink answers nodes (``/v1/fleet``),
programs (``/v1/runtime``) and those who command it (``/v1/control``) on one port, and asks the latter for no
account: whoever reaches the port could start a program of his own on the server and on all its nodes. Here a
request that comes from another machine is let through to the nodes' part alone, where keys are checked.

Rests on ``flwr.superlink.extensions.get_middleware``, which is no public interface: flwr is pinned, and a test
holds the door to its promise.
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
    """ASGI middleware: 403 for what only this machine may ask."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or is_allowed(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"from this machine only\n"})
        else:
            await send({"type": "websocket.close", "code": 1008})


def is_allowed(scope: Scope) -> bool:
    """Is it for nodes, or does it come from this machine?"""
    path = str(scope.get("path", ""))
    if path.startswith(NODE_PATH_PREFIX) and ".." not in path:
        return True
    peer, here = scope.get("client"), scope.get("server")
    if not peer:
        return False
    return _is_loopback(peer[0]) or bool(here and peer[0] == here[0])


def _is_loopback(address: str) -> bool:
    try:
        place = ipaddress.ip_address(address)
    except ValueError:
        return False
    inner = getattr(place, "ipv4_mapped", None)
    return bool((inner or place).is_loopback)


def install_middleware() -> None:
    """Put the door in front of every SuperLink that is made in this process."""
    from flwr.superlink import extensions
    from starlette.middleware import Middleware

    theirs = extensions.get_middleware
    extensions.get_middleware = lambda: (Middleware(LoopbackOnly), *theirs())


def main() -> None:
    from flwr.superlink.cli import flower_superlink

    install_middleware()
    sys.argv[0] = "flower-superlink"
    flower_superlink()


if __name__ == "__main__":
    main()
