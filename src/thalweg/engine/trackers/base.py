"""The interface of trackers, and their calls during a run. A failing tracker never stops a run."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from thalweg.core.errors import ConfigError
from thalweg.core.metrics import is_measured

if TYPE_CHECKING:
    from thalweg.engine.baseline import BaselineResult
    from thalweg.engine.loop import Progress, ProgressCallback
    from thalweg.engine.plan import AnyPlan
    from thalweg.engine.result import Result

METHODS = ("start", "log", "finish")


class TrackerWarning(UserWarning):
    """A tracker failed. The run continues without it."""


class Tracker(Protocol):
    """Receives the metrics of a run, to store or to show them elsewhere."""

    def start(self, plan: AnyPlan) -> None:
        """Called once, when the first round is complete.

        A plan that is rejected therefore leaves nothing behind.
        """

    def log(self, row: Mapping[str, Any]) -> None:
        """Called with the metrics of each round; ``row["round"]`` is its number."""

    def finish(self, result: Result | BaselineResult | None) -> None:
        """Called once at the end; None if the run failed or was interrupted."""


class Tracking:
    """Calls trackers during a run. A tracker that fails is reported once and not called again."""

    def __init__(
        self,
        trackers: Sequence[Tracker],
        watch: ProgressCallback | None,
        report: Callable[[str], None],
    ) -> None:
        self.result: Result | BaselineResult | None = None
        self._trackers = list(trackers)
        self._watch = watch
        self._report = report
        self._is_started = False

    @property
    def watch(self) -> ProgressCallback | None:
        """The callback for the run; without trackers, the callback of the user."""
        return self._record if self._trackers else self._watch

    def _record(self, progress: Progress) -> None:
        if not self._is_started:
            self._is_started = True
            self._call("start", lambda: progress.plan)
        self._call("log", lambda: dict(progress.row))  # a copy: a tracker may change it
        if self._watch is not None:
            self._watch(progress)

    def finish(self) -> None:
        if self._is_started:
            self._call("finish", lambda: self.result)

    def _call(self, method: str, make_argument: Callable[[], Any]) -> None:
        for tracker in list(self._trackers):
            try:
                getattr(tracker, method)(make_argument())
            except Exception as error:
                self._trackers.remove(tracker)
                reason = f"{type(error).__name__}: {str(error).rstrip('.')}"
                self._report(
                    f"tracker {type(tracker).__name__} failed in {method}: {reason}. The run "
                    "continues without it; its metrics are in the result and in metrics.jsonl of "
                    "the run folder."
                )


@contextmanager
def track_run(
    trackers: Sequence[Tracker],
    watch: ProgressCallback | None,
    report: Callable[[str], None] | None = None,
) -> Iterator[Tracking]:
    """Yield a `Tracking` whose `watch` is for the run, and which needs the `result` of the run.

    `report` receives the message about a tracker that failed; by default it is a `TrackerWarning`.
    """
    tracking = Tracking(trackers, watch, report or warn_about_tracker)
    try:
        yield tracking
    finally:
        tracking.finish()


def warn_about_tracker(message: str) -> None:
    """Issue a `TrackerWarning`."""
    warnings.warn(message, TrackerWarning, stacklevel=2)


def get_numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a row, without the number of the round.

    >>> get_numbers({"round": 3, "accuracy": 0.5, "loss": float("nan"), "tasks": []})
    {'accuracy': 0.5}
    """
    return {
        name: float(value)
        for name, value in row.items()
        if name != "round" and is_measured(value) and not isinstance(value, bool)
    }


def import_library(tracker: str, module: str) -> ModuleType:
    """Import the library of a tracker; a missing one is an error with the command to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"track={tracker} needs the package {module.partition('.')[0]}, which cannot be "
            f"imported ({error}): pip install 'thalweg[{tracker}]', or leave out track (--track)."
        ) from error
