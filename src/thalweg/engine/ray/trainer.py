"""A trainer whose tasks are computed by actors of a Ray cluster.

The data are put into Ray's object store once, and the models once per round. Actors receive stack
tasks. Results depend on the tasks only, so that they have the same bits for any number of actors
and nodes, and when actors are lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from thalweg.core.errors import ConfigError, RunError
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.core.vectors import BLOCK
from thalweg.data.augment import Augmentation
from thalweg.data.base import Dataset, Part, Targets
from thalweg.data.mapped import FilePart
from thalweg.data.predictions import ModelPredictions
from thalweg.engine.ray.actor import ActorSetup, TrainingActor, find_software
from thalweg.engine.ray.cluster import RayCluster, RayConnection
from thalweg.engine.ray.deltas import RemoteDeltas
from thalweg.engine.ray.schedule import (
    ActorCall,
    ActorSchedule,
    LostObjects,
    first_line,
    get_cause,
    repeat_lost,
    warn,
)
from thalweg.engine.shared_data import DataFacts, RowShares, list_arrays
from thalweg.engine.stack_tasks import StackTask
from thalweg.engine.workers import can_send_to_worker
from thalweg.local import Geometry, LocalTraining, Objective
from thalweg.losses import Loss
from thalweg.native.trainer import make_native_trainer
from thalweg.nets import Net

LOCAL_BYTES = 1 << 26  # updates of a round up to this size are sent to the driver
SHARD_BYTES = 1 << 27  # of the columns that one actor sums
PIECE_BYTES, MESSAGE_BYTES = 88 << 10, 8 << 20  # of results without the object stores
START_SECONDS = 300.0  # until actors must have started


class RayTrainer(ModelPredictions):
    """Distributes tasks to actors; results do not depend on their number."""

    def __init__(
        self,
        net: Net,
        objective: Objective,
        local: LocalTraining,
        data: Dataset,
        cluster: RayCluster,
        geometry: Geometry,
        augment: Augmentation | None,
        loss: Loss,
        only_mean: bool = False,  # large updates stay on the nodes
        device: str = "cpu",  # of the actors
    ) -> None:
        self._only_mean = only_mean
        parts = (net, objective, local, geometry, augment, data.views, loss)
        if not can_send_to_worker(*parts):
            raise ConfigError(
                "the engine ray sends the model, the loss and the objective to other machines, "
                "but a class of them is defined in a script or a notebook. Put it into a package "
                "that is installed on all nodes, or use the engine fast."
            )
        self._shares, self._num_params = RowShares.from_data(data), net.num_params
        self.actors: dict[int, Any] = {}
        self._num_started = 0
        self._connection = RayConnection(cluster)
        self.ray = self._connection.ray
        try:
            self._setup = _make_setup(net, objective, local, data, geometry, augment, loss, device)
            self._arrays = [self.ray.put(getattr(data, name)) for name in self._setup.names]
            self._start_actors()
        except BaseException:
            self.close()
            raise

    @property
    def num_actors(self) -> int:
        return len(self.actors)

    def train(self, bank: Floats32, tasks: Sequence[StackTask]) -> tuple[Floats32, Floats]:
        num_rows = sum(len(task.models) for task in tasks)
        stay = self._only_mean and 4 * num_rows * self._num_params > LOCAL_BYTES
        most = max((len(task.models) for task in tasks), default=1)
        ends = (
            choose_shards(num_rows, self._num_params)
            if stay
            else choose_pieces(most, self._num_params)
        )
        models = self.ray.put(bank)
        calls = [ActorCall("train", (models, task, ends), len(ends) + 1) for task in tasks]
        results = repeat_lost(lambda: self.call(calls, fetches=not stay))
        losses = np.concatenate([np.empty(0), *(result[-1][0] for result in results)])
        finite = [np.empty(0, dtype=bool), *(result[-1][1] for result in results)]
        deltas = RemoteDeltas(
            self,
            calls,
            [result[:-1] for result in results],
            counts=[len(task.models) for task in tasks],
            ends=ends,
            finite=np.concatenate(finite),
        )
        return cast(Floats32, deltas) if stay else np.asarray(deltas), losses

    def predict_many(
        self, models: Floats32, part: Part, rows: Ints | None = None
    ) -> tuple[Targets, Floats32]:
        found = self._map_rows("predict_many", models, part, rows)
        return self._shares.join_predictions(len(models), found)

    def scores_many(self, models: Floats32, part: Part, rows: Ints | None = None) -> Floats32:
        found = self._map_rows("scores_many", models, part, rows)
        return self._shares.join_scores(len(models), found)

    def close(self) -> None:
        for actor in self.actors.values():
            if self.ray.is_initialized():
                self.ray.kill(actor)
        self.actors.clear()
        self._connection.close()

    def call(self, calls: Sequence[ActorCall], fetches: bool = False) -> list[list[Any]]:
        """Return the results of all calls, in order: references, and the value of the last one.

        Calls whose actor is lost are repeated on another one. With `fetches`, results are copied to
        this node while other calls are computed.
        """
        return ActorSchedule(self, calls, fetches).run()

    def get(self, references: list[Any]) -> list[Any]:
        """Return the values of references."""
        try:
            return cast(list[Any], self.ray.get(references))
        except self.ray.exceptions.ObjectLostError as error:
            raise LostObjects(first_line(error)) from error

    def _map_rows(self, method: str, models: Floats32, part: Part, rows: Ints | None) -> list[Any]:
        """Call a method for whole batches of rows; they do not depend on the number of actors."""
        bank = self.ray.put(np.ascontiguousarray(models))
        shares = self._shares.split(part, rows, len(self.actors))
        calls = [ActorCall(method, (bank, part, mine)) for mine in shares]
        found = repeat_lost(lambda: self.call(calls))
        return [result[-1] for result in found]

    # --- actors ---

    def _start_actors(self) -> None:
        """Start the actors, and wait until they have loaded the data."""
        ray, cluster = self.ray, self._connection.cluster
        make = ray.remote(TrainingActor).options(
            num_cpus=1,
            num_gpus=cluster.num_gpus,
            scheduling_strategy="SPREAD",
        )
        number = self._connection.num_workers
        started = [make.remote() for _ in range(number)]
        loading = {actor.load.remote(self._setup, *self._arrays): actor for actor in started}
        ready, late = ray.wait(
            list(loading), num_returns=len(loading), timeout=START_SECONDS, fetch_local=False
        )
        reasons = [f"it did not start within {START_SECONDS:g} seconds" for _ in late]
        for reference in late:
            ray.kill(loading[reference])
        for reference in ready:
            try:
                reason = ray.get(reference)
            except ray.exceptions.RayActorError as error:
                reason = f"it ended: {first_line(error)}"
            except ray.exceptions.RayTaskError as error:
                raise get_cause(error) from None
            if reason is None:
                self.actors[self._num_started] = loading[reference]
                self._num_started += 1
            else:
                reasons.append(reason)
                ray.kill(loading[reference])
        if not self.actors:
            raise ConfigError(
                f"none of {number} actors of the Ray cluster can take part: {reasons[0]}. Install "
                "the same version of thalweg, with its kernel, on all nodes."
            )
        for reason in dict.fromkeys(reasons):
            warn(f"{reasons.count(reason)} of {number} actors cannot take part: {reason}.")

    def exclude(self, actor: int, reason: str) -> None:
        """Do not use an actor any longer. If it was the last one, start new ones."""
        if self.actors.pop(actor, None) is None:
            return
        warn(
            f"an actor is lost ({reason}). Its tasks are computed again; "
            f"{len(self.actors)} actors remain."
        )
        if self.actors:
            return
        try:
            self._start_actors()
        except ConfigError as error:
            raise RunError(
                f"all actors of the Ray cluster are lost, and no other can be started: {error} "
                "A run in a folder can be continued with --resume, on this or another machine."
            ) from error


def choose_shards(num_rows: int, num_params: int) -> tuple[int, ...]:
    """Return the ends of the shards of columns in which updates are stored and summed.

    They are multiples of the blocks of `core.vectors.combine`, so that sums have the same bits.

    >>> choose_shards(100, 61_706), [end / BLOCK for end in choose_shards(100, 12 * BLOCK)]
    ((61706,), [5.0, 10.0, 12.0])
    """
    width = max(SHARD_BYTES // (4 * max(num_rows, 1)) // BLOCK, 1) * BLOCK
    return (*range(width, num_params, width), num_params)


def choose_pieces(num_rows: int, num_params: int) -> tuple[int, ...]:
    """Return the ends of the pieces of columns in which the updates of a task are sent.

    Ray sends results of up to 100 KiB with the response of an actor, up to 10 MiB in all, and
    larger ones through the object stores of both nodes, which takes more CPU time.

    >>> choose_pieces(4, 10_000), choose_pieces(4, 1_000_000)
    ((5632, 10000), (1000000,))
    """
    if 4 * num_rows * num_params > MESSAGE_BYTES:
        return (num_params,)
    width = max(PIECE_BYTES // (4 * num_rows), 1)
    return (*range(width, num_params, width), num_params)


def _make_setup(
    net: Net,
    objective: Objective,
    local: LocalTraining,
    data: Dataset,
    geometry: Geometry,
    augment: Augmentation | None,
    loss: Loss,
    device: str,
) -> ActorSetup:
    native = None
    if device == "cpu":
        native = make_native_trainer(net, objective, local, data, geometry, augment, loss)
    arrays = list_arrays(data)
    files = {name: part for name, part in arrays.items() if isinstance(part, FilePart)}
    return ActorSetup(
        net=net,
        objective=objective,
        local=local,
        geometry=geometry,
        augment=augment,
        loss=loss,
        facts=DataFacts.from_data(data),
        names=tuple(name for name in arrays if name not in files),
        files=files,
        software=find_software(native),
        device=device,
    )
