"""What any client of a recipe is: what it remembers, and what it is born with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.rng import Draw, rng_for
from thalweg.core.trees import Tree, restore_types
from thalweg.core.types import Floats, Floats32, Ints, SampleAges
from thalweg.federation.capabilities import Capabilities
from thalweg.federation.checks import check_sample_weights
from thalweg.local import Sgd
from thalweg.recipes.base import Recipe
from thalweg.streams import Stream

Rows = npt.NDArray[np.int32]
Received = Mapping[str, Mapping[str, Floats32]]  # stage -> name -> what the server told one client


class ClientState(NamedTuple):
    """All that a client remembers between rounds: rows it holds, and a few numbers."""

    lived: int  # rounds its stream has moved
    rows: Rows  # (held,) rows of the data set, in the order the memory policy gave them
    stream: Any
    memory: Any
    forecast: Any
    objective: Any = None
    latent: int = -1  # the latent state the client last trained in; -1: never
    since: Rows | None = (
        None  # (held,) the round in which each row came; none: nobody wants to know
    )
    label_counts: Any = None  # what the selection keeps here
    session: int = 0  # in which it last trained
    other_objectives: tuple[
        Any, ...
    ] = ()  # the objective's memory of the second model it trains, of the third ...
    split: Any = None  # what the bank keeps here


@dataclass(frozen=True, eq=False)
class ClientProgram(Capabilities):
    """A recipe and a stream: what is the same for all clients of it.

    What one of them does in a round is in `visit.ClientRound`.
    """

    recipe: Recipe
    stream: Stream
    labels: Ints  # labels of the data set's training part
    local: Sgd
    seed: int
    num_params: int = 0  # of the net; for objectives that remember vectors of that size

    @property
    def num_classes(self) -> int:
        return int(self.stream.state_table.histograms.shape[1])

    def histogram(self, rows: Ints | Rows) -> Ints:
        """(C,) how many of these rows belong to each class."""
        return np.bincount(self.labels.take(rows), minlength=self.num_classes)

    def compute_sample_weights(
        self, rows: Ints, since: Rows | None, rnd: int, assigned: float = 1.0
    ) -> Floats:
        """(held,) how much each held sample counts in a round, as the emphasis says."""
        sample_weights = self.recipe.sample_weights
        if sample_weights is None or since is None:
            return np.ones(len(rows))
        ages = rnd - since.astype(np.int64) + 1
        weights = sample_weights.weigh(SampleAges(ages, self.labels.take(rows), assigned))
        check_sample_weights(weights, len(rows), sample_weights)
        return weights

    def new_client(self, client: int) -> ClientState:
        """A client before its first round. Nobody is born before taking part for the first time."""
        stream, arrival = self.stream.begin(client)
        capacity = self.stream.capacity(client)
        rows = arrival.items[:capacity].astype(np.int32)
        forecast = self.recipe.forecast.init(
            self.stream.true_state_probs(client), rng_for(self.seed, Draw.FORECAST, 0, client)
        )
        if self.forecast_with_recognition is not None:
            forecast, _ = self.forecast_with_recognition.recognise(forecast, self.histogram(rows))
        label_counts = None
        if self.selection_with_counts is not None:
            label_counts = self.selection_with_counts.init_counts(self.num_classes)
            label_counts = self.selection_with_counts.count_labels(
                label_counts, self.labels.take(arrival.items)
            )
        return ClientState(
            lived=0,
            rows=rows,
            stream=stream,
            memory=self.recipe.memory.init(capacity, len(rows)),
            forecast=forecast,
            objective=self.init_objective(),
            since=np.zeros(len(rows), dtype=np.int32) if self.needs_arrival_rounds else None,
            label_counts=label_counts,
            split=self.bank_with_split and self.bank_with_split.init_split(self.num_classes),
        )

    def restore_client(self, client: int, tree: Tree) -> Any:
        """A client's state out of a checkpoint; a newborn shows which types it had."""
        new_client = self.new_client(client)
        others = tree.get("other_objectives") if isinstance(tree, dict) else None
        if isinstance(others, list):
            new_client = new_client._replace(other_objectives=(new_client.objective,) * len(others))
        return restore_types(new_client, tree)

    def init_objective(self) -> Any:
        """What the objective knows at a client at first; none if it keeps nothing."""
        return self.objective_with_state and self.objective_with_state.init(self.num_params)

    def newest(self, client: int, state: ClientState) -> Ints:
        """Rows that arrive first in the client's next round, or what is in memory if none do."""
        _, arrivals = self.stream.emit(state.stream, client, state.lived)
        if arrivals and len(arrivals[0].items):
            return arrivals[0].items
        return state.rows.astype(np.int64)
