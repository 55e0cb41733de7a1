"""Native passes in autograd have the outputs, features and gradients of torch."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest
import torch

from native.kernel_cases import (
    PLAIN_SGD,
    SGD,
    TOLERANCE,
    choose_loss,
    make_bank,
    make_images,
    make_native,
    make_table,
    make_task,
    needs_kernel,
)
from thalweg.core.errors import ConfigError
from thalweg.data.augment import Augment
from thalweg.engine.gather import Gather
from thalweg.engine.model_probe import FixedModelProbe
from thalweg.engine.models import NetModel
from thalweg.engine.native_passes import NativePasses
from thalweg.engine.stacked import StackedTrainer
from thalweg.local import OBJECTIVES, Adam, Euclidean, LocalTraining, Moon, NotTrue, PNorm, TaskLoss
from thalweg.local.base import without_dropout
from thalweg.native.library import find_kernel
from thalweg.native.program import compile_net
from thalweg.native.trainer import NativeTrainer, make_native_trainer
from thalweg.nets import Cnn, LeNet5, Linear, Mlp

pytestmark = needs_kernel

SMALL_CNN = Cnn(channels=(3, 5, 7), hidden=9)
NETS = [
    Linear(),
    Mlp(hidden=(5,)),
    Mlp(hidden=(7, 18), projection=6),
    LeNet5(),
    SMALL_CNN,
    replace(SMALL_CNN, projection=4),
]


def make_passes(net):
    return NativePasses(find_kernel(), compile_net(net))


def make_inputs(net, K=3, B=18, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(K, B, *net.input_shape, generator=generator)
    params = torch.tensor(make_bank(net, K)).requires_grad_()
    return params, x


def assert_close(ours, right):
    assert ours.shape == right.shape
    error = torch.linalg.vector_norm(ours - right)
    assert error <= TOLERANCE * torch.linalg.vector_norm(right)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 13)], ids=str)
@pytest.mark.parametrize("spec", NETS, ids=repr)
def test_outputs_features_and_gradients(spec, shape):
    """The loss uses outputs and features, so that the backward pass adds both gradients."""
    net = spec.build(shape, 4)
    params, x = make_inputs(net)
    passes, torch_model = make_passes(net), NetModel(net, is_stacked=False)
    outputs, features = passes.with_features(params, x)
    right_outputs, right_features = torch_model.with_features(params, x)
    assert_close(outputs, right_outputs)
    assert_close(features, right_features)
    assert torch.equal(passes(params, x), outputs)
    losses = [
        lambda z, f: z.square().sum() + f.sin().sum(),
        lambda z, f: z.logsumexp(-1).sum(),
    ]
    if not isinstance(spec, Linear):  # its features are the samples
        losses.append(lambda z, f: f.square().sum())
    for loss in losses:
        (ours,) = torch.autograd.grad(loss(outputs, features), params, retain_graph=True)
        (right,) = torch.autograd.grad(
            loss(right_outputs, right_features), params, retain_graph=True
        )
        assert_close(ours, right)


def test_memory_order_of_the_input_does_not_matter():
    net = LeNet5().build((3, 9, 9), 4)
    params, x = make_inputs(net)
    other = x.permute(0, 2, 3, 4, 1).contiguous().permute(0, 4, 1, 2, 3)  # the batch innermost
    passes = make_passes(net)
    assert torch.equal(passes(params, other), passes(params, x))
    one = params[:1].detach().expand(3, -1)  # the same model for all clients
    assert torch.equal(passes(one, x)[2], passes(one[:1], x[2:])[0])


def test_two_graphs_at_once_have_their_own_workspaces():
    net = Mlp(hidden=(6,)).build((5,), 3)
    params, x = make_inputs(net)
    _, other = make_inputs(net, seed=1)
    passes = make_passes(net)
    (expected,) = torch.autograd.grad(passes(params, x).square().sum(), params)
    first, second = passes(params, x), passes(params, other)
    with torch.no_grad():
        passes(params, other)
    (found,) = torch.autograd.grad(first.square().sum(), params)
    assert torch.equal(found, expected)
    (both,) = torch.autograd.grad(passes(params, x).square().sum() + second.square().sum(), params)
    assert not torch.equal(both, expected)


def test_workspaces_are_used_again():
    net = Mlp(hidden=(6,)).build((5,), 3)
    params, x = make_inputs(net, K=3)
    passes = make_passes(net)
    for _ in range(3):
        outputs = passes(params, x)
        torch.autograd.grad(outputs.sum(), params)
        del outputs
        gc.collect()
    assert [len(free) for free in passes._free.values()] == [3]


def test_second_derivatives_raise_an_error():
    net = Mlp(hidden=(6,)).build((5,), 3)
    params, x = make_inputs(net)
    loss = make_passes(net)(params, x).square().sum()
    with pytest.raises(ConfigError, match=r"needs second ones .* Use engine=torch"):
        torch.autograd.grad(loss, params, create_graph=True)


def test_gradients_of_the_input_are_computed_by_torch():
    net = Mlp(hidden=(6,)).build((5,), 3)
    params, x = make_inputs(net)
    x.requires_grad_()
    model = NetModel(net, is_stacked=True, passes=make_passes(net))
    (gradient,) = torch.autograd.grad(model(params, x).square().sum(), x)
    assert gradient.abs().sum() > 0
    double = NetModel(net, is_stacked=True, passes=make_passes(net))
    assert double(params.double(), x.detach().double()).dtype == torch.float64


def test_teachers_use_the_kernel_too():
    net = Mlp(hidden=(6,)).build((5,), 3)
    params, x = make_inputs(net)
    passes = make_passes(net)
    model = NetModel(net, is_stacked=True, passes=passes)
    assert torch.equal(without_dropout(model)(params, x), passes(params, x))


# --- trainers ---


def make_memo(objective_name, net, num_clients):
    """Return any vectors that the objectives need."""
    rng = np.random.default_rng(3)
    start = torch.tensor(make_bank(net)[0])
    memo = {}
    for name in ("anchor", "teacher", "past", "previous", "others_fisher_params"):
        noise = torch.tensor(rng.standard_normal((num_clients, len(start)), dtype=np.float32))
        memo[name] = start + 0.05 * noise
    for name in ("common", "own"):
        noise = rng.standard_normal((num_clients, len(start)), dtype=np.float32)
        memo[name] = torch.tensor(0.01 * noise)
    for name in ("fisher", "others_fisher"):
        memo[name] = torch.tensor(rng.uniform(0, 0.1, (num_clients, len(start))).astype(np.float32))
    return memo


def make_trainers(net, data, objective, local=SGD, geometry=None, augment=None):
    fixed = (geometry or Euclidean(), augment, choose_loss(data))
    native = make_native_trainer(net, objective, local, data, *fixed)
    assert isinstance(native, NativeTrainer)
    with_kernel = StackedTrainer(net, objective, local, Gather(data), *fixed, native)
    return with_kernel, StackedTrainer(net, objective, local, Gather(data), *fixed)


def train_with(trainer, task, bank, memo=None, noise=None):
    stack = trainer.begin(bank, task.models, task.lr_scales, noise)
    trainer.steps(stack, task.items, task.weights, task.live, memo, task.sizes)
    deltas = np.empty((len(task.models), bank.shape[1]), dtype=np.float32)
    return deltas, trainer.finish(stack, deltas)


def assert_trains_alike(trainers, task, bank, memo=None, noise=None):
    ours, losses = train_with(trainers[0], task, bank, memo, noise)
    right, right_losses = train_with(trainers[1], task, bank, memo, noise)
    errors = np.linalg.norm(ours - right, axis=1)
    assert (errors <= TOLERANCE * np.linalg.norm(right, axis=1)).all()
    np.testing.assert_allclose(losses, right_losses, rtol=1e-4)


@pytest.mark.parametrize("spec", [Mlp(hidden=(9,)), LeNet5(), SMALL_CNN], ids=repr)
@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name != "loss"])
def test_every_objective(name, spec):
    data = make_images((1, 9, 8))
    net = spec.build(data.input_shape, 3)
    task = make_task([[6, 17], [0, 20], [3]], is_weighted=True, lr_scales=[1, 0.5, 2])
    trainers = make_trainers(net, data, OBJECTIVES[name]())
    assert_trains_alike(trainers, task, make_bank(net), make_memo(name, net, 3))


def test_a_regression_with_a_contrastive_term():
    data = make_table(5, outputs=2)
    net = Mlp(hidden=(9,)).build((5,), 2)
    trainers = make_trainers(net, data, Moon())
    assert_trains_alike(
        trainers, make_task([[6, 17], [3]]), make_bank(net), make_memo("moon", net, 2)
    )


def test_other_optimizers_and_geometries():
    data = make_images((1, 9, 8))
    net = LeNet5().build(data.input_shape, 3)
    task, bank = make_task([[6, 17], [3]]), make_bank(net)
    adam = LocalTraining(lr=0.001, steps=1, optimizer=Adam(eps=1e-3))
    assert_trains_alike(make_trainers(net, data, TaskLoss(), adam), task, bank)
    p_norm = make_trainers(net, data, TaskLoss(), PLAIN_SGD, PNorm())
    assert_trains_alike(p_norm, task, bank)


def test_augmented_images():
    data = make_images((3, 9, 9))
    net = SMALL_CNN.build(data.input_shape, 3)
    trainers = make_trainers(net, data, TaskLoss(), augment=Augment())
    task = make_task([[6, 17], [3]])
    assert_trains_alike(trainers, task, make_bank(net), noise=np.array([3, 4]))


@pytest.mark.parametrize("spec", NETS, ids=repr)
def test_the_model_probe_uses_the_kernel(spec):
    data = make_images((3, 9, 8))
    net = spec.build(data.input_shape, 3)
    trainers = make_trainers(net, data, NotTrue())
    ours, right = (FixedModelProbe(trainer, make_bank(net)[0]) for trainer in trainers)
    rows = np.arange(20)
    for name in ("gradient", "squared_gradients", "outputs", "losses"):
        values, expected = (getattr(probe, name)(rows) for probe in (ours, right))
        np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-5)
    for values, expected in zip(
        ours.last_layer(rows, False), right.last_layer(rows, False), strict=True
    ):
        np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-5)


def test_a_client_does_not_depend_on_its_stack():
    data = make_images((1, 9, 8))
    net = LeNet5().build(data.input_shape, 3)
    trainer, _ = make_trainers(net, data, NotTrue())
    task, bank = make_task([[6, 17], [17, 3]]), make_bank(net)
    together, _ = train_with(trainer, task, bank)
    for k in range(2):
        alone = task._replace(
            models=task.models[[k]],
            items=task.items[:, [k]],
            weights=task.weights[:, [k]],
            live=task.live[:, [k]],
            sizes=task.sizes[:, [k]],
        )
        np.testing.assert_allclose(train_with(trainer, alone, bank)[0][0], together[k], atol=1e-7)


def test_the_native_trainer_of_a_task_loss_and_the_passes_agree():
    data = make_images((1, 9, 8))
    net = LeNet5().build(data.input_shape, 3)
    trainer, _ = make_trainers(net, data, NotTrue(strength=0.0))
    task, bank = make_task([[6, 17], [17, 3]]), make_bank(net)
    ours, _ = train_with(trainer, task, bank)
    right, _ = make_native(net, data).train(bank, [task])
    assert np.linalg.norm(ours - right) <= TOLERANCE * np.linalg.norm(right)
