"""What Flower starts on a device for every message: it hands the letter to the daemon and brings the answer back.

A process of its own each time, so it imports next to nothing. Everything a client has is in the daemon
(`thalweg.edge`), whose socket the node's configuration names.
"""

from __future__ import annotations

import time

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from thalweg.edge.socket import Unreachable, ask
from thalweg.flower.envelope import packed, unpacked

SOCKET = "thalweg-socket"  # of the node's configuration
DAEMON_UNREACHABLE = 64  # Flower's own codes are small

app = ClientApp()


@app.train()
@app.query()
def carry(message: Message, context: Context) -> Message:
    """One letter to the daemon and back, for as long as anybody waits for it."""
    path = context.node_config.get(SOCKET)
    if not isinstance(path, str):
        reason = f"this node's configuration names no {SOCKET}; start it with thalweg join."
        return Message(Error(DAEMON_UNREACHABLE, reason), reply_to=message)
    parcel = unpacked(message)
    left_s = message.metadata.created_at + message.metadata.ttl - time.time()
    try:
        said = ask(path, parcel.kind, parcel.letter, max(left_s, 1.0))
    except Unreachable as error:
        return Message(Error(DAEMON_UNREACHABLE, str(error)), reply_to=message)
    return Message(packed(said), reply_to=message)
