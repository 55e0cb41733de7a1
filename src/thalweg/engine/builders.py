"""Build the parts of a run from its plan: world, timetable, first model, clients and engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from thalweg.aggregation import (
    Adaptive,
    Averaged,
    Buffered,
    FedAcg,
    FedAdagrad,
    FedAdam,
    FedAvgM,
    FedYogi,
    Flash,
    NormClip,
    Step,
)
from thalweg.core.errors import ConfigError, require
from thalweg.core.noise import NoiseSource, SimulatedNoise
from thalweg.core.remedies import format_setting
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats32, Ints
from thalweg.data import Dataset
from thalweg.data.search import find_user_file
from thalweg.engine.client_pool import ClientPool
from thalweg.engine.devices import open_device
from thalweg.engine.plan import AnyPlan, Plan
from thalweg.engine.ray.cluster import RayCluster, Workers
from thalweg.engine.simulated import SecureSumFederation, SimulatedFederation
from thalweg.engine.stack_tasks import Trainer
from thalweg.engine.task import get_loss
from thalweg.engine.unreliable import UnreliableFederation
from thalweg.federation import ClientProgram
from thalweg.memory import Replace
from thalweg.nets import Net, load_parameters
from thalweg.recipes import Recipe
from thalweg.recipes.compatibility import (
    check_compatibility,
    check_task,
    check_world_task,
    find_inert,
    is_federated,
)
from thalweg.scenarios import Scenario
from thalweg.selection import PowerOfChoice
from thalweg.streams import (
    HasViews,
    Live,
    LiveWorld,
    MergedWorld,
    Replay,
    Setting,
    Timetable,
    World,
    add_drift,
    has_arrivals,
)

# Server rules that use the weighted mean of the updates only.
MEAN_RULES = (Step, FedAvgM, FedAcg, Flash, FedAdam, FedYogi, FedAdagrad, Adaptive, Buffered)


def make_client_pool(
    plan: Plan,
    data: Dataset,
    num_params: int,
    own_positions: Ints | None = None,
    smallest_batch: int = 1,
    output_bias: slice | None = None,
) -> ClientPool:
    """Return the clients of a plan before the first round, with their world and timetable.

    Raises `ConfigError` if the recipe does not fit the world, or the world does not fit the data.
    """
    clients, world = make_client_program(
        plan, data, num_params, own_positions, smallest_batch, noise=SimulatedNoise()
    )
    clients = replace(clients, output_bias=output_bias)
    timetable = make_timetable(plan, world.num_clients)
    if getattr(plan.recipe.bank, "merges_clients", False):
        merged = MergedWorld(world, timetable)
        check_compatibility(plan.recipe, merged)
        clients = replace(clients, stream=merged)
    check_smallest_batch(plan, clients, world.num_clients)
    return ClientPool(clients, world, timetable)


def make_client_program(
    plan: Plan,
    data: Dataset,
    num_params: int,
    own_positions: Ints | None = None,
    smallest_batch: int = 1,
    *,
    noise: NoiseSource,
) -> tuple[ClientProgram, World]:
    """Return the program of all clients of a plan, and the world that contains their streams.

    `own_positions` and `smallest_batch` are those of the net. `noise` is `SimulatedNoise` in a
    simulation and `SystemNoise` on a device.
    """
    world = make_world(plan.scenario, data, plan.seed)
    check_compatibility(plan.recipe, world)
    check_task(plan.recipe, get_loss(plan.scenario, data), data.task, data.name)
    data = apply_views(data, world)
    clients = ClientProgram(
        plan.recipe,
        world,
        data.all_classes("train"),
        plan.local,
        plan.seed,
        num_params,
        own_positions,
        smallest_batch,
        numbers=data.all_labels("train") if data.task == "regression" else None,
        noise=noise,
    )
    check_own_positions(clients)
    return clients, world


def check_own_positions(clients: ClientProgram) -> None:
    """Reject own values of clients that train several models at once."""
    require(
        clients.own_positions is None or clients.bank_with_split is None,
        f"net.buffers=local needs one model per client, but {type(clients.recipe.bank).__name__} "
        "lets a client train several; use net.buffers=average, or another bank.",
    )
    require(
        clients.own_positions is None or clients.recipe.serving is None,
        f"net.buffers=local is incompatible with serving={type(clients.recipe.serving).__name__}: "
        "a client that keeps a part of each model has no choice among models. Use "
        "net.buffers=average or serving=none.",
    )


def check_smallest_batch(plan: Plan, clients: ClientProgram, num_clients: int) -> None:
    """Reject settings with which no mini-batch has enough samples for the net."""
    least, local, spec = clients.smallest_batch, plan.local, plan.scenario.world
    if least == 1:
        return
    reason = f"the model needs at least {least} samples per mini-batch in training (BatchNorm does)"
    remedy = "or use GroupNorm or LayerNorm instead of BatchNorm."
    require(
        local.batch_size >= least,
        f"{reason}, got local.batch_size={local.batch_size}. Set "
        f"{format_setting('local.batch_size', 16)}, {remedy}",
    )
    is_merged = isinstance(clients.stream, MergedWorld)
    owners = range(1 if is_merged else num_clients)
    largest = max(clients.stream.capacity(client) for client in owners)
    require(
        largest >= least,
        f"{reason}, but the largest memory of a client holds {largest}. Set "
        f"{format_setting('capacity', 500)}, {remedy}",
    )
    has_few = isinstance(spec, Replay) and spec.every is None and spec.arrivals < least
    require(
        is_merged or not has_few or not isinstance(plan.recipe.memory, Replace),
        f"{reason}, but world.arrivals=1 and memory=replace keeps only the samples of the last "
        f"tick. Set {format_setting('world.arrivals', 8)} or "
        f"{format_setting('memory', 'fifo')}, {remedy}",
    )


def check_buffers(recipe: Recipe, net: Net) -> None:
    """Reject noise on buffers: a variance with noise may be negative."""
    require(
        recipe.privacy is None or net.num_buffers == 0,
        f"privacy={type(recipe.privacy).__name__} adds noise to all values of an update, but the "
        f"model has {net.num_buffers} values in buffers, such as variances, which noise makes "
        "invalid. Use GroupNorm or LayerNorm instead of BatchNorm, or privacy=none.",
    )


def make_world(scenario: Scenario, data: Dataset, seed: int) -> World:
    """Return the world of a scenario, which defines the arrivals of all clients."""
    check_world_task(scenario.world, data.task, data.name)
    setting = Setting(
        labels=data.all_classes("train")[: len(data.y)],
        num_classes=data.num_stream_classes,
        ticks=scenario.ticks,
        capacity=scenario.capacity,
        rounds=scenario.rounds,
        seed=seed,
        client=data.client,
        time=data.time,
        coarse=data.coarse,
        client_test=data.client_test,
    )
    return add_drift(scenario.world.build(setting), scenario.drift, setting)


def list_inert(plan: Plan, world: World, *, is_remote: bool = False) -> dict[str, str]:
    """Return the stages of a recipe that have no effect in a run, with the reason."""
    may_be_inert = plan.recipe.alarm is not None or plan.recipe.serving is not None
    return find_inert(
        plan.recipe,
        world,
        has_arrivals=is_remote or not may_be_inert or has_arrivals(world),
        has_late_updates=is_remote or plan.scenario.faults is not None,
        presence_changes=is_remote
        or plan.scenario.sessions is not None
        or bool((world.availability < 1).any()),
    )


def check_has_data(world: World) -> None:
    """Reject a world whose clients have their own data on other machines."""
    require(
        not isinstance(world, LiveWorld),
        "the world live has no data: clients join over a network with their own data. Serve it "
        "(thalweg serve --live) and let clients join (thalweg join), or choose another world "
        f"({format_setting('world', 'replay')}).",
    )


def check_can_be_served(recipe: Recipe) -> None:
    """Reject a recipe whose clients cannot be reached over a network."""
    kind = type(recipe.bank).__name__
    require(
        is_federated(recipe),
        f"recipe {recipe.name} (bank={kind}) has no updates to send over a network. Simulate it "
        f"(thalweg run {recipe.name}), or serve a recipe with a shared model, such as fedavg.",
    )
    require(
        not getattr(recipe.bank, "has_personal_models", False),
        f"recipe {recipe.name} (bank={kind}) evaluates the models that clients keep, which a "
        f"server does not have. Simulate it (thalweg run {recipe.name}), or serve the same recipe "
        "with bank=one-model.",
    )


def add_default_clipping(
    plan: Plan, overrides: Iterable[str], is_complete: bool = False
) -> tuple[Plan, str]:
    """Return the plan for remote clients, and a sentence about the robust rule.

    Without a robust rule one client could replace the model by any other. Unless the user has set
    `robust` or given a complete plan, updates are clipped to the median norm of the round. With
    secure aggregation the server has no single updates to clip.
    """
    recipe = plan.recipe
    if recipe.robust is not None:
        return plan, ""
    if is_complete or any(each.partition("=")[0].strip() == "robust" for each in overrides):
        return plan, "robust=none: a single client can change the model at will."
    if recipe.secure_aggregation is not None:
        return plan, (
            "updates are not clipped at the server, which sees only their sum: a single client can "
            "shift each parameter of the mean by secure_aggregation.bound."
        )
    plan = replace(plan, recipe=replace(recipe, robust=NormClip()))
    return plan, (
        "updates are clipped to the median norm of the round (robust=norm-clip); disable it with "
        "--set robust=none."
    )


def add_default_size_limit(plan: Plan, overrides: Iterable[str], is_complete: bool = False) -> Plan:
    """Return the plan for remote clients with samples of their own.

    With `power-of-choice` one client could report so many samples that it is a candidate in every
    round. Unless the user has set `selection.max_size` or given a complete plan, no client counts
    with more than the median.
    """
    selection, name = plan.recipe.selection, "selection.max_size"
    is_set = is_complete or any(each.partition("=")[0].strip() == name for each in overrides)
    is_live = isinstance(plan.scenario.world, Live)
    if is_set or not is_live or not isinstance(selection, PowerOfChoice):
        return plan
    return replace(plan, recipe=replace(plan.recipe, selection=replace(selection, max_size=1.0)))


def apply_views(data: Dataset, world: World) -> Dataset:
    """Return the data with the views of a world."""
    if not isinstance(world, HasViews) or data.views == world.views:
        return data
    return replace(data, views=world.views)


def make_timetable(plan: AnyPlan, num_clients: int) -> Timetable | None:
    """Return the timetable of sessions; None if clients are always members."""
    scenario = plan.scenario
    if scenario.sessions is None:
        return None
    timetable = scenario.sessions.timetable(num_clients, scenario.rounds, plan.seed)
    require(
        timetable.num_clients == num_clients,
        f"{type(scenario.sessions).__name__}.timetable must be for {num_clients} clients, got one "
        f"for {timetable.num_clients}.",
    )
    return timetable


def make_initial_model(plan: Plan, net: Net, data_dir: Path | None) -> Floats32:
    """Return the first model (P,): from the scenario's file, else drawn from the seed."""
    if plan.scenario.start_from is None:
        return net.init(rng_for(plan.seed, Draw.NET))
    return load_parameters(find_user_file(plan.scenario.start_from, data_dir), net)


def make_model_factory(plan: Plan, net: Net) -> Callable[[int], Floats32]:
    """Return a function that draws the n-th random model of a run, for banks that add models.

    Model 0 is that of `make_initial_model`.
    """
    return lambda number: net.init(rng_for(plan.seed, Draw.NET, number), number)


def make_federation(
    plan: Plan,
    data: Dataset,
    net: Net,
    workers: Workers,
    client_pool: ClientPool | None = None,
    device: str = "cpu",
) -> SimulatedFederation:
    """Return the clients of a plan as a federation in this process.

    The plan names the engine; its scenario may add faults, and its recipe secure aggregation.
    `device` is the name of a `DeviceChoice`.
    """
    federation: SimulatedFederation = _make_engine(plan, data, net, workers, client_pool, device)
    faults = plan.scenario.faults
    if faults is not None and is_federated(plan.recipe):
        federation = UnreliableFederation(federation, faults, plan.seed)
    return (
        federation
        if plan.recipe.secure_aggregation is None
        else SecureSumFederation(federation, plan.recipe)
    )


def _make_engine(
    plan: Plan,
    data: Dataset,
    net: Net,
    workers: Workers,
    client_pool: ClientPool | None,
    device: str,
) -> SimulatedFederation:
    """Return the federation without faults."""
    scenario, recipe = plan.scenario, plan.recipe
    client_pool = (
        make_client_pool(
            plan, data, net.num_params, net.own_positions, net.smallest_batch, net.output_bias
        )
        if client_pool is None
        else client_pool
    )
    data = apply_views(data, client_pool.world)
    require(
        plan.engine == "fast" or not isinstance(workers, RayCluster),
        f"the engine ray computes as the engine fast, but the plan has the engine {plan.engine}. "
        "Leave the engine ray out, or start a new run.",
    )
    if plan.engine == "reference":
        from thalweg.engine.reference import ReferenceFederation
        from thalweg.engine.single import SingleTrainer

        trainer_of_one = SingleTrainer.from_plan(plan, net, data)
        return ReferenceFederation(client_pool, trainer_of_one, scenario.prequential)
    from thalweg.engine.fast import FastFederation
    from thalweg.engine.workers import count_workers, make_stacked_trainer, make_trainer

    num_threads, augment, limit = 1, scenario.augment, None
    if client_pool.clients.trains_by_tick:  # states are needed in this process, so train here
        if isinstance(workers, RayCluster):
            raise ConfigError(
                f"the clients of {recipe.name} use their models or optimizers between ticks and "
                "are trained in the process of the run, so that other machines cannot take part: "
                "use engine='fast' (--engine fast). compare, tune and reproduce distribute whole "
                "runs."
            )
        num_threads = count_workers(workers, net, plan.local) if device == "cpu" else 1
    parts = (net, recipe.objective, plan.local)
    fixed = (recipe.geometry, augment, get_loss(scenario, data))
    use_native = plan.engine == "fast"
    make_stacked = partial(make_stacked_trainer, *parts, data, *fixed, use_native)
    only_mean = _needs_only_mean(plan, client_pool.clients)
    trainer: Trainer
    if isinstance(workers, RayCluster):
        from thalweg.engine.ray.trainer import RayTrainer

        trainer = RayTrainer(*parts, data, workers, *fixed, only_mean, device)
    elif device != "cpu":
        from thalweg.engine.device_trainer import DeviceTrainer

        on_device = DeviceTrainer(*parts, data, *fixed, open_device(device), only_mean)
        trainer, limit = on_device, on_device.limit
    elif client_pool.clients.trains_by_tick:
        trainer = make_stacked()
    else:
        trainer = make_trainer(*parts, data, workers, *fixed, use_native)
    return FastFederation(
        client_pool,
        data.all_labels("train"),
        net,
        trainer,
        scenario.prequential,
        num_threads,
        augments=augment is not None,
        make_stacked=make_stacked,
        limit=limit,
    )


def _needs_only_mean(plan: Plan, clients: ClientProgram) -> bool:
    """Return whether a run uses weighted means of the updates only, and no single update."""
    recipe = plan.recipe
    server = recipe.server.rule if isinstance(recipe.server, Averaged) else recipe.server
    is_changed = (recipe.robust, recipe.privacy, recipe.secure_aggregation, plan.scenario.faults)
    return (
        type(server) in MEAN_RULES
        and type(recipe.weights).__module__.startswith("thalweg.")
        and all(policy is None for policy in is_changed)
        and not clients.keeps_trained_models
        and clients.own_positions is None
    )
