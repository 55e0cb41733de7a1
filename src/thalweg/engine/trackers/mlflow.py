"""Track a run with MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thalweg.engine.plan import AnyPlan, flatten_plan
from thalweg.engine.trackers.base import get_numbers, import_library

if TYPE_CHECKING:
    from thalweg.engine.baseline import BaselineResult
    from thalweg.engine.result import Result

MAX_PARAMS = 100  # that MLflow accepts at once


class MlflowTracker:
    """Starts a run in the current experiment; inside another run, a nested one.

    MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME choose server and experiment.
    """

    def __init__(self, folder: Path | None) -> None:
        self._mlflow: Any = import_library("mlflow", "mlflow")

    def start(self, plan: AnyPlan) -> None:
        is_nested = self._mlflow.active_run() is not None
        self._mlflow.start_run(run_name=plan.title, nested=is_nested)
        settings = list(flatten_plan(plan).items())
        for start in range(0, len(settings), MAX_PARAMS):
            self._mlflow.log_params(dict(settings[start : start + MAX_PARAMS]))

    def log(self, row: Mapping[str, Any]) -> None:
        self._mlflow.log_metrics(get_numbers(row), step=row["round"])

    def finish(self, result: Result | BaselineResult | None) -> None:
        self._mlflow.end_run(status="FAILED" if result is None else "FINISHED")
