"""A client with data of its own: what it does when it is asked, and what it keeps in between."""

from __future__ import annotations

import hashlib
import math
import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thalweg.core.capabilities import ServerHalf
from thalweg.core.config import check_ranges
from thalweg.core.errors import Diverged, require
from thalweg.core.types import Floats32, Ints
from thalweg.engine.node import Node
from thalweg.engine.plan import Plan
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import one_thread
from thalweg.federation import ClientContext, ClientProgram, Ingest, TrainRequest, TrainResponse
from thalweg.nets import Net
from thalweg.network.edge.inbox import Inbox
from thalweg.network.edge.live_stream import LiveStream
from thalweg.network.edge.schema import DataSchema
from thalweg.network.edge.store import Store
from thalweg.network.remote_node import NodeState, RemoteNode
from thalweg.network.wire import MessageSchema, from_bytes, to_bytes
from thalweg.streams import Live


@dataclass(frozen=True)
class LiveSizes:
    """How much a device holds, and how much may wait."""

    capacity: int | None = None
    """Samples in memory; none: as the scenario says."""
    queue: int = 256
    """Samples that may be on the disk beside those in memory, half of them without a label."""
    batch: int = 32
    """So many new samples are offered to the memory policy between rounds; fewer wait for the next round."""
    backlog: int = 1024
    """Samples that have been read from the source and are on their way to the disk."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            capacity="[1, inf) or none",
            queue="[2, inf)",
            batch="[1, inf)",
            backlog="[1, inf)",
        )
        require(
            self.batch <= self.queue // 2,
            f"batch must be at most half of queue, so that it can fill up: got batch={self.batch}, "
            f"queue={self.queue}.",
        )


def choose_sizes(capacity: int | None, queue: int | None) -> LiveSizes:
    """What a device has room for, as its owner says; a short queue is offered in short batches.

    >>> choose_sizes(None, 16).batch, choose_sizes(None, None).batch
    (8, 32)
    """
    if queue is None:
        return LiveSizes(capacity)
    return LiveSizes(capacity, queue, max(min(LiveSizes.batch, queue // 2), 1))


class LiveNode:
    """One client, whose data are in an inbox, and whose state is in a store. Any thread may ask it something."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        client: int,
        schema: DataSchema,
        sizes: LiveSizes | None = None,
    ) -> None:
        scenario, recipe = plan.scenario, plan.recipe
        require(
            isinstance(scenario.world, Live),
            f"this client brings its own data, but the plan's world is {type(scenario.world).__name__}, which says "
            "what arrives; serve it with --live (world=live).",
        )
        require(
            scenario.drift is None,
            f"drift={type(scenario.drift).__name__} changes data of a scenario, but this client has its own; "
            "leave it out (--set drift=none).",
        )
        self.sizes = sizes or LiveSizes()
        capacity = self.sizes.capacity or scenario.capacity
        self._store, self._turn = store, threading.RLock()
        self.inbox = Inbox(store, schema, capacity, self.sizes.queue)
        self.net: Net = scenario.net.build(schema.input_shape, schema.num_classes)
        data = schema.make_dataset(self.inbox.slots.x, self.inbox.labels)
        stream = LiveStream(
            self.inbox, scenario.ticks, schema.num_classes, capacity, scenario.rounds
        )
        clients = ClientProgram(
            recipe, stream, self.inbox.labels, plan.local, plan.seed, self.net.num_params
        )
        trainer = SingleTrainer.from_plan(plan, self.net, data)
        self._prequential = scenario.prequential
        self._remote = RemoteNode(
            Node(clients, client, trainer, scenario.prequential, has_secret_noise=True),
            MessageSchema(recipe, self.net.num_params),
        )
        self._model: Floats32 | None = None  # the last one received, by this process
        stored = store.state()
        self.state = (
            self._remote.new_client() if stored is None else self._remote.restore_state(stored)
        )
        self.inbox.check_rows(self.state.client.lived, self.state.client.rows)

    def close(self) -> None:
        self.inbox.close()

    @property
    def terms(self) -> MessageSchema:
        return self._remote.schema

    @property
    def can_ingest(self) -> bool:
        """Can the memory policy do its work between rounds?

        Not if it looks at the model or goes by what the server tells it: then samples wait for the next order,
        which brings both.
        """
        clients = self._remote.node.clients
        return clients.memory_with_probe is None and not isinstance(
            clients.recipe.memory, ServerHalf
        )

    def hello(self) -> bytes:
        return self._remote.hello()

    def handle(self, payload: bytes) -> bytes:
        """Carry out an order or answer a question: once, however often it comes.

        What it led to is on the disk before the reply is returned. What is refused has changed nothing.
        """
        digest = hashlib.sha256(payload).hexdigest()
        with self._turn:
            response = self._store.find_response(digest)
            if response is not None:
                return response
            request = self._remote.read_request(payload)
            self.inbox.mark(self.state.client.lived)
            state, response = self._remote.execute(self.state, request)
            new_counts: dict[str, Any] = {}
            if isinstance(request, TrainRequest) and not request.probe_round:
                main = self._main_model(request)
                response, new_counts = self._add_test_counts(request, response, main)
                self._model = request.params[main].copy()
            self._commit(state, digest=digest, response=response, rnd=request.rnd, **new_counts)
            return response

    def ingest(self) -> bool:
        """Let the memory policy have what has come, without a round; true if there was a batch of it.

        One more lived round for the client. The last model that it has received predicts some of the samples
        before anybody learns from them. Not while a round is being played: receiving need not wait for that.
        """
        if not self._turn.acquire(blocking=False):
            return False
        try:
            return self._ingest()
        finally:
            self._turn.release()

    # --- inside ---

    def _ingest(self) -> bool:
        node, before = self._remote.node, self.state.client
        marked_slots = self.inbox.marked_slots(before.lived)
        if not self.can_ingest or self.inbox.num_new + len(marked_slots) < self.sizes.batch:
            return False
        self.inbox.mark(before.lived)
        tested, correct = self._test_rows(
            self.inbox.marked_slots(before.lived)[: self._prequential]
        )
        ctx = ClientContext(node.clients, node.client, max(self.state.last_round, 0))
        keeping = Ingest(ctx, before)
        for _ in range(node.clients.stream.ticks):
            keeping.identify_state()
            keeping.update_memory()
        counts = self.inbox.counts
        new_counts = {"tested": counts.tested + tested, "correct": counts.correct + correct}
        self._commit(self.state._replace(client=keeping.finish()), **new_counts)
        return True

    def _commit(self, state: NodeState, **new_counts: Any) -> None:
        client = state.client
        self.inbox.commit(
            self._remote.serialize_state(state), client.lived, client.rows, **new_counts
        )
        self.state = state

    def _add_test_counts(
        self, request: TrainRequest, payload: bytes, main: int
    ) -> tuple[bytes, dict[str, Any]]:
        """The reply, with what was predicted between rounds, and what is to be counted."""
        counts = self.inbox.counts
        new_counts = {"rounds": counts.rounds + 1, "last_round": request.rnd}
        try:
            response = from_bytes(payload, self.terms, TrainResponse)
        except Diverged:  # the server shall hear of it as it is
            return payload, {**new_counts, "last_loss": None}
        if counts.tested:
            is_main = np.arange(len(response.models)) == main
            response = replace(
                response,
                num_tested=response.num_tested + is_main * counts.tested,
                num_correct=response.num_correct + is_main * counts.correct,
            )
            payload = to_bytes(response, self.terms)
        loss = float(response.losses[main])
        last_loss = loss if math.isfinite(loss) else None
        return payload, {**new_counts, "tested": 0, "correct": 0, "last_loss": last_loss}

    @one_thread()
    def _test_rows(self, rows: Ints) -> tuple[int, int]:
        if self._model is None:
            return 0, 0
        node = self._remote.node
        predicted, _ = node.trainer.predict(self._model, "train", rows)
        return len(rows), int((predicted == self.inbox.labels[rows]).sum())

    def _main_model(self, request: TrainRequest) -> int:
        """The place of the model that predicts for this client, as the round began."""
        bank = self._remote.node.clients.bank_with_split
        return 0 if bank is None else bank.main_model(self.state.client.split, request.models)
