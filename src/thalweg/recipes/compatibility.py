"""Does a recipe make sense in a world? Asked before anything runs."""

from __future__ import annotations

from collections.abc import Iterator

from thalweg.aggregation import BySamples, Equal, FedExp, RejectLate
from thalweg.bank import FedDaa, FedDrift, OneModel, SplitsSamples
from thalweg.core.capabilities import ChecksWorld, ServerHalf
from thalweg.core.errors import require
from thalweg.forecast import OpensStates
from thalweg.local import FinishesRound, Scaffold, UploadsFromObjective
from thalweg.memory import UploadsFromMemory
from thalweg.recipes.base import Recipe
from thalweg.streams import World, collect_supplies
from thalweg.streams.steps_world import StepsWorld


def iter_server_halves(recipe: Recipe) -> Iterator[tuple[str, ServerHalf]]:
    """The stages whose policy has a half at the server."""
    for stage in ("memory", "objective"):
        part = getattr(recipe, stage)
        if isinstance(part, ServerHalf):
            yield stage, part


def find_uploading_stages(recipe: Recipe) -> set[str]:
    """The stages whose half at the client may have something to say when it has trained."""
    says = {
        "memory": UploadsFromMemory,
        "objective": UploadsFromObjective | FinishesRound,
        "bank": SplitsSamples,
    }
    return {stage for stage, form in says.items() if isinstance(getattr(recipe, stage), form)}


def check_compatibility(recipe: Recipe, world: World) -> None:
    """Let every policy that is particular about its world refuse this one, with a reason."""
    _check_alarm(recipe)
    _check_privacy(recipe)
    _check_secure_aggregation(recipe)
    _check_variates(recipe)
    _check_steps(recipe, world)
    particular = [part for part in vars(recipe).values() if isinstance(part, ChecksWorld)]
    if particular:
        supplies, num_classes = collect_supplies(world), world.state_table.histograms.shape[1]
        for part in particular:
            part.check_world(supplies, num_classes)


def _check_privacy(recipe: Recipe) -> None:
    """What is said beside an update is made of the same samples, and nobody hides it."""
    heard = {stage for stage, _ in iter_server_halves(recipe)} | {"bank"}
    stages = sorted(find_uploading_stages(recipe) & heard)
    require(
        recipe.privacy is None or not stages,
        f"privacy hides the clients' updates, but the {' and the '.join(stages)} of this recipe "
        f"({', '.join(type(getattr(recipe, stage)).__name__ for stage in stages)}) would send as much in plain "
        "beside them; leave privacy out, or take a recipe without such words.",
    )


def _check_secure_aggregation(recipe: Recipe) -> None:
    """Whose sum alone is known cannot be looked at one by one."""
    if recipe.secure_aggregation is None:
        return
    heard = {stage for stage, _ in iter_server_halves(recipe)} | {"bank"}
    saying_more = sorted(find_uploading_stages(recipe) & heard)
    what, why = next(
        (
            (f"{stage}={type(getattr(recipe, stage)).__name__}", why)
            for stage, is_wrong, why in (
                ("bank", not isinstance(recipe.bank, OneModel), "asks who belongs to which model"),
                (
                    "weights",
                    not isinstance(recipe.weights, Equal | BySamples),
                    "weighs updates by what clients report, after they were sent",
                ),
                ("robust", recipe.robust is not None, "compares single updates"),
                ("server", isinstance(recipe.server, FedExp), "needs the length of every update"),
                (
                    "staleness",
                    not isinstance(recipe.staleness, RejectLate),
                    "takes updates that come after the sum was made",
                ),
                *((stage, True, "sends words beside the update") for stage in saying_more),
            )
            if is_wrong
        ),
        ("", ""),
    )
    require(
        what == "",
        f"secure_aggregation lets the server see the sum of the updates alone, but {what} {why}; leave secure_aggregation out, or take "
        "another part (docs/how-to-robust.md says which recipes can live with it).",
    )


def _check_variates(recipe: Recipe) -> None:
    """SCAFFOLD's server knows one mean gradient: of which model, if there are several?"""
    require(
        not isinstance(recipe.objective, Scaffold) or isinstance(recipe.bank, OneModel),
        f"objective=scaffold corrects steps by everybody's mean gradient, which is that of one model, but the bank "
        f"{type(recipe.bank).__name__} has several; use bank=one-model, or another objective, such as proximal.",
    )


def _check_steps(recipe: Recipe, world: World) -> None:
    """A bank that goes by time steps must have those of the world, or it compares data of different steps."""
    if not isinstance(world, StepsWorld) or not isinstance(recipe.bank, FedDaa | FedDrift):
        return
    every, rounds = recipe.bank.every, world.spec.rounds_per_step
    goes_by_rounds = isinstance(recipe.bank, FedDrift) and every == 1
    require(
        every is None or goes_by_rounds or every == rounds,
        f"the world has steps of {rounds} rounds, but bank.every is {every}, so that the bank would take data of "
        f"different steps for those of one; set bank.every={rounds} (or world.rounds_per_step={every}), or "
        "bank.every=none and an alarm.",
    )


def _check_alarm(recipe: Recipe) -> None:
    """An alarm about which nothing can be done would be silent."""
    require(
        not recipe.effect.opens_state or isinstance(recipe.forecast, OpensStates),
        f"alarm.action opens a state in the forecast, but {type(recipe.forecast).__name__} knows all states from "
        "the beginning; use forecast=growing.",
    )
    require(
        not recipe.effect.reclusters or not isinstance(recipe.bank, OneModel),
        "alarm.action is for a bank of several models, but there is one model for everybody; use another bank, "
        "such as bank=feddrift.",
    )
