"""Run a baseline on the arrivals of a scenario: each sample is predicted, then learnt.

River's learners could be stored with pickle only, so there are no checkpoints: an interrupted run
starts again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thalweg.baselines import Learner
from thalweg.core.errors import require
from thalweg.core.metrics import make_final_row
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats32, Ints
from thalweg.data import Dataset
from thalweg.engine.builders import apply_views, make_timetable, make_world
from thalweg.engine.loop import Progress, ProgressCallback, run_plan
from thalweg.engine.metrics import sample_bytes
from thalweg.engine.plan import AnyPlan, BaselinePlan
from thalweg.engine.result import MetricsRow, Result
from thalweg.engine.run_folder import RunFolder
from thalweg.engine.scores import get_session_context
from thalweg.engine.task import describe_task, is_time_ordered
from thalweg.streams import Replay, World

BEFORE_ROUND = -1  # the tick of samples that arrived before the round


@dataclass(frozen=True, eq=False)
class BaselineResult:
    """The result of a baseline: metrics, but no model."""

    plan: BaselinePlan
    metrics: list[MetricsRow]  # one per round
    folder: Path | None

    @property
    def final(self) -> MetricsRow:
        """The metrics of the last round; those of arriving samples are over all rounds."""
        return make_final_row(self.metrics)


class RoundSamples(NamedTuple):
    """Samples of one round, in the order of arrival."""

    rows: Ints  # (n,) of the data set
    clients: Ints  # (n,)
    is_tested: list[bool]  # False for samples that arrived before the round


def run_any_plan(
    plan: AnyPlan,
    *,
    out: Path,
    resume: bool = True,
    data_dir: Path | None = None,
    watch: ProgressCallback | None = None,
    command: str | None = None,
    data: Dataset | None = None,
    workers: int | None = None,
) -> Result | BaselineResult:
    """Run a recipe or a baseline in a folder, or resume it."""
    if isinstance(plan, BaselinePlan):
        return run_baseline(
            plan, out=out, resume=resume, data_dir=data_dir, watch=watch, command=command, data=data
        )
    return run_plan(
        plan,
        workers=workers or "auto",
        out=out,
        resume=resume,
        data_dir=data_dir,
        watch=watch,
        command=command,
        data=data,
    )


def is_deterministic(plan: AnyPlan) -> bool:
    """Return whether runs of a baseline with different seeds are the same.

    The learner must not use the seed, and the same samples must arrive in the same rounds: own or
    published data, replayed without absent clients, sessions or drawn drifts.
    """
    scenario = plan.scenario
    world = scenario.world
    return (
        isinstance(plan, BaselinePlan)
        and scenario.sessions is None
        and scenario.drift is None
        and isinstance(world, Replay)
        and world.availability == 1.0
        and world.availability_spread == 0.0
        and not getattr(scenario.data, "depends_on_seed", True)
        and bool(getattr(plan.baseline.learner, "is_deterministic", False))
    )


def run_baseline(
    plan: BaselinePlan,
    *,
    out: Path | None = None,
    resume: bool = False,
    data_dir: Path | None = None,
    watch: ProgressCallback | None = None,
    command: str | None = None,
    data: Dataset | None = None,
) -> BaselineResult:
    """Run a baseline, in a folder if `out` is given. Pass `data` if it is already loaded."""
    require(out is not None or not resume, "resume needs the run's folder (out, or --out).")
    data = data or plan.scenario.data.load(data_dir, plan.seed)
    online = OnlineBaseline(plan, data)  # before the folder: a package may be missing
    folder = None if out is None else RunFolder(out)
    if folder is None:
        return BaselineResult(plan, _run_rounds(plan, online, watch), None)
    try:
        folder.open(plan, command=command or f"thalweg run {out}/plan.toml", resume=resume)
        if folder.is_finished(plan.scenario.rounds):
            return BaselineResult(plan, list(folder.metrics()), folder.path)
        folder.clear()
        metrics = _run_rounds(plan, online, watch)
        folder.commit(len(metrics), metrics, {"rnd": len(metrics)}, {}, set())
        folder.finish(
            {
                "title": plan.title,
                "task": describe_task(plan.scenario, data),
                "is_time_ordered": is_time_ordered(plan.scenario, data),
                "rounds": len(metrics),
                "final": make_final_row(metrics),
            }
        )
        return BaselineResult(plan, metrics, folder.path)
    finally:
        folder.close()


def _run_rounds(
    plan: BaselinePlan, online: OnlineBaseline, watch: ProgressCallback | None
) -> list[MetricsRow]:
    metrics: list[MetricsRow] = []
    began = time.perf_counter()
    for rnd in range(plan.scenario.rounds):
        started = time.perf_counter()
        row = online.run_round(rnd)
        row["seconds"] = round(time.perf_counter() - started, 6)
        metrics.append(row)
        if watch is not None:
            watch(Progress(plan, row, rnd + 1, rnd + 1, time.perf_counter() - began))
    return metrics


class OnlineBaseline:
    """The learners of all clients, and the streams that they are tested and trained on."""

    def __init__(self, plan: BaselinePlan, data: Dataset) -> None:
        require(
            not data.is_sequence,
            f"baselines need features or images, but the samples of {data.name} are sequences of "
            "codes; choose other data.",
        )
        task = getattr(plan.baseline.learner, "task", data.task)
        require(
            task == data.task and data.y.ndim == 1,
            f"baseline {plan.baseline.name} is for {task} with one target, but the targets of "
            f"{data.name} are for {data.task}, of shape {data.y.shape}. Baselines of a regression: "
            "running-mean, no-change, river-linear and river-tree-regressor.",
        )
        self._world: World = make_world(plan.scenario, data, plan.seed)
        self._plan, self._data = plan, apply_views(data, self._world)
        self._num_features = int(np.prod(data.x.shape[1:]))
        self._timetable = make_timetable(plan, self._world.num_clients)
        self._streams: dict[int, tuple[Any, int]] = {}  # client -> stream state, rounds
        self._learners: dict[int, Learner] = {}
        self._get_learner(0)  # fails if its package is missing

    def run_round(self, rnd: int) -> dict[str, Any]:
        """Run one round: the clients that are present predict and learn their arrivals."""
        present, session_context = (
            self._world.present(rnd),
            get_session_context(self._timetable, rnd),
        )
        if self._timetable is not None:
            members = self._timetable.session(rnd).members
            present = np.intersect1d(present, members, assume_unique=True)
        samples = self._collect_arrivals(rnd, present.tolist())
        errors = self._test_and_train(samples)
        row: dict[str, Any] = {"round": rnd + 1, "cohort": len(present)}
        if session_context is not None:
            row |= {
                "session": session_context.session,
                "session_round": session_context.session_round,
            }
        if errors and self._data.task == "regression":
            row["prequential_mae"] = sum(errors) / len(errors)
        elif errors:
            row["prequential_accuracy"] = errors.count(0) / len(errors)
        row |= {"tested": len(errors)} if errors else {}
        sent = len(samples.rows) * sample_bytes(self._data) if self._plan.baseline.pooled else 0
        return {**row, "bytes_down": 0, "bytes_up": sent}

    def _test_and_train(self, met: RoundSamples) -> list[float]:
        """Return the absolute error of each tested sample, predicted before it was learnt.

        It is 0 for a correct label.
        """
        samples, labels = self._inputs(met.rows), self._data.labels("train", met.rows).tolist()
        learners = [self._get_learner(client) for client in met.clients.tolist()]
        errors = []
        at_once = self._plan.baseline.feedback == "sample"
        for learner, x, label, is_tested in zip(
            learners, samples, labels, met.is_tested, strict=True
        ):
            if is_tested:
                errors.append(abs(learner.predict(x) - label))
            if at_once:
                learner.learn(x, label)
        if not at_once:
            for learner, x, label in zip(learners, samples, labels, strict=True):
                learner.learn(x, label)
        return errors

    def _collect_arrivals(self, rnd: int, present: list[int]) -> RoundSamples:
        """Return the samples of a round, ordered by tick and by the time of the data, if any."""
        parts: list[tuple[Ints, int, int, int]] = []  # rows, client, tick, number tested
        for client in present:
            if client not in self._streams:
                state, start = self._world.begin(client)
                held = start.items[: self._world.capacity(client)]  # samples from the start
                parts.append((held, client, BEFORE_ROUND, 0))
                self._streams[client] = (state, 0)
            state, stream_round = self._streams[client]
            while self._world.collects_when_absent and stream_round < rnd:
                state, arrivals = self._world.emit(state, client, stream_round)
                parts += [(arrival.items, client, BEFORE_ROUND, 0) for arrival in arrivals]
                stream_round += 1
            state, arrivals = self._world.emit(state, client, stream_round)
            for tick, arrival in enumerate(arrivals):
                parts.append((arrival.items, client, tick, self._plan.scenario.prequential))
            self._streams[client] = (state, stream_round + 1)
        return self._sort_by_time(parts)

    def _sort_by_time(self, parts: list[tuple[Ints, int, int, int]]) -> RoundSamples:
        none = np.empty(0, dtype=np.int64)
        rows = np.concatenate([none, *(items for items, *_ in parts)])
        clients = np.concatenate([none, *(np.full(len(i), client) for i, client, _, _ in parts)])
        ticks = np.concatenate([none, *(np.full(len(i), tick) for i, _, tick, _ in parts)])
        tested = np.concatenate([none, *(np.arange(len(i)) < most for i, _, _, most in parts)])
        time = np.zeros(len(rows))
        if self._data.time is not None:
            time = self._data.time[rows % self._data.num_samples("train")]  # in any view
        order = np.lexsort((time, ticks))
        return RoundSamples(rows[order], clients[order], tested[order].astype(bool).tolist())

    def _get_learner(self, client: int) -> Learner:
        baseline = self._plan.baseline
        owner = 0 if baseline.pooled else client
        if owner not in self._learners:
            seed = int(rng_for(self._plan.seed, Draw.BASELINE, 0, owner).integers(2**31))
            self._learners[owner] = baseline.learner.begin(self._data.num_classes, seed)
        return self._learners[owner]

    def _inputs(self, rows: Ints) -> Floats32:
        """Return float32 features (n, F); pixels of images lie in [0, 1]."""
        seen = self._data.samples("train", rows)
        samples = seen.reshape(len(rows), self._num_features).astype(np.float32)
        return samples / np.float32(255) if self._data.is_image else samples
