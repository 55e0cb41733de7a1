"""The library is built, found and chosen as documented."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import thalweg
from native.kernel_cases import (
    SGD,
    TOLERANCE,
    assert_agrees,
    make_bank,
    make_images,
    make_native,
    make_table,
    make_task,
    needs_kernel,
)
from thalweg.core.errors import ConfigError
from thalweg.data.base import Dataset
from thalweg.engine.loop import run_plan
from thalweg.engine.plan import make_plan
from thalweg.engine.stack_tasks import Trainer
from thalweg.local import Adam, Euclidean, LocalTraining, NotTrue, PNorm, TaskLoss
from thalweg.losses import CrossEntropy, MeanAbsoluteError, MeanSquaredError
from thalweg.native import library
from thalweg.native.library import FOLDER, INSTRUCTION_SETS, VARIABLE, find_kernel, get_kernel_name
from thalweg.native.program import MAX_LAYERS, allocate_aligned, compile_net, round_to_block
from thalweg.native.trainer import (
    MAX_ROWS,
    find_parts,
    find_training_obstacle,
    make_native_trainer,
)
from thalweg.nets import CharRnn, Cnn, FastText, HamCnn, LeNet5, Linear, Mlp, ResNet10

SETS = INSTRUCTION_SETS.get(platform.machine(), ())
BUILT = [name for name in SETS if (FOLDER / f"kernel_{name}.so").is_file()]

# Writes the updates and outputs of several nets; run with each instruction set.
COMPUTE = """
import sys
import numpy as np
from native.kernel_cases import make_bank, make_images, make_native, make_task
from thalweg.native.library import get_kernel_name
from thalweg.nets import Cnn, LeNet5, Linear, Mlp

found = {"name": np.array(get_kernel_name())}
data = make_images((3, 9, 11))
for spec in (Linear(), Mlp(hidden=(17, 5)), LeNet5(), Cnn(channels=(3, 5, 7), hidden=9)):
    net = spec.build(data.input_shape, 3)
    trainer, bank = make_native(net, data), make_bank(net)
    name = type(spec).__name__
    found[name + " update"] = trainer.train(bank, [make_task([[6, 17], [20, 1, 3]])])[0]
    found[name + " outputs"] = trainer.outputs(bank[0], "train")
np.savez(sys.argv[1], **found)
"""


def compute_with(instruction_set, folder):
    path = folder / f"{instruction_set}.npz"
    tests, source = Path(__file__).parents[1], Path(thalweg.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", COMPUTE, str(path)],
        env={
            **os.environ,
            VARIABLE: instruction_set,
            "PYTHONPATH": os.pathsep.join([str(tests), str(source)]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with np.load(path) as file:
        return dict(file)


@needs_kernel
@pytest.mark.slow
def test_each_instruction_set_of_this_processor_agrees(tmp_path):
    usable = [name for name in BUILT if library._is_supported(name, BUILT)]
    results = {name: compute_with(name, tmp_path) for name in usable}
    first = results[usable[0]]
    for name, found in results.items():
        assert str(found.pop("name")) == f"native-{name}"
        for key, values in found.items():
            errors = np.linalg.norm(values - first[key], axis=-1)
            assert (errors <= TOLERANCE * np.linalg.norm(first[key], axis=-1)).all(), (name, key)


@needs_kernel
def test_the_fastest_instruction_set_is_chosen(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    usable = [name for name in BUILT if library._is_supported(name, BUILT)]
    assert get_kernel_name() == f"native-{usable[0]}"


@needs_kernel
def test_an_unknown_instruction_set_is_rejected(monkeypatch):
    monkeypatch.setenv(VARIABLE, "mmx")
    with pytest.raises(ConfigError, match=r"THALWEG_INSTRUCTION_SET=mmx: expected one of "):
        find_kernel()


def test_a_processor_without_code_uses_torch(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert find_kernel() == "there is no native kernel for the processor 'riscv64'"
    assert get_kernel_name() == "torch"


def test_an_installation_without_a_compiler_uses_torch(monkeypatch, tmp_path):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    reason = find_kernel()
    assert isinstance(reason, str)
    assert reason.startswith("the native kernel is not built")
    data = make_table(4)
    net = Linear().build((4,), 3)
    assert find_parts(net, data, CrossEntropy()) == reason
    assert (
        make_native_trainer(net, TaskLoss(), SGD, data, Euclidean(), None, CrossEntropy()) is None
    )
    plan = make_plan("fedavg", "digits-partial", seed=1, rounds=1, overrides=["ticks=1"])
    assert np.isfinite(run_plan(plan, workers=1).model).all()


def test_the_kernel_is_built_if_there_is_a_compiler():
    """For an installation; in a copy of the repository that is not installed: skipped."""
    is_installed = "site-packages" in thalweg.__file__
    if not is_installed and not BUILT:
        pytest.skip("the kernel is not built in this copy: python setup.py build_ext --inplace")
    if not SETS:
        pytest.skip(f"there is no native kernel for {platform.machine()}")
    if not BUILT and not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        pytest.skip("there is no C compiler")
    assert set(BUILT) == set(SETS)


# --- records ---


@needs_kernel
def test_the_workspace_has_room_for_all_buffers():
    """A linear net on 3 features: inputs and rows of one block, logits, their gradient."""
    program = compile_net(Linear().build((3,), 2))
    kernel = find_kernel()
    inputs, rows, logits = 4 * 3 * 16, 4 * 16 * 16, 4 * 2 * 16
    assert len(program.workspace(kernel, 16, True)) == inputs + rows + 2 * logits
    assert len(program.workspace(kernel, 16, False)) == inputs + logits
    assert len(program.workspace(kernel, 17, False)) == 2 * (inputs + logits)


def test_workspaces_are_aligned_and_zero():
    for size in (1, 64, 1000):
        memory = allocate_aligned(size)
        assert len(memory) == size
        assert memory.ctypes.data % 64 == 0
        assert not memory.any()


def test_samples_are_counted_in_blocks():
    assert [round_to_block(n) for n in (0, 1, 16, 17)] == [16, 16, 16, 32]


def test_a_net_becomes_records():
    program = compile_net(LeNet5().build((1, 28, 28), 10))
    sizes = [(layer.kind, layer.inputs, layer.outputs, layer.relu) for layer in program.layers]
    assert sizes == [(1, 1, 6, 1), (1, 6, 16, 1), (0, 400, 120, 1), (0, 120, 84, 1), (0, 84, 10, 0)]
    places = [(layer.weight, layer.bias) for layer in program.layers]
    assert places == [(0, 150), (156, 2556), (2572, 50572), (50692, 60772), (60856, 61696)]
    assert program[1:] == (61706, 10, 84, 784, 0)
    assert ctypes.sizeof(library.LayerRecord) == 56


def test_word_vectors_become_a_record() -> None:
    program = compile_net(FastText(width=5).build((6, 40), 3))
    assert not isinstance(program, str)
    words, last = program.layers
    assert (words.inputs, words.outputs, words.codes, words.weight) == (6, 5, 40, 0)
    assert (last.inputs, last.outputs, last.weight, last.bias) == (5, 3, 200, 215)
    assert program[1:] == (218, 3, 5, 6, 40)


# --- what has no native code ---


@pytest.mark.parametrize(
    ("spec", "shape", "reason"),
    [
        (HamCnn(), (3, 28, 28), "the layer Dropout has no native code"),
        (ResNet10(), (3, 32, 32), "has no native code"),
        (CharRnn(), (5, 9), "has no native code"),
        (Mlp(hidden=(2,) * MAX_LAYERS), (3,), "more than 32 layers"),
    ],
)
def test_nets_without_native_code(spec, shape, reason):
    assert reason in compile_net(spec.build(shape, 3))


@needs_kernel
@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (np.ones((60, 8), np.float32)[:, ::2], "the samples are not contiguous and aligned"),
        (np.ones((60, 4), np.uint8), "whole numbers that are not images have no native code"),
    ],
)
def test_data_without_native_code(x, reason):
    data = replace(make_table(4), x=x)
    assert reason in find_parts(Linear().build((4,), 3), data, CrossEntropy())


@needs_kernel
def test_samples_at_an_odd_address_have_no_native_code():
    memory = np.zeros(60 * 4 * 4 + 1, dtype=np.uint8)
    data = replace(make_table(4), x=memory[1:].view(np.float32).reshape(60, 4))
    assert "aligned" in find_parts(Linear().build((4,), 3), data, CrossEntropy())


@needs_kernel
def test_losses_and_shapes_without_native_code():
    data, numbers = make_table(4), make_table(4, outputs=2)
    net = Linear().build((4,), 3)
    assert find_parts(Linear().build((4,), 2), numbers, MeanAbsoluteError()) == (
        "the loss MeanAbsoluteError has no native code"
    )
    assert find_parts(Linear().build((5,), 3), data, CrossEntropy()) == (
        "the net expects samples of shape (5,), got (4,)"
    )
    assert find_parts(Linear().build((4,), 2), data, CrossEntropy()) == (
        "the net has 2 outputs, the data need 3"
    )
    assert isinstance(find_parts(net, data, MeanSquaredError()), str)
    assert np.iinfo(np.int32).max == MAX_ROWS


def test_training_without_native_code():
    nothing = (TaskLoss(), SGD, Euclidean(), None)
    assert find_training_obstacle(*nothing) is None
    adam = LocalTraining(lr=0.1, steps=1, optimizer=Adam())
    obstacles = [
        find_training_obstacle(NotTrue(), SGD, Euclidean(), None),
        find_training_obstacle(TaskLoss(), adam, Euclidean(), None),
        find_training_obstacle(TaskLoss(), SGD, PNorm(), None),
        find_training_obstacle(TaskLoss(), SGD, Euclidean(), "flips"),
    ]
    assert obstacles == [
        "the objective NotTrue has no native code",
        "the optimizer adam has no native code",
        "the geometry PNorm has no native code",
        "augmentation has no native code",
    ]


# --- the protocol of trainers ---


@needs_kernel
def test_the_native_trainer_is_a_trainer():
    data = make_images((1, 8, 8))
    net = Cnn(channels=(2, 3, 4), hidden=5).build(data.input_shape, 3)
    trainer: Trainer = make_native(net, data, num_threads=2)
    for name in ("train", "predict", "scores", "close"):
        assert callable(getattr(trainer, name)), name
    bank = make_bank(net, 2)
    deltas, losses = trainer.train(bank, [])
    assert deltas.shape == (0, net.num_params)
    assert losses.shape == (0,)
    tasks = [make_task([[3]]), make_task([[2], [4]])]
    before = bank.copy()
    deltas, losses = trainer.train(bank, tasks)
    assert (deltas.shape, deltas.dtype) == ((3, net.num_params), np.float32)
    assert (losses.shape, losses.dtype) == ((3,), np.float64)
    assert np.array_equal(bank, before)  # the bank is not changed
    labels, sample_losses = trainer.predict(bank[0], "test")
    assert (labels.shape, sample_losses.dtype) == ((9,), np.float32)
    probabilities = np.exp(trainer.scores(bank[0], "test"))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    trainer.close()
    trainer.close()


@needs_kernel
def test_invalid_tasks_are_rejected_before_the_call():
    data = make_table(4)
    net = Linear().build((4,), 3)
    trainer, bank, task = make_native(net, data), make_bank(net), make_task([[5, 3]])
    wrong = [
        task._replace(items=task.items + 60),
        task._replace(items=task.items - 60),
        task._replace(models=task.models + 1),
        task._replace(sizes=task.sizes + 9),
        task._replace(weights=task.weights[:, :, :2]),
    ]
    for each in wrong:
        with pytest.raises(AssertionError):
            trainer.train(bank, [each])
    with pytest.raises(AssertionError):
        trainer.train(bank[:, :-1], [task])
    with pytest.raises(AssertionError):
        trainer.predict(bank[0, :-1], "test")
    with pytest.raises(AssertionError):
        trainer.predict(bank[0], "test", np.array([9]))


@needs_kernel
def test_positions_beyond_32_bits(tmp_path):
    """A table of 2.4 billion numbers; the file has holes and uses no disk space."""
    num, features = 600_000, 4000
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(num, features))
    x[-1] = 1
    data = Dataset("toy", x, np.zeros(num, int), x[:1], np.zeros(1, int), 3)
    net = Linear().build((features,), 3)
    task = make_task([[2]])
    assert_agrees(net, data, task._replace(items=np.full_like(task.items, num - 1)))
    (params,) = make_bank(net)
    found = make_native(net, data).outputs(params, "train", np.array([num - 1]))
    expected = params[: 3 * features].reshape(3, features).sum(axis=1) + params[3 * features :]
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)


def test_library_of_other_sources_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "INTERFACE", -1)
    library._load.cache_clear()
    try:
        with pytest.raises(ConfigError, match="built from other sources: expected interface -1"):
            library.find_kernel()
    finally:
        library._load.cache_clear()
