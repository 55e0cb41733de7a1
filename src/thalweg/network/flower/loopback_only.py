"""Runs Flower's SuperLink with limits on who may send what, before any key is checked.

``python -P loopback_only.py ARGUMENT ...`` is ``flower-superlink ARGUMENT ...``. A SuperLink serves
nodes (``/v1/fleet``), programs (``/v1/runtime``) and control commands (``/v1/control``) on one
port, and control commands need no account: any machine that reaches the port could run programs on
the server and on all its nodes. `LoopbackOnly` lets requests from other machines through only to
the interface for nodes, where keys are checked.

A SuperLink reads the body of a request into memory before it checks keys. `BodyLimit` rejects
bodies that are too large, too slow, or too many at a time. Flower sends large messages in chunks of
5 MB, one per request, so the limit does not depend on the size of the model.

This uses ``flwr.superlink.extensions.get_middleware``, which is not a public interface; the version
of flwr is pinned, and a test checks that the middleware is effective.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

NODE_PATH_PREFIX = "/v1/fleet/"
CHUNK_BYTES = int(os.environ.get("FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE", 5 << 20))  # Flower's setting
MAX_BODY_BYTES = 3 * CHUNK_BYTES + (1 << 20)  # of a request
MAX_TOTAL_BYTES = 16 * MAX_BODY_BYTES  # of all requests that are being received
BODY_TIMEOUT_S = 60.0  # for a whole body


class LoopbackOnly:
    """ASGI middleware that answers 403 to requests that only this machine may send."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or is_allowed(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await _answer(send, 403, b"only available on the server's machine\n")
        else:
            await send({"type": "websocket.close", "code": 1008})


class BodyLimit:
    """ASGI middleware that receives the body of a request within limits, and only then calls the
    app.

    It answers 413 to larger bodies, before they are in memory; 408 to bodies that are not complete
    in time; and 503 while too many bodies are in memory: the app checks keys after it has received
    a body, so that bodies count until the app has answered.
    """

    def __init__(
        self,
        app: App,
        max_bytes: int = MAX_BODY_BYTES,
        max_total: int = MAX_TOTAL_BYTES,
        timeout_s: float = BODY_TIMEOUT_S,
    ) -> None:
        self.app, self._max_bytes, self._max_total = app, max_bytes, max_total
        self._timeout_s, self._total = timeout_s, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = bytearray()  # of parts, each of which may be a single byte
        size = 0
        try:
            status = await self._receive_in_time(scope, receive, body)
            if status:
                text = b"the body of the request is too large, too slow, or one of too many\n"
                await _answer(send, status, text)
                return
            size = len(body)
            messages = [{"type": "http.request", "body": bytes(body), "more_body": False}]
            body.clear()

            async def receive_again() -> MutableMapping[str, Any]:
                return messages.pop() if messages else await receive()

            await self.app(scope, receive_again, send)
        finally:
            self._total -= max(size, len(body))

    async def _receive_in_time(self, scope: Scope, receive: Receive, body: bytearray) -> int:
        """Append the body to `body`; return a status code, 0 if it is complete."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._receive_body(scope, receive, body)
        except TimeoutError:
            return 408

    async def _receive_body(self, scope: Scope, receive: Receive, body: bytearray) -> int:
        if _content_length(scope) > self._max_bytes:
            return 413
        while True:
            message = await receive()
            if message["type"] != "http.request":  # the client has disconnected
                return 400
            part = message.get("body", b"")
            if len(body) + len(part) > self._max_bytes:
                return 413
            if self._total + len(part) > self._max_total:
                return 503
            self._total += len(part)
            body += part
            if not message.get("more_body", False):
                return 0


def _content_length(scope: Scope) -> int:
    """The declared length of the body; 0 if it is missing or invalid."""
    for name, value in scope.get("headers", ()):
        if name == b"content-length" and value.isdigit() and len(value) < 20:
            return int(value)
    return 0


async def _answer(send: Send, status: int, text: bytes) -> None:
    headers = [(b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


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
    """Add both to every SuperLink that is created in this process."""
    from flwr.superlink import extensions
    from starlette.middleware import Middleware

    original = extensions.get_middleware
    extensions.get_middleware = lambda: (
        Middleware(LoopbackOnly),
        Middleware(BodyLimit),
        *original(),
    )


def main() -> None:
    from flwr.superlink.cli import flower_superlink

    install_middleware()
    sys.argv[0] = "flower-superlink"
    flower_superlink()


if __name__ == "__main__":
    main()
