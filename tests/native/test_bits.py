"""A client's bits depend neither on threads, nor on the other clients, nor on the way to train."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from contracts.runs import Interruption, interrupt_after
from native.kernel_cases import (
    SGD,
    choose_loss,
    make_bank,
    make_images,
    make_native,
    make_table,
    make_task,
    needs_kernel,
)
from thalweg.engine.gather import Gather
from thalweg.engine.loop import run_plan
from thalweg.engine.plan import make_plan
from thalweg.engine.stacked import StackedTrainer
from thalweg.engine.workers import WorkerPool, make_trainer
from thalweg.local import Euclidean, NotTrue, TaskLoss
from thalweg.native import trainer as native_trainer
from thalweg.nets import Cnn, LeNet5, Linear, Mlp

pytestmark = needs_kernel

NETS = [Linear(), Mlp(hidden=(9, 17)), LeNet5(), Cnn(channels=(3, 5, 7), hidden=9)]
SIZES = [[6, 17, 3], [0, 20], [33], [], [1, 1, 1], [16, 0, 2]]


def make_case(spec):
    data = make_images((1, 9, 8))
    net = spec.build(data.input_shape, 3)
    task = make_task(SIZES, is_weighted=True, num_models=3, lr_scales=[1, 0.5, 2, 1, 0.1, 1])
    return net, data, task, make_bank(net, 3)


def choose_clients(task, which):
    return task._replace(
        models=task.models[which],
        items=task.items[:, which],
        weights=task.weights[:, which],
        live=task.live[:, which],
        sizes=task.sizes[:, which],
        lr_scales=task.lr_scales[which],
    )


@pytest.mark.parametrize("spec", NETS, ids=repr)
def test_threads_and_pieces(spec, monkeypatch):
    net, data, task, bank = make_case(spec)
    deltas, losses = make_native(net, data).train(bank, [task, task])
    monkeypatch.setattr(native_trainer, "WORK_PER_PIECE", 1)  # each client is a piece
    for num_threads in (1, 2, 5):
        trainer = make_native(net, data, num_threads=num_threads)
        for _ in range(3):  # the workspaces of a thread are used again
            again, again_losses = trainer.train(bank, [task, task])
            assert np.array_equal(again, deltas)
            assert np.array_equal(again_losses, losses, equal_nan=True)
        trainer.close()


@pytest.mark.parametrize("spec", NETS, ids=repr)
def test_threads_of_predictions(spec):
    net, data, _, bank = make_case(spec)
    data = replace(data, x_test=np.tile(data.x, (9, 1, 1, 1)), y_test=np.tile(data.y, 9))
    expected = make_native(net, data).outputs(bank[0], "test")
    for num_threads in (2, 5):
        trainer = make_native(net, data, num_threads=num_threads)
        assert np.array_equal(trainer.outputs(bank[0], "test"), expected)
        trainer.close()


@pytest.mark.parametrize("spec", NETS, ids=repr)
def test_stacks(spec):
    """Clients alone, in other stacks, and with wider padding have the bits of the whole stack."""
    net, data, task, bank = make_case(spec)
    trainer = make_native(net, data)
    deltas, losses = trainer.train(bank, [task])
    tasks = [choose_clients(task, np.array([k])) for k in range(len(SIZES))]
    alone, alone_losses = trainer.train(bank, tasks)
    assert np.array_equal(alone, deltas)
    assert np.array_equal(alone_losses, losses, equal_nan=True)
    order = np.array([4, 0, 5])
    some, _ = trainer.train(bank, [choose_clients(task, order)])
    assert np.array_equal(some, deltas[order])
    wide = task._replace(
        items=np.pad(task.items, ((0, 2), (0, 0), (0, 40))),
        weights=np.pad(task.weights, ((0, 2), (0, 0), (0, 40))),
        live=np.pad(task.live, ((0, 2), (0, 0))),
        sizes=np.pad(task.sizes, ((0, 2), (0, 0))),
    )
    assert np.array_equal(trainer.train(bank, [wide])[0], deltas)


@pytest.mark.parametrize("spec", NETS, ids=repr)
def test_rows_of_padding_do_not_matter(spec):
    net, data, task, bank = make_case(spec)
    trainer = make_native(net, data)
    used = np.arange(task.items.shape[2]) < task.sizes[:, :, None]
    other = task._replace(items=np.where(used, task.items, 41).astype(np.int32))
    deltas = trainer.train(bank, [task])[0]
    assert np.array_equal(trainer.train(bank, [other])[0], deltas)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("spec", NETS, ids=repr)
def test_whole_rounds_and_single_ticks(spec, momentum):
    """The interleaved path takes steps tick by tick in a stack; its bits are those of a round."""
    net, data, task, bank = make_case(spec)
    local = replace(SGD, momentum=momentum)
    native = make_native(net, data, local)
    deltas, losses = native.train(bank, [task])
    stacked = StackedTrainer(net, TaskLoss(), local, Gather(data), native=native)
    again, again_losses = stacked.train(bank, [task])
    assert np.array_equal(again, deltas)
    assert np.array_equal(again_losses, losses, equal_nan=True)
    stack = stacked.begin(bank, task.models, task.lr_scales)
    for s in range(len(task.items)):
        now = slice(s, s + 1)
        tick = task.items[now], task.weights[now], task.live[now]
        stacked.steps(stack, *tick, sizes=task.sizes[now])
    by_tick = np.empty_like(deltas)
    tick_losses = stacked.finish(stack, by_tick)
    assert np.array_equal(by_tick, deltas)
    assert np.array_equal(tick_losses, losses, equal_nan=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_make_trainer_uses_the_kernel(workers):
    net, data, task, bank = make_case(LeNet5())
    expected = make_native(net, data).train(bank, [task])[0]
    trainer = make_trainer(net, TaskLoss(), SGD, data, workers, use_native=True)
    assert isinstance(trainer, native_trainer.NativeTrainer)
    assert np.array_equal(trainer.train(bank, [task])[0], expected)
    trainer.close()


def test_worker_processes_have_the_bits_of_one_process():
    """Objectives without native steps: predictions, and forward and backward passes, are native."""
    net, data, task, bank = make_case(LeNet5())
    objective = NotTrue()
    native = native_trainer.make_native_trainer(
        net, objective, SGD, data, Euclidean(), None, choose_loss(data)
    )
    here = StackedTrainer(net, objective, SGD, Gather(data), native=native)
    pool = WorkerPool(net, objective, SGD, data, 2, use_native=True)
    try:
        assert np.array_equal(pool.train(bank, [task])[0], here.train(bank, [task])[0])
        assert np.array_equal(pool.scores(bank[0], "train"), here.scores(bank[0], "train"))
    finally:
        pool.close()


# --- whole runs ---

SMALL = [
    "capacity=24",
    "local.passes=1",
    "ticks=2",
    "world.num_clients=8",
    "world.availability=0.6",
    "evaluate_every=1",
]
RUNS = {
    "prebatched": ("fedavg", []),
    "interleaved": ("sfedpo", []),
    "early stopping": ("fedavg", ["stopping=gain-threshold"]),
    "kept momentum": ("fedavg", ["local.momentum=0.9", "local.optimizer_state=keep"]),
}


def make_run(name, rounds=4, engine="fast"):
    recipe, overrides = RUNS[name]
    return make_plan(
        recipe,
        "digits-partial",
        seed=2,
        rounds=rounds,
        engine=engine,
        overrides=[*SMALL, *overrides],
    )


@pytest.fixture(scope="module")
def digits():
    return make_run("prebatched").scenario.data.load(None, 2)


@pytest.mark.parametrize("name", RUNS)
def test_runs_with_other_numbers_of_workers_and_after_an_interruption(name, tmp_path, digits):
    plan = make_run(name)
    whole = run_plan(plan, data=digits, workers=1)
    threads = run_plan(plan, data=digits, workers=3)
    assert np.array_equal(threads.model, whole.model)
    with pytest.raises(Interruption):
        run_plan(plan, out=tmp_path, data=digits, workers=1, watch=interrupt_after(2))
    resumed = run_plan(plan, out=tmp_path, resume=True, data=digits, workers=2)
    assert np.array_equal(resumed.model, whole.model)


@pytest.mark.parametrize("name", RUNS)
def test_runs_agree_with_the_reference_engine(name, digits):
    fast = run_plan(make_run(name, rounds=2), data=digits, workers=1).model
    reference = run_plan(make_run(name, rounds=2, engine="reference"), data=digits).model
    assert np.linalg.norm(fast - reference) <= 1e-4 * np.linalg.norm(reference)


def test_torch_threads_do_not_matter(digits):
    """The kernel has its own threads; those of torch compute metrics at most."""
    before = torch.get_num_threads()
    expected = run_plan(make_run("prebatched"), data=digits, workers=1).model
    torch.set_num_threads(3)
    try:
        found = run_plan(make_run("prebatched"), data=digits, workers=1).model
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(found, expected)


def test_a_table_of_many_clients_uses_all_threads_and_keeps_its_bits():
    data = make_table(5)
    net = Linear().build((5,), 3)
    task = make_task([[4, 4]] * 300)
    bank = make_bank(net)
    deltas, _ = make_native(net, data).train(bank, [task])
    trainer = make_native(net, data, num_threads=2)
    assert np.array_equal(trainer.train(bank, [task])[0], deltas)
    trainer.close()


@pytest.mark.parametrize("spec", NETS, ids=repr)
def test_several_models_in_one_call(spec):
    """Samples are read once for all models; outputs have the bits of one model alone."""
    net, data, _, _ = make_case(spec)
    data = replace(data, x_test=np.tile(data.x, (9, 1, 1, 1)), y_test=np.tile(data.y, 9))
    bank, rows = make_bank(net, 3), np.arange(0, 500, 3)
    for num_threads in (1, 3):
        trainer = make_native(net, data, num_threads=num_threads)
        together = trainer.outputs_many(bank, "test", rows)
        predicted, losses = trainer.predict_many(bank, "test", rows)
        scores = trainer.scores_many(bank, "test", rows)
        for k, model in enumerate(bank):
            assert np.array_equal(together[k], trainer.outputs(model, "test", rows))
            one, one_losses = trainer.predict(model, "test", rows)
            assert np.array_equal(predicted[k], one)
            assert np.array_equal(losses[k], one_losses)
            assert np.array_equal(scores[k], trainer.scores(model, "test", rows))
        assert trainer.outputs_many(bank, "test", rows[:0]).shape == (3, 0, net.num_classes)
        trainer.close()
