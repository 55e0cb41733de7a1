"""The state of a client, and the program that all clients of a recipe share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.noise import NoiseSource
from thalweg.core.rng import Draw, rng_for
from thalweg.core.trees import Tree, restore_types
from thalweg.core.types import Floats, Floats32, Ints, Outlook, SampleAges
from thalweg.core.vectors import freeze
from thalweg.federation.capabilities import Capabilities
from thalweg.federation.serving import ServingState, new_serving_state
from thalweg.local import LocalTraining
from thalweg.recipes.base import Recipe, list_predictors
from thalweg.sample_weights import SampleWeights
from thalweg.serving import TRAINED
from thalweg.streams import MergedWorld, Stream

Rows = npt.NDArray[np.int32]
Received = Mapping[str, Mapping[str, Floats32]]  # stage -> name -> values for one client


class ClientState(NamedTuple):
    """The state of a client between rounds."""

    stream_round: int  # rounds of its stream that are over: the client's own round number
    rows: Rows  # (held,) rows of the data set in memory, in the order of the memory policy
    stream: Any
    memory: Any
    forecast: Any
    objective: Any = None
    latent: int = -1  # the latent state in which the client last trained; -1: it never has
    since: Rows | None = None  # (held,) the round in which each row arrived; none: not needed
    label_counts: Any = None  # of the selection
    session: int = 0  # in which it last trained
    other_objectives: tuple[Any, ...] = ()  # the objective's state for the second model, ...
    split: Any = None  # of the bank
    trained: Floats32 | None = None
    """(P,) the result of the last local steps; none: it never trained, or the bank needs none."""
    optimizer: dict[str, Any] | None = None
    """By model: the state of its optimizer, arrays by name; none: optimizers are not kept."""
    optimizer_round: int = 0  # the round in which `optimizer` was kept
    own: Floats32 | None = (
        None  # its values of `ClientProgram.own_positions`; none: it has none yet
    )
    serving: ServingState | None = None  # none: the recipe has no serving policy
    num_arrived: int = 0  # samples so far, initial ones included


@dataclass(frozen=True, eq=False)
class ClientProgram(Capabilities):
    """A recipe, a stream and the labels: everything that all clients share.

    `ClientRound` is one client in one round.
    """

    recipe: Recipe
    stream: Stream
    labels: Ints  # labels of the data set's training part
    local: LocalTraining
    seed: int
    num_params: int = 0  # of the net; for objectives with vectors of that size
    own_positions: Ints | None = None
    """Positions in the model at which each client continues from its own values; none: nowhere."""
    smallest_batch: int = 1
    """The least number of samples in a mini-batch: `Net.smallest_batch`."""
    output_bias: slice | None = None
    """Positions of the biases of the outputs in the model, `Net.output_bias`; none: not known."""
    numbers: npt.NDArray[Any] | None = None
    """Numbers to predict of the training part, (n,) or (n, D), in a regression; none: classes."""
    noise: NoiseSource = field(kw_only=True)
    """Where privacy noise comes from. It has no default: a device must not use the seed."""

    def personalise(self, params: Floats32, state: ClientState | None) -> Floats32:
        """Return received models (J, P) with the client's own values, if it has any."""
        if self.own_positions is None or state is None or state.own is None:
            return params
        params = params.copy()
        params[:, self.own_positions] = state.own
        return params

    @property
    def num_classes(self) -> int:
        return int(self.stream.state_table.histograms.shape[1])

    @cached_property
    def memory_sees_true_states(self) -> bool:
        """Whether the memory receives the world's latent states.

        This needs a memory that uses the forecast and a forecast that uses true states.
        """
        return _declares(self.recipe.memory, "uses_forecast") and self.forecast_sees_true_states

    @cached_property
    def forecast_sees_true_states(self) -> bool:
        """Whether the forecast receives the world's latent states and their probabilities."""
        return _declares(self.forecast, "uses_true_states")

    @cached_property
    def objective_sees_true_states(self) -> bool:
        """Whether the objective is notified when the world's latent state changes."""
        return _declares(self.recipe.objective, "uses_true_states")

    @cached_property
    def keeps_trained_models(self) -> bool:
        """Whether clients keep the model that they trained, and predict with it."""
        uses_trained = TRAINED in list_predictors(self.recipe)
        return uses_trained or _declares(self.recipe.bank, "keeps_trained_models")

    def targets(self, rows: Ints | Rows) -> npt.NDArray[Any]:
        """Return the classes or the numbers to predict of some rows of the data set."""
        values = self.labels if self.numbers is None else self.numbers
        return values.take(rows, axis=0)

    def local_in(self, rnd: int) -> LocalTraining:
        """Return the local training of a round.

        A learner that has the samples of all clients takes the steps of all present clients.
        """
        local, stream = self.local, self.stream
        if not isinstance(stream, MergedWorld):
            return local
        if local.steps is not None:
            return replace(local, steps=local.steps * max(1, len(stream.present_clients(rnd))))
        assert local.passes is not None
        return replace(local, passes=local.passes * (stream.present_share(rnd) or 1.0))

    @cached_property
    def targets_for_memory(self) -> Floats32 | None:
        """The numbers to predict in a regression if the memory declares that it uses them."""
        return self.numbers if _declares(self.recipe.memory, "uses_targets") else None

    @property
    def trains_by_tick(self) -> bool:
        """Whether training needs the client's state: a model probe, or the optimizer it keeps.

        If not, all mini-batches of a round can be drawn first and trained in another process.
        """
        return self.needs_probe or self.local.keeps_optimizer

    def kept_optimizers(self, state: ClientState, rnd: int) -> dict[str, Any]:
        """Return by model the states of optimizers that a client continues with in a round."""
        if state.optimizer is None or not self.local.keeps_between(state.optimizer_round, rnd):
            return {}
        return state.optimizer

    def make_outlook(self, forecast_state: Any) -> Outlook:
        """Return a client's forecast, and how far its states are from the goal."""
        table = self.stream.state_table
        outlook = self.forecast.outlook(forecast_state, table.histograms, table.importance)
        if self.forecast_with_recognition is None:
            return outlook._replace(deviations=self._true_deviations)
        signatures = self.forecast_with_recognition.signatures(forecast_state, table.histograms)
        return outlook._replace(deviations=signatures - 1 / self.num_classes)

    @cached_property
    def _true_deviations(self) -> Floats:
        """(M, E) signatures of the states of the world minus the goal, the same for all clients."""
        table = self.stream.state_table
        return freeze(table.signatures - table.goal)

    def hide_outlook(self, outlook: Outlook, policy: object) -> Outlook:
        """Return the outlook for a policy: uniform unless the policy declares ``uses_forecast``.

        A forecast may use the true states, so that only declared policies may see its predictions.
        """
        if _declares(policy, "uses_forecast"):
            return outlook
        return _uniform_outlook(len(outlook.probs))

    def histogram(self, rows: Ints | Rows) -> Ints:
        """Return (C,) how many of these rows belong to each class."""
        return np.bincount(self.labels.take(rows), minlength=self.num_classes)

    def compute_sample_weights(
        self, rows: Ints, since: Rows | None, rnd: int, assigned: float = 1.0
    ) -> Floats:
        """Return (held,) the sample weights of the memory in a round."""
        sample_weights = self.recipe.sample_weights
        if sample_weights is None or since is None:
            return np.ones(len(rows))
        ages = rnd - since.astype(np.int64) + 1
        weights = sample_weights.weigh(SampleAges(ages, self.labels.take(rows), assigned))
        check_sample_weights(weights, len(rows), sample_weights)
        return weights

    def new_client(self, client: int) -> ClientState:
        """Return the state of a client before its first round."""
        stream, arrival = self.stream.begin(client)
        capacity = self.stream.capacity(client)
        rows = arrival.items[:capacity].astype(np.int32)
        probs = self.stream.true_state_probs(client)
        if not self.forecast_sees_true_states:
            probs = np.full(len(probs), np.nan)
        forecast = self.forecast.init(probs, rng_for(self.seed, Draw.FORECAST, 0, client))
        if self.forecast_with_recognition is not None:
            forecast, _ = self.forecast_with_recognition.recognise(forecast, self.histogram(rows))
        label_counts = None
        if self.selection_with_counts is not None:
            label_counts = self.selection_with_counts.init_counts(self.num_classes)
            label_counts = self.selection_with_counts.count_labels(
                label_counts, self.labels.take(arrival.items)
            )
        return ClientState(
            stream_round=0,
            rows=rows,
            stream=stream,
            memory=self.recipe.memory.init(capacity, len(rows)),
            forecast=forecast,
            objective=self.init_objective(),
            since=np.zeros(len(rows), dtype=np.int32) if self.needs_arrival_rounds else None,
            label_counts=label_counts,
            split=self.bank_with_split and self.bank_with_split.init_split(self.num_classes),
            serving=new_serving_state(self.recipe.serving, self.targets(arrival.items[-1:])),
            num_arrived=len(arrival.items),
        )

    def restore_client(self, client: int, tree: Tree) -> Any:
        """Return a client's state from a checkpoint; a new client provides the types."""
        new_client = self.new_client(client)
        others = tree.get("other_objectives") if isinstance(tree, dict) else None
        if isinstance(others, list):
            new_client = new_client._replace(other_objectives=(new_client.objective,) * len(others))
        return restore_types(new_client, tree)

    def init_objective(self) -> Any:
        """Return the first state of the objective at a client; none if it has no state."""
        return self.objective_with_state and self.objective_with_state.init(self.num_params)

    def main_model(self, split: Any, models: Ints, received: Received) -> int:
        """Return the position in `models` of the model that predicts for a client."""
        if self.bank_with_split is None:
            return 0
        return self.bank_with_split.main_model(split, models, received.get("bank", {}))

    def get_own_model(self, state: ClientState) -> Floats32 | None:
        """Return the model (P,) of a client whose bank lets it keep one; None: the received one."""
        return state.trained if _declares(self.recipe.bank, "keeps_trained_models") else None

    def arriving_rows(self, client: int, state: ClientState) -> Ints:
        """Return all arrivals of the client's next round, without processing them."""
        _, arrivals = self.stream.emit(state.stream, client, state.stream_round)
        return np.concatenate([np.empty(0, np.int64), *(arrival.items for arrival in arrivals)])

    def newest(self, client: int, state: ClientState) -> Ints:
        """Return the first arrivals of the client's next round, or its memory if there are none."""
        _, arrivals = self.stream.emit(state.stream, client, state.stream_round)
        if arrivals and len(arrivals[0].items):
            return arrivals[0].items
        return state.rows.astype(np.int64)


@lru_cache(maxsize=64)
def _uniform_outlook(num_states: int) -> Outlook:
    """Return the outlook without information; read-only, because all clients share it."""
    uniform = freeze(np.full(num_states, 1 / num_states))
    return Outlook(uniform, uniform, freeze(np.zeros(num_states)))


def _declares(policy: object, name: str) -> bool:
    """Return whether a policy declares that it uses something, such as ground truth."""
    return bool(getattr(policy, name, False))


def check_sample_weights(weights: Floats, held: int, sample_weights: SampleWeights) -> None:
    """Check what a sample weights policy returns."""
    if weights.shape != (held,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise ConfigError(
            f"{type(sample_weights).__name__}.weigh must return {held} finite weights of at least "
            f"0, got shape {weights.shape} from {weights.min(initial=0)} to "
            f"{weights.max(initial=0)}."
        )
