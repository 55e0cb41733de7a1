"""The fast engine: a cohort is a few stacked computations, spread over worker processes.

Streams and memories run here, in the process of the run; only arithmetic goes to the workers. Recipes
whose clients look at their models between ticks train here too, their stacks in threads. What is
stacked with what follows from the cohort alone, so the number of workers never changes a bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from thalweg.core.talk import Told
from thalweg.core.types import Answers, Floats, Floats32, Ints, Job, Roster, Updates
from thalweg.engine.crowd import Crowd
from thalweg.engine.gather import Part
from thalweg.engine.look import StackLook, StillLook
from thalweg.engine.noise import noise_seeds
from thalweg.engine.stacked import (
    Stack,
    StackedTrainer,
    StackTask,
    Trainer,
    how_to_stack,
    in_threads,
)
from thalweg.engine.survey import surveyed
from thalweg.local import Work
from thalweg.nets import Net
from thalweg.recipes.client import Heard
from thalweg.recipes.federation import AskingStage
from thalweg.recipes.learning import MiniBatch
from thalweg.recipes.messages import heard_by
from thalweg.recipes.tables import side_by_side
from thalweg.recipes.visit import ClientRound


class Cohort(NamedTuple):
    """The clients of a round, in the order of their ids."""

    jobs: list[Job]
    heard: list[Heard]
    rnd: int

    @property
    def models(self) -> Ints:
        return np.array([job.model for job in self.jobs])

    @property
    def paces(self) -> Floats32 | None:
        """(K,) factors of the learning rates, decay included; None if all are one."""
        paces = np.array([job.pace for job in self.jobs], dtype=np.float32)
        return None if (paces == 1).all() else paces


class WorkDone(NamedTuple):
    """What came of training, a row per client."""

    deltas: Floats32
    losses: Floats
    num_steps: Ints
    said: dict[str, Floats32]


class FastFederation:
    """Embedded clients, trained in stacks."""

    def __init__(
        self,
        crowd: Crowd,
        labels: Ints,
        net: Net,
        trainer: Trainer,
        prequential: int,
        num_threads: int = 1,
        augments: bool = False,
        here: StackedTrainer | None = None,
    ) -> None:
        self.crowd, self._num_threads = crowd, num_threads
        self._here = here or (trainer if isinstance(trainer, StackedTrainer) else None)
        self._is_random = net.is_noisy or augments  # is there chance in a step?
        self._labels, self._net, self._trainer = labels, net, trainer
        self._prequential = prequential

    def roster(self, rnd: int) -> Roster:
        return self.crowd.roster(rnd)

    def survey(self, clients: Ints, stage: AskingStage, bank: Floats32, rnd: int) -> Answers:
        here = self._here
        assert here is not None, "questions are answered in this process"
        return surveyed(
            self.crowd, clients, stage, bank, rnd, lambda params: StillLook(here, params)
        )

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, told: Told | None = None
    ) -> Updates:
        # What is stacked with what must not depend on the order of asking.
        order = sorted(range(len(jobs)), key=jobs.__getitem__)
        cohort = Cohort(
            jobs=[self._paced(jobs[place]) for place in order],
            heard=[heard_by(told, place) for place in order],
            rnd=rnd,
        )
        work = self._work_ahead if not self.crowd.clients.is_attentive else self._work_together
        visits, work_done = work(cohort, bank)
        num_tested, num_correct = self._test_arrivals(visits, cohort.models, bank)
        reports = [visit.reports() for visit in visits]
        for visit, job in zip(visits, cohort.jobs, strict=True):
            if not job.rehearsal:
                self.crowd.leave(visit)
        return Updates(
            clients=np.array([job.client for job in cohort.jobs]),
            models=cohort.models,
            deltas=work_done.deltas,
            num_samples=np.array([len(visit.rows) for visit in visits]),
            num_steps=work_done.num_steps,
            losses=work_done.losses,
            num_tested=num_tested,
            num_correct=num_correct,
            reports={name: np.array([report[name] for report in reports]) for name in reports[0]},
            said=work_done.said,
        )

    def predict(self, model: Floats32, part: Part, rows: Ints | None) -> tuple[Ints, Floats32]:
        return self._trainer.predict(model, part, rows)

    def scores(self, model: Floats32, part: Part, rows: Ints | None) -> Floats32:
        return self._trainer.scores(model, part, rows)

    def close(self) -> None:
        self._trainer.close()

    def _work_ahead(self, cohort: Cohort, bank: Floats32) -> tuple[list[ClientRound], WorkDone]:
        """Nobody looks at a model in mid-round: draw all mini-batches first, then train in one go."""
        visits = [
            self.crowd.enter(job, cohort.rnd, None, heard)
            for job, heard in zip(cohort.jobs, cohort.heard, strict=True)
        ]
        batches = [self._live(visit) for visit in visits]
        paces, noise = cohort.paces, self._noise(cohort)
        tasks = [
            stack(
                cohort.models[part],
                batches[part],
                None if paces is None else paces[part],
                None if noise is None else noise[part],
            )
            for part in self._stacks(len(visits))
        ]
        deltas, losses = self._trainer.train(bank, tasks)
        num_steps = np.array([len(mine) for mine in batches])
        said = side_by_side([visit.say() for visit in visits])
        return visits, WorkDone(deltas, losses, num_steps, said)

    def _work_together(self, cohort: Cohort, bank: Floats32) -> tuple[list[ClientRound], WorkDone]:
        """Clients look at their models between ticks: stream, memory and training take turns.

        Models must be where the memories are, so this is done here, stacks in threads beside each other.
        """
        trainer = self._trainer
        assert isinstance(trainer, StackedTrainer), "attentive recipes train in this process"
        deltas = np.empty((len(cohort.jobs), bank.shape[1]), dtype=np.float32)
        losses = np.empty(len(cohort.jobs))
        num_steps = np.empty(len(cohort.jobs), dtype=np.int64)
        noise = self._noise(cohort)

        def work(part: slice) -> tuple[list[ClientRound], list[dict[str, Floats32]]]:
            together, visits = self._begin(trainer, cohort, bank, part, noise)
            for _ in range(self.crowd.clients.stream.ticks):
                self._tick(trainer, together, visits)
            self._conclude(together, visits, cohort.jobs[part])
            said = [visit.say() for visit in visits]
            losses[part] = trainer.finish(together, deltas[part])
            num_steps[part] = together.num_steps
            return visits, said

        done = in_threads(work, self._stacks(len(cohort.jobs)), self._num_threads)
        said = [words for _, mine in done for words in mine]
        return [visit for mine, _ in done for visit in mine], WorkDone(
            deltas, losses, num_steps, side_by_side(said)
        )

    def _begin(
        self,
        trainer: StackedTrainer,
        cohort: Cohort,
        bank: Floats32,
        part: slice,
        noise: Ints | None,
    ) -> tuple[Stack, list[ClientRound]]:
        """Some clients at the start of their round, each with a view of its model."""
        paces = cohort.paces
        together = trainer.begin(
            bank,
            cohort.models[part],
            None if paces is None else paces[part],
            None if noise is None else noise[part],
        )
        visits = [
            self.crowd.enter(job, cohort.rnd, StackLook(trainer, together, k), heard)
            for k, (job, heard) in enumerate(
                zip(cohort.jobs[part], cohort.heard[part], strict=True)
            )
        ]
        return together, visits

    def _tick(self, trainer: StackedTrainer, together: Stack, visits: list[ClientRound]) -> None:
        batches = []
        for visit in visits:
            visit.observe()
            batches.append(visit.batches())
        memos = [
            visit.memo(start.numpy()) for visit, start in zip(visits, together.start, strict=True)
        ]
        memo = {name: torch.from_numpy(np.stack([m[name] for m in memos])) for name in memos[0]}
        task = stack(np.zeros(len(visits), dtype=np.int64), batches)
        trainer.steps(together, task.items, task.weights, task.live, memo)
        for visit in visits:
            visit.pause()

    def _conclude(self, together: Stack, visits: list[ClientRound], jobs: list[Job]) -> None:
        """Tell objectives that want to know what came of the round."""
        local, steps = self.crowd.clients.local, together.num_steps.tolist()
        if self.crowd.clients.concluding is None:
            return
        for k, (visit, job) in enumerate(zip(visits, jobs, strict=True)):
            start, params = together.start[k].numpy(), together.params[k].numpy().copy()
            visit.conclude(Work(start, params, steps[k], local.lr * job.pace, local.momentum))

    def _paced(self, job: Job) -> Job:
        """The learning rate falls while a session lasts, if it does."""
        return job._replace(pace=job.pace * self.crowd.clients.local.pace(job.age))

    def _stacks(self, num_jobs: int) -> list[slice]:
        ends = np.cumsum([0, *how_to_stack(self._net, num_jobs)]).tolist()
        return [slice(first, last) for first, last in pairwise(ends)]

    def _noise(self, cohort: Cohort) -> Ints | None:
        """Seeds of the clients' dropout and changed images."""
        if not self._is_random:
            return None
        return noise_seeds(self.crowd.clients.seed, cohort.jobs, cohort.rnd)

    def _live(self, visit: ClientRound) -> list[MiniBatch]:
        """All mini-batches of a client's round, in order."""
        batches: list[MiniBatch] = []
        for _ in range(self.crowd.clients.stream.ticks):
            visit.observe()
            batches += visit.batches()
        return batches

    def _test_arrivals(
        self, visits: list[ClientRound], models: Ints, bank: Floats32
    ) -> tuple[Ints, Ints]:
        """Test, then train: how many arriving samples the received models get right."""
        rows = [visit.rows_to_test(self._prequential) for visit in visits]
        correct = np.zeros(len(visits), dtype=np.int64)
        for model in np.unique(models):
            mine = np.flatnonzero(models == model)
            asked = np.concatenate([rows[k] for k in mine])
            owner = np.repeat(mine, [len(rows[k]) for k in mine])
            if len(asked):
                predicted, _ = self._trainer.predict(bank[model], "train", asked)
                right = predicted == self._labels[asked]
                correct += np.bincount(owner, weights=right, minlength=len(visits)).astype(int)
        return np.array([len(part) for part in rows]), correct


def stack(
    models: Ints,
    batches: Sequence[Sequence[MiniBatch]],
    paces: Floats32 | None = None,
    noise: Ints | None = None,
) -> StackTask:
    """Mini-batches of a few clients as one task; shorter ones are padded with weight zero."""
    num_steps = max(len(mine) for mine in batches)
    size = max((len(batch.rows) for mine in batches for batch in mine), default=1)
    items = np.zeros((num_steps, len(batches), size), dtype=np.int32)  # (S, K, B)
    weights = np.zeros((num_steps, len(batches), size), dtype=np.float32)
    live = np.zeros((num_steps, len(batches)), dtype=bool)
    for k, mine in enumerate(batches):
        for s, (rows, counts) in enumerate(mine):
            items[s, k, : len(rows)] = rows
            weights[s, k, : len(rows)] = 1 / len(rows) if counts is None else counts
            live[s, k] = True
    return StackTask(models, items, weights, live, paces, noise)
