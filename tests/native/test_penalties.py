"""Objectives with a quadratic penalty on the parameters are trained completely by the kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from native.kernel_cases import (
    PLAIN_SGD,
    SGD,
    assert_close,
    choose_loss,
    make_bank,
    make_images,
    make_native,
    make_table,
    make_task,
    make_texts,
    needs_kernel,
    train_reference,
)
from thalweg.engine.gather import Gather
from thalweg.engine.stacked import StackedTrainer
from thalweg.local import (
    Curvature,
    Elastic,
    LocalTraining,
    Proximal,
    Quadratic,
    QuadraticObjective,
    Scaffold,
    TaskLoss,
)
from thalweg.local.quadratic import is_quadratic
from thalweg.native import trainer as native_trainer
from thalweg.nets import Cnn, FastText, LeNet5, Linear, Mlp

pytestmark = needs_kernel


@dataclass(frozen=True)
class AllTerms(QuadraticObjective):
    """A penalty with a scale and all vectors."""

    def penalty(self, memo):
        return Quadratic(0.3, memo["fisher"], memo["anchor"], memo["own"])


# Objective, and the names of the vectors in its memo.
OBJECTIVES = {
    "proximal": (Proximal(0.3), []),
    "elastic": (Elastic(0.3), ["anchor", "fisher"]),
    "curvature": (Curvature(0.3), ["others_fisher", "others_fisher_params"]),
    "first round of curvature": (Curvature(0.3), []),
    "scaffold": (Scaffold(), ["common", "own"]),
    "scaffold as released": (Scaffold("as_released"), ["common", "own"]),
    "all terms": (AllTerms(), ["anchor", "fisher", "own"]),
}
NETS = [
    Linear(),
    Mlp(hidden=(5,)),
    Mlp(hidden=(17, 1, 33)),
    Mlp(hidden=(7, 4), projection=6),
    LeNet5(),
    Cnn(channels=(3, 5, 7), hidden=9),
    Cnn(),
]


def make_memo(names, bank, task, seed=3):
    """Return vectors (K, P) by name; those with "fisher" have no negative numbers."""
    rng = np.random.default_rng(seed)
    memo = {}
    for name in names:
        rows = 0.1 * rng.standard_normal((len(task.models), bank.shape[1]), dtype=np.float32)
        memo[name] = np.abs(rows) * 10 if name.endswith("fisher") else rows
    return memo


def make_stacked(net, data, local, objective):
    native = make_native(net, data, local, objective=objective)
    return StackedTrainer(
        net, objective, local, Gather(data), loss=choose_loss(data), native=native
    )


def train_by_tick(trainer, bank, task, memo):
    """Take each step in a tick of its own; return updates (K, P) and mean losses (K,)."""
    import torch

    stack = trainer.begin(bank, task.models, task.lr_scales)
    tensors = {name: torch.from_numpy(rows) for name, rows in memo.items()}
    for s in range(len(task.items)):
        now = slice(s, s + 1)
        tick = task.items[now], task.weights[now], task.live[now]
        trainer.steps(stack, *tick, tensors, task.sizes[now])
    deltas = np.empty((len(task.models), bank.shape[1]), dtype=np.float32)
    return deltas, trainer.finish(stack, deltas)


def assert_agrees_with_reference(net, data, task, local, name, num_models=1):
    objective, names = OBJECTIVES[name]
    bank = make_bank(net, num_models)
    memo = make_memo(names, bank, task)
    deltas, losses = train_by_tick(make_stacked(net, data, local, objective), bank, task, memo)
    expected, expected_losses = train_reference(net, data, local, bank, task, objective, memo)
    assert_close(deltas, expected)
    np.testing.assert_allclose(losses, expected_losses, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("spec", NETS, ids=repr)
def test_rounds_equal_the_reference(spec, name):
    """Odd shapes, mini-batches of other sizes, clients without a step, scales and weights."""
    data = make_images((2, 9, 14))
    net = spec.build(data.input_shape, 3)
    task = make_task(
        [[6, 0, 17], [], [33, 2]], is_weighted=True, lr_scales=[1, 0.5, 0.1], num_models=2
    )
    assert_agrees_with_reference(net, data, task, SGD, name, num_models=2)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("local", [PLAIN_SGD, replace(PLAIN_SGD, momentum=0.8), SGD], ids=str)
def test_word_vectors(local, name):
    """Vectors of words that do not occur have no gradient, but may have a penalty."""
    data = make_texts()
    net = FastText(width=21).build(data.input_shape, 3)
    task = make_task([[4, 0, 7], [], [3, 2]], is_weighted=True, lr_scales=[1, 0.5, 0.1])
    assert_agrees_with_reference(net, data, task, local, name)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("local", [PLAIN_SGD, replace(PLAIN_SGD, momentum=0.8)], ids=str)
@pytest.mark.parametrize("features", [1, 15, 16, 17, 100])
def test_tables_with_squared_error(features, local, name):
    data = make_table(features, outputs=2)
    net = Mlp(hidden=(features, 3)).build((features,), 2)
    assert_agrees_with_reference(net, data, make_task([[6, 17], [3]]), local, name)


def test_a_step_by_hand():
    """One sample x = 0 and no bias of the labels: only the penalty has a gradient in the weights.

    w = 1, scale 2, curvature 3, centre 0.5, slope 4: the gradient is 2 * 3 * 0.5 + 4 = 7, and the
    penalty of each of the six weights 2 / 2 * 3 * 0.25 + 4 * 0.5 = 2.75.
    """

    class Constant(QuadraticObjective):
        def penalty(self, memo):
            one = np.zeros_like(memo["start"])
            one[:, :6] = 1  # the weights; none in the three biases
            return Quadratic(2.0, 3 * one, 0.5 * one, 4 * one)

    data = make_table(2)
    data = replace(data, x=np.zeros_like(data.x))
    net = Linear().build((2,), 3)
    local = LocalTraining(lr=0.1, batch_size=1, steps=1)
    start = np.ones((1, 9), dtype=np.float32)
    trainer = make_native(net, data, local, objective=Constant())
    deltas, losses = trainer.train(start, [make_task([[1]])])
    np.testing.assert_allclose(deltas[0, :6], -0.7, rtol=1e-5)
    assert losses[0] == pytest.approx(np.log(3) + 6 * 2.75)


# --- the same bits ---

SIZES = [[6, 17, 3], [0, 20], [33], [], [1, 1, 1], [16, 0, 2]]


@pytest.mark.parametrize("spec", [Linear(), Mlp(hidden=(9, 17)), LeNet5()], ids=repr)
def test_threads_pieces_and_ticks(spec, monkeypatch):
    data = make_images((1, 9, 8))
    net, objective = spec.build(data.input_shape, 3), Proximal(0.3)
    task = make_task(SIZES, num_models=3, lr_scales=[1, 0.5, 2, 1, 0.1, 1])
    bank = make_bank(net, 3)
    deltas, losses = make_native(net, data, objective=objective).train(bank, [task, task])
    plain, _ = make_native(net, data).train(bank, [task])
    assert not np.array_equal(deltas[: len(SIZES)], plain)
    by_tick, tick_losses = train_by_tick(make_stacked(net, data, SGD, objective), bank, task, {})
    assert np.array_equal(by_tick, deltas[: len(SIZES)])
    np.testing.assert_allclose(tick_losses, losses[: len(SIZES)], rtol=1e-12)
    monkeypatch.setattr(native_trainer, "WORK_PER_PIECE", 1)  # each client is a piece
    for num_threads in (1, 2, 5):
        trainer = make_native(net, data, num_threads=num_threads, objective=objective)
        again, again_losses = trainer.train(bank, [task, task])
        assert np.array_equal(again, deltas)
        assert np.array_equal(again_losses, losses, equal_nan=True)
        trainer.close()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_stacks(name):
    """Clients alone have the bits of the whole stack."""
    objective, names = OBJECTIVES[name]
    data = make_images((1, 9, 8))
    net = Mlp(hidden=(9, 17)).build(data.input_shape, 3)
    task, bank = make_task(SIZES), make_bank(net)
    memo, trainer = make_memo(names, bank, task), make_stacked(net, data, SGD, objective)
    together, losses = train_by_tick(trainer, bank, task, memo)
    for k in range(len(SIZES)):
        mine = np.array([k])
        alone = task._replace(
            models=task.models[mine],
            items=task.items[:, mine],
            weights=task.weights[:, mine],
            live=task.live[:, mine],
            sizes=task.sizes[:, mine],
        )
        rows = {key: values[mine] for key, values in memo.items()}
        deltas, own_losses = train_by_tick(trainer, bank, alone, rows)
        assert np.array_equal(deltas[0], together[k])
        assert np.array_equal(own_losses[0], losses[k], equal_nan=True)


# --- which objectives are quadratic ---


class OtherLoss(Proximal):
    def loss(self, model, params, batch, memo):
        return TaskLoss().loss(model, params, batch, memo)


class OtherStrength(Proximal):
    def penalty(self, memo):
        return super().penalty(memo)._replace(scale=1.0)


def test_objectives_with_another_loss_are_not_computed_by_the_kernel():
    found = [is_quadratic(each) for each in (TaskLoss(), OtherStrength(), OtherLoss())]
    assert found == [True, True, False]
