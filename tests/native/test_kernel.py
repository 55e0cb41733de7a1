"""The native kernel gives the results of the reference engine, within a stated tolerance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from native.kernel_cases import (
    PLAIN_SGD,
    SGD,
    TOLERANCE,
    assert_agrees,
    choose_loss,
    make_bank,
    make_images,
    make_native,
    make_table,
    make_task,
    needs_kernel,
    train_reference,
)
from thalweg.core.transforms import Rotated
from thalweg.core.views import View
from thalweg.engine.gather import Gather
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import StackedTrainer
from thalweg.local import LocalTraining, TaskLoss
from thalweg.nets import Cnn, LeNet5, Linear, Mlp

pytestmark = needs_kernel

SMALL_CNN = Cnn(channels=(3, 5, 7), hidden=9)
NETS = [
    Linear(),
    Mlp(hidden=(5,)),
    Mlp(hidden=(17, 1, 33)),
    Mlp(hidden=(7, 4), projection=6),
    LeNet5(),
    LeNet5(projection=11),
    SMALL_CNN,
    replace(SMALL_CNN, projection=4),
    Cnn(),
]


# --- training ---


@pytest.mark.parametrize("spec", NETS, ids=repr)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 29, 31), (2, 9, 14)], ids=str)
def test_a_round_equals_the_reference(spec, shape):
    data = make_images(shape)
    net = spec.build(data.input_shape, 3)
    assert_agrees(net, data, make_task([[6, 6, 17], [1], [33, 2]]))


@pytest.mark.parametrize("local", [PLAIN_SGD, replace(PLAIN_SGD, momentum=0.8), SGD], ids=str)
@pytest.mark.parametrize("spec", [Linear(), Mlp(hidden=(9,)), LeNet5(), SMALL_CNN], ids=repr)
def test_momentum_and_weight_decay(spec, local):
    data = make_images((1, 8, 8))
    net = spec.build(data.input_shape, 3)
    assert_agrees(net, data, make_task([[6, 5, 4], [7, 8, 9]]), local)


def test_every_batch_size_of_a_dense_net():
    data = make_table(11)
    net = Mlp(hidden=(7,)).build((11,), 3)
    assert_agrees(net, data, make_task([[size, size] for size in range(1, 71)]))


@pytest.mark.parametrize("spec", [LeNet5(), SMALL_CNN], ids=repr)
def test_batch_sizes_of_a_convolutional_net(spec):
    data = make_images((1, 8, 8))
    net = spec.build(data.input_shape, 3)
    sizes = [1, 2, 7, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 70]
    assert_agrees(net, data, make_task([[size, size] for size in sizes]))


@pytest.mark.parametrize("features", [1, 2, 3, 15, 16, 17, 31, 64, 65, 100])
def test_tables_of_any_width(features):
    data = make_table(features)
    task = make_task([[6, 17], [3]])
    for spec in (Linear(), Mlp(hidden=(features, 3))):
        assert_agrees(spec.build((features,), 3), data, task)


@pytest.mark.parametrize("outputs", [1, 2, 5, 13])
@pytest.mark.parametrize("spec", [Linear(), Mlp(hidden=(9,), projection=3)], ids=repr)
def test_squared_error_of_several_outputs(spec, outputs):
    data = make_table(6, outputs)
    net = spec.build((6,), outputs)
    assert_agrees(net, data, make_task([[6, 17, 3], [20]], is_weighted=True))


@pytest.mark.parametrize("spec", [Mlp(hidden=(9,)), LeNet5()], ids=repr)
def test_sample_weights_and_scales_of_the_learning_rate(spec):
    data = make_images((1, 8, 8))
    net = spec.build(data.input_shape, 3)
    task = make_task(
        [[6, 6, 17], [5, 18], [2, 2, 2]], is_weighted=True, lr_scales=[0.5, 1.0, 0.03], num_models=4
    )
    assert_agrees(net, data, task, num_models=4)


@pytest.mark.parametrize("spec", [Mlp(hidden=(9,)), SMALL_CNN], ids=repr)
def test_clients_without_steps_and_steps_without_samples(spec):
    data = make_images((1, 8, 8))
    net = spec.build(data.input_shape, 3)
    task = make_task([[0, 6, 0, 17], [], [0, 0], [3, 0, 3]])
    assert_agrees(net, data, task)
    deltas, losses = make_native(net, data).train(make_bank(net), [task])
    assert not deltas[1:3].any()
    assert np.isnan(losses[1:3]).all()


def test_a_live_step_of_size_zero_is_no_division_by_zero():
    """The engine has no such steps; a kernel must still not read memory that is not there."""
    data = make_table(4)
    net = Linear().build((4,), 3)
    task = make_task([[5, 0]])
    task = task._replace(live=np.ones_like(task.live))
    deltas, losses = make_native(net, data).train(make_bank(net), [task])
    assert np.isfinite(deltas).all()
    assert np.isfinite(losses).all()


def test_sizes_follow_from_weights_if_they_are_not_given():
    data = make_table(4)
    net = Mlp(hidden=(5,)).build((4,), 3)
    task = make_task([[6, 4], [2, 9]], extra_width=20)
    trainer, bank = make_native(net, data), make_bank(net)
    given_sizes, _ = trainer.train(bank, [task])
    found_sizes, _ = trainer.train(bank, [task._replace(sizes=None)])
    assert np.array_equal(given_sizes, found_sizes)


def test_a_step_of_logistic_regression_by_hand():
    """One sample x = (1, 2), two equal logits: the gradient of class 0 is -x / 2."""
    data = make_table(2)
    data = replace(data, x=np.tile(np.array([[1, 2]], np.float32), (60, 1)), y=np.zeros(60, int))
    net = Linear().build((2,), 3)
    local = LocalTraining(lr=0.3, batch_size=1, steps=1)
    start = np.zeros((1, 9), dtype=np.float32)
    deltas, losses = make_native(net, data, local).train(start, [make_task([[1]])])
    third, rest = 0.3 * 2 / 3, -0.3 / 3
    weights = [third, 2 * third, rest, 2 * rest, rest, 2 * rest]
    np.testing.assert_allclose(deltas[0], [*weights, third, rest, rest], rtol=1e-6)
    assert losses[0] == pytest.approx(np.log(3))


def test_views_of_samples():
    views = (View(), View(Rotated(90)), View(labels=(1, 2, 0)))
    data = make_images((1, 9, 9), views=views)
    net = LeNet5().build(data.input_shape, 3)
    assert_agrees(net, data, make_task([[6, 17], [20]], num_rows=180))


def test_samples_in_a_mapped_file_with_an_index(tmp_path):
    data = make_images((3, 8, 9))
    np.save(tmp_path / "x.npy", data.x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    index, index_test = np.arange(59, 19, -1), np.arange(5, 15)
    data = replace(
        data,
        x=mapped,
        x_test=mapped,
        y=data.y[index],
        y_test=data.y[index_test],
        index=index,
        index_test=index_test,
    )
    net = SMALL_CNN.build(data.input_shape, 3)
    assert_agrees(net, data, make_task([[6, 17], [20]], num_rows=40))
    assert_predicts_as_the_reference(net, data)


def test_float_images_have_their_channels_first():
    data = make_table(2 * 9 * 8)
    x = data.x.reshape(60, 2, 9, 8)
    data = replace(data, x=x, x_test=x[:9])
    net = LeNet5().build((2, 9, 8), 3)
    assert_agrees(net, data, make_task([[6, 17], [20]]))


@st.composite
def nets_and_data(draw):
    """Draw a net, data that suit it, and mini-batches."""
    kind = draw(st.sampled_from(["table", "dense", "lenet5", "cnn"]))
    outputs = draw(st.integers(0, 4)) if kind == "table" else 0
    if kind == "table":
        data = make_table(draw(st.integers(1, 70)), outputs)
    else:
        sides = st.integers(8, 20)
        data = make_images((draw(st.integers(1, 3)), draw(sides), draw(sides)))
    widths = st.integers(1, 40)
    projection = draw(st.none() | st.integers(1, 20))
    if kind == "lenet5":
        spec = LeNet5(projection)
    elif kind == "cnn":
        channels = draw(st.tuples(*[st.integers(1, 14)] * 3))
        spec = Cnn(channels, draw(widths), projection)
    else:
        hidden = draw(st.lists(widths, max_size=3))
        spec = Mlp(tuple(hidden), projection) if hidden else Linear()
    sizes = draw(st.lists(st.lists(st.integers(0, 40), max_size=3), min_size=1, max_size=3))
    return spec.build(data.input_shape, data.num_outputs), data, sizes


@given(nets_and_data(), st.booleans(), st.integers(0, 20))
@settings(max_examples=40)
def test_any_net_and_shape(case, is_weighted, extra_width):
    net, data, sizes = case
    sizes = sizes if any(sizes) else [[1]]
    assert_agrees(
        net, data, make_task(sizes, is_weighted=is_weighted, extra_width=extra_width), PLAIN_SGD
    )


# --- models that have diverged ---


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("spec", [Linear(), Mlp(hidden=(5,)), LeNet5(), SMALL_CNN], ids=repr)
def test_numbers_that_are_not_finite_spread_as_in_torch(spec, value):
    """One number of each tensor is not finite: a ReLU or a maximum must not hide it.

    Convolutions multiply an infinite weight by the zeros of the padding, which gives nan. Whether
    PyTorch does this depends on the implementation that it chooses.
    """
    data = make_images((1, 8, 8))
    net = spec.build(data.input_shape, 3)
    trainer = make_native(net, data, PLAIN_SGD)
    reference = SingleTrainer(net, TaskLoss(), PLAIN_SGD, data)
    ends = np.cumsum(net.sizes)
    for position in [0, *(ends - 1).tolist()]:
        params = make_bank(net)[0]
        params[position] = value
        ours = trainer.outputs(params, "test")
        with torch.inference_mode():
            right = net.apply(torch.tensor(params), reference.inputs(data.x_test)).numpy()
        our_losses = trainer.predict(params, "test")[1]
        right_losses = reference.predict(params, "test", None)[1]
        assert np.isfinite(ours[~np.isfinite(right)]).sum() == 0
        assert np.isfinite(our_losses[~np.isfinite(right_losses)]).sum() == 0
        if np.isnan(value) or not isinstance(spec, (LeNet5, Cnn)):
            np.testing.assert_array_equal(np.isnan(ours), np.isnan(right))
            np.testing.assert_array_equal(np.isinf(ours), np.isinf(right))
            np.testing.assert_array_equal(np.isnan(our_losses), np.isnan(right_losses))


@pytest.mark.parametrize("spec", [Mlp(hidden=(5,)), LeNet5()], ids=repr)
def test_training_diverges_as_in_torch(spec):
    data = make_images((1, 8, 8))
    net = spec.build(data.input_shape, 3)
    local = replace(PLAIN_SGD, lr=1e30)
    task, bank = make_task([[6] * 5]), make_bank(net)
    deltas, losses = make_native(net, data, local).train(bank, [task])
    expected, expected_losses = train_reference(net, data, local, bank, task)
    assert np.isnan(losses).tolist() == np.isnan(expected_losses).tolist() == [True]
    assert np.isnan(deltas).any()
    assert np.isnan(expected).any()


def test_a_sample_that_is_not_finite():
    data = make_table(4)
    x = data.x.copy()
    x[:, 0] = np.nan
    data = replace(data, x=x)
    net = Mlp(hidden=(5,)).build((4,), 3)
    deltas, losses = make_native(net, data).train(make_bank(net), [make_task([[3]])])
    assert np.isnan(losses[0])
    assert np.isnan(deltas[0]).all()


# --- prediction ---


def assert_predicts_as_the_reference(net, data):
    trainer, params = make_native(net, data), make_bank(net)[0]
    loss = choose_loss(data)
    reference = SingleTrainer(net, TaskLoss(), SGD, data, loss=loss)
    for part in ("train", "test"):
        for rows in (None, np.array([4, 0, 4]), np.empty(0, dtype=np.int64)):
            ours, our_losses = trainer.predict(params, part, rows)
            right, right_losses = reference.predict(params, part, rows)
            assert ours.shape == right.shape
            np.testing.assert_allclose(ours, right, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(our_losses, right_losses, rtol=1e-5, atol=1e-5)
            scores = reference.scores(params, part, rows)
            np.testing.assert_allclose(trainer.scores(params, part, rows), scores, atol=1e-5)


@pytest.mark.parametrize("spec", NETS, ids=repr)
def test_predictions_of_images(spec):
    data = make_images((3, 11, 8))
    assert_predicts_as_the_reference(spec.build(data.input_shape, 3), data)


@pytest.mark.parametrize("outputs", [0, 1, 4])
def test_predictions_of_tables(outputs):
    data = make_table(7, outputs)
    net = Mlp(hidden=(5,)).build((7,), data.num_outputs)
    assert_predicts_as_the_reference(net, data)


@pytest.mark.parametrize("number", [1, 63, 64, 65, 300])
def test_a_prediction_does_not_depend_on_the_other_samples(number):
    data = make_images((1, 8, 8), num=300)
    net = LeNet5().build(data.input_shape, 3)
    params = make_bank(net)[0]
    trainer = make_native(net, data)
    alone = np.concatenate([trainer.outputs(params, "train", np.array([i])) for i in range(9)])
    together = trainer.outputs(params, "train", np.arange(number))
    assert np.array_equal(together[:9], alone[:number])


# --- the stacked trainer with the kernel ---


def test_the_stacked_trainer_agrees_within_the_tolerance():
    data = make_images((1, 8, 8))
    net = LeNet5().build(data.input_shape, 3)
    task, bank = make_task([[6, 17], [20]], is_weighted=True), make_bank(net)
    torch_deltas, _ = StackedTrainer(net, TaskLoss(), SGD, Gather(data)).train(bank, [task])
    deltas, _ = make_native(net, data).train(bank, [task])
    errors = np.linalg.norm(deltas - torch_deltas, axis=1)
    assert (errors <= TOLERANCE * np.linalg.norm(torch_deltas, axis=1)).all()
