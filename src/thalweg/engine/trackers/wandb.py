"""Track a run with Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thalweg.core.config import to_dict
from thalweg.engine.plan import AnyPlan
from thalweg.engine.trackers.base import get_numbers, import_library

if TYPE_CHECKING:
    from thalweg.engine.baseline import BaselineResult
    from thalweg.engine.result import Result


class WandbTracker:
    """Starts a run in the project of WANDB_PROJECT, by default thalweg.

    WANDB_MODE=offline stores it on this machine only.
    """

    def __init__(self, folder: Path | None) -> None:
        self._wandb: Any = import_library("wandb", "wandb")
        self._run: Any = None

    def start(self, plan: AnyPlan) -> None:
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "thalweg"),
            name=plan.title,
            config=to_dict(plan),
            reinit="create_new",  # a run of the user in this process stays active
        )

    def log(self, row: Mapping[str, Any]) -> None:
        self._run.log(get_numbers(row), step=row["round"])

    def finish(self, result: Result | BaselineResult | None) -> None:
        self._run.finish(exit_code=1 if result is None else 0)
