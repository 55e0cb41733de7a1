"""Training clients in a stack gives the same results as training each alone."""

import copy
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from thalweg.data.base import Dataset
from thalweg.engine.gather import Gather
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stack_tasks import PREDICT_BATCH, StackTask, choose_stack_sizes, stack_size
from thalweg.engine.stacked import StackedTrainer
from thalweg.local import LocalTraining, TaskLoss
from thalweg.nets import Cnn, LeNet5, Linear, Mlp

SGD = LocalTraining(lr=0.05, momentum=0.9, weight_decay=0.01, batch_size=6, steps=1)


def toy_images(side=8, num=40):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (num, side, side, 1), dtype=np.uint8)
    y = rng.integers(0, 3, num)
    return Dataset("toy", x, y, x[:9], y[:9], 3, mean=(0.4,), std=(0.3,))


def task_of(batches, models=None):
    """Mini-batches of each client, padded: what the engine does, in few words."""
    steps, width = max(map(len, batches)), max(len(b) for mine in batches for b in mine)
    items = np.full((steps, len(batches), width), 7, dtype=np.int32)
    weights = np.zeros(items.shape, dtype=np.float32)
    live = np.zeros(items.shape[:2], dtype=bool)
    for k, mine in enumerate(batches):
        for s, rows in enumerate(mine):
            items[s, k, : len(rows)], weights[s, k, : len(rows)] = rows, 1 / len(rows)
            live[s, k] = True
    models = np.zeros(len(batches), dtype=np.int64) if models is None else np.array(models)
    return StackTask(models, items, weights, live)


def some_batches(rng, lengths):
    """One list of row arrays per client; `lengths` says how long each batch is."""
    return [[rng.integers(0, 40, n) for n in mine] for mine in lengths]


def bank_for(net, num_models=1):
    return np.stack([net.init(np.random.default_rng(m)) for m in range(num_models)])


@pytest.mark.parametrize(
    ("spec", "side"),
    [(Linear(), 8), (Mlp(hidden=(5,)), 8), (LeNet5(), 8), (Cnn(), 8), (Cnn(), 28)],
    ids=repr,
)
def test_a_round_equals_torch_optim_on_plain_modules(spec, side):
    data = toy_images(side)
    net = spec.build(data.input_shape, 3)
    batches = some_batches(np.random.default_rng(1), [[6, 6, 4], [6, 6, 6], [2, 6, 1]])
    bank = bank_for(net, 2)
    deltas, losses = StackedTrainer(net, TaskLoss(), SGD, Gather(data)).train(
        bank, [task_of(batches, models=[1, 0, 1])]
    )
    x = torch.tensor((data.x / 255 - 0.4) / 0.3, dtype=torch.float32).permute(0, 3, 1, 2)
    for k, model in enumerate([1, 0, 1]):
        params = nn.Parameter(torch.tensor(bank[model]))
        optimizer = torch.optim.SGD([params], lr=0.05, momentum=0.9, weight_decay=0.01)
        seen = []
        for rows in batches[k]:
            optimizer.zero_grad()
            loss = cross_entropy(net.apply(params, x[rows]), torch.tensor(data.y[rows]))
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        np.testing.assert_allclose(bank[model] + deltas[k], params.detach().numpy(), atol=2e-6)
        assert losses[k] == pytest.approx(np.mean(seen), rel=1e-5)


@pytest.mark.parametrize("spec", [Mlp(hidden=(5,)), LeNet5()], ids=repr)
def test_padding_and_dead_steps_change_nothing(spec):
    """A client that waits, or whose batches are padded, learns what it learns alone."""
    data = toy_images()
    net = spec.build(data.input_shape, 3)
    trainer = StackedTrainer(net, TaskLoss(), SGD, Gather(data))
    bank = bank_for(net)
    batches = some_batches(np.random.default_rng(1), [[6, 6, 6, 3], [2], [], [5, 1]])
    together, losses = trainer.train(bank, [task_of(batches)])
    for k, mine in enumerate(batches):
        if not mine:
            assert not together[k].any()
            assert np.isnan(losses[k])
            continue
        alone, loss = trainer.train(bank, [task_of([mine])])
        np.testing.assert_allclose(together[k], alone[0], atol=1e-6)
        assert losses[k] == pytest.approx(loss[0], rel=1e-5)


def test_the_rows_of_padding_do_not_matter():
    data = toy_images()
    net = LeNet5().build(data.input_shape, 3)
    trainer = StackedTrainer(net, TaskLoss(), SGD, Gather(data))
    task = task_of(some_batches(np.random.default_rng(1), [[6, 2], [3, 4]]))
    other = task._replace(items=np.where(task.weights > 0, task.items, 0))
    one, two = (trainer.train(bank_for(net), [t])[0] for t in (task, other))
    assert np.array_equal(one, two)


def test_columns_of_padding_are_not_computed():
    data = toy_images()
    net = Mlp(hidden=(5,)).build(data.input_shape, 3)
    trainer = StackedTrainer(net, TaskLoss(), SGD, Gather(data))
    task = task_of(some_batches(np.random.default_rng(1), [[6, 2], [3, 4]]))
    wide = StackTask(
        task.models,
        np.pad(task.items, ((0, 0), (0, 0), (0, 50))),
        np.pad(task.weights, ((0, 0), (0, 0), (0, 50))),
        task.live,
    )
    one, two = (trainer.train(bank_for(net), [t])[0] for t in (task, wide))
    assert np.array_equal(one, two)


def test_steps_can_be_split_over_several_calls():
    data = toy_images()
    net = LeNet5().build(data.input_shape, 3)
    trainer = StackedTrainer(net, TaskLoss(), SGD, Gather(data))
    bank = bank_for(net)
    task = task_of(some_batches(np.random.default_rng(1), [[6, 6, 6], [6, 6]]))
    whole, losses = trainer.train(bank, [task])
    stack = trainer.begin(bank, task.models)
    for s in range(3):
        before = stack.params.clone()
        trainer.steps(stack, task.items[s : s + 1], task.weights[s : s + 1], task.live[s : s + 1])
        moved = (stack.params != before).any(1).tolist()
        assert moved == task.live[s].tolist()  # and in between one may look
    deltas = np.empty_like(whole)
    assert np.array_equal(trainer.finish(stack, deltas), losses)
    assert np.array_equal(deltas, whole)
    assert stack.num_steps.tolist() == [3, 2]


@dataclass(frozen=True)
class Homesick:
    """Pulls the parameters to where the round began, and to nothing else."""

    def loss(self, model, params, batch, memo):
        return 0.5 * ((params - memo["start"]) ** 2).sum(1) + params[:, 0]


def test_the_memo_contains_the_received_model_of_each_client():
    data = toy_images()
    net = Linear().build(data.input_shape, 3)
    trainer = StackedTrainer(net, Homesick(), LocalTraining(lr=0.5, steps=1), Gather(data))
    task = task_of(some_batches(np.random.default_rng(1), [[6, 6], [6]]), models=[1, 0])
    deltas, losses = trainer.train(bank_for(net, 2), [task])
    # d <- d - (d + 1) / 2 for the first parameter: -0.5, then -0.75.
    np.testing.assert_allclose(deltas[:, 0], [-0.75, -0.5], atol=1e-6)
    assert not deltas[:, 1:].any()
    first = bank_for(net, 2)[:, 0]
    np.testing.assert_allclose(losses[1], first[0], atol=1e-6)
    np.testing.assert_allclose(losses[0], (2 * first[1] - 0.5 + 0.125) / 2, atol=1e-6)


def test_inputs_are_not_changed_and_nothing_is_shared_with_the_outputs():
    data = toy_images()
    net = Mlp(hidden=(5,)).build(data.input_shape, 3)
    trainer = StackedTrainer(net, TaskLoss(), SGD, Gather(data))
    bank = bank_for(net)
    task = task_of(some_batches(np.random.default_rng(1), [[6, 6], [6, 3]]))
    copies = copy.deepcopy((bank, task))
    bank.flags.writeable = False
    for array in task[:4]:
        array.flags.writeable = False
    first, _ = trainer.train(bank, [task])
    kept = first.copy()
    trainer.train(bank, [task])
    assert np.array_equal(first, kept)
    assert np.array_equal(bank, copies[0])
    assert all(np.array_equal(a, b) for a, b in zip(task, copies[1], strict=True))


def test_no_tasks_give_no_updates():
    data = toy_images()
    net = Linear().build(data.input_shape, 3)
    deltas, losses = StackedTrainer(net, TaskLoss(), SGD, Gather(data)).train(bank_for(net), [])
    assert deltas.shape == (0, net.num_params)
    assert losses.shape == (0,)


def test_a_round_without_steps_has_zero_updates():
    data = toy_images()
    net = Linear().build(data.input_shape, 3)
    nothing = StackTask(
        np.zeros(2, dtype=np.int64),
        np.zeros((0, 2, 1), dtype=np.int32),
        np.zeros((0, 2, 1), dtype=np.float32),
        np.zeros((0, 2), dtype=bool),
    )
    trainer = StackedTrainer(net, TaskLoss(), SGD, Gather(data))
    deltas, losses = trainer.train(bank_for(net), [nothing])
    assert not deltas.any()
    assert np.isnan(losses).all()


@pytest.mark.parametrize("spec", [Linear(), LeNet5(), Cnn()], ids=repr)
def test_predicting_equals_applying_the_net(spec):
    data = toy_images(side=28, num=PREDICT_BATCH + 30)  # Cnn is not stacked at this size
    net = spec.build(data.input_shape, 3)
    gather = Gather(data)
    trainer = StackedTrainer(net, TaskLoss(), SGD, gather)
    model = bank_for(net)[0]
    rows = np.arange(len(data.y))[::-1].copy()
    labels, losses = trainer.predict(model, "train", rows)
    x, right = gather.get_single("train", rows)
    logits = net.apply(torch.tensor(model), x)
    assert labels.dtype == np.int64
    assert losses.dtype == np.float32
    assert (labels == logits.argmax(1).numpy()).mean() > 0.99  # near-ties may tip
    np.testing.assert_allclose(losses, cross_entropy(logits, right, reduction="none"), atol=1e-4)
    scores = trainer.scores(model, "train", rows)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, logits.log_softmax(1), atol=1e-4)


@pytest.mark.parametrize("spec", [Linear(), LeNet5()], ids=repr)
def test_scores_agree_with_predictions_and_losses_on_both_engines(spec):
    data = toy_images(side=28, num=PREDICT_BATCH + 30)
    net = spec.build(data.input_shape, 3)
    stacked = StackedTrainer(net, TaskLoss(), SGD, Gather(data))
    single = SingleTrainer(net, TaskLoss(), SGD, data)
    model = bank_for(net)[0]
    for trainer in (stacked, single):
        scores = trainer.scores(model, "train", None)
        labels, losses = trainer.predict(model, "train", None)
        assert (scores.argmax(1) == labels).mean() > 0.99  # near-ties may tip
        np.testing.assert_allclose(-scores[np.arange(len(data.y)), data.y], losses, atol=1e-5)
        np.testing.assert_allclose(np.exp(scores).sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(
        stacked.scores(model, "test"), single.scores(model, "test"), atol=1e-4
    )


def test_predicting_all_and_predicting_nothing():
    data = toy_images()
    net = Linear().build(data.input_shape, 3)
    trainer = StackedTrainer(net, TaskLoss(), SGD, Gather(data))
    model = bank_for(net)[0]
    assert len(trainer.predict(model, "test")[0]) == 9
    labels, losses = trainer.predict(model, "test", np.empty(0, dtype=np.int64))
    assert (len(labels), len(losses)) == (0, 0)
    assert trainer.scores(model, "test").shape == (9, 3)
    nothing = np.empty(0, dtype=np.int64)
    assert trainer.scores(model, "test", nothing).shape == (0, 3)
    single = SingleTrainer(net, TaskLoss(), SGD, data)
    assert single.scores(model, "test", nothing).shape == (0, 3)


def test_the_number_of_threads_is_restored():
    data = toy_images()
    net = Linear().build(data.input_shape, 3)
    trainer = StackedTrainer(net, TaskLoss(), SGD, Gather(data))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        trainer.train(bank_for(net), [task_of(some_batches(np.random.default_rng(1), [[6]]))])
        trainer.predict(bank_for(net)[0], "test")
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("spec", "shape", "jobs", "sizes"),
    [
        (LeNet5(), (1, 28, 28), 6, [3, 3]),
        (LeNet5(), (1, 28, 28), 30, [4, 4, 4, 4, 4, 4, 3, 3]),
        (LeNet5(), (1, 28, 28), 1, [1]),
        (Mlp(), (784,), 20, [4, 4, 3, 3, 3, 3]),
        (Linear(), (20,), 1000, [500, 500]),
        (Cnn(), (3, 32, 32), 3, [1, 1, 1]),
        (Linear(), (20,), 0, []),
    ],
)
def test_stacks_are_balanced_and_their_number_is_even(spec, shape, jobs, sizes):
    assert choose_stack_sizes(spec.build(shape, 10), jobs) == sizes


def test_every_job_is_in_one_stack():
    net = LeNet5().build((1, 28, 28), 10)
    for jobs in range(50):
        sizes = choose_stack_sizes(net, jobs)
        assert sum(sizes) == jobs
        assert all(1 <= size <= stack_size(net) for size in sizes)
        assert len(sizes) % 2 == 0 or jobs == 1
