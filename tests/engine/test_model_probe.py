"""Model probes agree with the net and autograd."""

import numpy as np
import pytest
import torch

from thalweg.data import Digits
from thalweg.engine.gather import Gather
from thalweg.engine.model_probe import FixedModelProbe, StackModelProbe
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import StackedTrainer
from thalweg.local import LocalTraining, TaskLoss
from thalweg.nets import Cnn, Mlp

DATA = Digits().load(None, 0)
ROWS = np.array([3, 1, 4, 15, 9])


@pytest.fixture(params=[Mlp(hidden=(6,)), Cnn(channels=(3, 3, 3), hidden=6)], ids=["mlp", "cnn"])
def seen(request):
    """The second of two clients, after it has moved away from where it began."""
    net = request.param.build(DATA.input_shape, 10)
    trainer = StackedTrainer(net, TaskLoss(), LocalTraining(lr=0.1, steps=1), Gather(DATA))
    bank = np.stack([net.init(np.random.default_rng(seed)) for seed in (0, 1)])
    stack = trainer.begin(bank, np.array([0, 1]))
    stack.params[1] += 0.1
    x, y = Gather(DATA).get_single("train", ROWS)
    return net, StackModelProbe(trainer, stack, 1), bank[1], x, y


def test_params_returns_a_copy(seen):
    _, look, start, _, _ = seen
    copy = look.params()
    np.testing.assert_allclose(copy, start + 0.1, rtol=1e-6)
    copy[:] = 0
    assert look.params().any()


def test_losses_are_those_of_the_current_model(seen):
    net, look, _, x, y = seen
    logits = net.apply(torch.tensor(look.params()), x)
    expected = torch.nn.functional.cross_entropy(logits, y, reduction="none")
    np.testing.assert_allclose(look.losses(ROWS), expected.numpy(), rtol=1e-4)


def test_outputs_are_those_of_the_current_model_on_both_engines(seen):
    net, look, _, x, _ = seen
    logits = net.apply(torch.tensor(look.params()), x).numpy()
    np.testing.assert_allclose(look.outputs(ROWS), logits, rtol=1e-4, atol=1e-5)
    alone = SingleTrainer(net, TaskLoss(), LocalTraining(lr=0.1, steps=1), DATA).begin(
        look.params()
    )
    np.testing.assert_allclose(alone.outputs(ROWS), logits, rtol=1e-4, atol=1e-5)
    for each in (look, alone):
        assert each.outputs(ROWS[:0]).shape == (0, 10)


def test_squared_gradients_are_a_mean_over_single_samples_not_the_square_of_a_mean(seen):
    net, look, _, x, y = seen
    expected = torch.zeros(net.num_params)
    for k in range(len(ROWS)):
        params = torch.tensor(look.params(), requires_grad=True)
        loss = torch.nn.functional.cross_entropy(net.apply(params, x[k : k + 1]), y[k : k + 1])
        expected += torch.autograd.grad(loss, params)[0] ** 2 / len(ROWS)
    np.testing.assert_allclose(look.squared_gradients(ROWS), expected.numpy(), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize(("momentum", "lr_scale"), [(0.0, 1.0), (0.9, 1.0), (0.9, 0.5)])
def test_descend_takes_steps_of_the_clients_optimizer_on_both_engines(momentum, lr_scale):
    net = Mlp(hidden=(6,)).build(DATA.input_shape, 10)
    start = net.init(np.random.default_rng(0))
    local = LocalTraining(lr=0.2, momentum=momentum, weight_decay=0.01, steps=1)
    stacked = StackedTrainer(net, TaskLoss(), local, Gather(DATA))
    probes = (
        FixedModelProbe(stacked, start),
        SingleTrainer(net, TaskLoss(), local, DATA).begin(start),
    )
    x, y = Gather(DATA).get_single("train", ROWS)
    params = torch.tensor(start, requires_grad=True)
    torch_sgd = torch.optim.SGD([params], 0.2 * lr_scale, momentum, weight_decay=0.01)
    lengths = []
    for _ in range(3):
        torch_sgd.zero_grad()
        torch.nn.functional.cross_entropy(net.apply(params, x), y).backward()
        lengths.append(float(params.grad.norm()))
        torch_sgd.step()
    for probe in probes:
        descent = probe.descend(ROWS, 3, lr_scale)
        np.testing.assert_allclose(descent.params, params.detach().numpy(), atol=1e-6)
        assert descent.max_gradient == pytest.approx(max(lengths), rel=1e-4)
        assert probe.params().tolist() == start.tolist(), "the probed model does not change"


@pytest.mark.parametrize("received", [True, False])
def test_last_layer_gives_the_gradient_of_the_last_layer(seen, received):
    net, look, start, x, y = seen
    last_layer = look.last_layer(ROWS, received)
    params = torch.tensor(start if received else look.params(), requires_grad=True)
    loss = torch.nn.functional.cross_entropy(net.apply(params, x[:1]), y[:1])
    (gradient,) = torch.autograd.grad(loss, params)
    named = net.named_parameters(gradient.numpy())
    weight, bias = list(named.values())[-2:]
    np.testing.assert_allclose(
        np.outer(last_layer.errors[0], last_layer.features[0]), weight, rtol=1e-3, atol=1e-6
    )
    np.testing.assert_allclose(last_layer.errors[0], bias, rtol=1e-3, atol=1e-6)


def test_last_layer_of_no_rows_has_the_right_shape(seen):
    _, look, _, _, _ = seen
    last_layer = look.last_layer(np.empty(0, dtype=np.int64), received=False)
    assert last_layer.errors.shape == (0, 10)
    assert last_layer.features.shape == (0, 6)
