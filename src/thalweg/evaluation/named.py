"""Metrics that a scenario requests by name, or as any function of targets and predictions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.config import get_function_path, load_function
from thalweg.core.errors import UnknownName, require

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class NamedMetric:
    """A function of the targets and the predictions of a test set."""

    name: str
    """The key in the rows of a run."""
    function: Callable[[Array, Array], Any]
    task: str | None = None  # None: both
    needs_probabilities: bool = False
    """Whether predictions are class probabilities (n, C), not labels."""

    def compute(self, targets: Array, predicted: Array) -> float:
        """Return the metric; nan, with a warning, if it fails or is not a finite number."""
        try:
            value = float(self.function(targets, predicted))
            reason = f"it returned {value}"
        except Exception as error:  # a metric must not end the run
            value, reason = math.nan, f"it raised {type(error).__name__}: {error}"
        if not math.isfinite(value):
            warnings.warn(
                f"the metric {self.name} has no value: {reason}. Expected a finite number from "
                f"targets {targets.shape} and predictions {predicted.shape}; the run continues.",
                stacklevel=2,
            )
            return math.nan
        return value


def _accuracy(targets: Array, predicted: Array) -> float:
    return float((targets == predicted).mean())


def _balanced_accuracy(targets: Array, predicted: Array) -> float:
    from sklearn.metrics import recall_score

    present = np.unique(targets)
    return float(recall_score(targets, predicted, labels=present, average="macro"))


def _f1(targets: Array, predicted: Array) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(targets, predicted, labels=np.unique(targets), average="macro"))


def _auroc(targets: Array, probabilities: Array) -> float:
    from sklearn.metrics import roc_auc_score

    if probabilities.shape[1] == 2:
        return float(roc_auc_score(targets, probabilities[:, 1]))
    classes = np.arange(probabilities.shape[1])
    return float(roc_auc_score(targets, probabilities, multi_class="ovr", labels=classes))


def _log_loss(targets: Array, probabilities: Array) -> float:
    right = probabilities[np.arange(len(targets)), targets]
    return float(-np.log(np.maximum(right, np.finfo(np.float64).tiny)).mean())


def _mae(targets: Array, predicted: Array) -> float:
    return float(np.abs(predicted - targets).mean())


def _rmse(targets: Array, predicted: Array) -> float:
    return float(np.sqrt(((predicted - targets) ** 2).mean()))


def _r2(targets: Array, predicted: Array) -> float:
    from sklearn.metrics import r2_score

    return float(r2_score(targets, predicted))


NAMED_METRICS = {
    metric.name: metric
    for metric in (
        NamedMetric("accuracy", _accuracy, "classification"),
        NamedMetric("balanced_accuracy", _balanced_accuracy, "classification"),
        NamedMetric("f1", _f1, "classification"),
        NamedMetric("auroc", _auroc, "classification", needs_probabilities=True),
        NamedMetric("log_loss", _log_loss, "classification", needs_probabilities=True),
        NamedMetric("mae", _mae, "regression"),
        NamedMetric("rmse", _rmse, "regression"),
        NamedMetric("r2", _r2, "regression"),
    )
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {}  # functions of this process, by their path


def name_metrics(metrics: Any) -> tuple[str, ...]:
    """Return names of metrics for a scenario: names as they are, functions by their path.

    >>> name_metrics("f1"), name_metrics(["f1", "auroc"]), name_metrics(None)
    (('f1',), ('f1', 'auroc'), ())
    """
    if metrics is None:
        return ()
    is_one = isinstance(metrics, str) or not isinstance(metrics, Iterable)
    names = []
    for metric in [metrics] if is_one else metrics:
        if not isinstance(metric, str):
            require(callable(metric), f"metrics: expected a name or a function, got {metric!r}.")
            _FUNCTIONS[get_function_path(metric)] = metric
            metric = get_function_path(metric)
        elif ":" not in metric and metric not in NAMED_METRICS:
            raise UnknownName("metric", metric, [*NAMED_METRICS, "FILE.py:FUNCTION"])
        names.append(metric)
    return tuple(names)


def get_named_metric(name: str, task: str, data_name: str) -> NamedMetric:
    """Return a metric by its name or path; `ConfigError` if it does not fit the task."""
    if name not in NAMED_METRICS:
        function = _FUNCTIONS.get(name) or load_function(name, "metrics")
        needs_probabilities = bool(getattr(function, "needs_probabilities", False))
        return NamedMetric(name.rpartition(":")[2], function, None, needs_probabilities)
    metric = NAMED_METRICS[name]
    suitable = [each.name for each in NAMED_METRICS.values() if each.task == task]
    require(
        metric.task == task,
        f"metrics={name} is for {metric.task}, but the task of {data_name} is {task}. Use "
        f"{', '.join(suitable)} or a function (FILE.py:FUNCTION).",
    )
    return metric
