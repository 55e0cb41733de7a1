"""A Flower grid without processes: nodes are daemons in this process that can fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import Error, Message
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from thalweg.network.edge.daemon import Daemon
from thalweg.network.edge.device_client import DeviceOptions
from thalweg.network.edge.socket import Frame
from thalweg.network.edge.store import Store
from thalweg.network.flower.messenger import pack, unpack

Fate = Callable[[int, Frame], str]  # what happens to a message to a node


class Device:
    """A state folder and the daemon that uses it."""

    def __init__(
        self, folder: Path, wish: int | None = None, options: DeviceOptions | None = None
    ) -> None:
        self.folder, self.wish, self.options = folder, wish, options or DeviceOptions()
        self.handled: list[str] = []  # kinds of the frames
        self.start()

    def start(self) -> None:
        self.store = Store.open(self.folder)
        self.daemon = Daemon(self.store, self.options, self.wish)

    def stop(self) -> None:
        self.daemon.close()
        self.store.close()

    def handle(self, frame: Frame) -> Frame:
        self.handled.append(frame.kind)
        return self.daemon.handle(frame)


class FakeGrid(Grid):
    """Answers each message at once, unless `fate` returns something other than "arrives".

    arrives   the device receives the message, and its response comes back
    lost      the device does not receive the message
    dropped   the device handles the message, but its response is lost
    late      the response can be pulled after `release_late`
    error     Flower answers with an error
    """

    def __init__(self, devices: dict[int, Device], fate: Fate | None = None) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        self.devices, self.fate = devices, fate or (lambda node, frame: "arrives")
        self._numbers = itertools.count()
        self._back: dict[str, Message] = {}
        self._late: dict[str, Message] = {}

    def get_node_ids(self) -> list[int]:
        return list(self.devices)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return [self._push_message(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._back.pop(each) for each in list(message_ids) if each in self._back]

    def release_late(self) -> None:
        """Make late responses available to `pull_messages`."""
        self._back |= self._late
        self._late = {}

    def _push_message(self, message: Message) -> str:
        message_id = f"message {next(self._numbers)}"
        message.metadata.__dict__["_message_id"] = message_id
        node, frame = message.metadata.dst_node_id, unpack(message)
        fate = self.fate(node, frame)
        if fate == "error" or node not in self.devices:
            self._back[message_id] = Message(Error(5, "Node Unavailable"), reply_to=message)
        elif fate != "lost":
            response = Message(pack(self.devices[node].handle(frame)), reply_to=message)
            if fate == "late":
                self._late[message_id] = response
            elif fate == "arrives":
                self._back[message_id] = response
        return message_id

    # --- unused parts of the interface ---

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *args: Any, **kwargs: Any) -> Iterable[Message]:
        raise NotImplementedError


@contextmanager
def devices_in(
    folder: Path, number: int, options: DeviceOptions | None = None
) -> Iterator[dict[int, Device]]:
    """Create devices at nodes 100, 101, ... The server assigns their client numbers."""
    devices = {100 + n: Device(folder / f"device{n}", None, options) for n in range(number)}
    all_devices = list(devices.values())
    try:
        yield devices
    finally:
        for device in all_devices:
            device.stop()
