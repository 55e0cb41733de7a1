"""Track a run with Trackio."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thalweg.core.config import to_dict
from thalweg.engine.plan import AnyPlan
from thalweg.engine.trackers.base import get_numbers, import_library

if TYPE_CHECKING:
    from thalweg.engine.baseline import BaselineResult
    from thalweg.engine.result import Result


class TrackioTracker:
    """Starts a run in the project of TRACKIO_PROJECT, by default thalweg, on this machine.

    TRACKIO_SPACE_ID sends it to a Space of Hugging Face.
    """

    def __init__(self, folder: Path | None) -> None:
        self._trackio: Any = import_library("trackio", "trackio")

    def start(self, plan: AnyPlan) -> None:
        project = os.environ.get("TRACKIO_PROJECT", "thalweg")
        with redirect_stdout(sys.stderr):  # the output of the run may be JSON lines
            self._trackio.init(project=project, name=plan.title, config=to_dict(plan), embed=False)

    def log(self, row: Mapping[str, Any]) -> None:
        self._trackio.log(get_numbers(row), step=row["round"])

    def finish(self, result: Result | BaselineResult | None) -> None:
        with redirect_stdout(sys.stderr):
            self._trackio.finish()
