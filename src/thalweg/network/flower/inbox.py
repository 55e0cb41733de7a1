"""Receives responses through a grid without waiting for one that has arrived in part.

A SuperNode announces a response and then uploads its objects, the message itself last. Flower's
`pull_messages` returns a response once, and waits until all of its objects have arrived: three
minutes if the sender has died, in which the server would do nothing else. `HttpInbox` remembers the
responses that were announced, and leaves those that are incomplete for the next call. It uses
internal interfaces of Flower and therefore supports one version only (`check_flower_version`).

The sender determines how many objects a response has, and how often an array repeats one of them.
`HttpInbox` therefore limits the bytes that it receives, and those of the decoded arrays.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from flwr.app import Array, Message

from thalweg.network.flower.runner import check_flower_version

if TYPE_CHECKING:
    from flwr.serverapp import Grid  # not needed by clients, and slow to import
    from flwr.superlink.grid import HttpGrid

OVERHEAD_BYTES = 1 << 20  # of a response: names, headers and ids
DISCARDED = "it stopped sending its response, which Flower has discarded"
INVALID = "its response is not a message of Flower"
TOO_LARGE = "its response is larger than a message of this run can be"


class ResponseInbox(Protocol):
    """Returns new responses to some messages, each with the id of its message.

    A text instead of a response is the reason why there will be none.
    """

    def pull(self, message_ids: Collection[str]) -> list[tuple[str, Message | str]]: ...


def open_inbox(grid: Grid, max_bytes: int) -> ResponseInbox:
    """Return the inbox of a grid for responses with payloads of at most `max_bytes`."""
    check_flower_version("the server could not receive responses")
    from flwr.superlink.grid import HttpGrid

    limit = max_bytes + OVERHEAD_BYTES
    return HttpInbox(grid, limit) if isinstance(grid, HttpGrid) else LocalInbox(grid)


class LocalInbox:
    """For a grid in this process, where responses are always complete."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def pull(self, message_ids: Collection[str]) -> list[tuple[str, Message | str]]:
        responses = self._grid.pull_messages(list(message_ids))
        return [(response.metadata.reply_to_message_id, response) for response in responses]


class Incomplete(Exception):
    """An object of a response has not arrived."""


class ResponseTooLarge(Exception):
    """The objects of a response have too many bytes."""


@dataclass
class Announced:
    """A response that was announced: the ids of its objects, and the contents received so far."""

    response_id: str
    object_ids: list[str]  # the message itself is the first: it is uploaded last
    contents: dict[str, bytes] = field(default_factory=dict)
    num_bytes: int = 0  # of the contents
    lock: threading.Lock = field(default_factory=threading.Lock)  # objects are pulled by threads

    def add(self, object_id: str, content: bytes, max_bytes: int) -> bool:
        """Add a content; return whether all of them have at most `max_bytes`."""
        with self.lock:
            if object_id not in self.contents:
                self.num_bytes += len(content)
                if self.num_bytes <= max_bytes:
                    self.contents[object_id] = content
            return self.num_bytes <= max_bytes


class HttpInbox:
    """For the grid of a SuperLink. It forgets responses to messages that `pull` does not name."""

    def __init__(self, grid: HttpGrid, max_bytes: int) -> None:
        self._grid, self._max_bytes = grid, max_bytes
        self._announced: dict[str, Announced] = {}  # by the message that it responds to

    def pull(self, message_ids: Collection[str]) -> list[tuple[str, Message | str]]:
        from flwr.supercore.inflatable.inflatable_utils import ObjectPullError

        for message_id in self._announced.keys() - set(message_ids):
            self._delete(self._announced.pop(message_id))
        self._pull_announcements([each for each in message_ids if each not in self._announced])
        responses: list[tuple[str, Message | str]] = []
        for message_id, announced in list(self._announced.items()):
            try:
                self._pull_objects(announced)
            except Incomplete:
                continue
            except ObjectPullError:
                responses.append((message_id, DISCARDED))
            except ResponseTooLarge:
                self._delete(announced)
                responses.append((message_id, TOO_LARGE))
            else:
                self._delete(announced)
                responses.append((message_id, self._inflate(announced)))
            del self._announced[message_id]
        return responses

    def _pull_announcements(self, message_ids: list[str]) -> None:
        from flwr.proto.runtime_pb2 import PullAppMessagesRequest
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

        if not message_ids:
            return
        request = PullAppMessagesRequest(message_ids=message_ids)
        found = self._grid._runtime_client.PullMessages(request)
        for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            object_ids = [each.object_id for each in iterate_object_tree(tree)]
            self._announced[message.metadata.reply_to_message_id] = Announced(
                message.metadata.message_id, object_ids[::-1]
            )

    def _pull_objects(self, announced: Announced) -> None:
        """Pull the objects that have arrived.

        Raise `Incomplete` if one has not, and `ResponseTooLarge` if they have too many bytes.
        """
        from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
        from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError, pull_objects

        pull_object = make_pull_object_fn_protobuf(
            self._grid._runtime_client.PullObject, self._grid.node, self._grid.run.run_id
        )

        def pull(object_id: str) -> bytes:
            try:
                content = pull_object(object_id)
            except ObjectUnavailableError:
                raise Incomplete from None  # otherwise Flower would wait
            if not announced.add(object_id, content, self._max_bytes):
                raise ResponseTooLarge
            return b""

        first, *others = announced.object_ids
        for object_ids in ([first], others):
            pull_objects([each for each in object_ids if each not in announced.contents], pull)

    def _delete(self, announced: Announced) -> None:
        """Delete a response at the SuperLink."""
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest

        self._grid._runtime_client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(
                node=self._grid.node,
                run_id=self._grid.run.run_id,
                message_object_id=announced.response_id,
            )
        )

    def _inflate(self, announced: Announced) -> Message | str:
        """Decode a complete response; the contents are the sender's and may be anything."""
        from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

        try:
            if _count_array_bytes(announced.contents) > self._max_bytes:
                return TOO_LARGE
            response = inflate_object_from_contents(announced.response_id, announced.contents)
        except Exception:  # of any class, from each decoder of Flower
            return INVALID
        return response if isinstance(response, Message) else INVALID


def _count_array_bytes(contents: Mapping[str, bytes]) -> int:
    """Return the size of all decoded arrays, which can repeat each of their parts."""
    from flwr.supercore.inflatable.inflatable_object import (
        get_object_body,
        get_object_head_values_from_object_content,
    )

    count = 0
    for content in contents.values():
        kind, parts, _ = get_object_head_values_from_object_content(content)
        if kind == Array.__qualname__:
            numbers = json.loads(get_object_body(content, Array))["arraychunk_ids"]
            count += sum(len(contents[parts[number]]) for number in numbers)
    return count
