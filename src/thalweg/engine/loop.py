"""Runs a plan: builds the world, plays the rounds, keeps the folder, reports."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from safetensors.numpy import save_file

from thalweg.core.errors import RunError, require
from thalweg.core.types import Floats32
from thalweg.data import Dataset
from thalweg.engine.any_plan import AnyPlan
from thalweg.engine.building import check_has_data, crowd_of, federation_of, viewed
from thalweg.engine.crowd import Crowd
from thalweg.engine.drifts import Drifts
from thalweg.engine.embedded import Embedded, HasPending
from thalweg.engine.folder import RunFolder
from thalweg.engine.plan import Plan, make_plan
from thalweg.engine.rows import evaluated, is_evaluated, round_row, summary_of
from thalweg.engine.scored import turnout_of
from thalweg.engine.start import first_model, model_drawer
from thalweg.evaluation import alarm_summary
from thalweg.nets import Net
from thalweg.recipes import Recipe
from thalweg.recipes.server import play_round
from thalweg.recipes.state import Served, ServerState, new_server, serve
from thalweg.scenarios import Scenario
from thalweg.streams import HasViews

if TYPE_CHECKING:
    import pyarrow as pa

Row = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Result:
    """What a run leaves behind."""

    plan: Plan
    metrics: list[Row]  # one per round
    net: Net
    model: Floats32  # (P,) the final global model; of a bank, the one that serves most clients
    folder: Path | None
    alarms: Row | None = None  # how good the recipe's alarm was; none: it has none

    @property
    def final(self) -> Row:
        """The last round's metrics; it is always evaluated."""
        return self.metrics[-1]

    def table(self) -> pa.Table:
        """The metrics as an Arrow table, one row per round; ``.to_pandas()`` if you like."""
        import pyarrow as pa

        names = dict.fromkeys(name for row in self.metrics for name in row)
        return pa.table({name: [row.get(name) for row in self.metrics] for name in names})


@dataclass(frozen=True)
class Progress:
    """What a watcher is told after every round."""

    plan: AnyPlan
    row: Row
    rounds_done: int
    rounds_now: int  # of these, in this process
    seconds_now: float  # that those took


Watch = Callable[[Progress], None]
Federate = Callable[[Plan, Dataset, Net, Crowd], Embedded]  # clients that are somewhere else


def run(
    recipe: Recipe | str,
    scenario: Scenario | str,
    *,
    seed: int = 0,
    rounds: int | None = None,
    overrides: Iterable[str] = (),
    engine: str = "auto",
    workers: int | Literal["auto"] = "auto",
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    data_dir: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
) -> Result:
    """Run a recipe on a scenario and return its metrics and its model.

    >>> import thalweg
    >>> result = thalweg.run("sfedpo", "digits-partial", seed=7, rounds=3)
    >>> [row["round"] for row in result.metrics]
    [1, 2, 3]
    """
    plan = make_plan(recipe, scenario, seed=seed, rounds=rounds, engine=engine, overrides=overrides)
    return run_plan(
        plan,
        workers=workers,
        out=None if out is None else Path(out),
        resume=resume,
        data_dir=None if data_dir is None else Path(data_dir),
        watch=watch,
    )


def run_plan(
    plan: Plan,
    *,
    workers: int | Literal["auto"] = "auto",
    out: Path | None = None,
    resume: bool = False,
    data_dir: Path | None = None,
    watch: Watch | None = None,
    command: str | None = None,
    data: Dataset | None = None,
    federate: Federate | None = None,
) -> Result:
    """Run a plan, in a folder if `out` is given. `data` spares loading it again.

    `federate` makes the federation if its clients are not in this process; the crowd that it is given knows the
    world, and has no states.
    """
    require(workers == "auto" or workers >= 1, f"workers must be at least 1, got {workers}.")
    require(out is not None or not resume, "resume needs the run's folder (out, or --out).")
    data = data or plan.scenario.data.load(data_dir, plan.seed)
    require(
        plan.scenario.augment is None or data.is_image,
        f"augment changes images, but the samples of {data.name} are rows of {data.x.shape[-1]} "
        "features; leave it out (--set augment=none).",
    )
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    start = first_model(plan, net, data_dir)
    crowd = crowd_of(plan, data, net.num_params)
    data = viewed(data, crowd.world)
    if federate is None:
        check_has_data(crowd.world)
    # Only now, so that a slip in a name, or what makes no sense, leaves no folder behind.
    folder = None if out is None else RunFolder(out)
    try:
        has_checkpoint = folder is not None and folder.open(
            plan, command=command or f"thalweg run {out}/plan.toml", resume=resume
        )
        if federate is None:
            federation = federation_of(plan, data, net, workers, crowd)
        else:
            federation = federate(plan, data, net, crowd)
        try:
            return _play(plan, data, net, start, federation, folder, has_checkpoint, watch)
        finally:
            federation.close()
    finally:
        if folder is not None:
            folder.close()


def _play(
    plan: Plan,
    data: Dataset,
    net: Net,
    start: Floats32,
    federation: Embedded,
    folder: RunFolder | None,
    has_checkpoint: bool,
    watch: Watch | None,
) -> Result:
    world = federation.crowd.world
    server = new_server(plan.recipe, start, world.num_clients, net.pieces, data.num_classes)
    fingerprint = fingerprint_of(data, federation.crowd)
    metrics: list[Row] = []
    if folder is not None and has_checkpoint:
        server = _restore(folder, federation, server, fingerprint)
        metrics = list(folder.metrics())
    began, rounds_before = time.perf_counter(), server.rnd
    drifts = Drifts(federation.crowd, by_name=plan.recipe.alarm is not None)
    while server.rnd < plan.scenario.rounds:
        started, before = time.perf_counter(), drifts.clock(server.rnd)
        server, updates = play_round(
            server, federation, plan.recipe, plan.seed, model_drawer(plan, net)
        )
        turnout = turnout_of(federation.crowd.timetable, server.rnd - 1)
        row = round_row(server, updates, turnout) | drifts.row(before, drifts.clock(server.rnd))
        if is_evaluated(plan.scenario, server.rnd, turnout):
            with_tasks = drifts.shows_tasks(plan.scenario, server.rnd)
            validation = plan.scenario.validation
            row |= evaluated(server, plan.recipe, federation, data, validation, turnout, with_tasks)
        row["seconds"] = round(time.perf_counter() - started, 6)
        metrics.append(row)
        if folder is not None:
            folder.append_metrics(row)
            folder.append_refusals(server.rnd, () if updates is None else updates.refusals)
            tree = {**server._asdict(), "data": fingerprint}
            if isinstance(federation, HasPending):
                tree["pending"] = federation.pending()
            folder.save(server.rnd, tree, federation.crowd.states, federation.crowd.changed)
            federation.crowd.changed.clear()
        if watch is not None:
            now = server.rnd - rounds_before
            watch(Progress(plan, row, server.rnd, now, time.perf_counter() - began))
    served = serve(server, plan.recipe)
    alarms = None if plan.recipe.alarm is None else alarm_summary(metrics, drifts.are_known)
    if folder is not None:
        _finish(folder, plan, net, served, metrics, alarms)
    model = served.models[int(served.shares.argmax())]
    return Result(plan, metrics, net, model, None if folder is None else folder.path, alarms)


def _restore(
    folder: RunFolder, federation: Embedded, fresh: ServerState, fingerprint: int
) -> ServerState:
    from thalweg.core.trees import like

    tree, clients = folder.load()
    check_same_data(folder, tree.pop("data"), fingerprint)
    federation.crowd.restore(clients)
    pending = tree.pop("pending", {})
    if isinstance(federation, HasPending):
        federation.restore(pending)
    fresh = fresh._replace(rules=fresh.rules * len(tree["rules"]))  # one for each model by now
    return ServerState(**like(fresh._asdict(), tree))


def check_same_data(folder: RunFolder, then: int, now: int) -> None:
    """Refuse to combine a run with other data than it was begun on."""
    if then != now:
        raise RunError(
            f"{folder.path} was begun on other data (or another trace of sessions, or table of drifts) than are "
            "found now; "
            "point --data-dir (or THALWEG_DATA) at the same files, or start a new run."
        )


def _finish(
    folder: RunFolder,
    plan: Plan,
    net: Net,
    served: Served,
    metrics: list[Row],
    alarms: Row | None,
) -> None:
    model = served.models[int(served.shares.argmax())]
    if len(served.models) > 1:
        bank: dict[str, Any] = {
            "models": np.ascontiguousarray(served.models),
            "shares": served.shares,
        }
        if served.mixtures is not None:
            bank["mixtures"] = np.ascontiguousarray(served.mixtures)
        save_file(bank, folder.path / "bank.safetensors")
    save_file(
        {name: np.ascontiguousarray(value) for name, value in net.named_parameters(model).items()},
        folder.path / "model.safetensors",
        metadata={"net": plan.scenario.name},
    )
    summary = {"title": plan.title, **summary_of(metrics)}
    if alarms is not None:
        summary["alarms"] = alarms
    folder.write_summary(summary)


def fingerprint_of(data: Dataset, crowd: Crowd) -> int:
    """A checksum of the training part, of who is a member when and of what is seen how, to notice that a run goes
    on with others."""
    start = 0 if crowd.timetable is None else crowd.timetable.checksum
    if isinstance(crowd.world, HasViews):
        start = zlib.crc32(repr(crowd.world.views).encode(), start)
        for rnd in sorted({event.rnd for event in crowd.world.changes()}):
            start = zlib.crc32(crowd.world.view_of(rnd).tobytes(), zlib.crc32(b"%d" % rnd, start))
    start = zlib.crc32(data.y.tobytes(), start)
    return zlib.crc32(np.ascontiguousarray(data.x).data, start)
