"""A client with data of its own: what it does when it is asked, and what it keeps in between."""

from __future__ import annotations

import hashlib
import math
import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.errors import Diverged, require
from thalweg.core.talk import Talks
from thalweg.core.types import Floats32, Ints
from thalweg.edge.blank import Blank
from thalweg.edge.inbox import Inbox
from thalweg.edge.live_stream import LiveStream
from thalweg.edge.store import Store
from thalweg.engine.node import Node
from thalweg.engine.plan import Plan
from thalweg.engine.remote import NodeState, RemoteNode
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import one_thread
from thalweg.nets import Net
from thalweg.recipes.client import Clients
from thalweg.recipes.keeping import Keeping
from thalweg.recipes.messages import Order, Reply
from thalweg.recipes.wire import Terms, from_bytes, to_bytes
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


def sizes_of(capacity: int | None, queue: int | None) -> LiveSizes:
    """What a device has room for, as its owner says; a short queue is offered in short batches.

    >>> sizes_of(None, 16).batch, sizes_of(None, None).batch
    (8, 32)
    """
    if queue is None:
        return LiveSizes(capacity)
    return LiveSizes(capacity, queue, max(min(LiveSizes.batch, queue // 2), 1))


class LiveNode:
    """One client, whose data are in an inbox, and whose state is in a store. Any thread may ask it something."""

    def __init__(
        self, store: Store, plan: Plan, client: int, blank: Blank, sizes: LiveSizes | None = None
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
        self.inbox = Inbox(store, blank, capacity, self.sizes.queue)
        self.net: Net = scenario.net.build(blank.input_shape, blank.num_classes)
        data = blank.around(self.inbox.slots.x, self.inbox.labels)
        stream = LiveStream(
            self.inbox, scenario.ticks, blank.num_classes, capacity, scenario.rounds
        )
        clients = Clients(
            recipe, stream, self.inbox.labels, plan.local, plan.seed, self.net.num_params
        )
        trainer = SingleTrainer(
            self.net, recipe.objective, plan.local, data, recipe.mirror, scenario.augment
        )
        self._prequential = scenario.prequential
        self._remote = RemoteNode(
            Node(clients, client, trainer, scenario.prequential, is_secret=True),
            Terms(recipe, self.net.num_params),
        )
        self._model: Floats32 | None = None  # the last one received, by this process
        stored = store.state()
        self.state = self._remote.newborn() if stored is None else self._remote.restored(stored)
        self.inbox.check_holds(self.state.client.lived, self.state.client.rows)

    def close(self) -> None:
        self.inbox.close()

    @property
    def terms(self) -> Terms:
        return self._remote.terms

    @property
    def absorbs(self) -> bool:
        """Can the memory policy do its work between rounds?

        Not if it looks at the model or goes by what the server tells it: then samples wait for the next order,
        which brings both.
        """
        clients = self._remote.node.clients
        return clients.looking is None and not isinstance(clients.recipe.memory, Talks)

    def hello(self) -> bytes:
        return self._remote.hello()

    def handle(self, payload: bytes) -> bytes:
        """Carry out an order or answer a question: once, however often it comes.

        What it led to is on the disk before the reply is returned. What is refused has changed nothing.
        """
        digest = hashlib.sha256(payload).hexdigest()
        with self._turn:
            reply = self._store.reply(digest)
            if reply is not None:
                return reply
            errand = self._remote.read(payload)
            self.inbox.mark(self.state.client.lived)
            state, reply = self._remote.carry_out(self.state, errand)
            news: dict[str, Any] = {}
            if isinstance(errand, Order) and not errand.rehearsal:
                main = self._main(errand)
                reply, news = self._with_tests(errand, reply, main)
                self._model = errand.params[main].copy()
            self._keep(state, digest=digest, reply=reply, rnd=errand.rnd, **news)
            return reply

    def absorb(self) -> bool:
        """Let the memory policy have what has come, without a round; true if there was a batch of it.

        One more lived round for the client. The last model that it has received predicts some of the samples
        before anybody learns from them. Not while a round is being played: receiving need not wait for that.
        """
        if not self._turn.acquire(blocking=False):
            return False
        try:
            return self._absorb()
        finally:
            self._turn.release()

    # --- inside ---

    def _absorb(self) -> bool:
        node, before = self._remote.node, self.state.client
        marked = self.inbox.marked(before.lived)
        if not self.absorbs or self.inbox.num_new + len(marked) < self.sizes.batch:
            return False
        self.inbox.mark(before.lived)
        tested, correct = self._tested(self.inbox.marked(before.lived)[: self._prequential])
        keeping = Keeping(node.clients, node.client, before, max(self.state.trained, 0))
        for _ in range(node.clients.stream.ticks):
            keeping.meet()
            keeping.take_in()
        counts = self.inbox.counts
        news = {"tested": counts.tested + tested, "correct": counts.correct + correct}
        self._keep(self.state._replace(client=keeping.leave()), **news)
        return True

    def _keep(self, state: NodeState, **news: Any) -> None:
        client = state.client
        self.inbox.commit(self._remote.stored(state), client.lived, client.rows, **news)
        self.state = state

    def _with_tests(self, order: Order, payload: bytes, main: int) -> tuple[bytes, dict[str, Any]]:
        """The reply, with what was predicted between rounds, and what is to be counted."""
        counts = self.inbox.counts
        news = {"rounds": counts.rounds + 1, "last_round": order.rnd}
        try:
            reply = from_bytes(payload, self.terms, Reply)
        except Diverged:  # the server shall hear of it as it is
            return payload, {**news, "last_loss": None}
        if counts.tested:
            is_main = np.arange(len(reply.models)) == main
            reply = replace(
                reply,
                num_tested=reply.num_tested + is_main * counts.tested,
                num_correct=reply.num_correct + is_main * counts.correct,
            )
            payload = to_bytes(reply, self.terms)
        loss = float(reply.losses[main])
        last_loss = loss if math.isfinite(loss) else None
        return payload, {**news, "tested": 0, "correct": 0, "last_loss": last_loss}

    @one_thread()
    def _tested(self, rows: Ints) -> tuple[int, int]:
        if self._model is None:
            return 0, 0
        node = self._remote.node
        predicted, _ = node.trainer.predict(self._model, "train", rows)
        return len(rows), int((predicted == self.inbox.labels[rows]).sum())

    def _main(self, order: Order) -> int:
        """The place of the model that predicts for this client, as the round began."""
        bank = self._remote.node.clients.dividing
        return 0 if bank is None else bank.main(self.state.client.division, order.models)
