"""The client part of a round: samples arrive, some are kept, and models train on mini-batches.

All engines use the same `ClientRound`, so that the engine cannot change what a client does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from thalweg.aggregation import MemorySummary
from thalweg.bank import SplitContext
from thalweg.core.capabilities import ModelProbe
from thalweg.core.errors import ConfigError
from thalweg.core.types import Arrival, Floats, Floats32, Ints, Outlook
from thalweg.evaluation.numbers import compute_abs_errors
from thalweg.federation.batching import BatchBuilder, MiniBatch
from thalweg.federation.client_state import ClientProgram, ClientState
from thalweg.federation.context import ClientContext
from thalweg.federation.extensions.alarms import Predict, apply_alarm
from thalweg.federation.ingest import Ingest, catch_up
from thalweg.federation.messages import TrainRequest, TrainResponse, stack_uploads
from thalweg.federation.serving import (
    Predictor,
    ServingState,
    ToServe,
    compute_scores,
    end_round,
    list_models,
    read_averages,
    serve_clients,
    shift_targets,
)
from thalweg.local import TrainingSummary
from thalweg.recipes.base import Recipe


class ClientTraining(ModelProbe, Protocol):
    """One model in training at one client."""

    @property
    def seen_losses(self) -> Sequence[float]:
        """The loss of every step so far."""
        ...

    @property
    def delta(self) -> Floats32:
        """(P,) current minus received parameters."""
        ...

    @property
    def mean_loss(self) -> float:
        """Mean loss over the steps; nan without a step."""
        ...

    def step(self, batch: MiniBatch, memo: Mapping[str, Floats32], lr_scale: float) -> None:
        """Take one step of the optimizer."""
        ...

    def export_optimizer(self) -> dict[str, npt.NDArray[Any]]:
        """Return the state of the optimizer as arrays, to be kept until the next round."""
        ...


class LocalTrainer(Protocol):
    """Trains and evaluates models on the data of one client."""

    def begin(
        self,
        params: Floats32,
        noise: int = 0,
        optimizer_state: dict[str, npt.NDArray[Any]] | None = None,
    ) -> ClientTraining:
        """Start training from parameters (P,); `noise` seeds dropout and augmentation.

        `optimizer_state` is that of an earlier round; None: a new optimizer.
        """
        ...

    def predict(
        self, model: Floats32, part: Literal["train", "test"], rows: Ints | None
    ) -> tuple[npt.NDArray[Any], Floats32]:
        """Return the predicted labels or numbers, and the losses, of a model (P,) on some rows."""
        ...

    def scores(self, model: Floats32, part: Literal["train", "test"], rows: Ints) -> Floats32:
        """Return log-probabilities (n, C), or numbers (n, D), of a model (P,) on some rows."""
        ...

    def targets(self, rows: Ints) -> npt.NDArray[Any]:
        """Return the labels or numbers to predict of some training rows."""
        ...


def is_regression(targets: npt.NDArray[Any]) -> bool:
    """Return whether targets are numbers, not class labels."""
    return targets.dtype.kind == "f"


def run_client_round(
    program: ClientProgram,
    state: ClientState,
    request: TrainRequest,
    trainer: LocalTrainer,
    noise: int = 0,
    num_tested: int = 0,
) -> tuple[ClientState, TrainResponse]:
    """Run one client's part of a round and return its new state and its response.

    `noise` seeds dropout and augmentation. The received model predicts the first `num_tested`
    arriving samples of every tick before it trains on them (test-then-train).
    """
    received = request.params
    request = replace(request, params=program.personalise(received, state))
    optimizers = program.kept_optimizers(state, request.rnd)
    kept = [optimizers.get(str(model)) for model in request.models.tolist()]
    trainings = [
        trainer.begin(params, noise, optimizer_state)
        for params, optimizer_state in zip(request.params, kept, strict=True)
    ]
    ctx = ClientContext.from_request(program, request, trainings)
    client_round = start_round(ctx, state, make_predictor(program, state, request, trainer))
    tested = _test_arrivals(client_round, request, trainer, num_tested)
    decay = program.local.lr_scale(request.age)
    lr_scales = [lr_scale * decay for lr_scale in request.lr_scales.tolist()]

    for _ in range(program.stream.ticks):
        client_round.observe()
        if client_round.splits_samples:
            losses = client_round.known_losses
            if losses is None:
                losses = _compute_losses(client_round, request, trainer)
            client_round.split_samples(losses)
        for slot, training in enumerate(trainings):
            for batch in client_round.batches(slot):
                memo = client_round.memo(request.params[slot], slot)
                training.step(batch, memo, lr_scales[slot])
        client_round.end_tick()

    for slot, training in enumerate(trainings):
        summary = _summarise(program, request.params[slot], training, lr_scales[slot])
        client_round.finish_round(summary, slot)
    main = client_round.main_model
    client_round.keep_trained(request.params[main], trainings[main].delta)
    if program.local.keeps_optimizer:
        client_round.keep_optimizers([training.export_optimizer() for training in trainings])
    response = _build_response(client_round, request, trainings, *tested)
    if request.params is not received:
        response = replace(response, deltas=response.deltas + (request.params - received))
    return state if request.probe_round else client_round.finish(), response


def make_predictor(
    program: ClientProgram, state: ClientState, request: TrainRequest, trainer: LocalTrainer
) -> Predict:
    """Return the predictions of the model that predicts for a client when its round starts."""

    def predict(rows: Ints) -> npt.NDArray[Any]:
        params = request.params[program.main_model(state.split, request.models, request.broadcast)]
        own = program.get_own_model(state)
        params = params if own is None else own
        return trainer.predict(params, "train", rows)[0]

    return predict


def start_round(
    ctx: ClientContext, state: ClientState, predict: Predict | None = None
) -> ClientRound:
    """Start a client's part of a round: process missed samples, apply a pending alarm.

    `predict` is needed by recipes whose alarm drops outdated samples.

    After a probe round (`ctx.probe_round` is not 0) the result of `ClientRound.finish` must not be
    stored.
    """
    state = catch_up(ctx, state)
    state = apply_alarm(ctx, state, predict)
    return ClientRound(ctx, state)


def serve_together(
    client_rounds: Sequence[ClientRound],
    scores: Sequence[Mapping[str, Floats32]],
    per_tick: int,
) -> list[npt.NDArray[Any]]:
    """Predict the rows of `rows_to_test` of clients of one recipe, as `ClientRound.serve`."""
    clients = [
        each.prepare_serving(mine, per_tick)
        for each, mine in zip(client_rounds, scores, strict=True)
    ]
    if not clients:
        return []
    served = serve_clients(client_rounds[0].recipe, clients)
    for client_round, (state, _) in zip(client_rounds, served, strict=True):
        client_round.keep_serving(state)
    return [predicted for _, predicted in served]


class ClientRound:
    """One client in one round, with one memory and one or several models.

    Per tick call `observe`; `split_samples` if `splits_samples`; for every model (slot)
    `batches`, and `memo` for each step; then `end_tick`. At the end call `finish_round`, `upload`
    and `reports` for every slot, and `finish`. If the recipe probes models
    (`ClientProgram.needs_probe`), the context must have a probe for every model. All models see
    the same arrivals and the same mini-batches.
    """

    def __init__(self, ctx: ClientContext, state: ClientState) -> None:
        self.client, self._ctx, self._program = ctx.client, ctx, ctx.program
        self._models = np.array(ctx.models, dtype=np.int64)
        self._ingest = Ingest(ctx, state)
        self._batch_builders = [
            BatchBuilder(ctx, state, slot) for slot in range(len(ctx.probes) or len(ctx.models))
        ]
        self._split, self._trained = state.split, state.trained
        self._optimizers = self._program.kept_optimizers(state, ctx.rnd)
        self._own, self._serving = state.own, state.serving
        self._objective_uploads: dict[int, Mapping[str, Floats32]] = {}

    @property
    def recipe(self) -> Recipe:
        return self._program.recipe

    @property
    def rows(self) -> Ints:
        """(held,) rows of the data set in memory."""
        return self._ingest.rows

    @property
    def arrivals(self) -> list[Arrival]:
        """The arrivals of this round, one for each tick."""
        return self._ingest.arrivals

    @property
    def outlook(self) -> Outlook:
        """The client's forecast at the start of the round."""
        return self._ingest.outlook

    @property
    def has_serving(self) -> bool:
        """Whether the client chooses among several predictors."""
        return self._serving is not None

    @property
    def trained(self) -> Floats32 | None:
        """(P,) the result of the client's last local steps, if it predicts with it; else None."""
        return self._trained if self._program.keeps_trained_models else None

    @cached_property
    def main_model(self) -> int:
        """The slot of the model that predicts for this client, at the start of the round."""
        return self._program.main_model(self._split, self._models, self._ctx.received)

    def rows_to_test(self, per_tick: int) -> Ints:
        """Return the arriving rows that are predicted before the client trains on them."""
        arrived = [_first_items(arrival, per_tick) for arrival in self.arrivals]
        return np.concatenate(arrived) if arrived else np.empty(0, dtype=np.int64)

    def predictors(self, received: Floats32) -> list[Predictor]:
        """Return the models that predict arriving samples, if the recipe has a serving policy.

        `received` (J, P) are the models of this round.
        """
        assert self._serving is not None
        models = self._models.tolist()
        return list_models(
            self._program.recipe,
            self.main_model,
            models,
            received,
            read_averages(self._ctx.received, len(models)),
            self._trained,
            self._serving.num_models,
        )

    def serve(self, scores: Mapping[str, Floats32], per_tick: int) -> npt.NDArray[Any]:
        """Predict the rows of `rows_to_test` with the serving policy, given all scores."""
        return serve_together([self], [scores], per_tick)[0]

    def prepare_serving(self, scores: Mapping[str, Floats32], per_tick: int) -> ToServe:
        """Return the rows of `rows_to_test` and their scores, for the serving policy."""
        assert self._serving is not None
        order = np.concatenate([arrival.items for arrival in self.arrivals])
        targets = self._program.targets(order)
        previous = shift_targets(self._serving.last, targets)
        sizes = [len(arrival.items) for arrival in self.arrivals]
        if max(sizes) > per_tick:
            tested = np.concatenate([np.arange(size) < per_tick for size in sizes])
            targets, previous = targets[tested], previous[tested]
        return ToServe(self._serving, scores, targets, previous)

    def keep_serving(self, state: ServingState) -> None:
        """Keep the state after the predictions of this round."""
        self._serving = state

    def labels(self, rows: Ints) -> Ints:
        """Return the labels of some rows of the data set."""
        return self._program.labels.take(rows)

    def observe(self) -> None:
        """Process the next arrival: update the objective's state and the memory."""
        _ = self.main_model  # cache it before the split changes
        bank = self._program.bank_with_split
        if bank is not None and not self.splits_samples:
            self._split = bank.init_split(self._program.num_classes)
        latent = self._ingest.identify_state()
        for builder in self._batch_builders:
            builder.start_tick(latent, self.rows)  # with the old memory
        self._ingest.update_memory()

    @cached_property
    def splits_samples(self) -> bool:
        """Whether `split_samples` is called in every tick.

        A client that has received one model and no message of the bank has nothing to split.
        """
        bank = self._program.bank_with_split
        return bank is not None and (
            len(self._models) > 1
            or getattr(bank, "splits_single_models", True)
            or bool(self._ctx.received.get("bank"))
        )

    @property
    def known_losses(self) -> Floats32 | None:
        """(1, held) zeros if the split does not depend on the losses; None: compute them."""
        bank = self._program.bank_with_split
        if len(self._models) > 1 or getattr(bank, "splits_single_models", True):
            return None
        return np.zeros((1, len(self.rows)), dtype=np.float32)

    def split_samples(self, losses: Floats32) -> None:
        """Split the memory among the models, given (J, held) losses of the received models."""
        bank, ingest = self._program.bank_with_split, self._ingest
        assert bank is not None
        assert ingest.since is not None
        context = SplitContext(
            self._models,
            losses,
            self.labels(self.rows),
            ingest.since.astype(np.int64),
            self._ctx.rnd,
        )
        received = self._ctx.received.get("bank", {})
        self._split, weights = bank.split_samples(self._split, context, received)
        check_split(weights, losses.shape, bank)
        if len(weights) == 1 and not getattr(bank, "splits_single_models", True):
            return  # one model is trained on all samples
        is_used = np.asarray(weights.any(axis=0))
        for builder, split in zip(self._batch_builders, weights, strict=True):
            builder.split_samples(split, is_used)

    def batches(self, slot: int = 0) -> list[MiniBatch]:
        """Return the mini-batches of this tick for one model."""
        return self._batch_builders[slot].batches(self.rows, self._ingest.since)

    def memo(self, start: Floats32, slot: int = 0) -> Mapping[str, Floats32]:
        """Return (P,) vectors for the objective; `start` are the received parameters (P,)."""
        return self._batch_builders[slot].memo(start)

    def end_tick(self) -> None:
        """Finish a tick after its steps."""
        for builder in self._batch_builders:
            builder.end_tick(self._ingest.tick)

    def finish_round(self, summary: TrainingSummary, slot: int = 0) -> None:
        """Finish the training of one model."""
        self._objective_uploads[slot] = self._batch_builders[slot].finish_round(summary)

    def keep_trained(self, received: Floats32, delta: Floats32) -> None:
        """Keep the result (P,) of the main model's local steps, or a part of it, if needed."""
        if self._program.keeps_trained_models:
            self._trained = received + delta
        if (own := self._program.own_positions) is not None:
            self._own = received[own] + delta[own]

    def get_optimizer_state(self, slot: int = 0) -> dict[str, npt.NDArray[Any]] | None:
        """Return the optimizer state of a model after the client last trained it; None: never."""
        return self._optimizers.get(str(self._models[slot]))

    def keep_optimizers(self, states: Sequence[dict[str, npt.NDArray[Any]]]) -> None:
        """Keep the optimizer state of each model of this round; those of other models remain."""
        new = {str(model): state for model, state in zip(self._models, states, strict=True)}
        self._optimizers = {**self._optimizers, **new}

    def upload(self, slot: int = 0) -> dict[str, Floats32]:
        """Return the values for the server parts by "stage.name". Call it once for each model."""
        builder = self._batch_builders[slot]
        values = {**self._objective_uploads.get(slot, {}), **builder.upload(self.rows)}
        return {
            **self._client_uploads,
            **{f"objective.{name}": vector for name, vector in values.items()},
        }

    def reports(self, slot: int = 0) -> Mapping[str, float]:
        """Return the numbers that the recipe's weights need from this client."""
        weights, builder = self._program.weights_with_reports, self._batch_builders[slot]
        if weights is None:
            return {}
        summary = MemorySummary(
            self._program.hide_outlook(self.outlook, weights),
            self._ingest.renewal(),
            self._program.stream.ticks,
            self._ingest.signatures(),
            builder.total_weight(len(self.rows)),
            builder.mass(len(self.rows)),
            self._label_mix if getattr(weights, "reports_labels", False) else None,
            self._ingest.num_arrived,
        )
        return dict(weights.report(summary))

    @property
    def _label_mix(self) -> Floats:
        """(C,) the shares of the classes in memory; zeros if it is empty."""
        return self._program.histogram(self.rows) / max(len(self.rows), 1)

    def finish(self) -> ClientState:
        """Return the client's state after the round.

        It keeps the objective's states of models that the client did not train in this round.
        """
        state = self._batch_builders[0].finish(self._ingest.finish())
        if self._serving is not None and state.serving is not None:
            serving = self._serving._replace(last=state.serving.last)
            main = int(self._models[self.main_model])
            state = state._replace(serving=end_round(self._program.recipe, serving, main))
        own = tuple(builder.objective for builder in self._batch_builders[1:])
        other_objectives = (*own, *state.other_objectives[len(own) :])
        return state._replace(
            other_objectives=other_objectives,
            split=self._split,
            trained=self._trained,
            optimizer=self._optimizers or None,
            optimizer_round=self._ctx.rnd if self._optimizers else 0,
            own=self._own,
        )

    @cached_property
    def _client_uploads(self) -> dict[str, Floats32]:
        """The uploads that do not depend on the model: those of the memory and of the bank."""
        bank = self._program.bank_with_split
        split = {} if bank is None else bank.upload(self._split)
        return {
            **{f"memory.{name}": vector for name, vector in self._ingest.upload().items()},
            **{f"bank.{name}": vector for name, vector in split.items()},
        }


def check_split(weights: Floats, shape: tuple[int, ...], bank: object) -> None:
    """Check how a bank splits samples."""
    if weights.shape != shape or not np.isfinite(weights).all() or (weights < 0).any():
        raise ConfigError(
            f"{type(bank).__name__}.split_samples must return finite weights of at least 0 of "
            f"shape {shape}, a row for each model and a column for each sample, got shape "
            f"{weights.shape} from {weights.min(initial=0)} to {weights.max(initial=0)}."
        )


def _first_items(arrival: Arrival, number: int) -> Ints:
    """Return the first rows of an arrival; of merged clients, the first rows of each client.

    >>> merged = Arrival(np.array([7, 8, 9, 5]), 0, owners=np.array([0, 0, 1, -1]))
    >>> _first_items(merged, 1).tolist()
    [7, 9]
    """
    if arrival.owners is None:
        return arrival.items[:number]
    owners = np.unique(arrival.owners[arrival.owners >= 0])
    firsts = [np.flatnonzero(arrival.owners == owner)[:number] for owner in owners]
    positions = np.concatenate([np.empty(0, dtype=np.int64), *firsts])
    return arrival.items.take(positions)


def _test_arrivals(
    client_round: ClientRound, request: TrainRequest, trainer: LocalTrainer, per_tick: int
) -> tuple[int, int, float | None]:
    """Return how many arriving samples were tested, and how many the main model got right.

    In a regression also the sum of the absolute errors.
    """
    rows = client_round.rows_to_test(per_tick)
    if client_round.has_serving:
        predictors = client_round.predictors(request.params) if len(rows) else []
        scores = compute_scores(
            predictors, rows, lambda params, where: trainer.scores(params, "train", where)
        )
        predicted = client_round.serve(scores, per_tick) if len(rows) else trainer.targets(rows)
        return _count_outcomes(predicted, trainer.targets(rows))
    received, trained = request.params[client_round.main_model], client_round.trained
    predicted, _ = trainer.predict(received if trained is None else trained, "train", rows)
    return _count_outcomes(predicted, trainer.targets(rows))


def _count_outcomes(
    predicted: npt.NDArray[Any], targets: npt.NDArray[Any]
) -> tuple[int, int, float | None]:
    if is_regression(targets):
        return len(targets), 0, float(compute_abs_errors(predicted, targets).sum())
    return len(targets), int((predicted == targets).sum()), None


def _compute_losses(
    client_round: ClientRound, request: TrainRequest, trainer: LocalTrainer
) -> Floats32:
    """Return (J, held) losses of the received models on the memory."""
    rows = client_round.rows
    return np.stack([trainer.predict(params, "train", rows)[1] for params in request.params])


def _summarise(
    program: ClientProgram, start: Floats32, training: ClientTraining, lr_scale: float
) -> TrainingSummary:
    local, num_steps = program.local, len(training.seen_losses)
    return TrainingSummary(start, training.params(), num_steps, local.lr * lr_scale, local.momentum)


def _build_response(
    client_round: ClientRound,
    request: TrainRequest,
    trainings: Sequence[ClientTraining],
    num_tested: int,
    num_correct: int,
    error_sum: float | None,
) -> TrainResponse:
    slots = range(len(trainings))
    uploads = [client_round.upload(slot) for slot in slots]
    reports = [client_round.reports(slot) for slot in slots]
    is_main = np.arange(len(slots)) == client_round.main_model
    return TrainResponse(
        rnd=request.rnd,
        client=request.client,
        models=request.models,
        deltas=np.stack([training.delta for training in trainings]),
        num_samples=len(client_round.rows),
        num_steps=np.array([len(training.seen_losses) for training in trainings]),
        losses=np.array([training.mean_loss for training in trainings]),
        num_tested=is_main * num_tested,
        num_correct=is_main * num_correct,
        error_sums=None if error_sum is None else is_main * error_sum,
        probe_round=request.probe_round,
        reports={name: np.array([each[name] for each in reports], float) for name in reports[0]},
        uploads=stack_uploads(uploads),
    )
