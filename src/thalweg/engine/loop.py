"""Run a plan: build its parts, run the rounds, write the run folder, and return the result."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors.numpy import save

from thalweg.core.config import check_not_loading
from thalweg.core.errors import RunError, require
from thalweg.core.remedies import format_setting
from thalweg.core.trees import restore_types
from thalweg.core.types import Floats32, Rejection
from thalweg.data import Dataset
from thalweg.data.checks import is_own_data, warn_about_data
from thalweg.data.in_memory import compute_checksum
from thalweg.data.row_hashes import hash_training_rows
from thalweg.engine.bank_file import BANK, bank_to_bytes
from thalweg.engine.builders import (
    apply_views,
    check_buffers,
    check_has_data,
    list_inert,
    make_client_pool,
    make_federation,
    make_initial_model,
    make_model_factory,
)
from thalweg.engine.client_pool import ClientPool
from thalweg.engine.devices import (
    DeviceChoice,
    check_device_name,
    choose_actor_device,
    choose_device,
)
from thalweg.engine.metrics import (
    count_learned_states,
    evaluate_round,
    needs_evaluation,
    round_row,
    sample_bytes,
    summarise_run,
)
from thalweg.engine.online import score_simple_predictions
from thalweg.engine.personal_models import add_personal_models, list_clients
from thalweg.engine.plan import AnyPlan, Plan, make_plan
from thalweg.engine.ray.cluster import RayCluster, Workers, choose_cluster
from thalweg.engine.result import TRAINING_ROWS, MetricsRow, Result, write_preprocessing
from thalweg.engine.run_folder import RunFolder
from thalweg.engine.scores import get_session_context
from thalweg.engine.serving import get_chosen_models, measure_weights
from thalweg.engine.simulated import HasPending, SimulatedFederation
from thalweg.engine.task import describe_task, is_time_ordered, make_net, try_loss
from thalweg.engine.trackers import TrackLike, make_trackers, track_run
from thalweg.engine.true_drifts import TrueDrifts
from thalweg.evaluation import DriftDetection, alarm_summary
from thalweg.evaluation.named import get_named_metric
from thalweg.federation import (
    KnowsConcepts,
    ServerState,
    get_served_models,
    new_server,
    run_server_round,
)
from thalweg.local.optimizers import try_optimizer
from thalweg.native.library import use_native_loops
from thalweg.nets import Net
from thalweg.recipes import Recipe
from thalweg.recipes.compatibility import is_federated
from thalweg.scenarios import Scenario, ScenarioLike
from thalweg.streams import HasViews


@dataclass(frozen=True)
class Progress:
    """The progress of a run after a round, for `watch`."""

    plan: AnyPlan
    row: MetricsRow
    rounds_done: int


ProgressCallback = Callable[[Progress], None]
# Makes a federation of clients that are not in this process.
FederationFactory = Callable[[Plan, Dataset, Net, ClientPool], SimulatedFederation]


def run(
    recipe: Recipe | str,
    scenario: ScenarioLike,
    *,
    model: Any = None,
    loss: Any = None,
    optimizer: Any = None,
    metrics: Any = None,
    seed: int = 0,
    rounds: int | None = None,
    overrides: Iterable[str] = (),
    engine: str = "auto",
    address: str | None = None,
    num_gpus: float | None = None,
    workers: int | Literal["auto"] = "auto",
    device: str = "auto",
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    data_dir: str | os.PathLike[str] | None = None,
    watch: ProgressCallback | None = None,
    track: TrackLike = None,
    **settings: Any,
) -> Result:
    """Run a recipe on a scenario and return its metrics and its model.

    `settings` change fields of the recipe or the scenario, such as ``memory=Reservoir``,
    ``weights="equal"`` or ``local={"lr": 0.1}``. `model` is any ``torch.nn.Module``, a class or
    function that makes one, or its path (``"file.py:Net"``); by default the net of the scenario.
    `loss` is a name (``"mae"``), an instance, or any function of outputs and targets; by default
    that of the task. `metrics` are further metrics on the test set: names (``"f1"``) or functions
    of targets and predictions. `optimizer` is that of the clients: ``"adam"``,
    ``Adam(betas=(0.9, 0.99))``, or another class of torch.optim by its name; by default that of the
    scenario. `watch` is called with the `Progress` after each round. `track` sends the metrics to
    tensorboard, mlflow, wandb, trackio or an object with the methods of `Tracker`.

    ``engine="ray"`` trains on the machines of a Ray cluster, with the same results as
    ``engine="fast"``. `address` is that of the cluster (by default Ray is started on this machine),
    `workers` the number of actors, and `num_gpus` the GPUs that each of them reserves.

    `device` is where clients train: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``, ``"xpu"``, or
    ``"auto"``: an accelerator that PyTorch reports if PyTorch computes the net or the net is large.

    >>> import thalweg
    >>> result = thalweg.run("sfedpo", "digits-partial", seed=7, rounds=3)
    >>> [row["round"] for row in result.metrics]
    [1, 2, 3]
    """
    where = None if data_dir is None else Path(data_dir)
    cluster = choose_cluster(engine, address, num_gpus, None if workers == "auto" else workers)
    plan = make_plan(
        recipe,
        scenario,
        seed=seed,
        rounds=rounds,
        engine="auto" if cluster else engine,
        overrides=overrides,
        model=model,
        optimizer=optimizer,
        data_dir=where,
        **({} if loss is None else {"loss": loss}),
        **({} if metrics is None else {"metrics": metrics}),
        **settings,
    )
    folder = None if out is None else Path(out)
    trackers = make_trackers(track, folder)
    data = plan.scenario.data.load(where, seed)
    warn_about_data(plan.scenario.data, data)
    with track_run(trackers, watch) as tracking:
        result = tracking.result = run_plan(
            plan,
            workers=cluster or workers,
            device=device,
            out=folder,
            resume=resume,
            data_dir=where,
            watch=tracking.watch,
            data=data,
        )
    return result


def run_plan(
    plan: Plan,
    *,
    workers: Workers = "auto",
    device: str = "auto",
    out: Path | None = None,
    resume: bool = False,
    data_dir: Path | None = None,
    watch: ProgressCallback | None = None,
    command: str | None = None,
    data: Dataset | None = None,
    federate: FederationFactory | None = None,
) -> Result:
    """Run a plan, in a folder if `out` is given. Pass `data` if it is already loaded.

    `federate` makes the federation if its clients are not in this process. It receives a client
    pool with the world and without client states. `device` is then not used.
    """
    check_not_loading()
    check_device_name(device)
    use_native_loops()
    if isinstance(workers, int):
        require(workers >= 1, f"workers must be at least 1, got {workers}.")
    require(out is not None or not resume, "resume needs the run's folder (out, or --out).")
    data = data or plan.scenario.data.load(data_dir, plan.seed)
    require(
        plan.scenario.augment is None or data.is_image,
        f"augment changes images, but the samples of {data.name} are rows of {data.x.shape[-1]} "
        f"features; leave it out ({format_setting('augment', None)}).",
    )
    net = make_net(plan.scenario, data)
    start = make_initial_model(plan, net, data_dir)
    try_loss(plan, data, net, start)
    try_optimizer(plan.local.optimizer, plan.local.step_settings, net.param_shapes)
    check_buffers(plan.recipe, net)
    for name in plan.scenario.metrics:
        get_named_metric(name, data.task, data.name)  # reject one of another task
    client_pool = make_client_pool(
        plan, data, net.num_params, net.own_positions, net.smallest_batch, net.output_bias
    )
    data = apply_views(data, client_pool.world)
    if federate is None:
        check_has_data(client_pool.world)
    found = DeviceChoice("cpu", "clients train elsewhere")
    if federate is None and isinstance(workers, RayCluster):
        found = choose_actor_device(device, workers.num_gpus)
    elif federate is None:
        found = choose_device(device, plan, data, net)
    # Only now, so that an invalid plan leaves no folder behind.
    folder = None if out is None else RunFolder(out)
    try:
        has_checkpoint = folder is not None and folder.open(
            plan,
            command=command or f"thalweg run {out}/plan.toml",
            resume=resume,
            device=found.name,
        )
        if federate is None:
            federation = make_federation(plan, data, net, workers, client_pool, found.name)
        else:
            federation = federate(plan, data, net, client_pool)
        try:
            return _run_rounds(plan, data, net, start, federation, folder, has_checkpoint, watch)
        finally:
            federation.close()
    finally:
        if folder is not None:
            folder.close()


def _run_rounds(
    plan: Plan,
    data: Dataset,
    net: Net,
    start: Floats32,
    federation: SimulatedFederation,
    folder: RunFolder | None,
    has_checkpoint: bool,
    watch: ProgressCallback | None,
) -> Result:
    world = federation.client_pool.world
    server = new_server(
        plan.recipe,
        start,
        world.num_clients,
        net.param_slices,
        data.num_stream_classes,
        net.num_buffers,
    )
    fingerprint = compute_fingerprint(data, federation.client_pool)
    metrics: list[MetricsRow] = []
    detection = DriftDetection()
    if folder is not None and has_checkpoint:
        server = _restore(folder, federation, server, fingerprint, detection, plan.scenario)
        metrics = list(folder.metrics())
    drifts = TrueDrifts(federation.client_pool, by_name=plan.recipe.alarm is not None)
    while server.rnd < plan.scenario.rounds:
        started, core_started = time.perf_counter(), time.process_time()
        before = drifts.clock(server.rnd)
        collected = federation.client_pool.num_collected
        concepts = None
        if isinstance(federation, KnowsConcepts):
            concepts = federation.true_concepts(server.rnd)
        server, updates = run_server_round(
            server, federation, plan.recipe, plan.seed, make_model_factory(plan, net)
        )
        session_context = get_session_context(federation.client_pool.timetable, server.rnd - 1)
        row = round_row(server, updates, session_context) | drifts.make_row(
            before, drifts.clock(server.rnd)
        )
        rejections = () if updates is None else updates.rejections
        del updates  # so that the next round can use the memory of its matrix
        if not is_federated(plan.recipe):
            sent = federation.client_pool.num_collected - collected
            row |= {"bytes_down": 0, "bytes_up": sent * sample_bytes(data)}
        if concepts is not None:
            row |= detection.score(row, concepts)
        row["core_seconds"] = round(time.process_time() - core_started, 6)
        if needs_evaluation(plan.scenario, server.rnd, session_context):
            has_tasks = drifts.needs_tasks(plan.scenario, server.rnd)
            validation = plan.scenario.validation
            row |= evaluate_round(
                server,
                plan.recipe,
                federation,
                data,
                validation,
                session_context,
                has_tasks,
                plan.scenario.metrics,
            )
            row |= count_learned_states(federation.client_pool)
            row |= measure_weights(plan.recipe, federation.client_pool)
        row["seconds"] = round(time.perf_counter() - started, 6)
        metrics.append(row)
        if folder is not None:
            _save(folder, federation, server, row, rejections, fingerprint, detection)
        if watch is not None:
            watch(Progress(plan, row, server.rnd))
    alarms = None if plan.recipe.alarm is None else alarm_summary(metrics, drifts.is_known)
    result = _make_result(plan, data, net, server, federation.client_pool, metrics, alarms, folder)
    if folder is not None:
        is_remote = _is_remote(federation.client_pool)
        _write_results(folder, result, list_inert(plan, world, is_remote=is_remote))
    return result


def _make_result(
    plan: Plan,
    data: Dataset,
    net: Net,
    server: ServerState,
    client_pool: ClientPool,
    metrics: list[MetricsRow],
    alarms: MetricsRow | None,
    folder: RunFolder | None,
) -> Result:
    if plan.recipe.serving is not None:
        served = get_chosen_models(server, plan.recipe, client_pool)
    else:
        served = add_personal_models(get_served_models(server, plan.recipe), client_pool)
    has_rows = is_own_data(plan.scenario.data) and not _is_remote(client_pool)
    return Result(
        plan=plan,
        metrics=metrics,
        net=net,
        model=served.models[int(served.shares.argmax())],
        folder=None if folder is None else folder.path,
        served=served,
        preprocessing=data.preprocessing,
        clients=list_clients(plan, data, client_pool.world.num_clients),
        alarms=alarms,
        task=describe_task(plan.scenario, data),
        is_time_ordered=is_time_ordered(plan.scenario, data),
        simple_scores=score_simple_predictions(plan, data) if has_rows else {},
        training_rows=hash_training_rows(data) if has_rows else None,
    )


def _is_remote(client_pool: ClientPool) -> bool:
    """Return whether the clients are not in this process."""
    return type(client_pool) is not ClientPool


def _save(
    folder: RunFolder,
    federation: SimulatedFederation,
    server: ServerState,
    row: MetricsRow,
    rejections: Iterable[Rejection],
    fingerprint: int,
    detection: DriftDetection,
) -> None:
    """Write the metrics of a round and a checkpoint, which `_restore` reads."""
    tree = {"rnd": server.rnd, "state": server, "data": fingerprint}
    if isinstance(federation, HasPending):
        tree["pending"] = federation.pending()
    if detection.concepts is not None:
        tree["step_concepts"] = detection.concepts
    pool = federation.client_pool
    folder.commit(server.rnd, [row], tree, pool.states, pool.changed, rejections)
    pool.changed.clear()


def _restore(
    folder: RunFolder,
    federation: SimulatedFederation,
    fresh: ServerState,
    fingerprint: int,
    detection: DriftDetection,
    scenario: Scenario,
) -> ServerState:
    tree, clients = folder.load()
    check_same_data(folder, tree.pop("data"), fingerprint, scenario)
    federation.client_pool.restore(clients)
    pending = tree.pop("pending", {})
    if "step_concepts" in tree:
        detection.concepts = np.asarray(tree["step_concepts"], dtype=np.int64)
    if isinstance(federation, HasPending):
        federation.restore(pending)
    num_models = len(tree["state"].get("rules", ()))
    state: ServerState = restore_types(
        fresh._replace(rules=fresh.rules * num_models), tree["state"]
    )
    return state


def check_same_data(folder: RunFolder, then: int, now: int, scenario: Scenario) -> None:
    """Reject a run that was started with other data."""
    if then == now:
        return
    parts = {"data": scenario.data, "sessions": scenario.sessions, "drift": scenario.drift}
    paths = {part: getattr(value, "path", "") for part, value in parts.items()}
    files = " or ".join(f"{path} ({part})" for part, path in paths.items() if path)
    has_changed = f": the contents of {files} have changed since it was started" if files else ""
    raise RunError(
        f"{folder.path} was started with other data{has_changed}. Restore the data (expected "
        f"checksum {then}, got {now}), set {format_setting('data_dir')} (or THALWEG_DATA) to the "
        f"same files, or start a new run in another folder ({format_setting('out')})."
    )


def _write_results(folder: RunFolder, result: Result, no_effect: Mapping[str, str]) -> None:
    served = result.served
    if len(served.models) > 1:
        folder.write_result(BANK, bank_to_bytes(served))
    tensors = {
        name: np.ascontiguousarray(value)
        for name, value in result.net.saved_tensors(result.model).items()
    }
    about_net = {"net": result.plan.scenario.name}
    folder.write_result("model.safetensors", save(tensors, metadata=about_net))
    write_preprocessing(folder, result.preprocessing, result.clients)
    if result.training_rows is not None:
        folder.write_result(TRAINING_ROWS, save({"hashes": result.training_rows}))
    summary = {
        "title": result.plan.title,
        "task": result.task,
        "is_time_ordered": result.is_time_ordered,
        "simple_scores": result.simple_scores,
        "no_effect": no_effect,
        **summarise_run(result.metrics),
    }
    if result.alarms is not None:
        summary["alarms"] = result.alarms
    folder.finish(summary)


def compute_fingerprint(data: Dataset, client_pool: ClientPool) -> int:
    """Return a checksum of the training and test rows, the sessions and the views of a run.

    It is used to detect that a run is resumed with others. A row includes its client and its time.
    Memory-mapped samples are not read as a whole.
    """
    start = 0 if client_pool.timetable is None else client_pool.timetable.checksum
    if isinstance(client_pool.world, HasViews):
        start = zlib.crc32(repr(client_pool.world.views).encode(), start)
        for rnd in sorted({event.rnd for event in client_pool.world.drift_events()}):
            start = zlib.crc32(
                client_pool.world.views_at(rnd).tobytes(), zlib.crc32(b"%d" % rnd, start)
            )
    return compute_checksum(data, start)
