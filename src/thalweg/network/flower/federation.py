"""The clients of a run on Flower, as the loop of `engine` knows federations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.serverapp import Grid

from thalweg.core.capabilities import Broadcast
from thalweg.core.errors import RunError, require
from thalweg.core.trees import Tree
from thalweg.core.types import Floats32, Ints, Job, Roster, Updates
from thalweg.data import Dataset, Part
from thalweg.engine.client_pool import ClientPool
from thalweg.engine.plan import Plan, plan_to_toml
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import one_thread
from thalweg.federation import max_wait
from thalweg.nets import Net
from thalweg.network.edge.schema import describe_dataset, schema_to_json
from thalweg.network.flower.nodes import EventHandler, Nodes
from thalweg.network.flower.registry import ClientRegistry
from thalweg.network.flower.remote_clients import RemoteClientPool
from thalweg.network.flower.serve_options import ServeOptions
from thalweg.network.flower.transport import GridTransport
from thalweg.network.handshake import Invitation
from thalweg.network.remote_federation import RemoteFederation
from thalweg.network.wire import MessageSchema
from thalweg.streams import LiveWorld

POLL_S = 0.2  # between two looks for clients that are waited for
REMIND_S = 15.0  # between two lines that say who is waited for


class FlowerFederation(RemoteFederation):
    """Clients on a network. The server predicts with its own test samples, and knows nothing else of data.

    In a world that is replayed, whoever it has away in a round is left alone also if connected, so that the numbers
    are those of a simulation; in a live one everybody who is connected is here.
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
        schema = MessageSchema(recipe, net.num_params)
        make_invitation = _make_invitation_factory(plan, data, net, self._is_live)
        self.nodes = Nodes(grid, registry, schema, make_invitation, on_event)
        max_staleness = max_wait(recipe.staleness)
        transport = GridTransport(
            grid, self.nodes, serve_options.deadline_s, max_staleness, on_event, sleep
        )
        limits = serve_options.limits_for(plan, client_pool.world, data.num_classes)
        super().__init__(schema, transport, self._present_roster, limits=limits)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        updates = super().train(jobs, bank, rnd, broadcast)
        if jobs[0].probe_round == 0:
            self._remote_clients.count_participation(updates, rnd)
        return updates

    @one_thread()
    def predict(self, model: Floats32, part: Part, rows: Ints | None) -> tuple[Ints, Floats32]:
        return self._trainer.predict(model, part, rows)

    def scores(self, model: Floats32, part: Part, rows: Ints | None) -> Floats32:
        return self._trainer.scores(model, part, rows)

    def close(self) -> None:
        """Nothing to let go of: the grid is Flower's."""

    # --- what a checkpoint must hold ---

    def pending(self) -> Tree:
        return {"rounds_participated": self._remote_clients.rounds_participated.copy()}

    def restore(self, pending: dict[str, Any]) -> None:
        self._remote_clients.rounds_participated = np.asarray(
            pending["rounds_participated"], dtype=np.int64
        )

    # --- who is here ---

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
        """Until enough clients have joined and are connected, and whoever has just come has had a moment."""
        began, said = time.monotonic(), -REMIND_S
        self.nodes.poll()
        while (
            present := len(self.nodes.present)
        ) < self._serve_options.min_clients or self.nodes.is_joining:
            waited = time.monotonic() - began
            if present < self._serve_options.min_clients:
                self._check_may_wait(present, waited)
                if waited - said >= REMIND_S:
                    said, wanted = waited, self._serve_options.min_clients
                    self._on_event({"event": "waiting", "present": present, "wanted": wanted})
            self._sleep(POLL_S)
            self.nodes.poll()

    def _check_may_wait(self, present: int, waited: float) -> None:
        wanted, wait_s = self._serve_options.min_clients, self._serve_options.wait_s
        if wait_s is not None and waited > wait_s:
            raise RunError(
                f"{present} clients are present after {wait_s:g} seconds, {wanted} are needed (--min-clients); "
                "the rounds before this one are kept (--resume)."
            )


def _check_servable(plan: Plan, client_pool: ClientPool, serve_options: ServeOptions) -> None:
    require(
        plan.scenario.faults is None,
        f"{plan.scenario.name} plays faults in one process; on a network things go wrong by themselves. Leave "
        "them out (--set faults=none).",
    )
    num_clients = client_pool.world.num_clients
    require(
        serve_options.min_clients <= num_clients,
        f"min_clients is {serve_options.min_clients}, but the run has {num_clients} clients.",
    )


def _make_invitation_factory(
    plan: Plan, data: Dataset, net: Net, is_live: bool
) -> Callable[[str, int], Invitation]:
    """Makes the invitation to a run for a client's number."""
    text, form = plan_to_toml(plan), (data.input_shape, data.num_classes, net.num_params)
    schema = schema_to_json(describe_dataset(data)) if is_live else ""
    return lambda run, client: Invitation(run, client, text, *form, is_live, schema)
