"""The native kernel trains the mean of word vectors as the reference engine does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from native.kernel_cases import (
    PLAIN_SGD,
    SGD,
    TOLERANCE,
    assert_agrees,
    make_bank,
    make_native,
    make_table,
    make_task,
    make_texts,
    needs_kernel,
    train_reference,
)
from thalweg.engine.gather import Gather
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import StackedTrainer
from thalweg.local import Euclidean, LocalTraining, NotTrue, TaskLoss
from thalweg.losses import CrossEntropy
from thalweg.native import trainer as native_trainer
from thalweg.native.trainer import find_parts, make_native_trainer
from thalweg.nets import FastText, Linear

pytestmark = needs_kernel

SIZES = [[6, 17, 3], [0, 20], [33], [], [1, 1, 1], [16, 0, 2]]
MOMENTUM = replace(PLAIN_SGD, momentum=0.8)
HEADS = [FastText(width=5), FastText(width=16), FastText(width=37, projection=4)]


@pytest.mark.parametrize("local", [PLAIN_SGD, MOMENTUM, SGD], ids=str)
@pytest.mark.parametrize("spec", HEADS, ids=repr)
def test_a_round_equals_the_reference(spec: FastText, local: LocalTraining) -> None:
    data = make_texts()
    assert_agrees(spec.build(data.input_shape, 3), data, make_task(SIZES), local)


@pytest.mark.parametrize(
    ("words", "codes", "dtype"), [(1, 2, np.uint8), (64, 256, np.uint8), (3, 2000, np.uint16)]
)
def test_lengths_and_vocabularies(words: int, codes: int, dtype: type) -> None:
    data = make_texts(words, codes, dtype=dtype)
    net = FastText(width=9).build(data.input_shape, 3)
    task = make_task(SIZES, is_weighted=True, lr_scales=[1, 0.5, 2, 1, 0.1, 1], num_models=3)
    assert_agrees(net, data, task, MOMENTUM, num_models=3)


def test_a_step_by_hand() -> None:
    """Two words with vectors of one number, 1 and 3: their mean is 2.

    The weights of the two classes are 1 and -1 and so are the logits 2 and -2, with probabilities p
    and 1 - p. The gradient of the mean is (p - 1) * 1 + (1 - p) * -1 = -2 (1 - p), of which each
    word gets a half. The third word and the padding do not occur and do not change.
    """
    x = np.array([[1, 2, 0]], dtype=np.uint8)
    data = make_texts(3, 4)
    data = replace(data, x=x, y=np.zeros(1, int), x_test=x, y_test=np.zeros(1, int), num_classes=2)
    net = FastText(width=1).build((3, 4), 2)
    start = np.array([[0, 1, 3, 7, 1, -1, 0, 0]], dtype=np.float32)
    local = LocalTraining(lr=0.5, batch_size=1, steps=1)
    deltas, losses = make_native(net, data, local).train(start, [make_task([[1]], num_rows=1)])
    rest = 1 / (1 + np.exp(4))  # 1 - p
    expected = [0, 0.5 * rest, 0.5 * rest, 0, *(0.5 * 2 * rest, -0.5 * 2 * rest)]
    np.testing.assert_allclose(deltas[0, :6], expected, rtol=1e-5)
    assert losses[0] == pytest.approx(np.log1p(np.exp(-4)), rel=1e-5)


def test_words_that_do_not_occur_have_the_parameters_of_the_start() -> None:
    data = make_texts(num_codes=40)
    net = FastText(width=5).build(data.input_shape, 3)
    task = make_task([[4, 4]])
    deltas, _ = make_native(net, data, MOMENTUM).train(make_bank(net), [task])
    occurring = set(data.x[task.items].ravel().tolist()) - {0}
    changed = np.flatnonzero(deltas[0, : 40 * 5].reshape(40, 5).any(axis=1))
    assert set(changed.tolist()) == occurring


def test_words_that_do_not_occur_show_a_start_that_is_not_finite() -> None:
    data = make_texts(num_codes=40)
    net = FastText(width=5).build(data.input_shape, 3)
    task, bank = make_task([[4, 4]]), make_bank(net)
    occurring = set(data.x[task.items].ravel().tolist())
    absent = min(set(range(1, 40)) - occurring)
    bank[0, 5 * absent + 2] = np.inf
    deltas, _ = make_native(net, data, MOMENTUM).train(bank, [task])
    assert np.flatnonzero(np.isnan(deltas[0])).tolist() == [5 * absent + 2]  # inf - inf


def test_memory_of_updates_is_used_again_when_all_views_are_gone() -> None:
    data = make_texts()
    net = FastText(width=5).build(data.input_shape, 3)
    trainer, bank = make_native(net, data, MOMENTUM), make_bank(net)
    deltas, _ = trainer.train(bank, [make_task([[4, 4]])])
    held, kept, address = deltas[0, 1:], deltas[0, 1:].copy(), deltas.ctypes.data
    del deltas
    others, _ = trainer.train(bank * 2, [make_task([[6]])])
    assert np.array_equal(held, kept)
    assert others.ctypes.data != address
    del others, held
    expected, _ = make_native(net, data, MOMENTUM).train(bank * 2, [make_task([[6]])])
    again, _ = trainer.train(bank * 2, [make_task([[6]])])
    assert again.ctypes.data == address
    assert np.array_equal(again, expected)


def test_predictions() -> None:
    data = make_texts()
    net = FastText(width=11).build(data.input_shape, 3)
    trainer, params = make_native(net, data), make_bank(net)[0]
    reference = SingleTrainer(net, TaskLoss(), SGD, data, loss=CrossEntropy())
    for rows in (None, np.array([5, 0, 5]), np.empty(0, dtype=np.int64)):
        ours, our_losses = trainer.predict(params, "train", rows)
        right, right_losses = reference.predict(params, "train", rows)
        assert np.array_equal(ours, right)
        np.testing.assert_allclose(our_losses, right_losses, rtol=1e-5, atol=1e-6)


def test_threads_and_workspaces_that_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_texts()
    net = FastText(width=5).build(data.input_shape, 3)
    task, bank = make_task(SIZES), make_bank(net)
    deltas, losses = make_native(net, data).train(bank, [task])
    monkeypatch.setattr(native_trainer, "WORK_PER_PIECE", 1)  # each client is a piece
    trainer = make_native(net, data, num_threads=3)
    for _ in range(3):
        again, again_losses = trainer.train(bank, [task])
        assert np.array_equal(again, deltas)
        assert np.array_equal(again_losses, losses, equal_nan=True)
    trainer.close()


@pytest.mark.parametrize("local", [PLAIN_SGD, MOMENTUM, SGD], ids=str)
def test_single_ticks_have_the_bits_of_a_round(local: LocalTraining) -> None:
    """Words of an earlier tick keep their velocity, also if they do not occur again."""
    data = make_texts()
    net = FastText(width=5).build(data.input_shape, 3)
    task, bank = make_task([[2, 2, 2], [3, 1, 2]]), make_bank(net)
    native = make_native(net, data, local)
    expected, _ = native.train(bank, [task])
    stacked = StackedTrainer(net, TaskLoss(), local, Gather(data), native=native)
    stack = stacked.begin(bank, task.models)
    for tick in range(3):
        mine = slice(tick, tick + 1)
        stacked.steps(
            stack, task.items[mine], task.weights[mine], task.live[mine], sizes=task.sizes[mine]
        )
    deltas = np.empty_like(expected)
    stacked.finish(stack, deltas)
    assert np.array_equal(deltas, expected)


def test_an_objective_with_passes_of_the_kernel() -> None:
    """Objectives in PyTorch get the outputs and gradients of the kernel."""
    data = make_texts()
    net = FastText(width=12, projection=6).build(data.input_shape, 3)
    task, bank, objective = make_task(SIZES[:3]), make_bank(net), NotTrue()
    native = make_native_trainer(net, objective, SGD, data, Euclidean(), None, CrossEntropy())
    assert native is not None
    assert not native.can_train
    ours, _ = StackedTrainer(net, objective, SGD, Gather(data), native=native).train(bank, [task])
    right, _ = StackedTrainer(net, objective, SGD, Gather(data)).train(bank, [task])
    errors = np.linalg.norm(ours - right, axis=1)
    assert (errors <= TOLERANCE * np.linalg.norm(right, axis=1)).all()


def test_features_with_passes_of_the_kernel() -> None:
    data = make_texts()
    net = FastText(width=12, projection=6).build(data.input_shape, 3)
    params, rows = make_bank(net)[0], np.arange(20)
    native = make_native(net, data)
    ours = StackedTrainer(net, TaskLoss(), SGD, Gather(data), native=native)
    right = StackedTrainer(net, TaskLoss(), SGD, Gather(data))
    for mine, theirs in zip(
        ours.last_layer(params, rows), right.last_layer(params, rows), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_a_model_that_diverges() -> None:
    data = make_texts()
    net = FastText(width=5).build(data.input_shape, 3)
    local = replace(PLAIN_SGD, lr=1e30)
    task, bank = make_task([[6] * 5, [6]]), make_bank(net)
    trainer = make_native(net, data, local)
    deltas, losses = trainer.train(bank, [task])
    expected, expected_losses = train_reference(net, data, local, bank, task)
    assert np.isnan(losses).tolist() == np.isnan(expected_losses).tolist()
    assert np.isnan(deltas[0]).any() == np.isnan(expected[0]).any()
    healthy, _ = trainer.train(bank * 0, [make_task([[6]])])  # in the memory of the others
    assert np.isfinite(healthy).all()


def test_nets_and_data_that_do_not_fit() -> None:
    texts, table = make_texts(), make_table(6)
    net = FastText(width=5).build(texts.input_shape, 3)
    assert "expects samples of shape" in str(find_parts(net, table, CrossEntropy()))
    linear = Linear().build((6,), 3)
    assert "expects samples of shape" in str(find_parts(linear, texts, CrossEntropy()))
