"""The fast engine: a cohort is a few stacked computations, spread over worker processes.

Streams and memories run here, in the process of the run; only arithmetic goes to the workers. What
is stacked with what follows from the cohort alone, so the number of workers never changes a bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thalweg.core.types import Floats32, Ints, Job, Roster, Updates
from thalweg.engine.crowd import Crowd, rows_to_test
from thalweg.engine.gather import Part
from thalweg.engine.stacked import StackTask, Trainer, how_to_stack
from thalweg.nets import Net
from thalweg.recipes.client import ClientRound, Rows


class FastFederation:
    """Embedded clients, trained in stacks."""

    def __init__(
        self, crowd: Crowd, labels: Ints, net: Net, trainer: Trainer, prequential: int
    ) -> None:
        self.crowd = crowd
        self._labels, self._net, self._trainer = labels, net, trainer
        self._prequential = prequential

    def roster(self, rnd: int) -> Roster:
        return self.crowd.roster(rnd)

    def train(self, jobs: Sequence[Job], bank: Floats32, rnd: int) -> Updates:
        jobs = sorted(jobs)  # what is stacked with what must not depend on the order of asking
        visits = [self.crowd.enter(job.client, rnd) for job in jobs]
        models = np.array([job.model for job in jobs])
        num_tested, num_correct = self._test_arrivals(visits, models, bank)
        batches = [self._live(visit) for visit in visits]
        tasks, done = [], 0
        for size in how_to_stack(self._net, len(jobs)):
            part = slice(done, done + size)
            tasks.append(stack(models[part], batches[part]))
            done += size
        deltas, losses = self._trainer.train(bank, tasks)
        reports = [visit.reports() for visit in visits]
        for visit in visits:
            self.crowd.leave(visit)
        return Updates(
            clients=np.array([job.client for job in jobs]),
            models=models,
            deltas=deltas,
            num_samples=np.array([len(visit.rows) for visit in visits]),
            num_steps=np.array([len(mine) for mine in batches]),
            losses=losses,
            num_tested=num_tested,
            num_correct=num_correct,
            reports={name: np.array([report[name] for report in reports]) for name in reports[0]},
        )

    def predict(self, model: Floats32, part: Part, rows: Ints | None) -> tuple[Ints, Floats32]:
        return self._trainer.predict(model, part, rows)

    def close(self) -> None:
        self._trainer.close()

    def _live(self, visit: ClientRound) -> list[Rows]:
        """All mini-batches of a client's round, in order."""
        batches = []
        for _ in range(self.crowd.clients.world.ticks):
            visit.observe()
            batches += visit.batches()
        return batches

    def _test_arrivals(
        self, visits: list[ClientRound], models: Ints, bank: Floats32
    ) -> tuple[Ints, Ints]:
        """Test, then train: how many arriving samples the received models get right."""
        rows = [rows_to_test(visit, self._prequential) for visit in visits]
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


def stack(models: Ints, batches: Sequence[Sequence[Rows]]) -> StackTask:
    """Mini-batches of a few clients as one task; shorter ones are padded with weight zero."""
    num_steps = max(len(mine) for mine in batches)
    size = max((len(rows) for mine in batches for rows in mine), default=1)
    items = np.zeros((num_steps, len(batches), size), dtype=np.int32)  # (S, K, B)
    weights = np.zeros((num_steps, len(batches), size), dtype=np.float32)
    live = np.zeros((num_steps, len(batches)), dtype=bool)
    for k, mine in enumerate(batches):
        for s, rows in enumerate(mine):
            items[s, k, : len(rows)] = rows
            weights[s, k, : len(rows)] = 1 / len(rows)
            live[s, k] = True
    return StackTask(models, items, weights, live)
