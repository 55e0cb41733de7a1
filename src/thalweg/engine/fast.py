"""The fast engine: trains a cohort as a few stacked computations in worker processes.

Streams and memories run in the process of the run; only training and predictions are computed by
workers. Recipes whose clients use their models between ticks are trained in this process, with one
thread per stack. The stacks depend on the cohort only, so that the number of workers changes no
bit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thalweg.core.capabilities import Broadcast, ModelProbe
from thalweg.core.types import Floats, Floats32, Ints, Job, Roster, SurveyResponses, Updates
from thalweg.data import Part
from thalweg.data.base import Targets
from thalweg.engine.client_pool import ClientPool
from thalweg.engine.stack_tasks import StackLimit, StackTask, Trainer, choose_stack_sizes
from thalweg.engine.step_seeds import noise_seeds
from thalweg.evaluation.numbers import compute_abs_errors
from thalweg.federation import (
    ClientRound,
    MiniBatch,
    Received,
    SurveyStage,
    build_updates,
    select_client_broadcast,
    split_updates,
    stack_uploads,
)
from thalweg.federation.client_round import is_regression, serve_together
from thalweg.federation.extensions.alarms import Predict
from thalweg.federation.extensions.privacy import protect_response
from thalweg.federation.serving import Predictor
from thalweg.local import TrainingSummary
from thalweg.nets import Net
from thalweg.serving import TRAINED

if TYPE_CHECKING:
    from thalweg.engine.stacked import Stack, StackedTrainer


class Cohort(NamedTuple):
    """The jobs of a round, ordered by client, and what each client received."""

    jobs: list[Job]
    received: list[Received]  # per client
    slices: list[slice]  # the jobs of each client
    rnd: int
    is_personal: bool = False  # the bank has one model per job, in the order of the jobs

    @property
    def models(self) -> Ints:
        """(K,) the row of the bank from which each job starts."""
        if self.is_personal:
            return np.arange(len(self.jobs))
        return np.array([job.model for job in self.jobs])

    @property
    def lr_scales(self) -> Floats32 | None:
        """(K,) factors of the learning rates, with decay; None if all are 1."""
        lr_scales = np.array([job.lr_scale for job in self.jobs], dtype=np.float32)
        return None if (lr_scales == 1).all() else lr_scales


class TrainingResult(NamedTuple):
    """Results of training, one row per job."""

    deltas: Floats32
    losses: Floats
    num_steps: Ints
    uploads: dict[str, Floats32]


class FastFederation:
    """Runs all clients in this process and trains them in stacks."""

    def __init__(
        self,
        client_pool: ClientPool,
        labels: Targets,
        net: Net,
        trainer: Trainer,
        prequential: int,
        num_threads: int = 1,
        augments: bool = False,
        make_stacked: Callable[[], StackedTrainer] | None = None,
        limit: StackLimit | None = None,  # of the device of the trainer
    ) -> None:
        self.client_pool, self._num_threads, self._limit = client_pool, num_threads, limit
        self._make_stacked = make_stacked  # for recipes that use models in this process
        self._is_random = net.is_noisy or augments  # are steps random?
        self._labels, self._net, self._trainer = labels, net, trainer
        self._prequential = prequential

    @cached_property
    def _stacked(self) -> StackedTrainer:
        """The trainer of surveys and of recipes whose clients use models between ticks."""
        from thalweg.engine.stacked import StackedTrainer

        if isinstance(self._trainer, StackedTrainer):
            return self._trainer
        assert self._make_stacked is not None, "models are used in this process"
        return self._make_stacked()

    def roster(self, rnd: int) -> Roster:
        return self.client_pool.roster(rnd)

    def true_concepts(self, rnd: int) -> Ints:
        return self.client_pool.true_concepts(rnd)

    def survey(
        self, clients: Ints, stage: SurveyStage, bank: Floats32, rnd: int
    ) -> SurveyResponses:
        return self.client_pool.survey(clients, stage, bank, rnd, self._make_probe)

    def _make_probe(self, params: Floats32) -> ModelProbe:
        """Return a probe of a model; PyTorch is loaded only if the probe needs it."""
        from thalweg.native.trainer import NativeTrainer

        def make_with_torch() -> ModelProbe:
            from thalweg.engine.model_probe import FixedModelProbe

            return FixedModelProbe(self._stacked, params)

        if not isinstance(self._trainer, NativeTrainer):
            return make_with_torch()
        from thalweg.engine.native_probe import NativeProbe

        return NativeProbe(self._trainer, params, make_with_torch)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        # The stacks must not depend on the order of the jobs.
        order = sorted(range(len(jobs)), key=lambda index: jobs[index][:2])
        owners = [jobs[index].client for index in order]
        starts = [row for row, owner in enumerate(owners) if row == 0 or owners[row - 1] != owner]
        cohort = Cohort(
            jobs=[self._apply_lr_decay(jobs[index]) for index in order],
            received=[
                select_client_broadcast(broadcast, order[first:last])
                for first, last in pairwise([*starts, len(order)])
            ],
            slices=[slice(*ends) for ends in pairwise([*starts, len(order)])],
            rnd=rnd,
        )
        models, received_bank = cohort.models, bank
        if self.client_pool.clients.own_positions is not None:
            cohort, bank = self._personalise(cohort, bank)
        work = (
            self._train_interleaved
            if self.client_pool.clients.trains_by_tick
            else self._train_prebatched
        )
        client_rounds, work_done = work(cohort, bank)
        num_tested, num_correct, error_sums = self._test_arrivals(client_rounds, cohort, bank)
        reports = [
            client_round.reports(index)
            for client_round, rows in zip(client_rounds, cohort.slices, strict=True)
            for index in range(rows.stop - rows.start)
        ]
        clients = self.client_pool.clients
        for client_round, rows in zip(client_rounds, cohort.slices, strict=True):
            if clients.keeps_trained_models or clients.own_positions is not None:
                main = rows.start + client_round.main_model
                client_round.keep_trained(bank[cohort.models[main]], work_done.deltas[main])
            if not cohort.jobs[rows.start].probe_round:
                self.client_pool.finish(client_round)
        num_jobs = [rows.stop - rows.start for rows in cohort.slices]
        deltas = work_done.deltas
        if bank is not received_bank:
            deltas = deltas + (bank - received_bank[models])
        updates = Updates(
            clients=np.array([job.client for job in cohort.jobs]),
            models=models,
            deltas=deltas,
            num_samples=np.repeat(
                [len(client_round.rows) for client_round in client_rounds], num_jobs
            ),
            num_steps=work_done.num_steps,
            losses=work_done.losses,
            num_tested=num_tested,
            num_correct=num_correct,
            error_sums=error_sums,
            reports={name: np.array([report[name] for report in reports]) for name in reports[0]},
            uploads=work_done.uploads,
        )
        return self._protect(updates, cohort)

    def predict_many(
        self, models: Floats32, part: Part, rows: Ints | None
    ) -> tuple[Targets, Floats32]:
        return self._trainer.predict_many(models, part, rows)

    def scores_many(self, models: Floats32, part: Part, rows: Ints | None) -> Floats32:
        return self._trainer.scores_many(models, part, rows)

    def close(self) -> None:
        self._trainer.close()

    def _personalise(self, cohort: Cohort, bank: Floats32) -> tuple[Cohort, Floats32]:
        """Return a bank with one model per job, which has the client's own values."""
        pool = self.client_pool
        models = [
            pool.clients.personalise(bank[job.model][None], pool.states.get(job.client))
            for job in cohort.jobs
        ]
        return cohort._replace(is_personal=True), np.concatenate(models)

    def _train_prebatched(
        self, cohort: Cohort, bank: Floats32
    ) -> tuple[list[ClientRound], TrainingResult]:
        """Draw all mini-batches, then train: for clients that use no model during the round."""
        client_rounds = [
            self.client_pool.start_round(
                cohort.jobs[rows],
                cohort.rnd,
                received=received,
                predict=self._make_predictor(self._trainer, cohort, bank, rows, received),
            )
            for rows, received in zip(cohort.slices, cohort.received, strict=True)
        ]
        batches = self._draw_batches(client_rounds, cohort, bank)
        lr_scales, noise = cohort.lr_scales, self._noise_seeds(cohort)
        tasks = [
            stack(
                cohort.models[part],
                batches[part],
                None if lr_scales is None else lr_scales[part],
                None if noise is None else noise[part],
            )
            for part in self._make_stacks(len(cohort.jobs))
        ]
        deltas, losses = self._trainer.train(bank, tasks)
        num_steps = np.array([len(mine) for mine in batches])
        uploads = stack_uploads(_collect_uploads(client_rounds, cohort.slices))
        return client_rounds, TrainingResult(deltas, losses, num_steps, uploads)

    def _make_predictor(
        self, trainer: Trainer, cohort: Cohort, bank: Floats32, rows: slice, received: Received
    ) -> Predict:
        """Return the predictions of the model that predicts for a client when its round starts."""

        def predict(samples: Ints) -> Targets:
            pool, jobs = self.client_pool, cohort.jobs[rows]
            state = pool.state(jobs[0].client)
            models = np.array([job.model for job in jobs])
            slot = pool.clients.main_model(state.split, models, received)
            params = bank[cohort.models[rows.start + slot]]
            own = pool.clients.get_own_model(state)
            params = params if own is None else own
            return trainer.predict(params, "train", samples)[0]

        return predict

    def _train_interleaved(
        self, cohort: Cohort, bank: Floats32
    ) -> tuple[list[ClientRound], TrainingResult]:
        """Alternate arrivals, memory and training: for clients that use their models between ticks.

        It is also used for clients that keep their optimizer. Models, memories and optimizers must
        be in the same process, so the stacks are trained in threads.
        """
        from thalweg.engine.stacked import map_in_threads

        trainer = self._stacked
        deltas = np.empty((len(cohort.jobs), bank.shape[1]), dtype=np.float32)
        losses = np.empty(len(cohort.jobs))
        num_steps = np.empty(len(cohort.jobs), dtype=np.int64)
        noise = self._noise_seeds(cohort)

        def work(part: slice) -> tuple[list[ClientRound], list[dict[str, Floats32]]]:
            with trainer.guard(part.stop - part.start):
                stacked, client_rounds, rows = self._start_stack(trainer, cohort, bank, part, noise)
                for _ in range(self.client_pool.clients.stream.ticks):
                    self._run_tick(trainer, stacked, client_rounds, rows)
            self._finish_objectives(stacked, client_rounds, rows, cohort.jobs[part])
            if self.client_pool.clients.local.keeps_optimizer:
                for client_round, mine in zip(client_rounds, rows, strict=True):
                    in_stack = range(mine.start, mine.stop)
                    states = [trainer.export_optimizer(stacked, k) for k in in_stack]
                    client_round.keep_optimizers(states)
            uploads = _collect_uploads(client_rounds, rows)
            losses[part] = trainer.finish(stacked, deltas[part])
            num_steps[part] = stacked.num_steps
            return client_rounds, uploads

        done = map_in_threads(work, self._make_client_stacks(cohort), self._num_threads)
        uploads = [words for _, mine in done for words in mine]
        return [client_round for mine, _ in done for client_round in mine], TrainingResult(
            deltas, losses, num_steps, stack_uploads(uploads)
        )

    def _start_stack(
        self,
        trainer: StackedTrainer,
        cohort: Cohort,
        bank: Floats32,
        part: slice,
        noise: Ints | None,
    ) -> tuple[Stack, list[ClientRound], list[slice]]:
        """Start the round of some clients; return their stack, rounds and rows in the stack."""
        from thalweg.engine.model_probe import StackModelProbe

        lr_scales = cohort.lr_scales
        stacked = trainer.begin(
            bank,
            cohort.models[part],
            None if lr_scales is None else lr_scales[part],
            None if noise is None else noise[part],
        )
        client_rounds, slices = [], []
        for rows, received in zip(cohort.slices, cohort.received, strict=True):
            if part.start <= rows.start < part.stop:
                mine = slice(rows.start - part.start, rows.stop - part.start)
                probes = [
                    StackModelProbe(trainer, stacked, k) for k in range(mine.start, mine.stop)
                ]
                client_rounds.append(
                    self.client_pool.start_round(
                        cohort.jobs[rows],
                        cohort.rnd,
                        probes,
                        received,
                        self._make_predictor(trainer, cohort, bank, rows, received),
                    )
                )
                slices.append(mine)
        for client_round, mine in zip(client_rounds, slices, strict=True):
            for slot, k in enumerate(range(mine.start, mine.stop)):
                if (state := client_round.get_optimizer_state(slot)) is not None:
                    trainer.restore_optimizer(stacked, k, state)
        return stacked, client_rounds, slices

    def _run_tick(
        self,
        trainer: StackedTrainer,
        stacked: Stack,
        client_rounds: list[ClientRound],
        rows: list[slice],
    ) -> None:
        import torch

        batches, memos = [], []
        for client_round, mine in zip(client_rounds, rows, strict=True):
            client_round.observe()
            starts = list(stacked.start[mine].cpu().numpy())
            if client_round.splits_samples:
                losses = client_round.known_losses
                if losses is None:
                    losses = trainer.predict_many(np.stack(starts), "train", client_round.rows)[1]
                client_round.split_samples(losses)
            for index, start in enumerate(starts):
                batches.append(client_round.batches(index))
                memos.append(client_round.memo(start, index))
        device = stacked.start.device
        memo = {
            name: torch.from_numpy(np.stack([m[name] for m in memos])).to(device)
            for name in memos[0]
        }
        task = stack(np.zeros(len(batches), dtype=np.int64), batches)
        trainer.steps(stacked, task.items, task.weights, task.live, memo, task.sizes)
        for client_round in client_rounds:
            client_round.end_tick()

    def _finish_objectives(
        self, stacked: Stack, client_rounds: list[ClientRound], rows: list[slice], jobs: list[Job]
    ) -> None:
        """Pass the results of the round to objectives that have `finish_round`."""
        local, steps = self.client_pool.clients.local, stacked.num_steps.tolist()
        if self.client_pool.clients.objective_with_finish is None:
            return
        for client_round, mine in zip(client_rounds, rows, strict=True):
            for index, k in enumerate(range(mine.start, mine.stop)):
                start = stacked.start[k].cpu().numpy()
                params = stacked.params[k].cpu().numpy().copy()
                lr = local.lr * jobs[k].lr_scale
                client_round.finish_round(
                    TrainingSummary(start, params, steps[k], lr, local.momentum), index
                )

    def _protect(self, updates: Updates, cohort: Cohort) -> Updates:
        """Return what clients send in place of their updates with `Recipe.privacy`, if any."""
        clients = self.client_pool.clients
        if clients.recipe.privacy is None:
            return updates
        responses = split_updates(updates, cohort.rnd)
        jobs = [cohort.jobs[rows.start] for rows in cohort.slices]
        protected = [
            protect_response(clients, response, job.probe_round)
            for response, job in zip(responses, jobs, strict=True)
        ]
        return build_updates(protected, updates.deltas.shape[1])

    def _apply_lr_decay(self, job: Job) -> Job:
        """Apply the decay of the learning rate during a session."""
        return job._replace(
            lr_scale=job.lr_scale * self.client_pool.clients.local.lr_scale(job.age)
        )

    def _make_stacks(self, num_jobs: int) -> list[slice]:
        ends = np.cumsum([0, *choose_stack_sizes(self._net, num_jobs, self._limit)]).tolist()
        return [slice(first, last) for first, last in pairwise(ends)]

    def _make_client_stacks(self, cohort: Cohort) -> list[slice]:
        """Return the stacks of `_make_stacks`, extended so that all jobs of a client are in one."""
        ends = [rows.stop for rows in cohort.slices]
        moved = [ends[bisect_left(ends, part.stop)] for part in self._make_stacks(len(cohort.jobs))]
        return [slice(first, last) for first, last in pairwise([0, *dict.fromkeys(moved)])]

    def _noise_seeds(self, cohort: Cohort) -> Ints | None:
        """Return the seeds of dropout and augmentation; None if there is neither."""
        if not self._is_random:
            return None
        return noise_seeds(self.client_pool.clients.seed, cohort.jobs, cohort.rnd)

    def _draw_batches(
        self, client_rounds: list[ClientRound], cohort: Cohort, bank: Floats32
    ) -> list[list[MiniBatch]]:
        """Return all mini-batches of every job."""
        batches: list[list[MiniBatch]] = [[] for _ in cohort.jobs]
        for _ in range(self.client_pool.clients.stream.ticks):
            for client_round in client_rounds:
                client_round.observe()
            self._split_samples(client_rounds, cohort, bank)
            for client_round, rows in zip(client_rounds, cohort.slices, strict=True):
                for index, mine in enumerate(batches[rows]):
                    mine += client_round.batches(index)
        return batches

    def _split_samples(
        self, client_rounds: list[ClientRound], cohort: Cohort, bank: Floats32
    ) -> None:
        """Let clients assign their samples to their models, by the losses of the received
        models.
        """
        if not any(client_round.splits_samples for client_round in client_rounds):
            return
        owners = np.repeat(np.arange(len(client_rounds)), [r.stop - r.start for r in cohort.slices])
        known = [client_round.known_losses for client_round in client_rounds]
        is_unknown = np.array(
            [
                each is None and client_round.splits_samples
                for each, client_round in zip(known, client_rounds, strict=True)
            ]
        )
        losses: list[Floats32] = [np.empty(0, dtype=np.float32) for _ in cohort.jobs]
        groups: dict[tuple[int, ...], list[Ints]] = {}  # clients -> their jobs, for each model
        for model in np.unique(cohort.models):
            mine = np.flatnonzero((cohort.models == model) & is_unknown[owners])
            if len(mine) == 0:
                continue
            groups.setdefault(tuple(owners[mine].tolist()), []).append(mine)
        for clients, jobs in groups.items():
            held = [client_rounds[client].rows for client in clients]
            models = bank[cohort.models[[mine[0] for mine in jobs]]]
            _, found = self._trainer.predict_many(models, "train", np.concatenate(held))
            parts = np.split(found, np.cumsum([len(rows) for rows in held])[:-1], axis=1)
            for number, mine in enumerate(jobs):
                for row, part in zip(mine.tolist(), parts, strict=True):
                    losses[row] = part[number]
        for client_round, rows, zeros in zip(client_rounds, cohort.slices, known, strict=True):
            if client_round.splits_samples:
                client_round.split_samples(np.stack(losses[rows]) if zeros is None else zeros)

    def _test_arrivals(
        self, client_rounds: list[ClientRound], cohort: Cohort, bank: Floats32
    ) -> tuple[Ints, Ints, Floats | None]:
        """Return how many arriving samples are tested before training, and how many are correct.

        In a regression also the sums of the absolute errors.

        If a client has several models, only its main model is tested. A client that keeps the
        model that it trained last tests this model.
        """
        rows = [client_round.rows_to_test(self._prequential) for client_round in client_rounds]
        if self.client_pool.clients.recipe.serving is not None:
            return self._serve_arrivals(client_rounds, cohort, bank, rows)
        main = np.array(
            [
                part.start + client_round.main_model
                for client_round, part in zip(client_rounds, cohort.slices, strict=True)
            ]
        )
        tested, correct = np.zeros((2, len(cohort.jobs)), dtype=np.int64)
        error_sums = np.zeros(len(cohort.jobs)) if is_regression(self._labels) else None
        tested[main] = [len(part) for part in rows]
        trained = [client_round.trained for client_round in client_rounds]
        for k, params in enumerate(trained):
            if params is not None and len(rows[k]):
                predicted, _ = self._trainer.predict(params, "train", rows[k])
                targets = self._labels[rows[k]]
                if error_sums is not None:
                    error_sums[main[k]] = compute_abs_errors(predicted, targets).sum()
                else:
                    correct[main[k]] = (predicted == targets).sum()
        uses_received = np.array([params is None for params in trained])
        for model in np.unique(cohort.models[main[uses_received]]):
            mine = np.flatnonzero((cohort.models[main] == model) & uses_received)
            tested_rows = np.concatenate([rows[k] for k in mine])
            owner = np.repeat(main[mine], [len(rows[k]) for k in mine])
            if len(tested_rows):
                predicted, _ = self._trainer.predict(bank[model], "train", tested_rows)
                targets = self._labels[tested_rows]
                if error_sums is not None:
                    errors = compute_abs_errors(predicted, targets)
                    error_sums += np.bincount(owner, weights=errors, minlength=len(correct))
                    continue
                right = predicted == targets
                correct += np.bincount(owner, weights=right, minlength=len(correct)).astype(int)
        return tested, correct, error_sums

    def _serve_arrivals(
        self, client_rounds: list[ClientRound], cohort: Cohort, bank: Floats32, rows: list[Ints]
    ) -> tuple[Ints, Ints, Floats | None]:
        """Return the results of `_test_arrivals` for clients that choose among predictors.

        Clients that share a model are predicted together.
        """
        tested, correct = np.zeros((2, len(cohort.jobs)), dtype=np.int64)
        error_sums = np.zeros(len(cohort.jobs)) if is_regression(self._labels) else None
        predictors = [
            client_round.predictors(bank[cohort.models[part]]) if len(mine) else []
            for client_round, part, mine in zip(client_rounds, cohort.slices, rows, strict=True)
        ]
        scores = score_together(predictors, rows, self._trainer)
        used = [number for number, mine in enumerate(rows) if len(mine)]
        served = serve_together(
            [client_rounds[number] for number in used],
            [scores[number] for number in used],
            self._prequential,
        )
        for number, predicted in zip(used, served, strict=True):
            job = cohort.slices[number].start + client_rounds[number].main_model
            targets = self._labels[rows[number]]
            tested[job] = len(targets)
            if error_sums is not None:
                error_sums[job] = compute_abs_errors(predicted, targets).sum()
            else:
                correct[job] = (predicted == targets).sum()
        return tested, correct, error_sums


def score_together(
    predictors: Sequence[Sequence[Predictor]], rows: Sequence[Ints], trainer: Trainer
) -> list[dict[str, Floats32]]:
    """Return for each client the scores of its predictors on its rows, by name.

    A model that several clients have received is computed once, on the rows of all of them.
    """
    users: dict[tuple[str, int], dict[int, Floats32]] = {}  # key -> client -> parameters
    for client, mine in enumerate(predictors):
        for name, key, params in mine:
            shared = key if name != TRAINED else (TRAINED, client)
            users.setdefault(shared, {})[client] = params
    groups: dict[tuple[int, ...], list[tuple[str, int]]] = {}  # clients -> models of the same ones
    for key, params_of in users.items():
        groups.setdefault(tuple(params_of), []).append(key)
    found: list[dict[tuple[str, int], Floats32]] = [{} for _ in predictors]
    for clients, keys in groups.items():
        together = np.concatenate([rows[client] for client in clients])
        received = [users[key][clients[0]] for key in keys]
        models = received[0][None] if len(received) == 1 else np.stack(received)
        scores = trainer.scores_many(models, "train", together)
        ends = np.cumsum([0, *(len(rows[client]) for client in clients)]).tolist()
        for key, part in zip(keys, scores, strict=True):
            own_key = (TRAINED, 0) if key[0] == TRAINED else key
            for client, first, last in zip(clients, ends, ends[1:], strict=False):
                found[client][own_key] = part[first:last]
    return [
        {name: mine[key] for name, key, _ in used}
        for used, mine in zip(predictors, found, strict=True)
    ]


def _collect_uploads(
    client_rounds: list[ClientRound], rows: list[slice]
) -> list[dict[str, Floats32]]:
    """Return the uploads of every client for each of its models."""
    return [
        client_round.upload(index)
        for client_round, mine in zip(client_rounds, rows, strict=True)
        for index in range(mine.stop - mine.start)
    ]


def stack(
    models: Ints,
    batches: Sequence[Sequence[MiniBatch]],
    lr_scales: Floats32 | None = None,
    noise: Ints | None = None,
) -> StackTask:
    """Combine mini-batches of several clients to one task, padded with weight zero."""
    num_steps = max(len(mine) for mine in batches)
    size = max((len(batch.rows) for mine in batches for batch in mine), default=1)
    items = np.zeros((num_steps, len(batches), size), dtype=np.int32)  # (S, K, B)
    weights = np.zeros((num_steps, len(batches), size), dtype=np.float32)
    live = np.zeros((num_steps, len(batches)), dtype=bool)
    sizes = np.zeros((num_steps, len(batches)), dtype=np.int64)
    for k, mine in enumerate(batches):
        for s, (rows, counts) in enumerate(mine):
            items[s, k, : len(rows)] = rows
            weights[s, k, : len(rows)] = 1 / len(rows) if counts is None else counts
            live[s, k], sizes[s, k] = True, len(rows)
    return StackTask(models, items, weights, live, lr_scales, noise, sizes)
