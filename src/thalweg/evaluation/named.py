"""Metrics that a scenario requests by name, or as any function of targets and predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.config import get_function_path, load_function
from thalweg.core.errors import UnknownName, require
from thalweg.core.metrics import METRICS, Metric

Array = npt.NDArray[Any]


FLAGS = ("higher", "lower", "probabilities")  # after the path of a function


@dataclass(frozen=True)
class NamedMetric:
    """A function of the targets and the predictions of a test set.

    >>> def bias(targets, predicted):
    ...     return (predicted - targets).mean()
    >>> NamedMetric("bias", bias, higher_is_better=False).to_text()
    'bias=thalweg.evaluation.named:bias:lower'
    """

    name: str
    """The key in the rows of a run."""
    function: Callable[[Array, Array], Any]
    task: str | None = None  # None: both
    needs_probabilities: bool = False
    """Whether predictions are class probabilities (n, C), not labels."""
    higher_is_better: bool | None = None
    """The direction; None: unknown, then runs cannot be compared by it."""

    def to_text(self) -> str:
        """Return the metric as a plan records it: ``NAME=PATH:FUNCTION``, then flags."""
        flags = {None: "", True: ":higher", False: ":lower"}[self.higher_is_better]
        flags += ":probabilities" if self.needs_probabilities else ""
        return f"{self.name}={get_function_path(self.function)}{flags}"

    def compute(self, targets: Array, predicted: Array) -> tuple[float, str]:
        """Return the metric and an empty text; if it has no finite value, nan and the reason."""
        try:
            value = float(self.function(targets, predicted))
        except Exception as error:  # a metric must not end the run
            value, reason = math.nan, f"raised {type(error).__name__}: {error}"
        else:
            reason = f"returned {value}"
        if math.isfinite(value):
            return value, ""
        return math.nan, (
            f"the metric {self.name} {reason}. Expected a finite number from targets "
            f"{targets.shape} of {targets.dtype} and predictions {predicted.shape} of "
            f"{predicted.dtype}."
        )


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

    present = np.unique(targets)
    require(len(present) > 1, f"expected targets of at least two classes, got only {present}.")
    if probabilities.shape[1] == 2:
        return float(roc_auc_score(targets, probabilities[:, 1]))
    each = [roc_auc_score(targets == label, probabilities[:, label]) for label in present]
    return float(np.mean(each))


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
_FUNCTIONS: dict[str, Callable[..., Any]] = {}  # functions of this process, by their text in a plan


def name_metrics(metrics: Any) -> tuple[str, ...]:
    """Return metrics as a plan records them: names as they are, functions by their path.

    >>> name_metrics("f1"), name_metrics(["f1", "auroc"]), name_metrics("f1,auroc")
    (('f1',), ('f1', 'auroc'), ('f1', 'auroc'))
    """
    if isinstance(metrics, str):
        metrics = [text.strip() for text in metrics.split(",")]
    is_one = not isinstance(metrics, Iterable)
    texts = [_name_metric(metric) for metric in ([metrics] if is_one else metrics)]
    names = [split_metric(text)[0] for text in texts]
    for text, name in zip(texts, names, strict=True):
        require(
            names.count(name) == 1,
            f"metrics: expected different names, got {name} {names.count(name)} times. Remove one "
            "or give it another name: thalweg.NamedMetric(NAME, FUNCTION), NAME=FILE.py:FUNCTION.",
        )
        require(
            text in NAMED_METRICS or name not in METRICS,
            f"metrics={text}: {name} is the name of a built-in metric; expected another name. "
            "Rename the function, or use thalweg.NamedMetric(NAME, FUNCTION) or "
            "NAME=FILE.py:FUNCTION.",
        )
    return tuple(texts)


def _name_metric(metric: Any) -> str:
    if isinstance(metric, str):
        if ":" not in metric and metric not in NAMED_METRICS:
            raise UnknownName("metric", metric, [*NAMED_METRICS, "FILE.py:FUNCTION"])
        path = split_metric(metric)[1]
        require(
            path.count(":") <= 1 or not path.partition(":")[0].endswith(".py"),
            f"metrics={metric}: expected {', '.join(FLAGS[:-1])} or {FLAGS[-1]} after the "
            f"function, got {path.rpartition(':')[2]!r}. Example: mine.py:bias:lower.",
        )
        return metric
    if isinstance(metric, NamedMetric):
        require(
            metric.name.isidentifier(),
            f"metrics: expected a name of letters, digits and _, got {metric.name!r}.",
        )
        _FUNCTIONS[metric.to_text()] = metric.function
        return metric.to_text()
    require(
        callable(metric),
        f"metrics: expected a name, a function f(y_true, y_pred) or a NamedMetric, got {metric!r}.",
    )
    _FUNCTIONS[get_function_path(metric)] = metric
    return get_function_path(metric)


def split_metric(text: str) -> tuple[str, str, set[str]]:
    """Return the name, the path of the function and the flags of a metric in a plan.

    >>> split_metric("gain=mine.py:f:higher")
    ('gain', 'mine.py:f', {'higher'})
    >>> split_metric("mine.py:f"), split_metric("f1")
    (('f', 'mine.py:f', set()), ('f1', 'f1', set()))
    """
    name, equals, path = text.partition("=")
    if not (equals and name.isidentifier()):
        name, path = "", text
    parts, flags = path.split(":"), set()
    while len(parts) > 2 and parts[-1] in FLAGS:
        flags.add(parts.pop())
    return name or parts[-1], ":".join(parts), flags


def get_metric_declaration(text: str) -> Metric:
    """Return the declaration of a metric in a plan: its name, direction and where it is shown.

    >>> get_metric_declaration("gain=mine.py:f:higher").better
    'higher'
    """
    if text in METRICS:
        return METRICS[text]
    name, path, flags = split_metric(text)
    return Metric(
        name,
        f"{path} on the test set",
        better="higher" if "higher" in flags else "lower" if "lower" in flags else "",
        applies="user-defined",
        heading=name,
        title=f"{name} on the test set",
        places=("run", "table", "figure"),
        note=f"{path} on the test set",
    )


def get_named_metric(text: str, task: str, data_name: str) -> NamedMetric:
    """Return a metric by its name or path; `ConfigError` if it does not fit the task."""
    if text not in NAMED_METRICS:
        name, path, flags = split_metric(text)
        function = _FUNCTIONS.get(text) or load_function(path, "metrics")
        needs = "probabilities" in flags or bool(getattr(function, "needs_probabilities", False))
        require(
            task == "classification" or not needs,
            f"metrics={text} needs class probabilities, but the task of {data_name} is {task}. "
            "Use a function of targets and predicted numbers.",
        )
        return NamedMetric(name, function, None, needs)
    metric = NAMED_METRICS[text]
    suitable = [each.name for each in NAMED_METRICS.values() if each.task == task]
    require(
        metric.task == task,
        f"metrics={text} is for {metric.task}, but the task of {data_name} is {task}. Use "
        f"{', '.join(suitable)} or a function (FILE.py:FUNCTION).",
    )
    return metric
