"""Train one client at a time, in plain loops, close to the pseudocode of the papers.

Results depend on the parameters, the rows and the seed only: one thread, and operands in memory
that torch has allocated, because the last bits of a product may depend on the alignment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from thalweg.core.capabilities import Descent
from thalweg.core.types import Floats32, Ints, LastLayer
from thalweg.data import Augmentation, Dataset, Part
from thalweg.data.base import Targets
from thalweg.engine.models import NetModel, select_untrained
from thalweg.engine.plan import Plan
from thalweg.engine.step_seeds import image_rng
from thalweg.engine.task import get_loss
from thalweg.federation import MiniBatch
from thalweg.local import Batch, Euclidean, Geometry, LocalTraining, Model, Objective, Sgd
from thalweg.local.optimizers import (
    ClientOptimizerState,
    Shapes,
    TorchSteps,
    export_row,
    make_reference_steps,
    restore_row,
)
from thalweg.losses import (
    CrossEntropy,
    Loss,
    compute_output_errors,
    decode_outputs,
    get_log_probabilities,
)
from thalweg.nets import Net

Samples = npt.NDArray[Any]


class SingleTrainer:
    """Computes training and predictions of one client after the other."""

    def __init__(
        self,
        net: Net,
        objective: Objective,
        local: LocalTraining,
        data: Dataset,
        geometry: Geometry = Euclidean(),  # noqa: B008  frozen
        augment: Augmentation | None = None,
        loss: Loss = CrossEntropy(),  # noqa: B008  frozen
    ) -> None:
        self.net, self.objective, self.local, self.data = net, objective, local, data
        self.geometry, self.augment, self.loss = geometry, augment, loss

    @classmethod
    def from_plan(cls, plan: Plan, net: Net, data: Dataset) -> SingleTrainer:
        """Return the trainer of the clients of a plan; `data` must be in the views of its world."""
        recipe = plan.recipe
        return cls(
            net,
            recipe.objective,
            plan.local,
            data,
            recipe.geometry,
            plan.scenario.augment,
            get_loss(plan.scenario, data),
        )

    def begin(
        self,
        params: Floats32,
        noise: int = 0,
        optimizer_state: ClientOptimizerState | None = None,
    ) -> Training:
        """Start the training of parameters (P,).

        `noise` is the seed of dropout and augmentation. The optimizer continues with a state that
        `Training.export_optimizer` returned in an earlier round, if one is given.
        """
        return Training(self, torch.tensor(params), noise, optimizer_state)

    def predict(self, model: Floats32, part: Part, rows: Ints | None) -> tuple[Targets, Floats32]:
        """Return predictions and losses of a model on rows of a part; None: all samples.

        Predictions are labels in a classification, outputs in a regression.
        """
        rows = np.arange(self.data.num_samples(part)) if rows is None else rows
        if len(rows) == 0:
            return self.data.labels(part, rows), np.empty(0, dtype=np.float32)
        with torch.inference_mode():
            logits = self.net.apply(torch.tensor(model), self.inputs(self.data.samples(part, rows)))
            right = torch.from_numpy(self.data.labels(part, rows))
            losses = self.loss(logits, right)
        return decode_outputs(self.loss, logits, right).numpy(), losses.numpy()

    def predict_many(
        self, models: Floats32, part: Part, rows: Ints | None
    ) -> tuple[Targets, Floats32]:
        """Return `predict` of models (M, P), one after the other."""
        found = [self.predict(model, part, rows) for model in models]
        return np.stack([labels for labels, _ in found]), np.stack([losses for _, losses in found])

    def targets(self, rows: Ints) -> Targets:
        """Return the targets of training samples."""
        return self.data.labels("train", rows)

    def scores(self, model: Floats32, part: Part, rows: Ints | None = None) -> Floats32:
        """Return log probabilities of the classes (n, C) of a model on rows of a part.

        In a regression: the outputs (n, D). None: all rows.
        """
        rows = np.arange(self.data.num_samples(part)) if rows is None else rows
        if len(rows) == 0:
            return np.empty((0, self.data.num_outputs), dtype=np.float32)
        with torch.inference_mode():
            logits = self.net.apply(torch.tensor(model), self.inputs(self.data.samples(part, rows)))
        is_regression = self.data.task == "regression"
        return get_log_probabilities(self.loss, logits, is_regression).numpy()

    def scores_many(self, models: Floats32, part: Part, rows: Ints | None) -> Floats32:
        """Return `scores` of models (M, P), one after the other."""
        return np.stack([self.scores(model, part, rows) for model in models])

    def inputs(self, samples: Samples) -> Tensor:
        """Convert samples to normalised images (B, C, H, W), features (B, F) or codes (B, L)."""
        if self.data.is_sequence:
            return torch.from_numpy(samples).long()
        if not self.data.is_image:
            return torch.tensor(samples)
        x = torch.from_numpy(samples).float() / 255
        x = (x - torch.tensor(self.data.mean)) / torch.tensor(self.data.std)
        return x.permute(0, 3, 1, 2)


class Training:
    """The training of one client, and the probe of its model (`core.capabilities.ModelProbe`)."""

    def __init__(
        self,
        trainer: SingleTrainer,
        start: Tensor,
        noise: int,
        optimizer_state: ClientOptimizerState | None = None,
    ) -> None:
        self._trainer, self._data = trainer, trainer.data
        self._start, self._noise = start, noise
        self._now = start.clone()
        self._optimizer = make_client_optimizer(trainer, start)
        if optimizer_state is not None:
            self._optimizer.restore(optimizer_state)
        self.seen_losses: list[float] = []

    @property
    def delta(self) -> Floats32:
        """The change of the parameters (P,) so far."""
        delta: Floats32 = (self._now - self._start).numpy()
        return delta

    @property
    def mean_loss(self) -> float:
        """The mean loss of the steps so far; nan without a step."""
        return float(np.mean(self.seen_losses)) if self.seen_losses else float("nan")

    def step(self, batch: MiniBatch, memo: Mapping[str, Floats32], lr_scale: float) -> None:
        model = self._model()
        loss, gradient = self._loss_and_gradient(model, batch, memo)
        self._move(model, gradient, lr_scale)
        self.seen_losses.append(loss)

    def export_optimizer(self) -> ClientOptimizerState:
        return self._optimizer.export()

    # --- the model probe ---

    def params(self) -> Floats32:
        values: Floats32 = self._now.numpy().copy()
        return values

    def losses(self, rows: Ints) -> Floats32:
        return self._trainer.predict(self.params(), "train", rows)[1]

    def is_correct(self, rows: Ints) -> npt.NDArray[np.bool_]:
        predicted = self._trainer.predict(self.params(), "train", rows)[0]
        right: npt.NDArray[np.bool_] = predicted == self._data.labels("train", rows)
        return right

    def outputs(self, rows: Ints) -> Floats32:
        if len(rows) == 0:
            return np.empty((0, self._trainer.net.num_classes), dtype=np.float32)
        with torch.inference_mode():
            logits: Floats32 = self._trainer.net.apply(self._now, self._inputs(rows)).numpy()
        return logits

    def gradient(self, rows: Ints) -> Floats32:
        params = self._now.clone().requires_grad_()
        logits = self._trainer.net.apply(params, self._inputs(rows))
        labels = torch.from_numpy(self._data.labels("train", rows))
        loss = self._trainer.loss(logits, labels).sum() / len(rows)
        return torch.autograd.grad(loss, params)[0].numpy()

    def descend(self, rows: Ints, steps: int, lr_scale: float = 1.0) -> Descent:
        copy = self._trainer.begin(self.params())
        model, lengths = NetModel(self._trainer.net, False), [0.0]
        for _ in range(steps):
            gradient = copy.gradient(rows)
            lengths.append(float(np.linalg.norm(gradient.astype(np.float64))))
            copy._move(model, torch.from_numpy(gradient), lr_scale)
        return Descent(copy.params(), max(lengths))

    def squared_gradients(self, rows: Ints) -> Floats32:
        total = torch.zeros_like(self._now, dtype=torch.float64)
        targets = torch.from_numpy(self._data.labels("train", rows))
        for k in range(len(rows)):
            params = self._now.clone().requires_grad_()
            x = self._inputs(rows[k : k + 1])
            outputs = self._trainer.net.apply(params, x)
            loss = self._trainer.loss(outputs, targets[k : k + 1]).sum()
            (gradient,) = torch.autograd.grad(loss, params)
            total += gradient.double() ** 2
        return (total / max(len(rows), 1)).float().numpy()

    def last_layer(self, rows: Ints, received: bool) -> LastLayer:
        params = self._start if received else self._now
        with torch.inference_mode():
            logits, features = self._trainer.net.with_features(params, self._inputs(rows))
            targets = torch.from_numpy(self._data.labels("train", rows))
            errors = compute_output_errors(self._trainer.loss, logits, targets)
        return LastLayer(errors.numpy(), features.numpy())

    # --- one step ---

    def _move(self, model: NetModel, gradient: Tensor, lr_scale: float) -> None:
        positions = self._trainer.net.untrained
        untrained = select_untrained(positions, self._now[None])
        self._now = self._optimizer.move(self._now, gradient, lr_scale)
        model.restore_untrained(self._now[None], untrained, positions)

    def _inputs(self, rows: npt.NDArray[np.integer[Any]]) -> Tensor:
        """Return inputs without augmentation."""
        return self._trainer.inputs(self._data.samples("train", rows))

    def _loss_and_gradient(
        self, model: Model, drawn: MiniBatch, memo: Mapping[str, Floats32]
    ) -> tuple[float, Tensor]:
        rows, weights = drawn
        batch = Batch(
            x=self._trainer.inputs(self._samples(rows))[None],
            targets=torch.from_numpy(self._data.labels("train", rows))[None],
            weights=torch.full((1, len(rows)), 1 / len(rows))
            if weights is None
            else torch.from_numpy(weights)[None],
            loss=self._trainer.loss,
        )
        params = self._now[None].clone().requires_grad_()  # (1, P): one client is a stack of one
        memo_tensors = {name: torch.tensor(value)[None] for name, value in memo.items()}
        loss = self._trainer.objective.loss(
            model, params, batch, {"start": self._start[None], **memo_tensors}
        )
        (gradient,) = torch.autograd.grad(loss.sum(), params)
        return float(loss.detach()), gradient[0]

    def _samples(self, rows: npt.NDArray[np.integer[Any]]) -> Samples:
        """Return the samples of a training step, augmented if the plan has augmentation."""
        samples: Samples = self._data.samples("train", rows)
        if self._trainer.augment is not None:
            samples = self._trainer.augment.apply(
                samples, image_rng(self._noise, len(self.seen_losses))
            )
        return samples

    def _model(self) -> NetModel:
        return NetModel(self._trainer.net, False, [self._noise + len(self.seen_losses)])


class ClientOptimizer(Protocol):
    """The optimizer of one client, with its state."""

    def move(self, params: Tensor, gradient: Tensor, lr_scale: float) -> Tensor:
        """Return the parameters (P,) after one step."""
        ...

    def export(self) -> ClientOptimizerState: ...

    def restore(self, exported: ClientOptimizerState) -> None: ...


def make_client_optimizer(trainer: SingleTrainer, start: Tensor) -> ClientOptimizer:
    """Return the optimizer of one client before its first step."""
    local = trainer.local
    if isinstance(local.optimizer, Sgd):
        return PlainSgd(local, trainer.geometry, trainer.net.sizes, torch.zeros_like(start))
    shapes = trainer.net.param_shapes
    steps = make_reference_steps(local.optimizer, local.step_settings, shapes)
    return StackOfOne(local, start, shapes) if steps is None else PlainTorch(local.lr, steps)


class PlainSgd:
    """SGD with momentum and weight decay, in the geometry of the recipe."""

    def __init__(
        self, local: LocalTraining, geometry: Geometry, sizes: Sequence[int], velocity: Tensor
    ) -> None:
        self._local, self._geometry, self._sizes = local, geometry, sizes
        self._velocity = velocity

    def move(self, params: Tensor, gradient: Tensor, lr_scale: float) -> Tensor:
        local = self._local
        gradient = gradient + local.weight_decay * params
        self._velocity = local.momentum * self._velocity + gradient
        step = local.lr * lr_scale * self._velocity
        return self._geometry.move(params[None], step[None], self._sizes)[0]

    def export(self) -> ClientOptimizerState:
        return {"velocity": self._velocity.numpy().copy()}

    def restore(self, exported: ClientOptimizerState) -> None:
        self._velocity = torch.tensor(exported["velocity"])


class PlainTorch:
    """An optimizer of torch.optim."""

    def __init__(self, lr: float, steps: TorchSteps) -> None:
        self._lr, self._steps = lr, steps

    def move(self, params: Tensor, gradient: Tensor, lr_scale: float) -> Tensor:
        moved = params.clone()
        self._steps.step(moved, gradient, self._lr * lr_scale)
        return moved

    def export(self) -> ClientOptimizerState:
        return self._steps.export()

    def restore(self, exported: ClientOptimizerState) -> None:
        self._steps.restore(exported)


class StackOfOne:
    """A user-defined optimizer, for a stack of one client."""

    def __init__(self, local: LocalTraining, start: Tensor, shapes: Shapes) -> None:
        self._optimizer, self._settings = local.optimizer, local.step_settings
        self._state = self._optimizer.init(start[None], self._settings, shapes)

    def move(self, params: Tensor, gradient: Tensor, lr_scale: float) -> Tensor:
        moved, scale = params[None].clone(), torch.tensor([[lr_scale]])
        self._optimizer.step(moved, gradient[None], self._state, self._settings, scale)
        return moved[0]

    def export(self) -> ClientOptimizerState:
        return export_row(self._state, 0)

    def restore(self, exported: ClientOptimizerState) -> None:
        restore_row(self._state, 0, exported)
