"""Checks, before a run, that the components of a recipe fit each other and the world.

Components declare what they need or do with class attributes. A component that declares nothing
gets the value that allows fewer combinations, so that user-defined components are checked too:

=============================  ================  ==================================================
attribute                      if not declared   meaning
=============================  ================  ==================================================
``needs_individual_updates``   True              weights, robust, server: reads single updates
``counts_updates``             False             server: needs all updates of a round as rows
``merges_updates``             True              robust: returns other rows than clients' updates
``accepts_late_updates``       True              staleness: uses updates of earlier rounds
``is_single_model``            False             bank: there is always exactly one model
``num_start_models``           1                 bank: models before the first survey
``max_jobs``                   32                bank: models that one client trains in a round
``has_fixed_models``           False             bank: model k stays model k during the whole run
``has_fixed_models_in_step``   False             bank: the same during a time step
``needs_single_model``         with server part  objective, memory, session start: one model only
``uploads_sample_statistics``  if it uploads     memory, objective, bank: uploads more than updates
``rounds_per_step``            None              bank: rounds of a time step; None: any
``needs_known_states``         False             forecast: uses the latent states of the world
``is_federated``               True              bank: clients send updates to a server
``merges_clients``             False             bank: one learner has the samples of all clients
``has_personal_models``        False             bank: each client predicts with its own model
``keeps_trained_models``       False             bank: clients keep the model that they train
``needs_sessions``             True              session start: has no effect without sessions
``max_probe_rounds``           1000              session start: probe rounds of one session
``needs_sgd``                  False             objective: relies on the steps of SGD
``skips_unweighted``           False             sample weights: leaves out clients of weight 0
``reports_labels``             False             weights: receives the label mix of a memory
``needs_label_survey``         False             weights: reads mixes that a selection surveys
``surveys_labels``             False             selection: its survey collects label mixes
``uses_losses``                False             selection: depends on the training losses
``needs_class_labels``         if it has labels  any stage, world: works with classes only
``uses_targets``               False             memory: receives the targets of a regression
``regression_fields``          ()                any stage: fields without effect with classes
``uses_heterogeneity``         True              memory, weights: reads it from the forecast
=============================  ================  ==================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from thalweg.aggregation import ROBUST, SERVER_RULES, STALENESS, WEIGHTS, Averaged, Reports
from thalweg.bank import SplitsSamples, find_max_jobs
from thalweg.core.capabilities import ChecksWorld, CountsLabels, ServerPart, Surveys
from thalweg.core.config import kind_of
from thalweg.core.errors import ConfigError, require
from thalweg.forecast import Auto, OpensStates, RecognisesStates, resolve_forecast
from thalweg.local import FinishesRound, LocalTraining, UploadsFromObjective
from thalweg.losses import Loss
from thalweg.losses.base import has_single_logit
from thalweg.memory import UploadsFromMemory
from thalweg.recipes.base import (
    Recipe,
    has_single_model,
    list_predictors,
    needs_sessions,
    needs_single_model,
)
from thalweg.sample_weights import AssignsWeights
from thalweg.serving import ADJUSTED, LATEST, AdjustsModel
from thalweg.sessions import Presence
from thalweg.streams import World, collect_supplies
from thalweg.streams.steps_world import StepsWorld

SERVER_STAGES = (
    "selection",
    "weights",
    "staleness",
    "robust",
    "server",
    "session_start",
    "session_trigger",
    "privacy",
    "secure_aggregation",
)
"""Stages that work on messages between clients and server, or on the model of the server."""


ONE_STATE = "one latent state"
_SERVED = ("serving", "bank")


def check_compatibility(recipe: Recipe, world: World) -> None:
    """Raise a `ConfigError` if a recipe is inconsistent, or cannot work in this world."""
    _check_not_federated(recipe)
    _check_forecast(recipe, world)
    _check_alarm(recipe, world)
    _check_session_trigger(recipe)
    _check_restarts(recipe)
    _check_label_survey(recipe)
    _check_privacy(recipe)
    _check_secure_aggregation(recipe)
    _check_update_counts(recipe)
    _check_single_model(recipe)
    _check_time_steps(recipe, world)
    _check_serving(recipe)
    parts = [part for part in vars(recipe).values() if isinstance(part, ChecksWorld)]
    if parts:
        supplies, num_classes = collect_supplies(world), world.state_table.histograms.shape[1]
        for part in parts:
            part.check_world(supplies, num_classes)


def check_optimizer(recipe: Recipe, local: LocalTraining) -> None:
    """Raise a `ConfigError` if a part of the recipe does not work with the clients' optimizer."""
    chosen = f"local.optimizer={local.optimizer_name}"
    require(
        local.is_sgd or not getattr(recipe.objective, "needs_sgd", False),
        f"objective={type(recipe.objective).__name__} is incompatible with {chosen}: it relies on "
        "the learning rate of SGD. Use local.optimizer=sgd or another objective.",
    )
    require(
        local.is_sgd or recipe.geometry.is_euclidean,
        f"geometry={type(recipe.geometry).__name__} is incompatible with {chosen}: it changes the "
        "step of SGD. Use local.optimizer=sgd or geometry=euclidean.",
    )
    if local.keeps_optimizer:
        _check_fixed_models(recipe, local)


def _check_fixed_models(recipe: Recipe, local: LocalTraining) -> None:
    """Reject a bank that renumbers models while clients keep a state for each model."""
    bank = recipe.bank
    if has_single_model(recipe) or getattr(bank, "has_fixed_models", False):
        return
    is_fixed_in_step = getattr(bank, "has_fixed_models_in_step", False)
    every: int | None = getattr(bank, "rounds_per_step", None) if is_fixed_in_step else None
    remedy = "" if every is None else f"local.keep_rounds={every}, "
    require(
        every is not None and local.keep_rounds is not None and every % local.keep_rounds == 0,
        f"local.optimizer_state=keep is incompatible with bank={type(bank).__name__}: a client "
        "keeps one state per model, and this bank merges, closes or renumbers models. Use "
        f"{remedy}local.optimizer_state=reset, or a bank with fixed models, such as bank=ifca.",
    )


# Stages whose components are given the class labels of samples.
LABELLED_STAGES = ("memory", "sample_weights", "forecast")
# What to use for a regression, by the field of a component that needs class labels.
REGRESSION_ALTERNATIVES = {
    "memory": "memory=reservoir, fifo or importance",
    "forecast": "forecast=auto, with a memory and weights that use no forecast",
    "selection": "selection=available or uniform",
    "objective": "objective=loss or proximal",
    "weights": "weights=equal",
    "bank": "bank=feddrift or one-model",
    "alarm": "alarm=page-hinkley or window-test; of River, ADWIN, KSWIN or PageHinkley",
    "sample_weights": "sample_weights=none",
    "world": "world=replay, or world=inflow with world.partition=even or groups",
}


def check_task(recipe: Recipe, loss: Loss, task: str, data_name: str) -> None:
    """Raise a `ConfigError` if a component needs class labels and the data have none.

    A component of the objective that uses class probabilities also needs one output per class.
    """
    parts: dict[str, object] = dict(vars(recipe))
    parts["forecast"] = resolve_forecast(recipe.forecast, 1, recipe.uses_forecast)
    for stage, part in parts.items():
        if task == "regression":
            _reject_regression(stage, part, data_name)
        else:
            _reject_regression_fields(stage, part, data_name)
    if task == "regression":
        loss_of_classes = getattr(recipe.serving, "loss", "log")
        require(
            loss_of_classes == "log",
            f"serving.loss={loss_of_classes} has no effect, because the targets of {data_name} are "
            "numbers (regression), whose loss is the squared error. Leave serving.loss out.",
        )
        require(
            list_predictors(recipe) != (LATEST, ADJUSTED) or find_max_jobs(recipe.bank) > 1,
            f"serving={type(recipe.serving).__name__} has no effect: expected at least two "
            f"predictors, but the targets of {data_name} are numbers (regression), to which no "
            "model is adjusted. Use serving=none, serving.trained=true or serving.last_label=true.",
        )
    require(
        not (needs_class_labels(recipe.objective) and has_single_logit(loss)),
        f"objective={type(recipe.objective).__name__} needs one output per class, but "
        f"loss={type(loss).__name__} has one output. Use loss=cross_entropy.",
    )


def check_world_task(world: object, task: str, data_name: str) -> None:
    """Raise a `ConfigError` if a world needs class labels and the data have none."""
    if task == "regression":
        _reject_regression("world", world, data_name)


def needs_class_labels(part: object) -> bool:
    """Return whether a component declares that it works with classes only."""
    return bool(getattr(part, "needs_class_labels", False))


def _reject_regression(stage: str, part: object, data_name: str) -> None:
    name = f"{stage}={type(part).__name__}"
    alternative = REGRESSION_ALTERNATIVES.get(stage, f"another {stage}")
    require(
        not needs_class_labels(part),
        f"{name} needs class labels, but the targets of {data_name} are numbers (regression). "
        f"Use {alternative}.",
    )
    require(
        hasattr(part, "needs_class_labels") or not _receives_labels(stage, part),
        f"{name} receives class labels and does not declare whether it needs them, but the targets "
        f"of {data_name} are numbers (regression). If it does not read labels, add the class "
        f"attribute needs_class_labels = False; otherwise use {alternative}.",
    )


def _reject_regression_fields(stage: str, part: Any, data_name: str) -> None:
    """Reject settings of fields that have an effect in a regression only."""
    for name in getattr(part, "regression_fields", ()):
        value, default = getattr(part, name), getattr(type(part), name)
        require(
            value == default,
            f"{stage}.{name} has an effect in a regression only, but the targets of {data_name} "
            f"are classes: expected the default {default}, got {value}. Leave it out.",
        )


def _receives_labels(stage: str, part: object) -> bool:
    """Return whether a component of the user is given class labels, which are 0 in a regression."""
    is_own = type(part).__module__.partition(".")[0] != "thalweg"
    receives = isinstance(part, CountsLabels | Surveys | SplitsSamples)
    return is_own and part is not None and (stage in LABELLED_STAGES or receives)


def find_inert(
    recipe: Recipe,
    world: World,
    *,
    has_late_updates: bool,
    presence_changes: bool,
    has_arrivals: bool = True,
) -> dict[str, str]:
    """Return the stages whose component has no effect in this world, with the reason.

    Without such a component, or with any other one, the run would have the same metrics, except
    for those that describe the component itself, and averages that are sent for `serving`. Without
    a stage, a single setting has no effect.
    """
    num_states = world.state_table.num_states
    forecast: object = resolve_forecast(recipe.forecast, num_states, recipe.uses_forecast)
    is_learned = isinstance(forecast, RecognisesStates)
    found = {}
    if not recipe.uses_forecast and not isinstance(recipe.forecast, Auto):
        found["forecast"] = "no policy of the recipe uses it"
    elif recipe.uses_forecast and num_states == 1 and not is_learned:
        found["forecast"] = ONE_STATE
    if "forecast" not in found and not _uses_heterogeneity(recipe):
        proxy = getattr(recipe.forecast, "proxy", None)
        if proxy != getattr(type(recipe.forecast), "proxy", None):
            found["forecast.proxy"] = "no policy of the recipe uses distances from balanced states"
    if not has_late_updates and _accepts_late_updates(recipe.staleness):
        found["staleness"] = "no late updates"
    if not has_arrivals and recipe.alarm is not None and recipe.alarm.watch != "loss":
        found["alarm"] = "no samples arrive, so that none are predicted"
    if not has_arrivals and recipe.serving is not None:
        several = "" if has_single_model(recipe) else ", as long as the bank has one model"
        found["serving"] = f"no samples arrive, so that the default predicts{several}"
    trigger = recipe.session_trigger
    waits_for_alarms = "alarm" not in found and getattr(trigger, "alarm_share", None) is not None
    if isinstance(trigger, Presence) and not waits_for_alarms and not presence_changes:
        found["session_trigger"] = "all clients are always present, so that no session opens"
        if needs_sessions(recipe):
            found["session_start"] = "no session opens"
    return found


def _uses_heterogeneity(recipe: Recipe) -> bool:
    """Return whether a policy reads `Outlook.heterogeneity`; an own one might."""
    readers = (recipe.memory, recipe.weights)
    return any(
        getattr(policy, "uses_forecast", False) and getattr(policy, "uses_heterogeneity", True)
        for policy in readers
    )


def iter_server_parts(recipe: Recipe) -> Iterator[tuple[str, ServerPart]]:
    """Yield the stages, with their policies, that have a part at the server."""
    for stage in ("memory", "objective"):
        part = getattr(recipe, stage)
        if isinstance(part, ServerPart):
            yield stage, part


def find_uploading_stages(recipe: Recipe) -> set[str]:
    """Return the stages whose part at the client may upload vectors after training."""
    protocols = {
        "memory": UploadsFromMemory,
        "objective": UploadsFromObjective | FinishesRound,
        "bank": SplitsSamples,
    }
    return {
        stage
        for stage, protocol in protocols.items()
        if isinstance(getattr(recipe, stage), protocol)
    }


def is_federated(recipe: Recipe) -> bool:
    """Return whether clients send updates to a server."""
    return bool(getattr(recipe.bank, "is_federated", True))


def _check_not_federated(recipe: Recipe) -> None:
    """Reject parts that have no effect if clients send no updates."""
    if is_federated(recipe):
        return
    bank = f"bank={type(recipe.bank).__name__}"
    defaults = {field.name: field.default for field in fields(Recipe)}
    for stage in SERVER_STAGES:
        part, default = getattr(recipe, stage), defaults[stage]
        table = next(field.metadata["table"] for field in fields(Recipe) if field.name == stage)
        remedy = "none" if default is None else kind_of(default, table)
        require(
            part == default,
            f"{stage}={type(part).__name__} has no effect with {bank}, because no updates are sent "
            f"to a server. Use {stage}={remedy}, or a bank with a shared model (bank=one-model).",
        )
    for stage in ("memory", "objective", "sample_weights"):
        part = getattr(recipe, stage)
        require(
            not isinstance(part, ServerPart | Surveys | AssignsWeights),
            f"{stage}={type(part).__name__} needs messages from a server, but with {bank} there "
            f"are none. Use another {stage}, or a bank with a shared model (bank=one-model).",
        )
    require(
        not recipe.effect.reclusters,
        f"alarm.action assigns clients to models again, but with {bank} models are not shared. "
        "Use another action.",
    )
    if not getattr(recipe.bank, "merges_clients", False):
        return
    require(
        recipe.alarm is None,
        f"alarm={type(recipe.alarm).__name__} watches single clients, but with {bank} there is one "
        "learner. Use alarm=none.",
    )
    require(
        not getattr(recipe.objective, "uses_true_states", False)
        or isinstance(recipe.forecast, RecognisesStates),
        f"objective={type(recipe.objective).__name__} uses the latent state of a client, but with "
        f"{bank} the samples of all clients arrive together. Use forecast=growing or another "
        "objective.",
    )


def _check_serving(recipe: Recipe) -> None:
    """Reject a serving policy without a choice among predictors."""
    if recipe.serving is None:
        return
    serving, bank = (f"{stage}={type(getattr(recipe, stage)).__name__}" for stage in _SERVED)
    require(
        is_federated(recipe) and not getattr(recipe.bank, "has_personal_models", False),
        f"{serving} lets each client choose between the received and other models, but with {bank} "
        "the bank determines its model. Use serving=none, or a bank with shared models "
        "(bank=one-model).",
    )
    require(
        len(list_predictors(recipe)) > 1 or find_max_jobs(recipe.bank) > 1,
        f"{serving} has no effect: expected at least two predictors, got the received model only. "
        "Use serving=none, serving.trained=true or serving.last_label=true.",
    )
    require(
        ADJUSTED not in list_predictors(recipe) or isinstance(recipe.serving, AdjustsModel),
        f"{serving} uses the predictor {ADJUSTED!r}, but has no method get_offsets. Add it, or "
        "remove the predictor.",
    )


def _check_privacy(recipe: Recipe) -> None:
    """Reject policies that upload sample statistics, because noise protects updates only."""
    for stage in _find_statistics_stages(recipe) if recipe.privacy is not None else ():
        raise _incompatible(
            recipe,
            "privacy",
            stage,
            "it uploads statistics of the samples without noise",
            f"another {stage}",
        )
    if recipe.privacy is not None and getattr(recipe.weights, "reports_labels", False):
        reason = "clients report their label mix without noise"
        remedy = "weights=equal, or weights.source=survey with selection.privacy.epsilon"
        raise _incompatible(recipe, "privacy", "weights", reason, remedy)
    hidden = {
        name: getattr(recipe.privacy, name, "exact") for name in ("losses", "counts", "predictions")
    }
    if hidden["counts"] != "exact" and sends_reports(recipe):
        reason = "clients without samples have no report, so that reports disclose the counts"
        raise _incompatible(recipe, "privacy", "weights", reason, "weights=equal")
    if hidden["counts"] == "omit" and getattr(recipe.weights, "uses_num_samples", False):
        reason = "it needs the numbers of samples, which privacy.counts=omit omits"
        raise _incompatible(recipe, "privacy", "weights", reason, "weights=equal")
    if hidden["losses"] == "omit" and getattr(recipe.selection, "uses_losses", False):
        reason = "it needs the losses, which privacy.losses=omit omits"
        raise _incompatible(recipe, "privacy", "selection", reason, "privacy.losses=noisy")
    watched = {"error": ["predictions"], "loss": ["losses"], "counts": ["predictions", "losses"]}
    watches = watched[recipe.alarm.watch] if recipe.alarm is not None else []
    for name in [name for name in watches if hidden[name] == "omit"]:
        reason = f"it watches a metric that privacy.{name}=omit omits"
        raise _incompatible(recipe, "privacy", "alarm", reason, "alarm=none")


def _check_secure_aggregation(recipe: Recipe) -> None:
    """Reject policies that need more than the sum of the updates."""
    if recipe.secure_aggregation is None:
        return

    def reject(stage: str, reason: str, remedy: str) -> ConfigError:
        return _incompatible(recipe, "secure_aggregation", stage, reason, remedy)

    if not has_single_model(recipe):
        raise reject("bank", "it has several models", "bank=one-model")
    for stage, table in (("weights", WEIGHTS), ("server", SERVER_RULES), ("robust", {})):
        part = getattr(recipe, stage)
        if part is not None and _needs_individual_updates(part):
            suitable = [kind for kind, cls in table.items() if not _needs_individual_updates(cls)]
            remedy = f"{stage}={' or '.join(suitable) or 'none'}"
            raise reject(stage, "it needs individual updates", remedy)
    if _accepts_late_updates(recipe.staleness):
        suitable = [kind for kind, cls in STALENESS.items() if not _accepts_late_updates(cls)]
        raise reject(
            "staleness", "it accepts updates after the sum", f"staleness={' or '.join(suitable)}"
        )
    for stage in _find_statistics_stages(recipe):
        raise reject(stage, "it uploads more than the update", f"another {stage}")
    # A server that chooses models freely can compute the gradient of a client from its losses.
    for stage in ("selection", "session_start"):
        part = getattr(recipe, stage)
        if isinstance(part, Surveys) and part.sends_models:
            raise reject(stage, "it sends losses of the server's models", f"another {stage}")
    # Clients reject a sum of updates that the server has scaled differently: with a scale of zero
    # for all clients but one, the sum is the update of this client.
    if isinstance(recipe.sample_weights, AssignsWeights):
        raise reject("sample_weights", "it scales single updates", "another sample_weights")
    if recipe.effect.lr_scales:
        raise reject("alarm", "it scales single updates", "another alarm.action")
    # Alarms are not part of the digest that clients sign, because they differ between clients.
    if recipe.effect.keep < 1:
        reason = "with it the server could empty the memories of all clients but one"
        raise reject("alarm", reason, "alarm.action=drop-outdated")


def _check_update_counts(recipe: Recipe) -> None:
    """Reject a robust rule that merges updates before a server rule that counts them."""
    server, robust = recipe.server, recipe.robust
    merges = robust is not None and getattr(robust, "merges_updates", True)
    if not (merges and getattr(server, "counts_updates", False)):
        return
    suitable = [kind for kind, cls in ROBUST.items() if not getattr(cls, "merges_updates", True)]
    raise ConfigError(
        f"server={type(server).__name__} is incompatible with robust={type(robust).__name__}: the "
        "server rule counts updates, and the robust rule merges them. Choose "
        f"robust={' or '.join(suitable)}, robust=none or another server rule."
    )


def _check_session_trigger(recipe: Recipe) -> None:
    """Reject a trigger that waits for alarms if the recipe raises none."""
    share = getattr(recipe.session_trigger, "alarm_share", None)
    require(
        share is None or recipe.alarm is not None,
        f"session_trigger.alarm_share={share} needs alarms, but the recipe has none (alarm=none). "
        "Use session_trigger.alarm_share=none, or an alarm such as alarm=page-hinkley.",
    )


def _check_single_model(recipe: Recipe) -> None:
    for stage in ("memory", "objective"):
        require(
            has_single_model(recipe) or not needs_single_model(recipe, stage),
            f"{stage}={type(getattr(recipe, stage)).__name__} is incompatible with "
            f"bank={type(recipe.bank).__name__}: it needs a single model. Use bank=one-model or "
            f"another {stage}.",
        )


def _check_time_steps(recipe: Recipe, world: World) -> None:
    """Reject a bank whose time steps are not those of the world."""
    every = getattr(recipe.bank, "rounds_per_step", None)
    if every is None or not isinstance(world, StepsWorld):
        return
    rounds = world.spec.rounds_per_step
    require(
        every == rounds,
        f"bank.every={every} is incompatible with world.rounds_per_step={rounds}: the bank would "
        f"treat data of different time steps as one. Set bank.every={rounds} or "
        f"world.rounds_per_step={every}, or use bank.every=none with an alarm.",
    )


def _check_forecast(recipe: Recipe, world: World) -> None:
    kind = type(recipe.forecast).__name__
    require(
        world.state_table.num_states > 1
        or not getattr(recipe.forecast, "needs_known_states", False),
        f"forecast={kind} needs a world with several known latent states, but this world has no "
        "known states. Leave the forecast at its default or use forecast=growing, which learns "
        "the states from class labels, or choose a world with known states "
        "(world=latent-states).",
    )


def _check_alarm(recipe: Recipe, world: World) -> None:
    """Reject an alarm action that would have no effect."""
    forecast: object = resolve_forecast(
        recipe.forecast, world.state_table.num_states, recipe.uses_forecast
    )
    require(
        not recipe.effect.opens_state or isinstance(forecast, OpensStates),
        f"alarm.action opens a state, but forecast={type(forecast).__name__} has fixed states. "
        "Use forecast=growing or another action.",
    )
    require(
        not recipe.effect.reclusters or not has_single_model(recipe),
        f"alarm.action assigns clients to models again, but bank={type(recipe.bank).__name__} has "
        "one model. Use a bank of several models, such as bank=feddrift, or another action "
        "(alarm.action.recluster=false if alarm.action=combined).",
    )


def sends_reports(recipe: Recipe) -> bool:
    """Return whether clients send numbers for the weights with their updates."""
    needs_survey = getattr(recipe.weights, "needs_label_survey", False)
    return isinstance(recipe.weights, Reports) and not needs_survey


def _check_label_survey(recipe: Recipe) -> None:
    """Reject weights that read label mixes which no survey collects."""
    require(
        not getattr(recipe.weights, "needs_label_survey", False)
        or getattr(recipe.selection, "surveys_labels", False),
        f"weights.source=survey needs a selection that surveys label mixes, got selection="
        f"{type(recipe.selection).__name__}. Use weights.source=reports, selection=dpcs, or "
        "selection=balanced-cohort with a participation below 1.",
    )


def _check_restarts(recipe: Recipe) -> None:
    """Reject settings of an average that have no effect without an alarm."""
    server = recipe.server
    if recipe.alarm is not None or not isinstance(server, Averaged):
        return
    for name, default in (
        ("restart_share", Averaged.restart_share),
        ("restart_window", Averaged.restart_window),
    ):
        value = getattr(server, name)
        require(
            value in (None, default),
            f"server.{name}={value} has no effect without an alarm: expected {default}, the "
            "default. Leave it out, or set an alarm, such as alarm=page-hinkley.",
        )


def _find_statistics_stages(recipe: Recipe) -> list[str]:
    """Return the stages that upload more than updates, and whose uploads the server uses."""
    received = {stage for stage, _ in iter_server_parts(recipe)} | {"bank"}
    return [
        stage
        for stage in sorted(find_uploading_stages(recipe) & received)
        if getattr(getattr(recipe, stage), "uploads_sample_statistics", True)
    ]


def _needs_individual_updates(part: Any) -> bool:
    return bool(getattr(part, "needs_individual_updates", True))


def _accepts_late_updates(staleness: Any) -> bool:
    return bool(getattr(staleness, "accepts_late_updates", True))


def _incompatible(recipe: Recipe, option: str, stage: str, reason: str, remedy: str) -> ConfigError:
    chosen, other = (type(getattr(recipe, name)).__name__ for name in (option, stage))
    chosen = chosen.lower() if option in ("privacy", "secure_aggregation") else chosen
    return ConfigError(
        f"{option}={chosen} is incompatible with {stage}={other}: {reason}. Remove {option} or "
        f"choose {remedy}."
    )
