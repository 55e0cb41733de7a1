"""What Flower starts on a device for every message: it hands the letter to the daemon and brings the answer back.

A process of its own each time, so it imports next to nothing. Everything a client has is in the daemon
(`thalweg.network.edge`), whose socket the node's configuration names.
"""

from __future__ import annotations

import time

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from thalweg.network.edge.socket import Frame, Unreachable, send_request
from thalweg.network.flower.envelope import pack, unpack

SOCKET = "thalweg-socket"  # of the node's configuration
DAEMON_UNREACHABLE = 64  # Flower's own codes are small
RESTART_S = 60.0  # that a daemon may take to be back after it was killed
RETRY_INTERVAL_S = 0.5

app = ClientApp()


@app.train()
@app.query()
def relay(message: Message, context: Context) -> Message:
    """One letter to the daemon and back, for as long as anybody waits for it."""
    path = context.node_config.get(SOCKET)
    if not isinstance(path, str):
        reason = f"this node's configuration names no {SOCKET}; start it with thalweg join."
        return Message(Error(DAEMON_UNREACHABLE, reason), reply_to=message)
    ends_at = message.metadata.created_at + message.metadata.ttl
    try:
        said = _ask_with_retries(path, unpack(message), ends_at)
    except Unreachable as error:
        return Message(Error(DAEMON_UNREACHABLE, str(error)), reply_to=message)
    return Message(pack(said), reply_to=message)


def _ask_with_retries(path: str, frame: Frame, ends_at: float) -> Frame:
    """Once more if the daemon was killed meanwhile: it does nothing twice, and nothing by half."""
    failing_since = None
    while True:
        left_s = max(ends_at - time.time(), 1.0)
        try:
            return send_request(path, frame.kind, frame.payload, left_s)
        except Unreachable:
            now = time.time()
            failing_since = failing_since or now
            if now + RETRY_INTERVAL_S > min(failing_since + RESTART_S, ends_at):
                raise
            time.sleep(RETRY_INTERVAL_S)
