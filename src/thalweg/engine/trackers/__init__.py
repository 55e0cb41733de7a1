"""Trackers send the metrics of a run to other programs while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.engine.trackers.base import (
    METHODS,
    Tracker,
    TrackerWarning,
    Tracking,
    get_numbers,
    track_run,
)
from thalweg.engine.trackers.mlflow import MlflowTracker
from thalweg.engine.trackers.tensorboard import TensorBoardTracker
from thalweg.engine.trackers.trackio import TrackioTracker
from thalweg.engine.trackers.wandb import WandbTracker

__all__ = [  # noqa: RUF022  from the interface to its implementations
    "Tracker",
    "TrackerWarning",
    "Tracking",
    "TrackLike",
    "track_run",
    "make_trackers",
    "get_numbers",
    "TRACKERS",
    "TensorBoardTracker",
    "MlflowTracker",
    "WandbTracker",
    "TrackioTracker",
]

TRACKERS: dict[str, Callable[[Path | None], Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "mlflow": MlflowTracker,
    "wandb": WandbTracker,
    "trackio": TrackioTracker,
}
TrackLike = str | Tracker | Iterable[str | Tracker] | None


def make_trackers(track: TrackLike, folder: Path | None) -> list[Tracker]:
    """Return the trackers of a run in a folder: names of `TRACKERS`, or objects of the user.

    A missing library and an object without the methods of `Tracker` are rejected.
    """
    if track is None:
        return []
    if isinstance(track, str) or not isinstance(track, Iterable):
        track = [track]
    return [_make_tracker(each, folder) for each in track]


def _make_tracker(tracker: str | Tracker, folder: Path | None) -> Tracker:
    if isinstance(tracker, str):
        if tracker not in TRACKERS:
            raise UnknownName("tracker", tracker, TRACKERS)
        return TRACKERS[tracker](folder)
    missing = [name for name in METHODS if not callable(getattr(tracker, name, None))]
    if missing or isinstance(tracker, type):
        raise ConfigError(
            f"track: expected {', '.join(TRACKERS)}, or an object with the methods "
            f"{', '.join(METHODS)}, got {tracker!r}"
            + (f", which has no {' and no '.join(missing)}. Add them." if missing else "; call it.")
        )
    return tracker
