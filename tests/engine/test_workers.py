"""Worker processes give the same bits as one process, and leave nothing behind."""

import gc
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import numpy as np
import pytest

from contracts.faulty_objectives import (
    RaisingObjective,
    SelfKillingObjective,
    SlowObjective,
    UnpicklableErrorObjective,
    UnpicklableObjective,
)
from thalweg.core.errors import ConfigError
from thalweg.core.transforms import Inverted, Rotated
from thalweg.core.views import View
from thalweg.data.base import Dataset
from thalweg.engine.gather import Gather
from thalweg.engine.stack_tasks import PREDICT_BATCH, StackTask
from thalweg.engine.stacked import StackedTrainer
from thalweg.engine.workers import WorkerDied, WorkerPool, can_send_to_worker, make_trainer
from thalweg.local import LocalTraining, TaskLoss
from thalweg.nets import Cnn, LeNet5, Linear, Mlp

SGD = LocalTraining(lr=0.05, momentum=0.9, weight_decay=0.01, batch_size=8, steps=1)


def toy_images(num=600):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (num, 12, 12, 1), dtype=np.uint8)
    y = rng.integers(0, 3, num)
    return Dataset("toy", x, y, x[: PREDICT_BATCH + 9], y[: PREDICT_BATCH + 9], 3, (0.4,), (0.3,))


DATA = toy_images()


def some_task(seed, clients=2, steps=3, width=8, models=1):
    rng = np.random.default_rng(seed)
    shape = (steps, clients, width)
    live = rng.random(shape[:2]) < 0.8
    return StackTask(
        rng.integers(0, models, clients),
        rng.integers(0, len(DATA.y), shape).astype(np.int32),
        np.full(shape, 1 / width, dtype=np.float32),
        live,
    )


def net_and_bank(spec=None, models=1):
    net = (spec or Mlp(hidden=(9,))).build(DATA.input_shape, 3)
    return net, np.stack([net.init(np.random.default_rng(m)) for m in range(models)])


def pool_for(net, objective=None, num_workers=1):
    return WorkerPool(net, objective or TaskLoss(), SGD, DATA, num_workers)


def is_gone(pid):
    """Return whether a process has ended; a zombie counts as ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("the condition was not met within 30 seconds")


@pytest.fixture(
    scope="module", params=[2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3))]
)
def num_workers(request):
    return request.param


@pytest.mark.parametrize(
    "spec",
    [pytest.param(LeNet5(), marks=pytest.mark.slow), Cnn(channels=(4, 4, 4), hidden=8)],
    ids=repr,
)
def test_workers_give_the_same_bits_as_this_process(spec, num_workers):
    net, bank = net_and_bank(spec, models=2)
    tasks = [some_task(seed, clients=1 + seed % 3, models=2) for seed in range(5)]
    here = StackedTrainer(net, TaskLoss(), SGD, Gather(DATA))
    pool = pool_for(net, num_workers=num_workers)
    try:
        for _ in range(2):
            ours, theirs = here.train(bank, tasks), pool.train(bank, tasks)
            assert np.array_equal(ours[0], theirs[0])
            assert np.array_equal(ours[1], theirs[1], equal_nan=True)
        rows = np.random.default_rng(0).permutation(len(DATA.y))
        for part, some in (("train", rows), ("test", None), ("test", rows[:0])):
            ours, theirs = here.predict(bank[1], part, some), pool.predict(bank[1], part, some)
            assert np.array_equal(ours[0], theirs[0])
            assert np.array_equal(ours[1], theirs[1])
            assert ours[0].dtype == theirs[0].dtype
            assert ours[1].dtype == theirs[1].dtype
            scores = here.scores(bank[1], part, some), pool.scores(bank[1], part, some)
            assert np.array_equal(*scores)
            assert scores[0].dtype == scores[1].dtype
            for each in (here, pool):
                both = each.predict_many(bank, part, some)
                assert np.array_equal(both[0][1], ours[0])
                assert np.array_equal(both[1][1], ours[1])
                assert np.array_equal(both[1][0], here.predict(bank[0], part, some)[1])
                assert np.array_equal(each.scores_many(bank, part, some)[1], scores[0])
    finally:
        pool.close()


def test_workers_apply_the_views_of_the_data():
    views = (View(), View(Rotated(120.0), 1), View(Inverted()))
    data = replace(DATA, views=views)
    net, bank = net_and_bank()
    task = some_task(0)
    task = task._replace(items=task.items + len(DATA.y) * (task.items % 3))
    here = StackedTrainer(net, TaskLoss(), SGD, Gather(data))
    pool = WorkerPool(net, TaskLoss(), SGD, data, num_workers=1)
    try:
        ours, theirs = here.train(bank, [task]), pool.train(bank, [task])
        assert np.array_equal(ours[0], theirs[0])
        plain = StackedTrainer(net, TaskLoss(), SGD, Gather(DATA))
        assert not np.array_equal(ours[0], plain.train(bank, [some_task(0)])[0])
        rows = len(DATA.y_test) + np.arange(9)
        for some in (rows, None):
            labels, losses = pool.predict(bank[0], "test", some)
            assert np.array_equal(here.predict(bank[0], "test", some)[0], labels)
            assert np.array_equal(here.predict(bank[0], "test", some)[1], losses)
        assert len(labels) == len(DATA.y_test)
    finally:
        pool.close()


@pytest.fixture(scope="module")
def one_worker():
    """A pool with one worker that several tests use."""
    pool = pool_for(net_and_bank()[0])
    yield pool
    pool.close()


def test_updates_are_not_overwritten_while_they_are_in_use(one_worker):
    net, bank = net_and_bank()
    first, _ = one_worker.train(bank, [some_task(0, clients=3)])
    row, kept = first[1], first[1].copy()
    del first
    for seed in range(1, 4):  # larger cohorts, a larger bank, smaller cohorts again
        larger = np.tile(bank, (seed, 1))
        tasks = [some_task(seed, clients=n) for n in (3, 9 * seed, 2)]
        second, _ = one_worker.train(larger, tasks)
        assert np.array_equal(row, kept)
    expected = StackedTrainer(net, TaskLoss(), SGD, Gather(DATA)).train(
        larger, [some_task(3, clients=n) for n in (3, 27, 2)]
    )
    assert np.array_equal(second, expected[0])
    before = len(one_worker._memories)
    del row, second
    gc.collect()
    for seed in range(5):
        one_worker.train(bank, [some_task(seed, clients=3)])
    assert len(one_worker._memories) <= before  # free memory is used again


def test_an_error_in_a_worker_is_raised_with_its_message():
    net, bank = net_and_bank()
    pool = pool_for(net, RaisingObjective(), num_workers=2)
    try:
        for _ in range(2):  # the pool can still be used
            with pytest.raises(ConfigError) as caught:
                pool.train(bank, [some_task(seed) for seed in range(4)])
            assert str(caught.value) == "no loss for 2 clients."
            assert any("in loss" in note for note in caught.value.__notes__)
        assert len(pool.predict(bank[0], "test")[0]) == len(DATA.y_test)
    finally:
        pool.close()


def test_an_error_that_cannot_be_pickled_is_described():
    net, bank = net_and_bank()
    pool = pool_for(net, UnpicklableErrorObjective())
    try:
        with pytest.raises(RuntimeError, match="UnpicklableError: this and that"):
            pool.train(bank, [some_task(0)])
    finally:
        pool.close()


def test_an_objective_that_a_worker_cannot_unpickle_is_reported():
    net, bank = net_and_bank()
    pool = pool_for(net, UnpicklableObjective())
    try:
        for _ in range(2):
            with pytest.raises(ImportError, match="cannot be imported here"):
                pool.train(bank, [some_task(0)])
    finally:
        pool.close()


def test_a_row_that_does_not_exist_is_an_error(one_worker):
    _, bank = net_and_bank()
    with pytest.raises(IndexError, match="600"):
        one_worker.predict(bank[0], "train", np.array([600]))
    with pytest.raises(IndexError, match="600"):
        one_worker.scores(bank[0], "train", np.array([600]))


def test_a_worker_that_is_killed_while_busy_is_reported():
    net, bank = net_and_bank()
    pool = pool_for(net, SelfKillingObjective(), num_workers=2)
    pids = [process.pid for process in pool._processes]
    with pytest.raises(WorkerDied, match=r"worker \d of 2 was killed by SIGKILL.*--resume"):
        pool.train(bank, [some_task(seed) for seed in range(4)])
    assert all(is_gone(pid) for pid in pids)
    with pytest.raises(WorkerDied, match="closed"):
        pool.train(bank, [some_task(0)])


def test_a_worker_that_was_killed_while_idle_is_reported():
    net, bank = net_and_bank()
    pool = pool_for(net)
    pool.train(bank, [some_task(0)])
    pool._processes[0].kill()
    pool._processes[0].wait()
    with pytest.raises(WorkerDied, match="SIGKILL"):
        pool.train(bank, [some_task(0)])


def test_workers_ignore_ctrl_c(one_worker):
    _, bank = net_and_bank()
    one_worker.train(bank, [some_task(0)])
    one_worker._processes[0].send_signal(signal.SIGINT)
    assert np.isfinite(one_worker.train(bank, [some_task(0)])[0]).all()


def test_an_interrupt_while_waiting_ends_the_workers():
    net, bank = net_and_bank()
    pool = pool_for(net, SlowObjective())
    pids = [process.pid for process in pool._processes]
    before = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            pool.train(bank, [some_task(0)])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert all(is_gone(pid) for pid in pids)


def test_a_pool_that_is_deleted_ends_its_workers():
    net, _ = net_and_bank()
    pool = pool_for(net, num_workers=2)
    pids = [process.pid for process in pool._processes]
    del pool
    gc.collect()
    assert all(is_gone(pid) for pid in pids)


SCRIPT = """
    # A user's script without a __main__ guard, with a policy of its own.
    import os, sys, time
    from dataclasses import dataclass
    import numpy as np
    from thalweg.data.base import Dataset
    from thalweg.engine.workers import WorkerPool, can_send_to_worker, make_trainer
    from thalweg.engine.stacked import StackedTrainer
    from thalweg.local import TaskLoss, LocalTraining
    from thalweg.nets import Linear

    @dataclass(frozen=True)
    class Mine(TaskLoss):
        pass

    print("imported", flush=True)
    x, y = np.zeros((4, 2), dtype=np.float32), np.array([0, 1, 0, 1])
    data = Dataset("toy", x, y, x, y, 2)
    net, local = Linear().build((2,), 2), LocalTraining(lr=0.1, steps=1)
    trainer = make_trainer(net, Mine(), local, data, 2)
    print(can_send_to_worker(Mine()), type(trainer).__name__, flush=True)
    pool = WorkerPool(net, TaskLoss(), local, data, 1)
    print(pool.predict(np.zeros(6, dtype=np.float32), "test")[0].tolist(), flush=True)
    print(*(process.pid for process in pool._processes), flush=True)
    if sys.argv[1] == "stay":
        time.sleep(60)
"""


@pytest.mark.parametrize("end", ["leave", pytest.param("stay", marks=pytest.mark.slow)])
def test_workers_end_with_the_process_that_started_them(tmp_path, end):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    with subprocess.Popen(
        [sys.executable, str(script), end], stdout=subprocess.PIPE, text=True
    ) as run:
        lines = [run.stdout.readline().strip() for _ in range(4)]
        assert lines[:3] == ["imported", "False StackedTrainer", "[0, 0, 0, 0]"]
        if end == "stay":
            run.kill()
        assert run.wait() == (-signal.SIGKILL if end == "stay" else 0)
        assert run.stdout.read() == ""  # the workers did not import the script
    wait_until(lambda: all(is_gone(int(pid)) for pid in lines[3].split()))


def test_classes_that_a_worker_cannot_import_are_computed_in_this_process(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from thalweg.local import TaskLoss\nclass Mine(TaskLoss): pass\n")
    spec = importlib.util.spec_from_file_location("loaded_by_path", file)
    module = sys.modules["loaded_by_path"] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        assert can_send_to_worker(TaskLoss(), SGD, net_and_bank(LeNet5())[0])
        assert can_send_to_worker(RaisingObjective())
        assert not can_send_to_worker(module.Mine())
        assert not can_send_to_worker(lambda: None)
        trainer = make_trainer(net_and_bank()[0], module.Mine(), SGD, DATA, workers=2)
        assert isinstance(trainer, StackedTrainer)
    finally:
        del sys.modules["loaded_by_path"]


def test_small_work_is_done_in_this_process():
    net, _ = net_and_bank(Linear())
    assert isinstance(make_trainer(net, TaskLoss(), SGD, DATA), StackedTrainer)
    assert isinstance(make_trainer(net, TaskLoss(), SGD, DATA, workers=1), StackedTrainer)
    pool = make_trainer(net, TaskLoss(), SGD, DATA, workers=2)
    assert isinstance(pool, WorkerPool)
    pool.close()


@pytest.mark.parametrize("workers", [0, -1])
def test_an_invalid_number_of_workers_is_rejected(workers):
    net, _ = net_and_bank(Linear())
    with pytest.raises(ConfigError, match=f"at least 1, got {workers}"):
        make_trainer(net, TaskLoss(), SGD, DATA, workers=workers)
    with pytest.raises(ConfigError, match="at least one worker"):
        WorkerPool(net, TaskLoss(), SGD, DATA, workers)
