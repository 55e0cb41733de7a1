"""The ClientApp: forwards each message to the daemon on the device, and returns its response.

Flower may start a process for each message, so this imports little. The client itself runs in the
daemon (`thalweg.network.edge`), whose socket is in the node's configuration.
"""

from __future__ import annotations

import sys
import time

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from thalweg.network.edge.socket import Frame, Unreachable, send_request
from thalweg.network.flower.messenger import pack, unpack

SOCKET = "thalweg-socket"  # key of the node's configuration
DAEMON_UNREACHABLE = 64  # error code; Flower's own are smaller
NOT_RUNNING = "the daemon of this client does not answer"
RESTART_S = 60.0  # time for a killed daemon to restart
RETRY_INTERVAL_S = 0.5
MAX_WAIT_S = 1e7  # for a response, whatever lifetime the server gives the message

app = ClientApp()


@app.train()
@app.query()
def relay(message: Message, context: Context) -> Message:
    """Forward a message to the daemon, and retry until the message expires."""
    path = context.node_config.get(SOCKET)
    if not isinstance(path, str):
        reason = f"this node's configuration has no {SOCKET}; start it with thalweg join."
        return Message(Error(DAEMON_UNREACHABLE, reason), reply_to=message)
    ends_at = message.metadata.created_at + message.metadata.ttl
    try:
        response = _send_with_retries(path, unpack(message), ends_at)
    except Unreachable as error:
        print(error, file=sys.stderr, flush=True)  # the server gets no paths of this machine
        return Message(Error(DAEMON_UNREACHABLE, NOT_RUNNING), reply_to=message)
    return Message(pack(response), reply_to=message)


def _send_with_retries(path: str, frame: Frame, ends_at: float) -> Frame:
    """Send again if the daemon was killed; it executes a repeated request only once."""
    failing_since = None
    while True:
        left_s = min(max(1.0, ends_at - time.time()), MAX_WAIT_S)
        try:
            return send_request(path, frame.kind, frame.payload, left_s)
        except Unreachable:
            now = time.time()
            failing_since = failing_since or now
            if now + RETRY_INTERVAL_S > min(failing_since + RESTART_S, ends_at):
                raise
            time.sleep(RETRY_INTERVAL_S)
