"""A client with its own data: handles requests and updates its memory in between."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thalweg.core.capabilities import ServerPart
from thalweg.core.config import check_ranges
from thalweg.core.errors import Diverged, require
from thalweg.core.noise import SystemNoise
from thalweg.core.types import Floats32, Ints
from thalweg.engine.builders import check_own_positions, make_world
from thalweg.engine.node import Node, PredictionTotals
from thalweg.engine.plan import Plan
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import one_thread
from thalweg.engine.task import get_loss, make_net
from thalweg.evaluation.numbers import compute_abs_errors
from thalweg.federation import (
    ClientContext,
    ClientProgram,
    ClientState,
    Ingest,
    TrainRequest,
    TrainResponse,
)
from thalweg.federation.client_round import is_regression
from thalweg.federation.serving import (
    Predictor,
    compute_scores,
    list_models,
    read_averages,
    serve_samples,
    shift_targets,
)
from thalweg.nets import Net
from thalweg.network.edge.inbox import Inbox
from thalweg.network.edge.live_stream import LiveStream
from thalweg.network.edge.schema import DataSchema
from thalweg.network.edge.store import Store
from thalweg.network.remote_node import NodeState, RemoteNode
from thalweg.network.wire import MaskRequest, MessageSchema, Request, from_bytes
from thalweg.recipes.compatibility import check_compatibility, check_task
from thalweg.streams import Live


@dataclass(frozen=True)
class LiveSizes:
    """Capacities of a device."""

    capacity: int | None = None
    """Samples in memory; None: the scenario's capacity."""
    queue: int = 256
    """Samples on disk besides those in memory, at most half of them without a label."""
    batch: int = 32
    """Number of new samples that are passed to the memory policy between rounds."""
    backlog: int = 1024
    """Samples that were read from the source and are not stored yet."""

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
            f"batch must be at most half of queue: got batch={self.batch}, queue={self.queue}.",
        )


def choose_sizes(capacity: int | None, queue: int | None) -> LiveSizes:
    """Capacities from the owner's options; a short queue has small batches.

    >>> choose_sizes(None, 16).batch, choose_sizes(None, None).batch
    (8, 32)
    """
    if queue is None:
        return LiveSizes(capacity)
    return LiveSizes(capacity, queue, max(min(LiveSizes.batch, queue // 2), 1))


class LiveNode:
    """One client with its data in an inbox and its state in a store. Thread-safe."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        client: int,
        schema: DataSchema,
        sizes: LiveSizes | None = None,
        mask_identity: Any = None,  # MaskIdentity
        charge: Callable[[Request], None] = lambda request: None,
    ) -> None:
        scenario, recipe = plan.scenario, plan.recipe
        require(
            isinstance(scenario.world, Live),
            "this client has its own data, but the plan's world is "
            f"{type(scenario.world).__name__}, which generates arrivals; serve the run with --live "
            "(world=live).",
        )
        require(
            scenario.drift is None,
            f"drift={type(scenario.drift).__name__} changes the data of a scenario, but this "
            "client has its own; remove it (--set drift=none).",
        )
        self.sizes = sizes or LiveSizes()
        capacity = self.sizes.capacity or scenario.capacity
        self._store, self._lock = store, threading.RLock()
        self.inbox = Inbox(store, schema, capacity, self.sizes.queue)
        data = schema.make_dataset(self.inbox.slots.x, self.inbox.labels)
        # The server has checked this, but it may not be honest.
        check_compatibility(recipe, make_world(scenario, data, plan.seed))
        check_task(recipe, get_loss(scenario, data), data.task, "this device")
        self.net: Net = make_net(scenario, data)
        stream = LiveStream(
            self.inbox, scenario.ticks, data.num_stream_classes, capacity, scenario.rounds
        )
        clients = ClientProgram(
            recipe,
            stream,
            data.all_classes("train"),
            plan.local,
            plan.seed,
            self.net.num_params,
            self.net.own_positions,
            self.net.smallest_batch,
            numbers=data.all_labels("train") if schema.is_regression else None,
            noise=SystemNoise(),
        )
        check_own_positions(clients)
        trainer = SingleTrainer.from_plan(plan, self.net, data)
        self._prequential = scenario.prequential
        self._remote = RemoteNode(
            Node(clients, client, trainer, scenario.prequential),
            MessageSchema(recipe, self.net.num_params, schema.is_regression),
            mask_identity,
            charge,
        )
        self._model: Floats32 | None = None  # the last model that this process received
        self._predictors: list[Predictor] = []  # the last ones, with a serving policy
        stored = store.state()
        self.state = (
            self._remote.new_client() if stored is None else self._remote.restore_state(stored)
        )
        self.inbox.check_rows(self.state.client.stream_round, self.state.client.rows)

    def close(self) -> None:
        self.inbox.close()

    @property
    def message_schema(self) -> MessageSchema:
        return self._remote.schema

    @property
    def can_ingest(self) -> bool:
        """True if the memory policy can run between rounds.

        False if it needs the model or values from the server: then samples wait for the next
        request, which contains both.
        """
        clients = self._remote.node.clients
        return clients.memory_with_probe is None and not isinstance(
            clients.recipe.memory, ServerPart
        )

    def hello(self) -> bytes:
        return self._remote.hello()

    def handle(self, payload: bytes) -> bytes:
        """Handle a request exactly once, however often it arrives.

        Its effects are on disk before the response is returned. A rejected request has changed
        nothing.
        """
        digest = hashlib.sha256(payload).hexdigest()
        with self._lock:
            response = self._store.find_response(digest)
            if response is not None:
                return response
            request = self._remote.read_request(payload)
            self.inbox.mark(self.state.client.stream_round)
            counts, earlier = self.inbox.counts, None
            is_training = isinstance(request, TrainRequest) and not request.probe_round
            if is_training and counts.tested:
                earlier = PredictionTotals(counts.tested, counts.correct, counts.error_sum)
            state, response = self._remote.execute(self.state, request, earlier)
            new_counts: dict[str, Any] = {}
            if isinstance(request, TrainRequest) and is_training:
                main = self._remote.node.main_model(self.state.client, request)
                new_counts = self._count_round(request, response, main)
                self._model = request.params[main].copy()
                self._predictors = self._list_predictors(request, main, state.client)
            self._commit(state, digest=digest, response=response, rnd=request.rnd, **new_counts)
            if isinstance(request, MaskRequest) and request.deletes_secrets:
                self._store.erase_deleted()
            return response

    def ingest(self) -> bool:
        """Pass new samples to the memory policy without a round; True if there was a batch.

        Counts as one of the client's own rounds. The last received model predicts some of the
        samples first. Waits while a round is running; receiving does not.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._ingest()
        finally:
            self._lock.release()

    # --- private ---

    def _ingest(self) -> bool:
        node, before = self._remote.node, self.state.client
        marked_slots = self.inbox.marked_slots(before.stream_round)
        if not self.can_ingest or self.inbox.num_new + len(marked_slots) < self.sizes.batch:
            return False
        self.inbox.mark(before.stream_round)
        arrived = self.inbox.marked_slots(before.stream_round)
        before, new_counts = self._test_rows(before, arrived[: self._prequential])
        ctx = ClientContext(node.clients, node.client, max(self.state.last_round, 0))
        ingest = Ingest(ctx, before)
        for _ in range(node.clients.stream.ticks):
            ingest.identify_state()
            ingest.update_memory()
        self._commit(self.state._replace(client=ingest.finish()), **new_counts)
        return True

    def _commit(self, state: NodeState, **new_counts: Any) -> None:
        client = state.client
        self.inbox.commit(
            self._remote.serialise_state(state), client.stream_round, client.rows, **new_counts
        )
        self.state = state

    def _count_round(self, request: TrainRequest, payload: bytes, main: int) -> dict[str, Any]:
        """The counts after a round, whose response includes the predictions between rounds."""
        new_counts = {"rounds": self.inbox.counts.rounds + 1, "last_round": request.rnd}
        try:
            response = from_bytes(payload, self.message_schema, TrainResponse)
        except Diverged:  # sent unchanged; the server reports it
            return {**new_counts, "last_loss": None}
        loss = float(response.losses[main])
        last_loss = loss if math.isfinite(loss) else None
        return {**new_counts, "tested": 0, "correct": 0, "error_sum": 0.0, "last_loss": last_loss}

    @one_thread()
    def _test_rows(self, state: ClientState, rows: Ints) -> tuple[ClientState, dict[str, Any]]:
        """The state and the counts after the client has predicted some rows.

        It predicts with the last received model, or with its serving policy.
        """
        if self._model is None or len(rows) == 0:
            return state, {}
        node, counts = self._remote.node, self.inbox.counts
        targets, tested = self.inbox.labels[rows], counts.tested + len(rows)
        after = state
        if state.serving is None:
            (model,) = node.clients.personalise(self._model[None], state)
            predicted, _ = node.trainer.predict(model, "train", rows)
        else:
            scores = compute_scores(
                self._predictors,
                rows,
                lambda params, where: node.trainer.scores(params, "train", where),
            )
            serving, predicted = serve_samples(
                node.clients.recipe,
                state.serving,
                scores,
                targets,
                shift_targets(state.serving.last, targets),
            )
            after = state._replace(serving=serving)
        if not is_regression(targets):
            correct = counts.correct + int((predicted == targets).sum())
            return after, {"tested": tested, "correct": correct}
        error = float(compute_abs_errors(predicted, targets).sum())
        if not math.isfinite(error):  # the model has diverged, which the next response reports
            return state, {}
        return after, {"tested": tested, "error_sum": counts.error_sum + error}

    def _list_predictors(
        self, request: TrainRequest, main: int, state: ClientState
    ) -> list[Predictor]:
        """The models that predict until the next round, after the client has trained."""
        if state.serving is None:
            return []
        number = len(request.models)
        return list_models(
            self.message_schema.recipe,
            main,
            request.models.tolist(),
            request.params.copy(),
            read_averages(request.broadcast, number),
            state.trained,
            state.serving.num_models,
        )
