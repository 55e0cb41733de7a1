"""The reference engine: slow, one client after the other, close to the papers' pseudocode.

It is the specification. The fast engine and every other federation must give the same numbers,
up to the rounding of 32-bit arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from thalweg.core.types import Floats32, Ints, Job, Roster, Updates
from thalweg.data import Dataset
from thalweg.engine.crowd import Crowd, rows_to_test
from thalweg.engine.gather import Part
from thalweg.engine.stacked import one_thread
from thalweg.local import Batch, Objective, Sgd
from thalweg.nets import Net


class ReferenceFederation:
    """Embedded clients, trained one by one in plain loops."""

    def __init__(
        self, crowd: Crowd, data: Dataset, net: Net, objective: Objective, prequential: int
    ) -> None:
        self.crowd = crowd
        self._data, self._net, self._objective = data, net, objective
        self._sgd: Sgd = crowd.clients.local
        self._prequential = prequential

    def roster(self, rnd: int) -> Roster:
        return self.crowd.roster(rnd)

    @one_thread()
    def train(self, jobs: Sequence[Job], bank: Floats32, rnd: int) -> Updates:
        jobs = sorted(jobs)
        deltas = np.empty((len(jobs), bank.shape[1]), dtype=np.float32)
        columns: dict[str, list[float]] = {}

        def note(**values: float) -> None:
            for name, value in values.items():
                columns.setdefault(name, []).append(value)

        for k, job in enumerate(jobs):
            visit = self.crowd.enter(job.client, rnd)
            start = torch.from_numpy(bank[job.model])

            arriving = rows_to_test(visit, self._prequential)
            predicted, _ = self.predict(bank[job.model], "train", arriving)
            correct = int((predicted == self._data.y[arriving]).sum())

            params, velocity, losses = start.clone(), torch.zeros_like(start), []
            for _ in range(self.crowd.clients.world.ticks):
                visit.observe()  # samples arrive, some are kept
                for rows in visit.batches():  # and are learnt from
                    loss, gradient = self._loss_and_gradient(params, start, rows)
                    gradient = gradient + self._sgd.weight_decay * params
                    velocity = self._sgd.momentum * velocity + gradient
                    params = params - self._sgd.lr * velocity
                    losses.append(loss)

            deltas[k] = (params - start).numpy()
            note(
                num_samples=len(visit.rows),
                num_steps=len(losses),
                loss=float(np.mean(losses)) if losses else float("nan"),
                num_tested=len(arriving),
                num_correct=correct,
            )
            note(**{f"report {name}": value for name, value in visit.reports().items()})
            self.crowd.leave(visit)

        return Updates(
            clients=np.array([job.client for job in jobs]),
            models=np.array([job.model for job in jobs]),
            deltas=deltas,
            num_samples=np.array(columns["num_samples"]),
            num_steps=np.array(columns["num_steps"]),
            losses=np.array(columns["loss"], dtype=np.float64),
            num_tested=np.array(columns["num_tested"]),
            num_correct=np.array(columns["num_correct"]),
            reports={
                name.removeprefix("report "): np.array(values, dtype=np.float64)
                for name, values in columns.items()
                if name.startswith("report ")
            },
        )

    @one_thread()
    def predict(self, model: Floats32, part: Part, rows: Ints | None) -> tuple[Ints, Floats32]:
        """Predicted labels and losses of one model on some rows of a part of the data, or all."""
        inputs = self._data.x if part == "train" else self._data.x_test
        labels = self._data.y if part == "train" else self._data.y_test
        rows = np.arange(len(labels)) if rows is None else rows
        if len(rows) == 0:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        with torch.inference_mode():
            logits = self._net.apply(torch.from_numpy(model), self._inputs(inputs[rows]))
            losses = torch.nn.functional.cross_entropy(
                logits, torch.from_numpy(labels[rows]), reduction="none"
            )
        return logits.argmax(dim=1).numpy(), losses.numpy()

    def close(self) -> None:
        """Nothing to let go of."""

    def _loss_and_gradient(
        self, params: torch.Tensor, start: torch.Tensor, rows: np.ndarray
    ) -> tuple[float, torch.Tensor]:
        batch = Batch(
            x=self._inputs(self._data.x[rows])[None],
            labels=torch.from_numpy(self._data.y[rows])[None],
            weights=torch.full((1, len(rows)), 1 / len(rows)),
        )
        params = params[None].clone().requires_grad_()  # (1, P): one client is a stack of one
        loss = self._objective.loss(self._one_model, params, batch, {"start": start[None]})
        (gradient,) = torch.autograd.grad(loss.sum(), params)
        return float(loss.detach()), gradient[0]

    def _one_model(self, params: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self._net.apply(params[0], x[0])[None]

    def _inputs(self, samples: np.ndarray) -> torch.Tensor:
        """Samples as the net wants them: normalised images (B, C, H, W), or features (B, F)."""
        if not self._data.is_image:
            return torch.from_numpy(samples)
        x = torch.from_numpy(samples).float() / 255
        x = (x - torch.tensor(self._data.mean)) / torch.tensor(self._data.std)
        return x.permute(0, 3, 1, 2)
