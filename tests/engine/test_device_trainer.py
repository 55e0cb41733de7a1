"""Training on a device: the same results as in this process, and nothing is copied in between.

There is no accelerator here. The same code runs on the CPU, and on the device "meta", whose tensors
have no values: copying one back, and mixing it with tensors of the CPU, are errors.
"""

import json
import traceback
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import thalweg
from engine.test_stacked import SGD, bank_for, some_batches, task_of, toy_images
from thalweg.core.errors import ConfigError
from thalweg.core.transforms import Mirrored
from thalweg.core.vectors import combine
from thalweg.core.views import View
from thalweg.data.augment import Augment
from thalweg.data.base import Dataset
from thalweg.engine import builders, device_trainer, devices
from thalweg.engine.device_deltas import DeviceDeltas
from thalweg.engine.device_trainer import DeviceTrainer
from thalweg.engine.devices import DeviceWarning, OutOfDeviceMemory
from thalweg.engine.gather import Gather
from thalweg.engine.ray import actor
from thalweg.engine.ray.actor import ActorSetup, TrainingActor, find_software
from thalweg.engine.run_folder import RunWarning
from thalweg.engine.shared_data import DataFacts, list_arrays
from thalweg.engine.stack_tasks import StackLimit, split_task
from thalweg.engine.stacked import StackedTrainer
from thalweg.local import (
    Adam,
    Euclidean,
    LocalTraining,
    Moon,
    PNorm,
    Proximal,
    TaskLoss,
    TorchOptimizer,
)
from thalweg.losses import CrossEntropy, MeanSquaredError
from thalweg.nets import (
    NETS,
    CharRnn,
    Cnn,
    FastText,
    HamCnn,
    LeNet5,
    Linear,
    Mlp,
    ResNet10,
    build_net,
    make_model_spec,
)

CPU, META = torch.device("cpu"), torch.device("meta")
UNEQUAL = [[6, 6, 4], [6, 6], [2, 6, 1], [6]]  # lengths of the mini-batches of each client
FIXED = (Euclidean(), None, CrossEntropy())


def make_task(lengths=UNEQUAL):
    return task_of(
        some_batches(np.random.default_rng(1), lengths), models=[1, 0, 1, 0][: len(lengths)]
    )


def make_trainers(net, data, objective=None, local=SGD, geometry=None, augment=None, loss=None):
    """Return the trainer of this process, and one on a device, which is the CPU."""
    parts = (net, objective or TaskLoss(), local)
    fixed = (geometry or Euclidean(), augment, loss or CrossEntropy())
    return (
        StackedTrainer(*parts, Gather(data), *fixed),
        DeviceTrainer(*parts, data, *fixed, CPU),
    )


def make_sequences():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 9, (40, 5)).astype(np.uint8), rng.integers(0, 3, 40)
    return Dataset("toy", x, y, x[:9], y[:9], 3, num_codes=9)


def make_numbers():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 40, 4)).astype(np.float32)
    return Dataset("toy", x, y[:, :2], x[:9], y[:9, :2], 0)


def check_same_results(here, there, bank, task, atol=2e-6):
    for ours, theirs in zip(here.train(bank, [task]), there.train(bank, [task]), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(theirs, ours, atol=atol)
    rows = np.arange(7)[::-1].copy()
    for part, some in (("train", rows), ("test", None), ("test", rows[:0])):
        for ours, theirs in zip(
            here.predict_many(bank, part, some), there.predict_many(bank, part, some), strict=True
        ):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            np.testing.assert_allclose(theirs, ours, atol=1e-5)
        ours, theirs = (each.scores_many(bank, part, some) for each in (here, there))
        np.testing.assert_allclose(theirs, ours, atol=1e-5)


class Table(nn.Module):
    """A module with everything that is not in the parameters: buffers, constants, dropout."""

    def __init__(self, draws=True):
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.drop = nn.Dropout(0.3 if draws else 0.0)
        self.frozen = nn.Linear(64, 64).requires_grad_(False)
        self.last = nn.Linear(64, 3)
        self.register_buffer("order", torch.arange(64).flip(0))

    def forward(self, x):
        x = self.frozen(self.norm(x.flatten(1)))[:, self.order]
        return self.last(self.drop(x))


class Plain(nn.Sequential):
    """A module that is stacked by vmap."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 7), nn.Tanh(), nn.Linear(7, 3))


def build_module(make):
    return build_net(make_model_spec(make, NETS), (1, 8, 8), 3, 0)


# --- the same results ---


@pytest.mark.parametrize(
    "spec",
    [Linear(), Mlp(hidden=(5,)), LeNet5(), Cnn(), HamCnn(), ResNet10(width=8, groups=2)],
    ids=repr,
)
def test_nets_train_as_in_this_process(spec):
    data = toy_images(side=16)
    net = spec.build(data.input_shape, 3)
    here, there = make_trainers(net, data)
    task = make_task()._replace(noise=np.arange(4))
    check_same_results(here, there, bank_for(net, 2), task, atol=2e-5)


@pytest.mark.parametrize("spec", [CharRnn(units=4), FastText(width=3)], ids=repr)
def test_sequences_train_as_in_this_process(spec):
    data = make_sequences()
    net = spec.build(data.input_shape, 3)
    check_same_results(*make_trainers(net, data), bank_for(net, 2), make_task())


@pytest.mark.parametrize("make", [Table, Plain])
def test_modules_train_as_in_this_process(make):
    net = build_module(make)
    here, there = make_trainers(net, toy_images())
    task = make_task([[6, 6, 4], [6, 6], [4, 6, 2], [6]])._replace(noise=np.arange(4))
    check_same_results(here, there, bank_for(net, 2), task)


def test_numbers_are_predicted_as_in_this_process():
    data = make_numbers()
    net = Mlp(hidden=(5,)).build(data.input_shape, 2)
    trainers = make_trainers(net, data, loss=MeanSquaredError())
    check_same_results(*trainers, bank_for(net, 2), make_task())


PLAIN = LocalTraining(lr=0.05, batch_size=6, steps=1)
OPTIONS = {
    "proximal": {"objective": Proximal()},
    "adam": {"local": LocalTraining(lr=0.05, steps=1, optimizer=Adam())},
    "rmsprop": {"local": LocalTraining(lr=0.01, steps=1, optimizer=TorchOptimizer("rmsprop"))},
    "p-norm": {"local": PLAIN, "geometry": PNorm()},
    "augment": {"augment": Augment()},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("scales", [None, [1.0, 0.5, 0.25, 2.0]])
def test_options_train_as_in_this_process(name, scales):
    data = toy_images()
    net = LeNet5().build(data.input_shape, 3)
    task = make_task()._replace(
        noise=np.arange(4), lr_scales=None if scales is None else np.array(scales, np.float32)
    )
    trainers = make_trainers(net, data, **OPTIONS[name])
    check_same_results(*trainers, bank_for(net, 2), task, atol=1e-5)


def test_probes_are_those_of_this_process():
    data = toy_images()
    net = LeNet5().build(data.input_shape, 3)
    here, there = make_trainers(net, data)
    model, rows = bank_for(net)[0], np.arange(9)
    for ours, theirs in (
        *zip(here.last_layer(model, rows), there.last_layer(model, rows), strict=True),
        (here.gradient(model, rows), there.gradient(model, rows)),
        (here.squared_gradients(model, rows), there.squared_gradients(model, rows)),
        (here.outputs(model, rows), there.outputs(model, rows)),
    ):
        np.testing.assert_allclose(theirs, ours, atol=1e-6)


def test_updates_stay_on_the_device_if_only_their_mean_is_needed():
    data = toy_images()
    net = LeNet5().build(data.input_shape, 3)
    bank, tasks = bank_for(net, 2), split_task(make_task(), 3)
    expected, losses = StackedTrainer(net, TaskLoss(), SGD, Gather(data)).train(bank, tasks)
    trainer = DeviceTrainer(net, TaskLoss(), SGD, data, *FIXED, CPU, only_mean=True)
    deltas, found = trainer.train(bank, tasks)
    assert isinstance(deltas, DeviceDeltas)
    np.testing.assert_allclose(np.asarray(deltas), expected, atol=2e-6)
    np.testing.assert_allclose(found, losses, rtol=1e-6)
    weights = np.full(4, 0.25)
    np.testing.assert_allclose(combine(weights, deltas), expected.mean(axis=0), atol=2e-6)


def test_no_tasks_and_no_steps():
    data = toy_images()
    net = Linear().build(data.input_shape, 3)
    trainer = DeviceTrainer(net, TaskLoss(), SGD, data, *FIXED, CPU)
    deltas, losses = trainer.train(bank_for(net), [])
    assert (deltas.shape, losses.shape) == ((0, net.num_params), (0,))
    deltas, losses = trainer.train(bank_for(net, 2), [make_task([[], [6]])])
    assert not deltas[0].any()
    assert np.isnan(losses).tolist() == [True, False]


# --- nothing is copied in between ---


class Transfers(TorchDispatchMode):
    """Counts operations with tensors of the CPU and of the device."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        given = torch.utils._pytree.tree_leaves((args, kwargs))
        tensors = [each for each in given if isinstance(each, torch.Tensor)]
        is_mixed = len({each.is_meta for each in tensors}) == 2
        is_sent = isinstance(found, torch.Tensor) and found.is_meta
        self.count += is_mixed or (is_sent and any(not each.is_meta for each in tensors))
        return found


META_CASES = {
    "dense": (Mlp(hidden=(5,)), {}),
    "lenet": (LeNet5(), {}),
    "residual": (ResNet10(width=8, groups=2), {}),
    "moon": (LeNet5(), {"objective": Moon()}),
    "proximal": (LeNet5(), {"objective": Proximal()}),
    "adam": (Mlp(hidden=(5,)), {"local": LocalTraining(lr=0.05, steps=1, optimizer=Adam())}),
    "rmsprop": (
        Linear(),
        {"local": LocalTraining(lr=0.1, steps=1, optimizer=TorchOptimizer("rmsprop"))},
    ),
    "p-norm": (Mlp(hidden=(5,)), {"local": PLAIN, "geometry": PNorm()}),
    "table": (lambda: Table(draws=False), {}),
    "plain": (Plain, {}),
}


def make_meta_trainer(name, side=8, only_mean=False, data=None):
    spec, options = META_CASES[name]
    data = data or toy_images(side)
    net = spec.build(data.input_shape, 3) if hasattr(spec, "build") else build_module(spec)
    given = {"objective": TaskLoss(), "local": SGD, "geometry": Euclidean(), **options}
    return net, DeviceTrainer(
        *(net, given["objective"], given["local"], data, given["geometry"], None, CrossEntropy()),
        META,
        only_mean,
    )


def find_memo(name, net):
    return {"previous": torch.zeros(4, net.num_params, device=META)} if name == "moon" else None


@pytest.mark.parametrize("name", META_CASES)
def test_the_number_of_transfers_does_not_depend_on_the_steps(name):
    net, trainer = make_meta_trainer(name, side=16 if name == "residual" else 8)
    counts = []
    for num_steps in (1, 1, 5):  # the first call copies constants of a module
        lengths = [[6] * (num_steps + 1), [6] * num_steps, [4] * (num_steps + 1), [6, 6]]
        task = make_task(lengths)._replace(noise=np.arange(4))
        with Transfers() as transfers:
            stack = trainer.begin(bank_for(net, 2), task.models, noise=task.noise)
            memo = find_memo(name, net)
            trainer.steps(stack, task.items, task.weights, task.live, memo, task.sizes)
        assert stack.params.is_meta
        assert stack.loss_sum.is_meta
        counts.append(transfers.count)
    assert counts[1] > 0
    assert counts[1] == counts[2]


def find_place_of_copy(work):
    """Return the function that copies a tensor without values back."""
    with pytest.raises(NotImplementedError, match="meta tensor") as caught:
        work()
    return traceback.extract_tb(caught.tb)[-1].name


@pytest.mark.parametrize("only_mean", [False, True])
def test_results_are_copied_back_at_the_end(only_mean):
    net, trainer = make_meta_trainer("lenet", only_mean=only_mean)
    bank, rows = bank_for(net, 2), np.arange(9)
    assert find_place_of_copy(lambda: trainer.train(bank, [make_task()])) == "train"
    assert find_place_of_copy(lambda: trainer.predict_many(bank, "test")) == "predict_many"
    assert find_place_of_copy(lambda: trainer.scores_many(bank, "test")) == "_outputs_many"
    assert find_place_of_copy(lambda: trainer.gradient(bank[0], rows)) == "gradient"
    assert find_place_of_copy(lambda: trainer.squared_gradients(bank[0], rows)) == (
        "squared_gradients"
    )
    assert find_place_of_copy(lambda: trainer.last_layer(bank[0], rows)) == "last_layer"


def test_views_are_on_the_device():
    data = toy_images()
    data = thalweg.Dataset(
        *("toy", data.x, data.y, data.x_test, data.y_test, 3, data.mean, data.std),
        views=(View(), View(Mirrored())),
    )
    net, trainer = make_meta_trainer("dense", data=data)
    task = make_task()
    assert (
        find_place_of_copy(
            lambda: trainer.train(bank_for(net, 2), [task._replace(items=task.items + 40)])
        )
        == "train"
    )


# --- memory ---


def make_limited(monkeypatch, most, only_mean=False):
    """Return a trainer whose memory suffices for `most` clients, and the tried sizes."""
    data = toy_images()
    net = LeNet5().build(data.input_shape, 3)
    trainer = DeviceTrainer(net, TaskLoss(), SGD, data, *FIXED, CPU, only_mean)
    steps, tried = trainer.steps, []

    def take_steps(stack, *args, **options):
        tried.append(len(stack.params))
        if len(stack.params) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
        steps(stack, *args, **options)

    monkeypatch.setattr(trainer, "steps", take_steps)
    return net, data, trainer, tried


@pytest.mark.parametrize("only_mean", [False, True])
def test_stacks_are_halved_until_they_fit(monkeypatch, only_mean):
    net, data, trainer, tried = make_limited(monkeypatch, 2, only_mean)
    bank = bank_for(net, 2)
    tasks = [make_task([[6, 4]] * n)._replace(models=np.arange(n) % 2) for n in (7, 5, 1)]
    with pytest.warns(DeviceWarning) as seen:
        deltas, losses = trainer.train(bank, tasks)
    assert [str(each.message).partition("suffice for ")[2] for each in seen] == [
        "7 clients together; from now on 4 are computed together.",
        "4 clients together; from now on 2 are computed together.",
    ]
    assert tried == [7, 4, 2, 2, 2, 1, 2, 2, 1, 1]
    expected, expected_losses = StackedTrainer(net, TaskLoss(), SGD, Gather(data)).train(
        bank, tasks
    )
    np.testing.assert_allclose(np.asarray(deltas), expected, atol=2e-6)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    tried.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # each size is reported once
        trainer.train(bank, tasks[1:])
    assert tried == [2, 2, 1, 1]


def test_one_client_that_does_not_fit_is_an_error(monkeypatch):
    net, _, trainer, tried = make_limited(monkeypatch, 0)
    with pytest.raises(OutOfDeviceMemory, match=r"for 1 clients.*device=cpu.*allocate 2 GiB"):
        trainer.train(bank_for(net, 2), [make_task([[6]])])
    assert tried == [1]


def test_other_errors_are_not_changed(monkeypatch):
    net, _, trainer, _ = make_limited(monkeypatch, 9)
    with pytest.raises(IndexError):
        trainer.train(bank_for(net, 2), [make_task([[6]])._replace(items=np.full((1, 1, 6), 40))])


def test_batches_of_predictions_are_halved_until_they_fit(monkeypatch):
    data = toy_images(num=3000)
    net = Linear().build(data.input_shape, 3)
    trainer = DeviceTrainer(net, TaskLoss(), SGD, data, *FIXED, CPU)
    get_stacked = trainer._gather.get_stacked

    def get_few(part, rows, change=None):
        if rows.shape[1] > 300:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return get_stacked(part, rows, change)

    monkeypatch.setattr(trainer._gather, "get_stacked", get_few)
    here = StackedTrainer(net, TaskLoss(), SGD, Gather(data))
    bank = bank_for(net, 2)
    with pytest.warns(DeviceWarning, match="predictions of") as seen:
        found = trainer.predict_many(bank, "train")
    assert len(seen) == 2  # 1024 -> 512 -> 256
    for ours, theirs in zip(here.predict_many(bank, "train"), found, strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-5)
    monkeypatch.setattr(
        trainer._gather, "get_stacked", lambda *args: get_few("train", np.zeros((1, 999)))
    )
    with (
        pytest.raises(OutOfDeviceMemory, match="for 1 samples"),
        pytest.warns(DeviceWarning),
    ):
        trainer.scores_many(bank, "train")


def test_the_first_size_of_stacks_follows_from_the_free_memory(monkeypatch):
    data = toy_images()
    net = Linear().build(data.input_shape, 3)  # 195 parameters; layers with 64 and 3 outputs
    monkeypatch.setattr(
        device_trainer, "find_free_memory", lambda device: 2 * 5 * 32 * (195 + 6 * 67)
    )
    trainer = DeviceTrainer(net, TaskLoss(), SGD, data, *FIXED, CPU)
    assert trainer.limit == StackLimit(5)


def test_parts_of_a_task_have_all_of_its_columns():
    task = make_task()._replace(
        lr_scales=np.arange(4, dtype=np.float32),
        noise=np.arange(4),
        sizes=np.arange(12).reshape(3, 4),
    )
    first, second = split_task(task, 3)
    assert (first.items.shape, second.items.shape) == ((3, 3, 6), (3, 1, 6))
    for name in ("models", "lr_scales", "noise"):
        joined = np.concatenate([getattr(first, name), getattr(second, name)])
        assert joined.tolist() == getattr(task, name).tolist()
    for name in ("items", "weights", "live", "sizes"):
        joined = np.concatenate([getattr(first, name), getattr(second, name)], axis=1)
        assert joined.tolist() == getattr(task, name).tolist()


# --- whole runs ---


@pytest.fixture
def cuda(monkeypatch):
    """Let PyTorch report a GPU, which is the CPU."""
    monkeypatch.setattr(devices, "count_devices", lambda kind: int(kind == "cuda"))
    monkeypatch.setattr(builders, "open_device", lambda name: CPU)
    monkeypatch.setattr(actor, "open_device", lambda name: CPU)


SMALL = {
    "rounds": 3,
    "ticks": 2,
    "evaluate_every": 2,
    "world": {"num_clients": 6, "availability": 1.0},
}


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("fedavg", {}),  # updates stay on the device
        ("fedavg", {"robust": "norm-clip"}),  # they do not
        ("fedavg", {"local": {"optimizer_state": "keep"}, "optimizer": "adam"}),
        (
            "fedavg",
            {"overrides": ["drift=recurring", "drift.period=1", "drift.views=[{}, {labels = 3}]"]},
        ),
        ("moon", {}),
        ("fedcurv", {}),
        ("feddaa", {}),
    ],
)
def test_runs_on_a_device_agree(cuda, recipe, settings):
    here, there = (
        thalweg.run(recipe, "digits-partial", device=device, **{**SMALL, **settings})
        for device in ("cpu", "cuda")
    )
    assert all(row["cohort"] >= 3 for row in here.metrics)
    np.testing.assert_allclose(there.model, here.model, atol=1e-4)
    assert there.final["accuracy"] == pytest.approx(here.final["accuracy"], abs=0.01)


def test_the_device_is_recorded_and_another_one_is_reported(cuda, tmp_path):
    settings = {**SMALL, "out": tmp_path / "run"}

    def stop(progress):
        if progress.rounds_done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        thalweg.run("fedavg", "digits-partial", device="cuda", watch=stop, **settings)
    recorded = json.loads((tmp_path / "run/environment.json").read_text())
    assert recorded["packages"]["device"] == "cuda"
    with pytest.warns(RunWarning, match=r"\(device cuda -> cpu\)"):
        thalweg.run("fedavg", "digits-partial", device="cpu", resume=True, **settings)


def test_the_mean_of_a_round_is_computed_on_the_device(cuda, monkeypatch):
    combine_on_device, sizes = DeviceDeltas.combine, []

    def count(deltas, weights):
        sizes.append(len(deltas))
        return combine_on_device(deltas, weights)

    monkeypatch.setattr(DeviceDeltas, "combine", count)
    thalweg.run("fedavg", "digits-partial", device="cuda", **SMALL)
    assert len(sizes) == 3
    thalweg.run("fedavg", "digits-partial", device="cuda", robust="norm-clip", **SMALL)
    assert len(sizes) == 3, "single updates are needed"


def test_runs_of_a_comparison_use_the_device(cuda, tmp_path):
    thalweg.compare(
        ["fedavg"], "digits-partial", device="cuda", seeds=1, workers=1, out=tmp_path, **SMALL
    )
    (recorded,) = tmp_path.rglob("environment.json")
    assert json.loads(recorded.read_text())["packages"]["device"] == "cuda"


def test_a_device_that_is_missing_is_an_error_before_the_run(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "count_devices", lambda kind: 0)
    for name, words in (("cuda", "reports no cuda device"), ("gpu", "expected auto, cpu, cuda")):
        with pytest.raises(ConfigError, match=words):
            thalweg.run("fedavg", "digits-partial", device=name, out=tmp_path / "run")
        with pytest.raises(ConfigError, match=words):
            thalweg.compare(["fedavg"], "digits-partial", device=name, out=tmp_path / "both")
    assert not list(tmp_path.iterdir())


def make_setup(device):
    data = toy_images()
    net = LeNet5().build(data.input_shape, 3)
    arrays = list_arrays(data)
    setup = ActorSetup(
        *(net, TaskLoss(), SGD, *FIXED, DataFacts.from_data(data), tuple(arrays), {}),
        software=find_software(None),
        device=device,
    )
    return net, data, setup, list(arrays.values())


def test_an_actor_of_ray_trains_on_its_gpu(cuda):
    net, data, setup, arrays = make_setup("cuda")
    remote = TrainingActor()
    assert remote.load(setup, *arrays) is None
    bank, task = bank_for(net, 2), make_task()
    *shards, (losses, is_finite) = remote.train(bank, task, (1000, net.num_params))
    deltas, expected = StackedTrainer(net, TaskLoss(), SGD, Gather(data)).train(bank, [task])
    np.testing.assert_allclose(np.concatenate(shards, axis=1), deltas, atol=2e-6)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    assert is_finite.all()


def test_an_actor_without_a_gpu_cannot_take_part(monkeypatch):
    monkeypatch.setattr(devices, "count_devices", lambda kind: 0)
    _, _, setup, arrays = make_setup("cuda")
    reason = TrainingActor().load(setup, *arrays)
    assert reason is not None
    assert reason.startswith("expected the device cuda, but PyTorch")
