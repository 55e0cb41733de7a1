"""Track a run with TensorBoard."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thalweg.engine.plan import AnyPlan, plan_to_toml
from thalweg.engine.trackers.base import get_numbers, import_library

if TYPE_CHECKING:
    from thalweg.engine.baseline import BaselineResult
    from thalweg.engine.result import Result


class TensorBoardTracker:
    """Writes event files to ``tensorboard/`` in the run folder, or in the current folder.

    A resumed run continues its curves.
    """

    def __init__(self, folder: Path | None) -> None:
        import_library("tensorboard", "tensorboard")
        self._folder = folder
        self._plan: AnyPlan | None = None
        self._writer: Any = None

    def start(self, plan: AnyPlan) -> None:
        self._plan = plan

    def log(self, row: Mapping[str, Any]) -> None:
        if self._writer is None:
            self._writer = self._make_writer(row["round"])
        for name, value in get_numbers(row).items():
            self._writer.add_scalar(name, value, row["round"])
        self._writer.flush()

    def finish(self, result: Result | BaselineResult | None) -> None:
        if self._writer is not None:
            self._writer.close()

    def _make_writer(self, rnd: int) -> Any:
        assert self._plan is not None
        title = self._plan.title.replace(",", "").replace(" ", "-").replace("/", "-")
        folder = (
            Path("tensorboard") / title if self._folder is None else self._folder / "tensorboard"
        )
        module = importlib.import_module("torch.utils.tensorboard")
        # Values of an interrupted run from this round on are not shown.
        writer = module.SummaryWriter(str(folder), purge_step=rnd)
        indented = "\n".join(f"    {line}" for line in plan_to_toml(self._plan).splitlines())
        writer.add_text("plan", indented, rnd)  # four spaces: code in Markdown
        return writer
