"""The reference engine: slow, one client after the other, close to the papers' pseudocode.

It is the specification. The fast engine and every other federation must give the same numbers,
up to the rounding of 32-bit arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from thalweg.core.talk import Told
from thalweg.core.types import Answers, Floats32, Glance, Ints, Job, Roster, Updates
from thalweg.data import Augmentation, Dataset
from thalweg.engine.crowd import Crowd, heard_by, rows_to_test, side_by_side
from thalweg.engine.gather import Part
from thalweg.engine.noise import NoisyModel, image_rng, noise_seeds
from thalweg.engine.stacked import one_thread
from thalweg.engine.survey import surveyed
from thalweg.local import Batch, Euclidean, Mirror, Model, Objective, Sgd
from thalweg.nets import Net
from thalweg.recipes.client import MiniBatch
from thalweg.recipes.federation import AskingStage


class ReferenceFederation:
    """Embedded clients, trained one by one in plain loops."""

    def __init__(
        self,
        crowd: Crowd,
        data: Dataset,
        net: Net,
        objective: Objective,
        prequential: int,
        mirror: Mirror = Euclidean(),  # noqa: B008  frozen
        augment: Augmentation | None = None,
    ) -> None:
        self.crowd, self.augment = crowd, augment
        self.data, self.net, self.objective, self.mirror = data, net, objective, mirror
        self.sgd: Sgd = crowd.clients.local
        self._prequential = prequential

    def roster(self, rnd: int) -> Roster:
        return self.crowd.roster(rnd)

    @one_thread()
    def survey(self, clients: Ints, stage: AskingStage, bank: Floats32, rnd: int) -> Answers:
        def look_at(params: Floats32) -> _Training:
            return _Training(self, torch.from_numpy(params))

        return surveyed(self.crowd, clients, stage, bank, rnd, look_at)

    @one_thread()
    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, told: Told | None = None
    ) -> Updates:
        order = sorted(range(len(jobs)), key=jobs.__getitem__)
        deltas = np.empty((len(jobs), bank.shape[1]), dtype=np.float32)
        columns: dict[str, list[float]] = {}
        said: list[dict[str, Floats32]] = []

        def note(**values: float) -> None:
            for name, value in values.items():
                columns.setdefault(name, []).append(value)

        for k, place in enumerate(order):
            job = jobs[place]
            start = torch.from_numpy(bank[job.model])
            client = _Training(self, start, noise_seeds(self.crowd.clients.seed, [job], rnd))
            visit = self.crowd.enter(job.client, rnd, client, heard_by(told, place))

            arriving = rows_to_test(visit, self._prequential)
            predicted, _ = self.predict(bank[job.model], "train", arriving)
            correct = int((predicted == self.data.y[arriving]).sum())

            for _ in range(self.crowd.clients.world.ticks):
                visit.observe()  # samples arrive, some are kept
                for batch in visit.batches():  # and are learnt from
                    client.step(batch, visit.memo(bank[job.model]), job.pace)
                visit.pause()

            deltas[k] = (client.now - start).numpy()
            said.append(visit.say())
            note(
                num_samples=len(visit.rows),
                num_steps=len(client.seen_losses),
                loss=float(np.mean(client.seen_losses)) if client.seen_losses else float("nan"),
                num_tested=len(arriving),
                num_correct=correct,
            )
            note(**{f"report {name}": value for name, value in visit.reports().items()})
            self.crowd.leave(visit)

        jobs = [jobs[place] for place in order]
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
            said=side_by_side(said),
        )

    @one_thread()
    def predict(self, model: Floats32, part: Part, rows: Ints | None) -> tuple[Ints, Floats32]:
        """Predicted labels and losses of one model on some rows of a part of the data, or all."""
        inputs = self.data.x if part == "train" else self.data.x_test
        labels = self.data.y if part == "train" else self.data.y_test
        rows = np.arange(len(labels)) if rows is None else rows
        if len(rows) == 0:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        with torch.inference_mode():
            logits = self.net.apply(torch.from_numpy(model), self.inputs(inputs[rows]))
            losses = torch.nn.functional.cross_entropy(
                logits, torch.from_numpy(labels[rows]), reduction="none"
            )
        return logits.argmax(dim=1).numpy(), losses.numpy()

    def close(self) -> None:
        """Nothing to let go of."""

    def inputs(self, samples: np.ndarray) -> torch.Tensor:
        """Samples as the net wants them.

        Normalised images (B, C, H, W), features (B, F), or codes (B, L) as whole numbers.
        """
        if self.data.is_sequence:
            return torch.from_numpy(samples).long()
        if not self.data.is_image:
            return torch.from_numpy(samples)
        x = torch.from_numpy(samples).float() / 255
        x = (x - torch.tensor(self.data.mean)) / torch.tensor(self.data.std)
        return x.permute(0, 3, 1, 2)


class _Training:
    """One client in training, and its view of its own model."""

    def __init__(
        self, federation: ReferenceFederation, start: torch.Tensor, seed: Ints | None = None
    ) -> None:
        self._in, self._start = federation, start
        self._seed = np.zeros(1, dtype=np.int64) if seed is None else seed
        self.now, self._velocity = start.clone(), torch.zeros_like(start)
        self.seen_losses: list[float] = []

    def step(self, batch: MiniBatch, memo: Mapping[str, Floats32], pace: float) -> None:
        sgd, mirror = self._in.sgd, self._in.mirror
        loss, gradient = self._loss_and_gradient(batch, memo)
        gradient = gradient + sgd.weight_decay * self.now
        self._velocity = sgd.momentum * self._velocity + gradient
        step = sgd.lr * pace * self._velocity
        self.now = mirror.move(self.now[None], step[None], self._in.net.sizes)[0]
        self.seen_losses.append(loss)

    def params(self) -> Floats32:
        values: Floats32 = self.now.numpy().copy()
        return values

    def losses(self, rows: Ints) -> Floats32:
        return self._in.predict(self.params(), "train", rows)[1]

    def right(self, rows: Ints) -> np.ndarray:
        right: np.ndarray = (
            self._in.predict(self.params(), "train", rows)[0] == self._in.data.y[rows]
        )
        return right

    def gradient(self, rows: Ints) -> Floats32:
        params = self.now.clone().requires_grad_()
        logits = self._in.net.apply(params, self._in.inputs(self._in.data.x[rows]))
        labels = torch.from_numpy(self._in.data.y[rows])
        loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / len(rows)
        return torch.autograd.grad(loss, params)[0].numpy()

    def at(self, params: Floats32) -> _Training:
        return _Training(self._in, torch.from_numpy(params))

    def squared_gradients(self, rows: Ints) -> Floats32:
        total = torch.zeros_like(self.now, dtype=torch.float64)
        for row in rows:
            params = self.now.clone().requires_grad_()
            x, label = self._in.inputs(self._in.data.x[[row]]), int(self._in.data.y[row])
            loss = -self._in.net.apply(params, x).log_softmax(1)[0, label]
            (gradient,) = torch.autograd.grad(loss, params)
            total += gradient.double() ** 2
        return (total / max(len(rows), 1)).float().numpy()

    def glance(self, rows: Ints, received: bool) -> Glance:
        params = self._start if received else self.now
        with torch.inference_mode():
            logits, features = self._in.net.with_features(
                params, self._in.inputs(self._in.data.x[rows])
            )
            errors = logits.softmax(1)
        right = np.eye(errors.shape[1], dtype=np.float32)[self._in.data.y[rows]]
        return Glance(errors.numpy() - right, features.numpy())

    def _loss_and_gradient(
        self, drawn: MiniBatch, memo: Mapping[str, Floats32]
    ) -> tuple[float, torch.Tensor]:
        rows, weights = drawn
        batch = Batch(
            x=self._in.inputs(self._samples(rows))[None],
            labels=torch.from_numpy(self._in.data.y[rows])[None],
            weights=torch.full((1, len(rows)), 1 / len(rows))
            if weights is None
            else torch.from_numpy(weights)[None],
        )
        params = self.now[None].clone().requires_grad_()  # (1, P): one client is a stack of one
        notes = {name: torch.from_numpy(np.array(value))[None] for name, value in memo.items()}
        loss = self._in.objective.loss(
            self._model(), params, batch, {"start": self._start[None], **notes}
        )
        (gradient,) = torch.autograd.grad(loss.sum(), params)
        return float(loss.detach()), gradient[0]

    def _samples(self, rows: np.ndarray) -> np.ndarray:
        """What is trained on in this step: the rows, or changed copies of them."""
        samples: np.ndarray = self._in.data.x[rows]
        if self._in.augment is not None:
            rng = image_rng(int(self._seed[0]), len(self.seen_losses))
            samples = self._in.augment.apply(samples, rng)
        return samples

    def _model(self) -> Model:
        if self._in.net.is_noisy:
            steps = np.array([len(self.seen_losses)])
            return NoisyModel(self._in.net, False, self._seed, steps)
        return lambda params, x: self._in.net.apply(params[0], x[0])[None]
