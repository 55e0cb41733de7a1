"""The federation of a run on Flower."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tomli_w
from flwr.serverapp import Grid

from thalweg.core.capabilities import Broadcast
from thalweg.core.config import to_dict
from thalweg.core.errors import RunError, require
from thalweg.core.registry import has_local_path
from thalweg.core.trees import Tree
from thalweg.core.types import Floats32, Ints, Job, Roster, Updates
from thalweg.data import Dataset, Part
from thalweg.engine.client_pool import ClientPool
from thalweg.engine.plan import Plan
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import one_thread
from thalweg.federation import max_wait
from thalweg.nets import Net
from thalweg.network.edge.schema import describe_dataset, schema_to_json
from thalweg.network.flower.nodes import EventHandler, Nodes
from thalweg.network.flower.registry import ClientRegistry
from thalweg.network.flower.serve_options import ServeOptions
from thalweg.network.flower.transport import GridTransport
from thalweg.network.handshake import Invitation
from thalweg.network.rejections import describe_absent
from thalweg.network.remote_federation import RemoteFederation
from thalweg.network.wire import MessageSchema
from thalweg.streams import LiveWorld

POLL_S = 0.2  # between two polls while waiting for clients
REMIND_S = 15.0  # between two `waiting` events


class RemoteClientPool(ClientPool):
    """Clients on a network: the server has no client states, only counts of their participation.

    In worlds where absent clients do not collect, the counts are the clock of the drifts.
    """

    def __init__(self, client_pool: ClientPool) -> None:
        super().__init__(client_pool.clients, client_pool.world, client_pool.timetable)
        self.rounds_participated = np.zeros(client_pool.world.num_clients, dtype=np.int64)

    def clock(self, rnd: int, is_over: bool = True) -> int | Ints:
        if self.world.collects_when_absent:
            return rnd
        return np.maximum(self.rounds_participated - int(is_over), 0)

    def count_participation(self, updates: Updates, rnd: int) -> None:
        """Count the responses of a round, also late ones; several models of a client count once."""
        rounds = rnd - updates.staleness(rnd)
        for client, _ in set(zip(updates.clients.tolist(), rounds.tolist(), strict=True)):
            self.rounds_participated[client] += 1


class FlowerFederation(RemoteFederation):
    """Clients connected through Flower. The server itself has test samples only.

    In a replayed world, clients that the world has absent in a round are not used even if they are
    connected, so that the results are those of a simulation. In a live world, all connected clients
    are present.
    """

    def __init__(
        self,
        grid: Grid,
        plan: Plan,
        data: Dataset,
        net: Net,
        client_pool: ClientPool,
        registry: ClientRegistry,
        serve_options: ServeOptions,
        on_event: EventHandler = lambda event: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        recipe = plan.recipe
        _check_servable(plan, client_pool, serve_options)
        self._serve_options, self._on_event, self._sleep = serve_options, on_event, sleep
        self._is_live = isinstance(client_pool.world, LiveWorld)
        self._remote_clients = RemoteClientPool(client_pool)
        self.client_pool: ClientPool = self._remote_clients
        self._trainer = SingleTrainer.from_plan(plan, net, data)
        schema = MessageSchema(recipe, net.num_params, data.task == "regression")
        make_invitation = _make_invitation_factory(plan, data, net, self._is_live)
        self.nodes = Nodes(grid, registry, schema, make_invitation, on_event)
        max_staleness = max_wait(recipe.staleness)
        transport = GridTransport(
            grid,
            self.nodes,
            serve_options.deadline_s,
            max_staleness,
            on_event,
            sleep,
            serve_options.share,
            serve_options.grace_s,
        )
        limits = serve_options.limits_for(plan, client_pool.world, data.num_stream_classes)
        run = make_invitation(registry.run, 0).common_digest
        super().__init__(schema, transport, self._present_roster, limits=limits, run=run)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        updates = super().train(jobs, bank, rnd, broadcast)
        if jobs[0].probe_round == 0:
            self._remote_clients.count_participation(updates, rnd)
        return updates

    @one_thread()
    def predict_many(
        self, models: Floats32, part: Part, rows: Ints | None
    ) -> tuple[Ints, Floats32]:
        return self._trainer.predict_many(models, part, rows)

    def scores_many(self, models: Floats32, part: Part, rows: Ints | None) -> Floats32:
        return self._trainer.scores_many(models, part, rows)

    def close(self) -> None:
        """Do nothing: Flower owns the grid."""

    # --- checkpoints ---

    def pending(self) -> Tree:
        return {"rounds_participated": self._remote_clients.rounds_participated.copy()}

    def restore(self, pending: dict[str, Any]) -> None:
        self._remote_clients.rounds_participated = np.asarray(
            pending["rounds_participated"], dtype=np.int64
        )

    # --- connected clients ---

    def _present_roster(self, rnd: int) -> Roster:
        self._wait_for_clients()
        connected = np.array(sorted(self.nodes.present), dtype=np.int64)
        roster = self.client_pool.roster(rnd)
        if self._is_live:
            return replace(roster, present=connected)
        return replace(
            roster, present=np.intersect1d(roster.present, connected, assume_unique=True)
        )

    def _wait_for_clients(self) -> None:
        """Wait until enough clients are connected, and briefly for those that are joining."""
        began, reported = time.monotonic(), -REMIND_S
        self.nodes.poll()
        while (
            present := len(self.nodes.present)
        ) < self._serve_options.min_clients or self.nodes.is_joining:
            waited = time.monotonic() - began
            if present < self._serve_options.min_clients:
                self._check_may_wait(present, waited)
                self.nodes.recall_late()
                if waited - reported >= REMIND_S:
                    reported = waited
                    self._on_event(self._describe_wait(present))
            self._sleep(POLL_S)
            self.nodes.poll()

    def _check_may_wait(self, present: int, waited: float) -> None:
        wanted, wait_s = self._serve_options.min_clients, self._serve_options.wait_s
        if wait_s is not None and waited > wait_s:
            found = describe_absent(self._describe_wait(present))
            raise RunError(
                f"{present} clients are present after {wait_s:g} seconds, {wanted} are needed "
                f"(--min-clients){found}; continue after the last complete round with --resume."
            )

    def _describe_wait(self, present: int) -> dict[str, Any]:
        """Return the event of a server that waits for clients."""
        rejected = {code.value: count for code, count in sorted(self.nodes.rejected.items())}
        return {
            "event": "waiting",
            "present": present,
            "wanted": self._serve_options.min_clients,
            "rejected": {code: count for code, count in rejected.items() if count},
            "failing": self.nodes.num_failing,
        }


def _check_servable(plan: Plan, client_pool: ClientPool, serve_options: ServeOptions) -> None:
    require(
        plan.scenario.faults is None,
        f"{plan.scenario.name} has simulated faults, which are not available on a network; remove "
        "them with --set faults=none.",
    )
    num_clients = client_pool.world.num_clients
    require(
        serve_options.min_clients <= num_clients,
        f"min_clients must be at most the number of clients ({num_clients}), got "
        f"{serve_options.min_clients}.",
    )


def _make_device_plan(plan: Plan, is_live: bool) -> dict[str, Any]:
    """Return the plan for devices, as plain values.

    It has no initial parameters and no metrics, which only the server uses. In a live run, and if
    the data are a file, it has no data: each device has them itself. Of a module it has the name,
    not the path.
    """
    scenario = replace(plan.scenario, metrics=(), headline=None, start_from=None)
    plain = to_dict(replace(plan, scenario=scenario))
    if is_live or has_local_path(plan.scenario.data):
        del plain["scenario"]["data"]
    net = plain["scenario"]["net"]
    if net["kind"] == "module":
        net["path"] = f"module:{net['path'].rpartition(':')[2]}"
        net["digest"] = ""
    return plain


def _make_invitation_factory(
    plan: Plan, data: Dataset, net: Net, is_live: bool
) -> Callable[[str, int], Invitation]:
    """Return a function that makes the invitation for a run and a client number."""
    sizes = (data.input_shape, data.num_classes, net.num_params)
    text = tomli_w.dumps(_make_device_plan(plan, is_live))
    schema = schema_to_json(describe_dataset(data)) if is_live else ""
    tensors = net.describe_tensors()
    return lambda run, client: Invitation(run, client, text, *sizes, is_live, schema, tensors)
