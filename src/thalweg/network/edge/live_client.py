"""A device in a federation: a source of samples, a client, and a state folder."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from thalweg.core.files import write_file
from thalweg.engine.plan import Plan
from thalweg.nets import Net
from thalweg.network.edge.collector import Collector
from thalweg.network.edge.live_node import LiveNode, LiveSizes
from thalweg.network.edge.schema import DataSchema
from thalweg.network.edge.store import Store
from thalweg.network.sources import Source
from thalweg.network.wire import MessageSchema, Request

STATUS_EVERY = 1.0  # seconds


class LiveClient:
    """The interface for the daemon: start, hello, handle, status, close. Thread-safe."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        client: int,
        schema: DataSchema,
        source: Source,
        sizes: LiveSizes | None = None,
        now: Callable[[], float] = time.monotonic,
        mask_identity: Any = None,
        charge: Callable[[Request], None] = lambda request: None,
    ) -> None:
        """The store must be open and is not closed here; `close` closes the source."""
        self._store, self._source, self._now = store, source, now
        self.node = LiveNode(store, plan, client, schema, sizes, mask_identity, charge)
        self.collector = Collector(
            source, self.node.inbox, self.node.ingest, self.node.sizes.backlog, self._write_status
        )
        self._status_lock = threading.Lock()
        self._last_status = float("-inf")

    @property
    def message_schema(self) -> MessageSchema:
        return self.node.message_schema

    @property
    def net(self) -> Net:
        return self.node.net

    def start(self) -> None:
        """Start reading the source at its last position."""
        self.collector.start()

    def close(self) -> None:
        """Stop reading. All received samples are on disk; the store can be closed afterwards."""
        is_quiet = self.collector.stop()
        self._write_status(at_once=True)
        if is_quiet:  # else a thread may still write to the file
            self.node.close()

    def hello(self) -> bytes:
        """The message with which it joins."""
        return self.node.hello()

    def handle(self, payload: bytes) -> bytes:
        """Handle a request; a `BadMessage` has changed nothing."""
        response = self.node.handle(payload)
        self._write_status()
        return response

    def status(self) -> dict[str, Any]:
        """Counters of the samples, and the current problem, if any."""
        inbox, source = self.node.inbox, self._source
        counts = asdict(inbox.counts)
        counts["rejected"] += source.rejected
        return {
            **counts,
            "kept": len(self.node.state.client.rows),
            "inbox": inbox.num_new,
            "waiting": inbox.num_waiting,
            "last_rejection": source.last_rejection,
            "trouble": self.collector.trouble,
            "has_ended": self.collector.has_ended,
        }

    def _write_status(self, at_once: bool = False) -> None:
        """Write the status file at intervals; it is informational and may be missing."""
        with self._status_lock:
            if not at_once and self._now() < self._last_status + STATUS_EVERY:
                return
            self._last_status = self._now()
            status = json.dumps(self.status()) + "\n"
            with suppress(OSError):
                write_file(self._store.folder / "status.json", status.encode())
