"""Start `thalweg serve` and `thalweg join` as users do, and kill any process below them."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt

from network.flower.faults import SampleFeed
from network.flower.loopback import LIMIT_S, Loopback, await_true

PARTS = {  # by a word of the command
    "SuperLink": "flower/loopback_only.py",
    "SuperExec": "flower-superexec",
    "ServerApp": "flwr-serverapp",
    "daemon": "thalweg.network.edge",
    "SuperNode": "supernode|quick_node",
    "runner": "thalweg.network.flower.runner",
}
GUARD = "network/flower/guard.py"  # parent of each part, with the command of the part as arguments


class CliProcesses(Loopback):
    """The CLI commands. They restart the processes below them that die."""

    def serve(self, run: Path, *options: str) -> None:
        command = (sys.executable, "-m", "thalweg", "serve", *options)
        self.start("serve", *command, "--port", str(self.port), "--out", str(run), "--json")

    def join(self, number: int, source: str) -> None:
        state = ("--state", str(self.state(number)), "--client", str(number), "--json")
        command = (sys.executable, "-m", "thalweg", "join", f"127.0.0.1:{self.port}")
        self.start(f"join{number}", *command, "--data", source, *state)

    def may_end(self, name: str, code: int) -> bool:
        return (name, code) == ("serve", 0)  # after the last round

    def state(self, number: int) -> Path:
        return self.folder / f"state{number}"

    def send_signal(self, command: str, part: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to one part of a command as soon as it is running."""
        found: list[int] = []

        def is_running() -> bool:
            found[:] = [
                pid for pid, name in descendants(self.processes[command].pid) if name == part
            ]
            return bool(found)

        await_true(is_running, LIMIT_S, lambda: f"{part} of {command} is running")
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def end(self) -> None:
        """Kill the commands and wait until all processes below them have ended."""
        left = [pid for process in self.processes.values() for pid, _ in descendants(process.pid)]
        super().end()
        await_true(
            lambda: not any(process_part(pid) for pid in left),
            LIMIT_S,
            lambda: f"processes have ended: {[process_part(pid) for pid in left]}",
        )

    def status(self, number: int) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((self.state(number) / "status.json").read_text())
            return found
        return {}


def descendants(root: int) -> list[tuple[int, str]]:
    """Return the ids of all processes below a process, with the part that each one is."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            words = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(words[1])
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return [(pid, part) for pid in family - {root} if (part := process_part(pid))]


def process_part(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
    if GUARD in command:
        return ""
    for part, words in PARTS.items():
        if any(word in command for word in words.split("|")):
            return part
    return ""


class Publisher:
    """Sends samples to a broker and sends unconfirmed samples again after a reconnect."""

    def __init__(self, port: int) -> None:
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="publisher")
        self._client.reconnect_delay_set(1, 1)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def publish(self, supply: SampleFeed, number: int) -> None:
        for message in supply.messages(number):
            self._client.publish(f"samples/{supply.client}", json.dumps(message), qos=1)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
