"""Runs a baseline: the same arrivals, tested and then learnt from, one by one.

River's learners cannot be written down without running foreign code when they are read, so there are no
checkpoints: a run that was interrupted begins again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thalweg.baselines import Learner
from thalweg.core.errors import require
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats32, Ints
from thalweg.data import Dataset
from thalweg.engine.any_plan import AnyPlan, BaselinePlan
from thalweg.engine.builders import apply_views, make_timetable, make_world
from thalweg.engine.loop import MetricsRow, Progress, ProgressCallback, Result, run_plan
from thalweg.engine.run_folder import RunFolder
from thalweg.engine.scores import get_session_context
from thalweg.streams import World

BYTES_PER_NUMBER = 4
BEFORE_ROUND = -1  # the tick of what came before the round


@dataclass(frozen=True, eq=False)
class BaselineResult:
    """What a baseline's run leaves behind: no model, but the same kind of metrics."""

    plan: BaselinePlan
    metrics: list[MetricsRow]  # one per round
    folder: Path | None

    @property
    def final(self) -> MetricsRow:
        """The last round's metrics."""
        return self.metrics[-1]


class RoundSamples(NamedTuple):
    """Samples of one round, in the order in which they came."""

    rows: Ints  # (n,) of the data set
    clients: Ints  # (n,) whose they are
    is_tested: list[bool]  # those that came before the round are only learnt from


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
    """Run a recipe or a baseline in a folder, or go on with it."""
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
    """Run a baseline, in a folder if `out` is given. `data` spares loading it again."""
    require(out is not None or not resume, "resume needs the run's folder (out, or --out).")
    data = data or plan.scenario.data.load(data_dir, plan.seed)
    online = OnlineBaseline(
        plan, data
    )  # before there is a folder: what it needs may not be installed
    folder = None if out is None else RunFolder(out)
    if folder is None:
        return BaselineResult(plan, _run_rounds(plan, online, None, watch), None)
    try:
        folder.open(plan, command=command or f"thalweg run {out}/plan.toml", resume=resume)
        if folder.is_finished(plan.scenario.rounds):
            return BaselineResult(plan, list(folder.metrics()), folder.path)
        folder.delete_metrics()
        metrics = _run_rounds(plan, online, folder, watch)
        folder.write_summary(
            {"title": plan.title, "rounds": len(metrics), "final": dict(metrics[-1])}
        )
        return BaselineResult(plan, metrics, folder.path)
    finally:
        folder.close()


def _run_rounds(
    plan: BaselinePlan,
    online: OnlineBaseline,
    folder: RunFolder | None,
    watch: ProgressCallback | None,
) -> list[MetricsRow]:
    metrics: list[MetricsRow] = []
    began = time.perf_counter()
    for rnd in range(plan.scenario.rounds):
        started = time.perf_counter()
        row = online.run_round(rnd)
        row["seconds"] = round(time.perf_counter() - started, 6)
        metrics.append(row)
        if folder is not None:
            folder.append_metrics(row)
        if watch is not None:
            watch(Progress(plan, row, rnd + 1, rnd + 1, time.perf_counter() - began))
    return metrics


class OnlineBaseline:
    """Clients whose samples are predicted and then learnt from."""

    def __init__(self, plan: BaselinePlan, data: Dataset) -> None:
        require(
            not data.is_sequence,
            f"the samples of {data.name} are sequences of codes, which no baseline can read; choose data "
            "of features or images.",
        )
        self._world: World = make_world(plan.scenario, data, plan.seed)
        self._plan, self._data = plan, apply_views(data, self._world)
        self._num_features = int(np.prod(data.x.shape[1:]))
        self._timetable = make_timetable(plan, self._world.num_clients)
        self._streams: dict[int, tuple[Any, int]] = {}  # what a stream remembers, rounds lived
        self._learners: dict[int, Learner] = {}
        self._get_learner(0)  # can there be one?

    def run_round(self, rnd: int) -> dict[str, Any]:
        """One round: everybody who is here meets what arrives."""
        here, session_context = self._world.present(rnd), get_session_context(self._timetable, rnd)
        if self._timetable is not None:
            here = np.intersect1d(here, self._timetable.session(rnd).members, assume_unique=True)
        met = self._collect_arrivals(rnd, here.tolist())
        right = self._test_and_train(met)
        row: dict[str, Any] = {"round": rnd + 1, "cohort": len(here)}
        if session_context is not None:
            row |= {
                "session": session_context.session,
                "session_round": session_context.session_round,
            }
        if right:
            row["prequential_accuracy"] = sum(right) / len(right)
        size = (self._num_features + 1) * BYTES_PER_NUMBER  # and the label
        sent = len(met.rows) * size if self._plan.baseline.pooled else 0
        return {**row, "bytes_down": 0, "bytes_up": sent}

    def _test_and_train(self, met: RoundSamples) -> list[bool]:
        """Whether each tested sample was predicted right, before anybody learnt from it."""
        samples, labels = self._inputs(met.rows), self._data.labels("train", met.rows).tolist()
        learners = [self._get_learner(client) for client in met.clients.tolist()]
        right = []
        at_once = self._plan.baseline.feedback == "sample"
        for learner, x, label, is_tested in zip(
            learners, samples, labels, met.is_tested, strict=True
        ):
            if is_tested:
                right.append(learner.predict(x) == label)
            if at_once:
                learner.learn(x, label)
        if not at_once:
            for learner, x, label in zip(learners, samples, labels, strict=True):
                learner.learn(x, label)
        return right

    def _collect_arrivals(self, rnd: int, here: list[int]) -> RoundSamples:
        """By the time of the data within a tick if they have one, else client by client."""
        parts: list[tuple[Ints, int, int, int]] = []  # rows, client, when, how many are tested
        for client in here:
            if client not in self._streams:
                state, start = self._world.begin(client)
                held = start.items[: self._world.capacity(client)]  # what it has from the start
                parts.append((held, client, BEFORE_ROUND, 0))
                self._streams[client] = (state, 0)
            state, lived = self._streams[client]
            while self._world.collects_when_absent and lived < rnd:
                state, arrivals = self._world.emit(state, client, lived)
                parts += [(arrival.items, client, BEFORE_ROUND, 0) for arrival in arrivals]
                lived += 1
            state, arrivals = self._world.emit(state, client, lived)
            for tick, arrival in enumerate(arrivals):
                parts.append((arrival.items, client, tick, self._plan.scenario.prequential))
            self._streams[client] = (state, lived + 1)
        return self._sort_by_time(parts)

    def _sort_by_time(self, parts: list[tuple[Ints, int, int, int]]) -> RoundSamples:
        none = np.empty(0, dtype=np.int64)
        rows = np.concatenate([none, *(items for items, *_ in parts)])
        clients = np.concatenate([none, *(np.full(len(i), client) for i, client, _, _ in parts)])
        ticks = np.concatenate([none, *(np.full(len(i), tick) for i, _, tick, _ in parts)])
        tested = np.concatenate([none, *(np.arange(len(i)) < most for i, _, _, most in parts)])
        time = np.zeros(len(rows))
        if self._data.time is not None:
            time = self._data.time[rows % self._data.num_samples("train")]  # however it is seen
        order = np.lexsort((time, ticks))
        return RoundSamples(rows[order], clients[order], tested[order].astype(bool).tolist())

    def _get_learner(self, client: int) -> Learner:
        baseline = self._plan.baseline
        whose = 0 if baseline.pooled else client
        if whose not in self._learners:
            seed = int(rng_for(self._plan.seed, Draw.BASELINE, 0, whose).integers(2**31))
            self._learners[whose] = baseline.learner.begin(self._data.num_classes, seed)
        return self._learners[whose]

    def _inputs(self, rows: Ints) -> Floats32:
        """(n, F) float32; of images the pixels, from 0 to 1."""
        seen = self._data.samples("train", rows)
        samples = seen.reshape(len(rows), self._num_features).astype(np.float32)
        return samples / np.float32(255) if self._data.is_image else samples
