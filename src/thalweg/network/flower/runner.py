"""``python -m thalweg.network.flower.runner``: takes a SuperNode's messages to the daemon, in one process that stays.

A SuperNode starts a process for every message, and in it the program that came with the run. With
``--isolation process`` it leaves that to others, which is us: no start-up for every message, and no code from the
network is run on the device. This speaks to Flower's insides, so it is for the one version that it was written for
(`is_supported`); with another, let the SuperNode do it its own way.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any

from thalweg.network.flower.timing import PollInterval

MIN_POLL_S, MAX_POLL_S = 0.05, 0.5  # between two looks for a message
VERSION = "1.41."  # of Flower
SECRET_BYTES = 32


def is_supported() -> bool:
    """Is this Flower the one whose insides we know?"""
    try:
        return metadata.version("flwr").startswith(VERSION)
    except metadata.PackageNotFoundError:
        return False


def write_secret(path: Path) -> None:
    """A secret by which a SuperNode knows its runner: others on this machine may not take its messages."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(os.urandom(SECRET_BYTES).hex())


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry messages until a signal comes."""
    parser = argparse.ArgumentParser("python -m thalweg.network.flower.runner", description=__doc__)
    parser.add_argument("--runtime-api-address", required=True, help="the SuperNode's host:port")
    parser.add_argument("--superexec-auth-secret-file", type=Path, help="as given to the SuperNode")
    said = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    secret = said.superexec_auth_secret_file
    run(said.runtime_api_address, None if secret is None else secret.read_bytes())
    return 0


def run(address: str, secret: bytes | None) -> None:
    """Take every task that there is. A task that fails is one message that is lost.

    Each has a thread, because a message whose bytes have got lost is waited for by Flower, for hours: such a task
    is left behind when a run ends while the SuperNode receives it. Letters still go to the daemon in turn.
    """
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.constant import TaskType
    from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor

    method = frozenset({"/flwr.proto.Runtime/AcquireTask"})
    guards = (
        []
        if secret is None
        else [SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=method)]
    )
    client = _make_client(address, "SuperExec", *guards)
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    turn, pauses = threading.Lock(), PollInterval(MIN_POLL_S, MAX_POLL_S)
    while True:
        task = client.AcquireTask(request)
        if not task.token:
            time.sleep(pauses.next_s())
            continue
        pauses.reset()
        threading.Thread(
            target=_relay_safely, args=(address, task.token, turn), daemon=True
        ).start()


def _relay_safely(address: str, token: str, turn: threading.Lock) -> None:
    try:
        relay_task(address, token, turn)
    except Exception:
        traceback.print_exc()


def relay_task(address: str, token: str, turn: threading.Lock) -> None:
    """One message to the daemon and back, as Flower's own process for it would."""
    from flwr.common.constant import SubStatus
    from flwr.supercore.heartbeat import HeartbeatSender
    from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
    from flwr.supernode.runtime.run_clientapp import (
        pull_task_input,
        push_message,
        push_task_output,
    )

    from thalweg.network.flower.client_app import relay

    client = _make_client(address, "flwr-clientapp", RuntimeTokenHttpInterceptor(token))
    heart = HeartbeatSender(lambda: _send_heartbeat(client))
    heart.start()
    try:
        message, context, _, _ = pull_task_input(client)
        with turn:
            reply = relay(message, context)
        push_message(client, reply, context)
        push_task_output(client, context, SubStatus.COMPLETED, "")
    finally:
        heart.stop()
        client.close()


def _send_heartbeat(client: Any) -> bool:
    """A sign of life while the daemon trains. Flower's own would end this process when a task is over."""
    import httpx
    from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest

    try:
        client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
    except httpx.TransportError:
        return False
    except httpx.HTTPStatusError:
        pass  # nobody waits for this task any more
    return True


def _make_client(address: str, name: str, *interceptors: Any) -> Any:
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.retry import make_simple_http_retry_invoker
    from flwr.supercore.runtime import RuntimeHttpClient

    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,  # the SuperNode's own port, on loopback
        root_certificates=None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name=name), *interceptors],
        retry_invoker=make_simple_http_retry_invoker(),
    )


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
