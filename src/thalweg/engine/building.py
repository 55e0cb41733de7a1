"""From a plan to clients in this process: the world, the timetable, the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from thalweg.core.errors import require
from thalweg.data import Dataset
from thalweg.engine.any_plan import AnyPlan
from thalweg.engine.crowd import Crowd
from thalweg.engine.embedded import Embedded
from thalweg.engine.plan import Plan
from thalweg.engine.summing import SummingFederation
from thalweg.engine.unreliable import UnreliableFederation
from thalweg.nets import Net
from thalweg.recipes.client import Clients
from thalweg.recipes.fitting import check_fits
from thalweg.scenarios import Scenario
from thalweg.streams import HasViews, LiveWorld, Setting, Timetable, World, drifting


def crowd_of(plan: Plan, data: Dataset, num_params: int) -> Crowd:
    """A plan's world and its clients, before anything has happened.

    Refuses a recipe that makes no sense in this world, and a world that shows the data as they cannot be seen.
    """
    clients, world = clients_of(plan, data, num_params)
    return Crowd(clients, world, timetable_of(plan, world.num_clients))


def clients_of(plan: Plan, data: Dataset, num_params: int) -> tuple[Clients, World]:
    """What any client of a plan is, and the world that has their streams."""
    world = world_of(plan.scenario, data, plan.seed)
    check_fits(plan.recipe, world)
    labels = viewed(data, world).all_labels("train")
    return Clients(plan.recipe, world, labels, plan.local, plan.seed, num_params), world


def world_of(scenario: Scenario, data: Dataset, seed: int) -> World:
    """What arrives where, on the data of a run."""
    setting = Setting(
        labels=data.y,
        num_classes=data.num_classes,
        ticks=scenario.ticks,
        capacity=scenario.capacity,
        rounds=scenario.rounds,
        seed=seed,
        group=data.group,
        time=data.time,
        coarse=data.coarse,
    )
    return drifting(scenario.world.build(setting), scenario.drift, setting)


def check_has_data(world: World) -> None:
    """Refuse a world whose clients are somewhere else, with data of their own."""
    require(
        not isinstance(world, LiveWorld),
        "in the world live, clients bring their own data, so that nothing would ever arrive here; serve it "
        "(thalweg serve --live) and let clients join (thalweg join), or choose another world (--set world=replay).",
    )


def viewed(data: Dataset, world: World) -> Dataset:
    """The data as clients of a world see them."""
    if not isinstance(world, HasViews) or data.views == world.views:
        return data
    return replace(data, views=world.views)


def timetable_of(plan: AnyPlan, num_clients: int) -> Timetable | None:
    """When clients are members; none: always."""
    scenario = plan.scenario
    if scenario.sessions is None:
        return None
    timetable = scenario.sessions.timetable(num_clients, scenario.rounds, plan.seed)
    require(
        timetable.num_clients == num_clients,
        f"{type(scenario.sessions).__name__}.timetable must be for {num_clients} clients, got one for "
        f"{timetable.num_clients}.",
    )
    return timetable


def federation_of(
    plan: Plan,
    data: Dataset,
    net: Net,
    workers: int | Literal["auto"],
    crowd: Crowd | None = None,
) -> Embedded:
    """The clients of a plan in this process, on the engine that it names, as reliable as its scenario says.

    They see the data as their world has it.
    """
    federation: Embedded = _reliable(plan, data, net, workers, crowd)
    faults = plan.scenario.faults
    if faults is not None:
        federation = UnreliableFederation(federation, faults, plan.seed)
    return federation if plan.recipe.secrecy is None else SummingFederation(federation, plan.recipe)


def _reliable(
    plan: Plan,
    data: Dataset,
    net: Net,
    workers: int | Literal["auto"],
    crowd: Crowd | None,
) -> Embedded:
    """Clients whose replies all come in time."""
    scenario, objective, mirror = plan.scenario, plan.recipe.objective, plan.recipe.mirror
    crowd = crowd_of(plan, data, net.num_params) if crowd is None else crowd
    data = viewed(data, crowd.world)
    if plan.engine == "reference":
        from thalweg.engine.reference import ReferenceFederation

        return ReferenceFederation(
            crowd, data, net, objective, scenario.prequential, mirror, scenario.augment
        )
    from thalweg.engine.fast import FastFederation
    from thalweg.engine.gather import Gather
    from thalweg.engine.stacked import StackedTrainer
    from thalweg.engine.workers import how_many, make_trainer

    num_threads, augment = 1, scenario.augment
    if crowd.clients.is_attentive:  # between ticks clients look at their models, which must be here
        num_threads, workers = how_many(workers, net, plan.local), 1
    trainer = make_trainer(net, objective, plan.local, data, workers, mirror, augment)
    here = StackedTrainer(net, objective, plan.local, Gather(data), mirror, augment)
    labels, prequential = data.all_labels("train"), scenario.prequential
    return FastFederation(
        crowd, labels, net, trainer, prequential, num_threads, augment is not None, here
    )
