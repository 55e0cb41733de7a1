"""Live data: sources from which a device reads its samples."""

from thalweg.network.sources.base import (
    PENDING_LABEL,
    Event,
    LateLabels,
    LiveBatch,
    SampleFormat,
    Source,
    Targets,
    empty_batch,
    find_pending,
)
from thalweg.network.sources.factory import open_source

__all__ = [
    "PENDING_LABEL",
    "Event",
    "LateLabels",
    "LiveBatch",
    "SampleFormat",
    "Source",
    "Targets",
    "empty_batch",
    "find_pending",
    "open_source",
]
