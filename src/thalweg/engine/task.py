"""The loss and the net of a scenario, which depend on the task of its data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from thalweg.core.metrics import Metric, choose_headline
from thalweg.core.types import Floats32
from thalweg.data import Dataset
from thalweg.evaluation.named import get_metric_declaration
from thalweg.losses import Loss, check_loss, count_outputs, resolve_loss
from thalweg.losses.base import check_finite_losses
from thalweg.native.trainer import NativeTrainer, find_parts
from thalweg.nets import Net, build_net
from thalweg.scenarios import Scenario
from thalweg.streams import Replay

if TYPE_CHECKING:
    from thalweg.engine.plan import Plan

FIRST_BATCH = 8  # samples on which a loss is tried before the first round


def get_loss(scenario: Scenario, data: Dataset) -> Loss:
    """Return the loss of a scenario: its own, or the default of the task."""
    return resolve_loss(
        scenario.loss, data.task, data.num_classes, data.name, _find_other_task(scenario, data)
    )


def _find_other_task(scenario: Scenario, data: Dataset) -> str:
    """Return the task that the data may have with another setting; empty: there is none."""
    if not hasattr(scenario.data, "task"):
        return ""
    if data.task == "classification":
        return "regression" if all(map(_is_number, data.class_names)) else ""
    is_whole = data.y.ndim == 1 and bool((data.y == np.floor(data.y)).all())
    return "classification" if is_whole else ""


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def describe_task(scenario: Scenario, data: Dataset) -> str:
    """Return the task in words, such as "classification, 10 classes".

    If whole numbers were taken for classes, the setting for the other task is named.
    """
    if data.task == "regression":
        plural = "" if data.num_outputs == 1 else "s"
        return f"regression, {data.num_outputs} output{plural}"
    text = f"classification, {data.num_classes} classes"
    if getattr(scenario.data, "task", "given") is None and _find_other_task(scenario, data):
        names = data.class_names
        text += f" (the numbers {names[0]} to {names[-1]}; data.task=regression predicts numbers)"
    return text


def list_metrics(scenario: Scenario, data: Dataset) -> list[Metric]:
    """Return the metrics of a run that show how good a model is; the headline comes first."""
    on_test = ["accuracy", "balanced_accuracy"]
    on_arrival = "prequential_accuracy"
    if data.task == "regression":
        on_test, on_arrival = ["mae", "rmse", "r2"], "prequential_mae"
    names = [*on_test, *scenario.metrics] if len(data.y_test) else []
    names += [on_arrival] if scenario.prequential else []
    found = {metric.name: metric for metric in map(get_metric_declaration, names)}
    headline = choose_headline(
        found, is_time_ordered=is_time_ordered(scenario, data), requested=scenario.headline
    )
    first = {headline: found[headline]} if headline in found else {}
    return list((first | found).values())


def is_time_ordered(scenario: Scenario, data: Dataset) -> bool:
    """Return whether samples arrive in the order of their times."""
    return data.time is not None and isinstance(scenario.world, Replay)


def describe_metrics(metrics: Sequence[Metric]) -> str:
    """Return the names of metrics with their direction.

    >>> from thalweg.core.metrics import METRICS
    >>> describe_metrics([METRICS[name] for name in ("mae", "rmse", "r2")])
    'mae, rmse (lower is better), r2 (higher is better)'
    """
    groups = groupby(metrics, key=lambda metric: metric.better)
    return ", ".join(
        ", ".join(metric.name for metric in group)
        + (f" ({better} is better)" if better else " (direction not declared)")
        for better, group in groups
    )


def make_net(scenario: Scenario, data: Dataset) -> Net:
    """Return the net of a scenario, with the inputs and outputs that the data need."""
    num_outputs = count_outputs(get_loss(scenario, data), data.num_outputs)
    return build_net(scenario.net, data.input_shape, num_outputs, data.num_codes)


def try_loss(plan: Plan, data: Dataset, net: Net, params: Floats32) -> None:
    """Compute the loss of the first training samples; reject one that cannot be minimised."""
    scenario, rows = plan.scenario, np.arange(min(FIRST_BATCH, data.num_samples("train")))
    parts = find_parts(net, data, get_loss(scenario, data))
    if plan.engine == "fast" and not isinstance(parts, str):
        losses = NativeTrainer(parts, plan.recipe.objective, plan.local, data).predict(
            params, "train", rows
        )[1]
        check_finite_losses(type(get_loss(scenario, data)).__name__, losses)
        return
    import torch

    from thalweg.engine.gather import Gather

    x, targets = Gather(data).get_single("train", rows)
    with torch.no_grad():
        outputs = net.apply(torch.tensor(params), x)
    check_loss(get_loss(scenario, data), outputs, targets)
