"""``python -m thalweg.network.flower.runner``: passes messages between a SuperNode and the daemon.

A SuperNode normally starts a process for each message, which runs the program that came with the
run. With ``--isolation process`` it leaves this to an external process, which is this one: there is
no start-up time per message, and no code from the network runs on the device. It uses internal
interfaces of Flower and therefore supports one version only (`check_flower_version`).
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

from thalweg.core.errors import require
from thalweg.network.flower.timing import PollInterval

MIN_POLL_S, MAX_POLL_S = 0.05, 0.5  # between two polls for a message
VERSION = "1.41."  # supported version of Flower
SECRET_BYTES = 32


def check_flower_version(
    otherwise: str = "a device would run code that the server sends",
) -> None:
    """Reject other versions of Flower than the supported one.

    Without this process, the SuperNode would run the program that came with the run.
    """
    version = metadata.version("flwr")
    require(
        version.startswith(VERSION),
        f"expected Flower {VERSION}x, got {version}: with another version, {otherwise}. Install it "
        "with pip install 'thalweg[flower]'.",
    )


def write_secret(path: Path) -> None:
    """Write the secret that authenticates the runner, so that other local users get no messages."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(os.urandom(SECRET_BYTES).hex())


def main(arguments: Sequence[str] | None = None) -> int:
    """Pass messages until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser("python -m thalweg.network.flower.runner", description=__doc__)
    parser.add_argument("--runtime-api-address", required=True, help="the SuperNode's host:port")
    parser.add_argument("--superexec-auth-secret-file", type=Path, help="as given to the SuperNode")
    options = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    secret = options.superexec_auth_secret_file
    run(options.runtime_api_address, None if secret is None else secret.read_bytes())
    return 0


def run(address: str, secret: bytes | None) -> None:
    """Process all tasks of the SuperNode. If a task fails, its message is lost.

    Each task has a thread, because Flower waits for hours for a message whose content is missing.
    This happens if a run ends while the SuperNode receives a message. The daemon still gets one
    message at a time.
    """
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.constant import TaskType
    from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor

    method = frozenset({"/flwr.proto.Runtime/AcquireTask"})
    interceptors = (
        []
        if secret is None
        else [SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=method)]
    )
    client = _make_client(address, "SuperExec", *interceptors)
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    daemon_lock, interval = threading.Lock(), PollInterval(MIN_POLL_S, MAX_POLL_S)
    while True:
        task = client.AcquireTask(request)
        if not task.token:
            time.sleep(interval.next_s())
            continue
        interval.reset()
        threading.Thread(
            target=_relay_safely, args=(address, task.token, daemon_lock), daemon=True
        ).start()


def _relay_safely(address: str, token: str, daemon_lock: threading.Lock) -> None:
    try:
        relay_task(address, token, daemon_lock)
    except Exception:
        traceback.print_exc()


def relay_task(address: str, token: str, daemon_lock: threading.Lock) -> None:
    """Pass one message to the daemon and send its response, as Flower's own process would."""
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
    heartbeat = HeartbeatSender(lambda: _send_heartbeat(client))
    heartbeat.start()
    try:
        message, context, _, _ = pull_task_input(client)
        with daemon_lock:
            response = relay(message, context)
        push_message(client, response, context)
        push_task_output(client, context, SubStatus.COMPLETED, "")
    finally:
        heartbeat.stop()
        client.close()


def _send_heartbeat(client: Any) -> bool:
    """Send a heartbeat while the daemon trains. Flower's own would exit when the task is over."""
    import httpx
    from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest

    try:
        client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
    except httpx.TransportError:
        return False
    except httpx.HTTPStatusError:
        pass  # the task is over
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
