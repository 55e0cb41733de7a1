"""Run a baseline on the arrivals of a scenario: each sample is predicted, then learnt.

River's learners could be stored with pickle only, so there are no checkpoints: an interrupted run
starts again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from thalweg.core.errors import require
from thalweg.core.metrics import make_final_row
from thalweg.data import Dataset
from thalweg.engine.devices import check_device_name
from thalweg.engine.loop import Progress, ProgressCallback, run_plan
from thalweg.engine.online import OnlineBaseline
from thalweg.engine.plan import AnyPlan, BaselinePlan
from thalweg.engine.ray.cluster import RayCluster
from thalweg.engine.result import MetricsRow, Result
from thalweg.engine.run_folder import RunFolder
from thalweg.engine.task import describe_task, is_time_ordered
from thalweg.streams import Replay


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


def run_any_plan(
    plan: AnyPlan,
    *,
    out: Path,
    resume: bool = True,
    data_dir: Path | None = None,
    watch: ProgressCallback | None = None,
    command: str | None = None,
    data: Dataset | None = None,
    workers: int | RayCluster | None = None,
    device: str = "auto",
) -> Result | BaselineResult:
    """Run a recipe or a baseline in a folder, or resume it. Baselines use no device."""
    check_device_name(device)
    if isinstance(plan, BaselinePlan):
        require(
            not isinstance(workers, RayCluster),
            f"{plan.baseline.name} is a baseline, which runs in one process: leave the engine ray "
            "out. compare and tune distribute whole runs.",
        )
        return run_baseline(
            plan, out=out, resume=resume, data_dir=data_dir, watch=watch, command=command, data=data
        )
    return run_plan(
        plan,
        workers=workers or "auto",
        device=device,
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
    for rnd in range(plan.scenario.rounds):
        started, core_started = time.perf_counter(), time.process_time()
        row = online.run_round(rnd)
        row["core_seconds"] = round(time.process_time() - core_started, 6)
        if rnd == plan.scenario.rounds - 1:
            row |= online.evaluate()
        row["seconds"] = round(time.perf_counter() - started, 6)
        metrics.append(row)
        if watch is not None:
            watch(Progress(plan, row, rnd + 1))
    return metrics
