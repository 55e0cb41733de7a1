"""Train clients and predict with the native kernel, in threads of this process.

Every client is computed alone, so that results depend neither on the stacks nor on the number of
threads.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_float
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Floats32, Ints
from thalweg.data.augment import Augmentation
from thalweg.data.base import Dataset, Part, Targets
from thalweg.data.predictions import ModelPredictions
from thalweg.local import Geometry, LocalTraining, Objective, Sgd
from thalweg.local.quadratic import Quadratic, QuadraticObjective, is_quadratic
from thalweg.losses import CrossEntropy, Loss, MeanSquaredError
from thalweg.native.library import (
    BatchesRecord,
    Kernel,
    PenaltyRecord,
    SamplesRecord,
    find_kernel,
)
from thalweg.native.program import Program, compile_net, round_to_block
from thalweg.nets import Net

_Rows = npt.NDArray[np.int32]

UINT8_IMAGES, FLOAT_ROWS, CODES_UINT8, CODES_UINT16 = range(4)  # kinds of samples, as in c/kernel.h
LOSSES: dict[type, int] = {CrossEntropy: 0, MeanSquaredError: 1}
PREDICT_BATCH = 64  # samples; more exceed the cache
MAX_ROWS = 2**31 - 1  # rows are int32
WORK_PER_PIECE = 20_000_000  # multiplications: below about a millisecond, threads cost more


class StackBatches(Protocol):
    """The mini-batches of K clients: `engine.stacked.StackTask`."""

    @property
    def models(self) -> Ints: ...
    @property
    def items(self) -> npt.NDArray[np.int32]: ...
    @property
    def weights(self) -> Floats32: ...
    @property
    def live(self) -> npt.NDArray[np.bool_]: ...
    @property
    def lr_scales(self) -> Floats32 | None: ...
    @property
    def sizes(self) -> Ints | None: ...


class NativeParts(NamedTuple):
    """A kernel and a net that it can compute."""

    kernel: Kernel
    program: Program
    loss: int


def find_parts(net: Net, data: Dataset, loss: Loss) -> NativeParts | str:
    """Return the kernel for a net, its data and loss, or a phrase that says why there is none."""
    kernel = find_kernel()
    if isinstance(kernel, str):
        return kernel
    if type(loss) not in LOSSES:
        return f"the loss {type(loss).__name__} has no native code"
    for x in (data.x, data.x_test):
        if x.dtype not in ((np.uint8, np.uint16) if data.is_sequence else (np.uint8, np.float32)):
            return f"samples of {x.dtype} have no native code"
        if not (x.flags.c_contiguous and x.flags.aligned):
            return "the samples are not contiguous and aligned in memory"
        if len(x) > MAX_ROWS:
            return f"more than {MAX_ROWS:,} samples have no native code"
    if data.x.dtype == np.uint8 and not data.is_image and not data.is_sequence:
        return "whole numbers that are not images have no native code"
    if net.input_shape != data.input_shape:
        return f"the net expects samples of shape {net.input_shape}, got {data.input_shape}"
    is_regression = type(loss) is MeanSquaredError
    if net.num_classes != data.num_outputs or is_regression != (data.task == "regression"):
        return f"the net has {net.num_classes} outputs, the data need {data.num_outputs}"
    program = compile_net(net)
    if isinstance(program, str):
        return program
    assert bool(program.num_codes) == data.is_sequence
    return NativeParts(kernel, program, LOSSES[type(loss)])


def make_native_trainer(
    net: Net,
    objective: Objective,
    local: LocalTraining,
    data: Dataset,
    geometry: Geometry,
    augment: Augmentation | None,
    loss: Loss,
    num_threads: int = 1,
) -> NativeTrainer | None:
    """Return a trainer that computes in C; None if there is no kernel for this net and data.

    If only the training has no native code, it computes predictions.
    """
    parts = find_parts(net, data, loss)
    if isinstance(parts, str):
        return None
    obstacle = find_training_obstacle(objective, local, geometry, augment)
    return NativeTrainer(parts, objective, local, data, num_threads, can_train=obstacle is None)


def find_training_obstacle(
    objective: Objective, local: LocalTraining, geometry: Geometry, augment: Augmentation | None
) -> str | None:
    """Return why the kernel cannot take whole steps; None if it can."""
    if not is_quadratic(objective):
        return f"the objective {type(objective).__name__} has no native code"
    if type(local.optimizer) is not Sgd:
        return f"the optimizer {local.optimizer_name} has no native code"
    if not geometry.is_euclidean:
        return f"the geometry {type(geometry).__name__} has no native code"
    return None if augment is None else "augmentation has no native code"


class NativeTrainer(ModelPredictions):
    """A trainer (`engine.stacked.Trainer`) that computes in C."""

    def __init__(
        self,
        parts: NativeParts,
        objective: Objective,
        local: LocalTraining,
        data: Dataset,
        num_threads: int = 1,
        can_train: bool = True,
    ) -> None:
        self.can_train = can_train  # False: predictions only
        self.parts = parts
        self._kernel, self._program, self._loss = parts
        self._is_regression = self._loss == LOSSES[MeanSquaredError]
        self._objective, self._local, self._data = objective, local, data
        self._sources = {part: SampleSource(data, part) for part in ("train", "test")}
        self._num_threads = num_threads
        self._pool: ThreadPoolExecutor | None = None
        self._own = threading.local()  # workspaces of each thread
        self._updates = _ReusedMemory()

    @property
    def kernel_name(self) -> str:
        return self._kernel.name

    def train(self, bank: Floats32, tasks: Sequence[StackBatches]) -> tuple[Floats32, Floats]:
        ends = np.cumsum([0, *(len(task.models) for task in tasks)])
        deltas = self._updates.array(int(ends[-1]), bank.shape[1])
        losses = np.empty(int(ends[-1]))
        bank = np.ascontiguousarray(bank, dtype=np.float32)
        assert bank.shape[1] == self._program.num_params
        pieces = []
        for task, first in zip(tasks, ends.tolist(), strict=False):
            mine = slice(first, first + len(task.models))
            job = _TrainJob(self._make_batches(task), task, deltas[mine], losses[mine])
            pieces += [(job, *ends) for ends in self._split_clients(task)]
        self._map(lambda piece: self._train_piece(bank, *piece), pieces)
        num_steps = [task.live.sum(axis=0) for task in tasks]
        with np.errstate(invalid="ignore"):  # without a step: 0 / 0 is nan
            return deltas, losses / np.concatenate([np.empty(0), *num_steps])

    def take_steps(
        self,
        task: StackBatches,
        params: Floats32,  # (K, P)
        velocity: Floats32 | None,  # (K, P); None: no momentum
        lr_scales: Floats32 | None,  # (K,)
        memo: Mapping[str, Floats32],  # (K, P) each, at least "start"
    ) -> Floats:
        """Take the steps of K clients, in place; return the sums of their losses (K,)."""
        batches = self._make_batches(task)
        layers, local = self._program.layers, self._local
        for each in (params, velocity):
            assert each is None or (
                each.shape == (task.items.shape[1], self._program.num_params)
                and each.dtype == np.float32
                and each.flags.c_contiguous
            )
        space = self._workspace(batches.record.width, trains=True)
        quadratic = self._make_quadratic(memo)
        losses = np.empty(len(params))
        for k in range(len(params)):
            penalty = _describe_penalty(quadratic, k)
            losses[k] = self._kernel.steps(
                layers,
                len(layers),
                byref(batches.samples),
                byref(batches.record),
                k,
                params[k].ctypes.data,
                None if velocity is None else velocity[k].ctypes.data,
                local.lr if lr_scales is None else local.lr * float(lr_scales[k]),
                local.momentum,
                local.weight_decay,
                None if penalty is None else byref(penalty),
                space.ctypes.data,
            )
        return losses

    def predict_many(
        self, models: Floats32, part: Part, rows: Ints | None = None
    ) -> tuple[Targets, Floats32]:
        rows = self._choose_rows(part, rows)
        outputs = self.outputs_many(models, part, rows)
        targets = self._data.labels(part, rows)
        if self._is_regression:
            with np.errstate(over="ignore", invalid="ignore"):
                errors = np.square(outputs - targets.reshape(outputs.shape[1:]))
            return outputs.reshape(len(models), *targets.shape), errors.mean(axis=2)
        right = outputs[:, np.arange(len(targets)), targets]
        with np.errstate(invalid="ignore"):
            return outputs.argmax(axis=2), _log_sum_exp(outputs) - right

    def scores_many(self, models: Floats32, part: Part, rows: Ints | None = None) -> Floats32:
        outputs = self.outputs_many(models, part, rows)
        if self._is_regression:
            return outputs
        with np.errstate(invalid="ignore"):
            return outputs - _log_sum_exp(outputs)[:, :, None]

    def _choose_rows(self, part: Part, rows: Ints | None) -> Ints:
        return np.arange(self._data.num_samples(part)) if rows is None else rows

    def outputs(self, params: Floats32, part: Part, rows: Ints | None = None) -> Floats32:
        """Return outputs (n, C) of a model; None: on all samples."""
        outputs: Floats32 = self.outputs_many(params[None], part, rows)[0]
        return outputs

    def outputs_many(self, models: Floats32, part: Part, rows: Ints | None = None) -> Floats32:
        """Return outputs (M, n, C) of models on the same rows; None: on all samples.

        Each sample is read once. Its outputs have the same bits as those of one model alone.
        """
        rows = self._choose_rows(part, rows)
        models = np.ascontiguousarray(models, dtype=np.float32)
        assert models.shape[1:] == (self._program.num_params,)
        num_outputs = self._program.num_outputs
        found = np.empty((len(models), len(rows), num_outputs), dtype=np.float32)
        num_pieces = 2 * self._num_threads if self._num_threads > 1 else 1
        share = -(-len(rows) // (num_pieces * PREDICT_BATCH)) * PREDICT_BATCH

        def predict_piece(first: int) -> None:
            mine = slice(first, first + share)
            samples, items = self._sources[part].read(rows[mine])
            layers = self._program.layers
            self._kernel.predict(
                layers,
                len(layers),
                byref(samples),
                len(items),
                items.ctypes.data,
                PREDICT_BATCH,
                models.ctypes.data,
                len(models),
                models.shape[1],
                found[:, mine].ctypes.data,
                len(rows) * num_outputs,
                self._workspace(PREDICT_BATCH, trains=False).ctypes.data,
            )

        self._map(predict_piece, range(0, len(rows), max(share, 1)))
        return found

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    # --- training ---

    def _make_batches(self, task: StackBatches) -> _Batches:
        samples, rows = self._sources["train"].read(task.items)
        target_type = np.float32 if self._is_regression else np.int64
        targets = np.ascontiguousarray(self._data.labels("train", task.items), dtype=target_type)
        weights = np.ascontiguousarray(task.weights, dtype=np.float32)
        sizes = np.ascontiguousarray(_count_samples(task), dtype=np.int32)
        num_steps, num_clients, width = task.items.shape
        assert weights.shape == rows.shape
        assert sizes.shape == (num_steps, num_clients)
        assert not sizes.size or 0 <= sizes.min() <= sizes.max() <= width
        record = BatchesRecord(
            rows.ctypes.data,
            targets.ctypes.data,
            weights.ctypes.data,
            sizes.ctypes.data,
            num_steps,
            num_clients,
            width,
            self._loss,
        )
        return _Batches(record, samples, (rows, targets, weights, sizes))

    def _split_clients(self, task: StackBatches) -> Iterable[tuple[int, int]]:
        """Return ranges of clients with enough work for a thread each."""
        num_steps, num_clients, width = task.items.shape
        work = max(1, num_steps * width * self._program.num_params)
        together = min(max(1, WORK_PER_PIECE // work), num_clients)
        return (
            (first, min(first + together, num_clients))
            for first in range(0, num_clients, max(together, 1))
        )

    def _make_quadratic(self, memo: Mapping[str, Floats32]) -> Quadratic | None:
        """Return the penalty of K clients, with arrays (K, P) as the kernel reads them."""
        if not isinstance(self._objective, QuadraticObjective):
            return None
        quadratic = self._objective.penalty(memo)
        if quadratic is None:
            return None
        shape = len(memo["start"]), self._program.num_params
        arrays: dict[str, Any] = {
            name: np.ascontiguousarray(values, dtype=np.float32)
            for name, values in quadratic._asdict().items()
            if name != "scale" and values is not None
        }
        assert all(each.shape == shape for each in arrays.values())
        return quadratic._replace(**arrays)

    def _train_piece(self, bank: Floats32, job: _TrainJob, first: int, last: int) -> None:
        layers, local, task = self._program.layers, self._local, job.task
        scales = np.ones(len(task.models)) if task.lr_scales is None else task.lr_scales
        lrs = (local.lr * scales.astype(np.float64)).astype(np.float32)
        models = np.ascontiguousarray(task.models, dtype=np.int64)
        assert not len(models) or 0 <= models.min() <= models.max() < len(bank)
        quadratic = None
        if isinstance(self._objective, QuadraticObjective):
            quadratic = self._make_quadratic({"start": bank[models[first:last]]})
        penalty = _describe_penalty(quadratic, 0)
        self._kernel.train(
            layers,
            len(layers),
            byref(job.batches.samples),
            byref(job.batches.record),
            first,
            last,
            bank.ctypes.data,
            bank.shape[1],
            models.ctypes.data,
            lrs.ctypes.data,
            local.momentum,
            local.weight_decay,
            None if penalty is None else byref(penalty),
            job.deltas.ctypes.data,
            job.losses.ctypes.data,
            None if local.momentum == 0 else self._velocity().ctypes.data,
            self._workspace(job.batches.record.width, trains=True).ctypes.data,
        )

    # --- threads ---

    def _workspace(self, num_samples: int, trains: bool) -> npt.NDArray[np.uint8]:
        """Return the workspace of this thread for mini-batches of this size."""
        key = round_to_block(num_samples), trains
        if not hasattr(self._own, "spaces"):
            self._own.spaces = {}
        spaces: dict[tuple[int, bool], npt.NDArray[np.uint8]] = self._own.spaces
        if key not in spaces:
            for other in [each for each in spaces if each[1] == trains]:
                del spaces[other]
            spaces[key] = self._program.workspace(self._kernel, *key)
        return spaces[key]

    def _velocity(self) -> Floats32:
        """Return memory of this thread for the velocity of one client."""
        if not hasattr(self._own, "velocity"):
            self._own.velocity = np.empty(self._program.num_params, dtype=np.float32)
        velocity: Floats32 = self._own.velocity
        return velocity

    def _map(self, work: Callable[[Any], None], pieces: Iterable[Any]) -> None:
        pieces = list(pieces)
        if self._num_threads == 1 or len(pieces) <= 1:
            for piece in pieces:
                work(piece)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._num_threads)
        for _ in self._pool.map(work, pieces):
            pass


class SampleSource:
    """The samples of one part of a data set, as the kernel reads them."""

    def __init__(self, data: Dataset, part: Part) -> None:
        self._data, self._part = data, part
        is_train = part == "train"
        self._x = data.x if is_train else data.x_test
        self._index = data.index if is_train else data.index_test
        self._num_rows = data.num_rows(part)
        if data.is_sequence:
            assert not self._x.size or self._x.max() < data.num_codes
        if data.is_image:
            mean, std = np.asarray(data.mean), np.asarray(data.std)
            channels = data.x.shape[-1]
            self._scale = np.broadcast_to(1 / (255 * std), channels).astype(np.float32)
            self._shift = np.broadcast_to(-mean / std, channels).astype(np.float32)

    def read(self, rows: npt.NDArray[np.integer[Any]]) -> tuple[SamplesRecord, _Rows]:
        """Return the samples and the positions in them, int32, in the shape of `rows`.

        Without views samples are not copied.
        """
        assert not rows.size or 0 <= rows.min() <= rows.max() < self._num_rows
        if self._data.views:
            x = np.ascontiguousarray(self._data.samples(self._part, rows.ravel()))
            items = np.arange(rows.size, dtype=np.int32).reshape(rows.shape)
            return self._describe(x), items
        physical = rows if self._index is None else self._index[rows]
        return self._record, np.ascontiguousarray(physical, dtype=np.int32)

    @cached_property
    def _record(self) -> SamplesRecord:
        """The record of all samples, without views."""
        return self._describe(self._x)

    def _describe(self, x: npt.NDArray[Any]) -> SamplesRecord:
        shape = self._data.input_shape
        channels, height, width = shape if len(shape) == 3 else (prod(shape), 1, 1)
        kind = UINT8_IMAGES if self._data.is_image else FLOAT_ROWS
        if self._data.is_sequence:
            channels, width = 1, shape[0]
            kind = CODES_UINT8 if x.dtype == np.uint8 else CODES_UINT16
        record = SamplesRecord(
            x=x.ctypes.data,
            kind=kind,
            channels=channels,
            height=height,
            width=width,
        )
        record.held = (x,)  # keeps the array alive
        if self._data.is_image:
            record.scale, record.shift = self._scale.ctypes.data, self._shift.ctypes.data
            record.held += (self._scale, self._shift)
        return record


class _Batches(NamedTuple):
    record: BatchesRecord
    samples: SamplesRecord
    held: tuple[npt.NDArray[Any], ...]  # arrays to which the record points


class _ReusedMemory:
    """Memory for updates, which is used again when the array and all views of it are gone.

    New memory for each round costs a page fault and a second write per page.
    """

    def __init__(self) -> None:
        self._free: npt.NDArray[np.float32] | None = None

    def array(self, *shape: int) -> Floats32:
        """Return an array with any contents."""
        size = prod(shape)
        memory, self._free = self._free, None
        if memory is None or memory.size < size:
            memory = np.empty(size, dtype=np.float32)
        # NumPy lets a view of a view refer to `memory` directly, but not past another object.
        owner: Any = (c_float * size).from_buffer(memory.data)
        weakref.finalize(owner, self._release, memory).atexit = False
        return np.ndarray(shape, dtype=np.float32, buffer=owner)

    def _release(self, memory: Floats32) -> None:
        self._free = memory


class _TrainJob(NamedTuple):
    batches: _Batches
    task: StackBatches
    deltas: Floats32  # (K, P)
    losses: Floats  # (K,) sums over the steps


def _describe_penalty(quadratic: Quadratic | None, row: int) -> PenaltyRecord | None:
    """Return the record of a penalty, from a row on; its arrays must stay alive."""
    if quadratic is None:
        return None
    record = PenaltyRecord(scale=quadratic.scale)
    for name in ("curvature", "centre", "slope"):
        values = getattr(quadratic, name)
        if values is not None:
            setattr(record, name, values[row:].ctypes.data)
    return record


def _count_samples(task: StackBatches) -> Ints:
    """Return (S, K) the samples of each mini-batch without padding; 0: no step."""
    if task.sizes is not None:
        return np.where(task.live, task.sizes, 0)
    used = task.weights != 0
    width = task.weights.shape[2]
    last = np.where(used.any(axis=2), width - used[:, :, ::-1].argmax(axis=2), width)
    return np.where(task.live, last, 0)


def _log_sum_exp(outputs: Floats32) -> Floats32:
    """Return log(sum(exp(z))) of each row; nan for a model that has diverged, as in PyTorch."""
    most = outputs.max(axis=-1)
    with np.errstate(invalid="ignore"):
        found: Floats32 = most + np.log(np.exp(outputs - most[..., None]).sum(axis=-1))
    return found
