"""Training without autograd gives the results of the reference trainer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.data.augment import AUGMENTATIONS
from thalweg.data.base import Dataset
from thalweg.engine import dense
from thalweg.engine.dense import DenseStack, DenseTrainer, find_dense_layers
from thalweg.engine.fast import stack
from thalweg.engine.gather import Gather
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import StackedTrainer
from thalweg.federation import MiniBatch
from thalweg.local import LocalTraining, Proximal, TaskLoss
from thalweg.losses import CrossEntropy, Huber, MeanSquaredError
from thalweg.nets import LeNet5, Linear, Mlp, Net
from thalweg.nets.layers import Dense, Relu

NUM_ROWS = 40
KINDS = ["images", "features", "numbers", "several numbers"]


def make_data(kind: str) -> Dataset:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, NUM_ROWS)
    if kind == "images":
        x = rng.integers(0, 256, (NUM_ROWS, 4, 5, 2), dtype=np.uint8)
        return Dataset("toy", x, labels, x[:9], labels[:9], 3, (0.4, 0.5), (0.3, 0.2))
    x = rng.standard_normal((NUM_ROWS, 7), dtype=np.float32)
    if kind == "features":
        return Dataset("toy", x, labels, x[:9], labels[:9], 3)
    shape = (NUM_ROWS,) if kind == "numbers" else (NUM_ROWS, 2)
    y = rng.standard_normal(shape, dtype=np.float32)
    return Dataset("toy", x, y, x[:9], y[:9], 0)


def draw_batches(lengths: list[list[int]], weighted: bool = False) -> list[list[MiniBatch]]:
    """Return mini-batches of each client; `lengths` are their numbers of samples."""
    rng = np.random.default_rng(1)
    return [
        [
            MiniBatch(
                rng.integers(0, NUM_ROWS, size),
                rng.random(size, dtype=np.float32) if weighted else None,
            )
            for size in mine
        ]
        for mine in lengths
    ]


def check_against_reference(
    local: LocalTraining,
    batches: list[list[MiniBatch]],
    kind: str = "features",
    spec: Mlp | Linear = Mlp(hidden=(6, 5)),  # noqa: B008  frozen
    scales: list[float] | None = None,
) -> None:
    """Compare changes and losses of clients in a stack with those of each client alone."""
    data = make_data(kind)
    loss = MeanSquaredError() if data.task == "regression" else CrossEntropy()
    net = spec.build(data.input_shape, data.num_outputs)
    bank = np.stack([net.init(np.random.default_rng(m)) for m in range(2)])
    models = np.arange(len(batches)) % 2
    trainer = StackedTrainer(net, TaskLoss(), local, Gather(data), loss=loss)
    assert isinstance(trainer._dense, DenseTrainer)
    task = stack(models, batches, None if scales is None else np.array(scales, dtype=np.float32))
    deltas, losses = trainer.train(bank, [task])
    single = SingleTrainer(net, TaskLoss(), local, data, loss=loss)
    for k, mine in enumerate(batches):
        training = single.begin(bank[models[k]])
        for batch in mine:
            training.step(batch, {}, 1.0 if scales is None else scales[k])
        np.testing.assert_allclose(deltas[k], training.delta, rtol=1e-4, atol=2e-6)
        assert losses[k] == pytest.approx(training.mean_loss, rel=1e-5, nan_ok=True)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("num_clients", [1, 3, 7])
def test_stacks_equal_clients_alone(num_clients: int, decay: float, momentum: float) -> None:
    local = LocalTraining(lr=0.05, momentum=momentum, weight_decay=decay, steps=1)
    check_against_reference(local, draw_batches([[6, 6, 6, 6]] * num_clients))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", [Linear(), Mlp(hidden=(6,)), Mlp(hidden=(6, 5))], ids=repr)
def test_all_kinds_of_data_and_targets(kind: str, spec: Mlp | Linear) -> None:
    local = LocalTraining(lr=0.05, momentum=0.5, steps=1)
    check_against_reference(local, draw_batches([[6, 4, 3], [6, 6]], weighted=True), kind, spec)


def test_learning_rates_differ_between_clients() -> None:
    local = LocalTraining(lr=0.05, momentum=0.9, weight_decay=0.01, steps=1)
    batches = draw_batches([[6, 6], [6], [6, 6, 6]])
    check_against_reference(local, batches, scales=[1.0, 0.5, 0.0])


def test_several_gathers_of_one_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "GATHERED_NUMBERS", 2 * 6 * 7 * 3)  # two steps of three clients
    local = LocalTraining(lr=0.05, momentum=0.9, steps=1)
    check_against_reference(local, draw_batches([[6, 6, 6, 6, 6, 2, 2]] * 3))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(1, 9), max_size=5), min_size=1, max_size=4))
def test_any_numbers_of_steps_and_samples(lengths: list[list[int]]) -> None:
    """Clients with fewer steps wait, and small mini-batches are padded."""
    check_against_reference(
        LocalTraining(lr=0.05, momentum=0.9, weight_decay=0.01, steps=1), draw_batches(lengths)
    )


def test_clients_that_pause_keep_parameters_and_velocity() -> None:
    """A mask need not be a range of steps: client 1 takes steps 0 and 2."""
    data, local = make_data("features"), LocalTraining(lr=0.1, momentum=0.9, steps=1)
    net = Mlp(hidden=(6,)).build(data.input_shape, 3)
    trainer = StackedTrainer(net, TaskLoss(), local, Gather(data))
    bank = net.init(np.random.default_rng(0))[None]
    task = stack(np.zeros(2, dtype=np.int64), draw_batches([[6, 6, 6], [6, 6, 6]]))
    paused = task.live.copy()
    paused[1, 1] = False
    deltas, _ = trainer.train(bank, [task._replace(live=paused)])
    single = SingleTrainer(net, TaskLoss(), local, data)
    for k, steps in enumerate([[0, 1, 2], [0, 2]]):
        training = single.begin(bank[0])
        for step in steps:
            training.step(MiniBatch(task.items[step, k], None), {}, 1.0)
        np.testing.assert_allclose(deltas[k], training.delta, rtol=1e-4, atol=2e-6)


def test_ticks_and_a_restored_velocity_continue_the_training() -> None:
    data, local = make_data("features"), LocalTraining(lr=0.1, momentum=0.9, steps=1)
    net = Mlp(hidden=(6,)).build(data.input_shape, 3)
    trainer = StackedTrainer(net, TaskLoss(), local, Gather(data))
    bank = net.init(np.random.default_rng(0))[None]
    batches = draw_batches([[6, 6], [6]])
    single = SingleTrainer(net, TaskLoss(), local, data)
    velocity = np.random.default_rng(2).standard_normal((2, net.num_params), dtype=np.float32)
    trained = trainer.begin(bank, np.zeros(2, dtype=np.int64))
    alone = []
    for k in range(2):
        state = {"velocity": velocity[k]}
        trainer.restore_optimizer(trained, k, state)
        alone.append(single.begin(bank[0], optimizer_state=state))
    for _ in range(3):  # ticks
        task = stack(np.zeros(2, dtype=np.int64), batches)
        trainer.steps(trained, task.items, task.weights, task.live, sizes=task.sizes)
        for training, mine in zip(alone, batches, strict=True):
            for batch in mine:
                training.step(batch, {}, 1.0)
    assert trained.num_steps.tolist() == [6, 3]
    for k, training in enumerate(alone):
        np.testing.assert_allclose(trained.params[k], training.params(), rtol=1e-4, atol=5e-6)
        mine = trainer.export_optimizer(trained, k)["velocity"]
        right = training.export_optimizer()["velocity"]
        np.testing.assert_allclose(mine, right, rtol=1e-4, atol=5e-6)


def test_two_steps_by_hand() -> None:
    """One weight, bias 0, squared error: w = 1 - 0.1 * 2 * 2 * (2 - 1) = 0.6, v = 4."""
    x, y = np.array([[2.0]], dtype=np.float32), np.array([1.0], dtype=np.float32)
    data = Dataset("toy", x, y, x, y, 0)
    net = Linear().build((1,), 1)
    trainer = StackedTrainer(
        net,
        TaskLoss(),
        LocalTraining(lr=0.1, momentum=0.5, steps=1),
        Gather(data),
        loss=MeanSquaredError(),
    )
    batches = [MiniBatch(np.array([0]), None)]
    bank = np.array([[1.0, 0.0]], dtype=np.float32)
    deltas, losses = trainer.train(bank, [stack(np.array([0]), [batches])])
    np.testing.assert_allclose(deltas, [[-0.4, -0.2]], atol=1e-6)
    assert losses[0] == pytest.approx(1.0)
    # w = 0.6, b = -0.2: error 2 * 0.6 - 0.2 - 1 = 0; v = (2, 1), w = 0.4, b = -0.3.
    deltas, losses = trainer.train(bank, [stack(np.array([0]), [batches * 2])])
    np.testing.assert_allclose(deltas, [[-0.6, -0.3]], atol=1e-6)
    assert losses[0] == pytest.approx(0.5)


def test_other_training_uses_autograd() -> None:
    data = make_data("images")
    net = Mlp(hidden=(6,)).build(data.input_shape, 3)
    plain = LocalTraining(lr=0.1, steps=1)
    augment = next(iter(AUGMENTATIONS.values()))()
    lenet = LeNet5().build((1, 28, 28), 3)
    adam = LocalTraining(lr=0.1, steps=1, optimizer="adam")
    assert StackedTrainer(net, TaskLoss(), plain, Gather(data))._dense is not None
    for trainer in (
        StackedTrainer(lenet, TaskLoss(), plain, Gather(data)),
        StackedTrainer(net, Proximal(), plain, Gather(data)),
        StackedTrainer(net, TaskLoss(), adam, Gather(data)),
        StackedTrainer(net, TaskLoss(), plain, Gather(data), augment=augment),
        StackedTrainer(net, TaskLoss(), plain, Gather(data), loss=Huber()),
    ):
        assert trainer._dense is None


def test_a_net_that_ends_with_relu_is_not_dense() -> None:
    assert find_dense_layers(Net((Dense("fc", 2, 3), Relu()), (2,))) is None
    assert find_dense_layers(Net((Relu(), Dense("fc", 2, 3)), (2,))) is None


def test_loading_and_storing_are_inverse() -> None:
    layers = find_dense_layers(Mlp(hidden=(3,)).build((2,), 2))
    assert layers is not None
    rows = torch.arange(34.0).view(2, 17)
    dense_stack = DenseStack(layers, num_clients=2)
    dense_stack.load(dense_stack.params, rows)
    assert dense_stack.weights[0][1].tolist() == [[17, 18], [19, 20], [21, 22]]
    assert dense_stack.biases[1][1].tolist() == [[32, 33]]
    back = torch.empty_like(rows)
    dense_stack.store(dense_stack.params, back)
    assert torch.equal(back, rows)


def test_vectors_have_the_order_of_flatten() -> None:
    data = make_data("images")
    rows = np.array([[3, 1], [0, 39]])
    x, labels = Gather(data).get_vectors("train", rows)
    images, right = Gather(data).get_single("train", rows.ravel())
    assert torch.equal(x.view(4, -1), images.flatten(1))
    assert torch.equal(labels.flatten(), right)
