"""The clients of a run on Flower, as the loop of `engine` knows federations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.serverapp import Grid

from thalweg.core.errors import RunError, require
from thalweg.core.talk import Told
from thalweg.core.trees import Tree
from thalweg.core.types import Floats32, Ints, Job, Roster, Supplies, Updates
from thalweg.data import Dataset
from thalweg.edge.blank import blank_of, blank_to_json
from thalweg.engine.crowd import Crowd
from thalweg.engine.gather import Part
from thalweg.engine.plan import Plan, plan_to_toml
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import one_thread
from thalweg.flower.book import ClientBook
from thalweg.flower.nodes import Nodes, Say
from thalweg.flower.post import GridPost
from thalweg.nets import Net
from thalweg.recipes.correspondence import Correspondence
from thalweg.recipes.door import longest_wait
from thalweg.recipes.joining import Invitation
from thalweg.recipes.wire import Terms

LOOK_S = 0.5  # between two looks for clients that are waited for
REMIND_S = 15.0  # between two lines that say who is waited for


@dataclass(frozen=True)
class Patience:
    """How long a server waits, and for whom."""

    min_clients: int = 1  # below which a round does not begin
    deadline_s: float = 600.0  # for the replies of a round
    wait_s: float | None = None  # for clients, in all; none: for ever

    def __post_init__(self) -> None:
        require(self.min_clients >= 1, f"min_clients must be at least 1, got {self.min_clients}.")
        require(self.deadline_s > 0, f"the deadline must be positive, got {self.deadline_s}.")
        wait_s = self.wait_s
        require(wait_s is None or wait_s >= 0, f"wait must be at least 0, got {wait_s}.")


class AbsentCrowd(Crowd):
    """Clients that are somewhere else: no states here, only how often each has taken part."""

    def __init__(self, crowd: Crowd) -> None:
        super().__init__(crowd.clients, crowd.world, crowd.timetable)
        self.lived = np.zeros(crowd.world.num_clients, dtype=np.int64)

    def clock(self, rnd: int, is_over: bool = True) -> int | Ints:
        if self.world.collects_when_absent:
            return rnd
        return np.maximum(self.lived - int(is_over), 0)


class FlowerFederation(Correspondence):
    """Clients on a network. The server predicts with its own test samples, and knows nothing else of data."""

    def __init__(
        self,
        grid: Grid,
        plan: Plan,
        data: Dataset,
        net: Net,
        crowd: Crowd,
        book: ClientBook,
        patience: Patience,
        is_live: bool = False,
        say: Say = lambda event: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        recipe, scenario = plan.recipe, plan.scenario
        require(
            scenario.faults is None,
            f"{scenario.name} plays at losing replies; on a network they get lost by themselves. Leave it "
            "out (--set faults=none).",
        )
        require(
            patience.min_clients <= crowd.world.num_clients,
            f"min_clients is {patience.min_clients}, but the run has {crowd.world.num_clients} clients.",
        )
        terms = Terms(recipe, net.num_params)
        text, shape, num_classes = plan_to_toml(plan), data.input_shape, data.num_classes
        blank = blank_to_json(blank_of(data)) if is_live else ""

        def invite(run: str, client: int) -> Invitation:
            form = (shape, num_classes, net.num_params)
            return Invitation(run, client, text, *form, is_live, blank)

        self.nodes = Nodes(grid, book, terms, invite, say)
        post = GridPost(
            grid, self.nodes, patience.deadline_s, longest_wait(recipe.staleness), say, sleep
        )
        super().__init__(terms, post, self._who_is_here)
        self.crowd = AbsentCrowd(crowd)
        self._patience_s, self._is_live, self._say, self._sleep = patience, is_live, say, sleep
        self._trainer = SingleTrainer(
            net, recipe.objective, plan.local, data, recipe.mirror, scenario.augment
        )

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, told: Told | None = None
    ) -> Updates:
        updates = super().train(jobs, bank, rnd, told)
        if jobs[0].rehearsal == 0:
            rounds = rnd - updates.staleness(rnd)
            for client, _ in set(zip(updates.clients.tolist(), rounds.tolist(), strict=True)):
                self.crowd.lived[client] += 1
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
        return {"lived": self.crowd.lived.copy()}

    def restore(self, pending: dict[str, Any]) -> None:
        self.crowd.lived = np.asarray(pending["lived"], dtype=np.int64)

    # --- who is here ---

    def _who_is_here(self, rnd: int) -> Roster:
        self._wait_for_clients()
        connected = np.array(sorted(self.nodes.here), dtype=np.int64)
        roster = self.crowd.roster(rnd)
        if self._is_live:
            return replace(roster, here=connected, supplies=self._supplies(roster))
        return replace(roster, here=np.intersect1d(roster.here, connected, assume_unique=True))

    def _wait_for_clients(self) -> None:
        """Until enough clients have joined and are connected."""
        wanted, wait_s = self._patience_s.min_clients, self._patience_s.wait_s
        began = said = time.monotonic()
        self.nodes.look()
        while (here := len(self.nodes.here)) < wanted:
            now = time.monotonic()
            if wait_s is not None and now - began > wait_s:
                raise RunError(
                    f"{here} clients are here after {wait_s:g} seconds, {wanted} are needed (--min-clients); "
                    "the rounds before this one are kept (--resume)."
                )
            if said == began or now - said >= REMIND_S:
                said = now
                self._say({"event": "waiting", "here": here, "wanted": wanted})
            self._sleep(LOOK_S)
            self.nodes.look()

    def _supplies(self, roster: Roster) -> Supplies | None:
        """What clients said when they joined, where anybody did."""
        if roster.supplies is None:
            return None
        total, is_historical = roster.supplies.total.copy(), roster.supplies.is_historical.copy()
        rounds = roster.supplies.rounds.copy()
        for client, supply in self.nodes.supplies.items():
            total[client], is_historical[client], rounds[client] = supply
        return Supplies(total, is_historical, rounds)
