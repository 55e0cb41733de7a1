"""The clients of a run on Flower, as the loop of `engine` knows federations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.serverapp import Grid

from thalweg.core.errors import RunError, require
from thalweg.core.talk import Told
from thalweg.core.trees import Tree
from thalweg.core.types import Floats32, Ints, Job, Roster, Updates
from thalweg.data import Dataset
from thalweg.edge.blank import blank_of, blank_to_json
from thalweg.engine.crowd import Crowd
from thalweg.engine.gather import Part
from thalweg.engine.plan import Plan, plan_to_toml
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import one_thread
from thalweg.flower.absent import AbsentCrowd
from thalweg.flower.book import ClientBook
from thalweg.flower.nodes import Nodes, Say
from thalweg.flower.post import GridPost
from thalweg.flower.serving import Serving
from thalweg.nets import Net
from thalweg.recipes.correspondence import Correspondence
from thalweg.recipes.door import longest_wait
from thalweg.recipes.joining import Invitation
from thalweg.recipes.wire import Terms
from thalweg.streams import LiveWorld

LOOK_S = 0.2  # between two looks for clients that are waited for
REMIND_S = 15.0  # between two lines that say who is waited for


class FlowerFederation(Correspondence):
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
        crowd: Crowd,
        book: ClientBook,
        serving: Serving,
        say: Say = lambda event: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        recipe, scenario = plan.recipe, plan.scenario
        _check_can_be_served(plan, crowd, serving)
        self._serving, self._say, self._sleep = serving, say, sleep
        self._is_live = isinstance(crowd.world, LiveWorld)
        self._absent = AbsentCrowd(crowd)
        self.crowd: Crowd = self._absent
        self._trainer = SingleTrainer(
            net, recipe.objective, plan.local, data, recipe.mirror, scenario.augment
        )
        terms = Terms(recipe, net.num_params)
        invite = _inviting(plan, data, net, self._is_live)
        self.nodes = Nodes(grid, book, terms, invite, say)
        patience = longest_wait(recipe.staleness)
        post = GridPost(grid, self.nodes, serving.deadline_s, patience, say, sleep)
        limits = serving.limits_for(plan, crowd.world, data.num_classes)
        super().__init__(terms, post, self._who_is_here, limits=limits)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, told: Told | None = None
    ) -> Updates:
        updates = super().train(jobs, bank, rnd, told)
        if jobs[0].rehearsal == 0:
            self._absent.hear(updates, rnd)
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
        return {"lived": self._absent.lived.copy()}

    def restore(self, pending: dict[str, Any]) -> None:
        self._absent.lived = np.asarray(pending["lived"], dtype=np.int64)

    # --- who is here ---

    def _who_is_here(self, rnd: int) -> Roster:
        self._wait_for_clients()
        connected = np.array(sorted(self.nodes.here), dtype=np.int64)
        roster = self.crowd.roster(rnd)
        if self._is_live:
            return replace(roster, here=connected)
        return replace(roster, here=np.intersect1d(roster.here, connected, assume_unique=True))

    def _wait_for_clients(self) -> None:
        """Until enough clients have joined and are connected, and whoever has just come has had a moment."""
        began, said = time.monotonic(), -REMIND_S
        self.nodes.look()
        while (here := len(self.nodes.here)) < self._serving.min_clients or self.nodes.is_settling:
            waited = time.monotonic() - began
            if here < self._serving.min_clients:
                self._check_may_wait(here, waited)
                if waited - said >= REMIND_S:
                    said, wanted = waited, self._serving.min_clients
                    self._say({"event": "waiting", "here": here, "wanted": wanted})
            self._sleep(LOOK_S)
            self.nodes.look()

    def _check_may_wait(self, here: int, waited: float) -> None:
        wanted, wait_s = self._serving.min_clients, self._serving.wait_s
        if wait_s is not None and waited > wait_s:
            raise RunError(
                f"{here} clients are here after {wait_s:g} seconds, {wanted} are needed (--min-clients); "
                "the rounds before this one are kept (--resume)."
            )


def _check_can_be_served(plan: Plan, crowd: Crowd, serving: Serving) -> None:
    require(
        plan.scenario.faults is None,
        f"{plan.scenario.name} plays faults in one process; on a network things go wrong by themselves. Leave "
        "them out (--set faults=none).",
    )
    num_clients = crowd.world.num_clients
    require(
        serving.min_clients <= num_clients,
        f"min_clients is {serving.min_clients}, but the run has {num_clients} clients.",
    )


def _inviting(
    plan: Plan, data: Dataset, net: Net, is_live: bool
) -> Callable[[str, int], Invitation]:
    """Makes the invitation to a run for a client's number."""
    text, form = plan_to_toml(plan), (data.input_shape, data.num_classes, net.num_params)
    blank = blank_to_json(blank_of(data)) if is_live else ""
    return lambda run, client: Invitation(run, client, text, *form, is_live, blank)
